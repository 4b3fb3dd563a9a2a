"""Tables of model2vec and of StaticEmbedding as token vectors of a frugal encoder."""

import json

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from umpteen.config.loading import load_config
from umpteen.config.schema import EncoderConfig
from umpteen.data.tokens import encode
from umpteen.errors import ConfigError
from umpteen.model.frugal.token_vectors import has_token_vectors, load_token_vectors
from umpteen.training.factories import build_encoder
from umpteen.training.resolve import resolve_open_settings

TEXTS = ["red apple", "old river tiny window", "mirror"]


@pytest.fixture
def words(tiny_bert):
    return Tokenizer.from_file(str(tiny_bert / "tokenizer.json"))


@pytest.fixture
def model2vec_folder(words, tmp_path):
    """A folder that model2vec itself has written, and the model."""
    model2vec = pytest.importorskip("model2vec")
    vectors = np.random.default_rng(0).normal(size=(words.get_vocab_size(), 16)).astype(np.float32)
    model = model2vec.StaticModel(vectors, words, config={"normalize": False})
    model.save_pretrained(str(tmp_path / "m2v"))
    return tmp_path / "m2v", model


def test_vectors_of_texts_equal_those_of_model2vec(model2vec_folder):
    folder, model = model2vec_folder
    assert has_token_vectors(str(folder))
    config = EncoderConfig(name="bag", table=str(folder), options={"hidden": 0})
    encoder, tokenizer = build_encoder(config, [], generator=torch.Generator())
    with torch.no_grad():
        found = encoder.eval()(encode(TEXTS, tokenizer, max_tokens=64)).numpy()
    np.testing.assert_allclose(found, model.encode(TEXTS), atol=1e-5)


def test_an_encoder_of_that_name_becomes_a_bag(model2vec_folder):
    folder, _ = model2vec_folder
    found = resolve_open_settings(load_config("unidec", [f"encoder.name={folder}"])).encoder
    assert (found.name, found.table, found.is_frugal) == ("bag", str(folder), True)


def test_weights_mapping_and_rounded_vectors_are_applied(words, tmp_path):
    from safetensors.torch import save_file

    n = words.get_vocab_size()
    table = torch.randint(-127, 127, (5, 4), dtype=torch.int8)
    mapping, weights = torch.randint(0, 5, (n,)), torch.rand(n)
    tensors = {"embeddings": table, "mapping": mapping, "weights": weights}
    save_file(tensors, tmp_path / "model.safetensors")
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text('{"model_type": "model2vec"}')
    _, found = load_token_vectors(str(tmp_path))
    torch.testing.assert_close(found, table.float()[mapping] / 127 * weights[:, None])


def test_a_static_embedding_of_sentence_transformers_is_read(words, tmp_path):
    library = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    model = library.SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=8)])
    model.save(str(tmp_path / "static"))
    _, table = load_token_vectors(str(tmp_path / "static"))
    wanted = model[0].embedding.weight.detach()
    torch.testing.assert_close(table, wanted)


def test_what_is_no_table_is_refused(words, tmp_path, tiny_bert):
    with pytest.raises(ConfigError, match="is no folder or hub name of model2vec token vectors"):
        load_token_vectors(str(tiny_bert))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    with pytest.raises(ConfigError, match="has no model.safetensors or no tokenizer.json"):
        load_token_vectors(str(tmp_path))
    from safetensors.torch import save_file

    words.save(str(tmp_path / "tokenizer.json"))
    save_file({"other": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="no table named embeddings"):
        load_token_vectors(str(tmp_path))
    save_file({"embeddings": torch.zeros(2, 2)}, tmp_path / "model.safetensors")
    with pytest.raises(ConfigError, match="the files do not belong together"):
        load_token_vectors(str(tmp_path))
