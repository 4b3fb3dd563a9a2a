"""Encoders of sentence-transformers: our vectors equal those of the library itself."""

import json
import shutil

import numpy as np
import pytest
import torch

from umpteen.config.loading import load_config
from umpteen.config.schema import EncoderConfig
from umpteen.data.tokens import encode
from umpteen.errors import ConfigError
from umpteen.model.sentence_folder import read_sentence_folder
from umpteen.model.storage import TextConfig, load_model, save_model
from umpteen.training.factories import build_encoder, build_model
from umpteen.training.resolve import resolve_open_settings

TEXTS = ["a red apple", "old", "tiny window near the river and a big round mirror", "x" * 7, "Red"]
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48,
    "max_position_embeddings": 64,
}  # fmt: skip


def library():
    return pytest.importorskip("sentence_transformers")


def make_folder(tiny_bert, folder, *, pooling="mean", kind=None, layers=(), **options):
    """Save a sentence-transformers folder around a tiny network with random weights."""
    import transformers
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    network = folder.with_name("network")
    shutil.copytree(tiny_bert, network)
    if kind is not None:
        words = len(json.loads((tiny_bert / "tokenizer.json").read_text())["model"]["vocab"])
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=words, pad_token_id=0, **options.pop("config", SMALL)
        )
        torch.manual_seed(4)
        made = getattr(transformers, f"{kind}Model")(config)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.1)
        for file in ("config.json", "model.safetensors"):
            (network / file).unlink()
        made.save_pretrained(network)
    modules = [Transformer(str(network), max_seq_length=24), Pooling(32, pooling), *layers]
    model = library().SentenceTransformer(modules=modules, **options)
    model.save(str(folder))
    return model


def ours(folder, **settings):
    config = EncoderConfig(name=str(folder), **settings)
    encoder, tokenizer = build_encoder(config, [], generator=torch.Generator())
    with torch.no_grad():
        return encoder.eval()(encode(TEXTS, tokenizer, max_tokens=24)).numpy()


@pytest.mark.parametrize(
    ("mode", "name"), [("mean", "mean"), ("cls", "first"), ("lasttoken", "last")]
)
def test_the_pooling_of_the_folder_is_used(mode, name, tiny_bert, tmp_path):
    library()
    model = make_folder(tiny_bert, tmp_path / "st", pooling=mode)
    assert read_sentence_folder(str(tmp_path / "st")).pooling == name
    np.testing.assert_allclose(ours(tmp_path / "st"), model.encode(TEXTS), atol=1e-5)
    forced = "mean" if name != "mean" else "first"
    assert np.abs(ours(tmp_path / "st", pooling=forced) - model.encode(TEXTS)).max() > 1e-3


def test_dense_layers_normalization_and_prompt_are_used(tiny_bert, tmp_path):
    library()
    from sentence_transformers.base.modules import Dense, Normalize

    layers = [Dense(32, 20, activation_function=torch.nn.GELU()), Dense(20, 12, bias=False)]
    model = make_folder(
        tiny_bert, tmp_path / "st", pooling="cls", layers=[*layers, Normalize()],
        prompts={"query": "tiny red ", "document": "old "},
    )  # fmt: skip
    found = ours(tmp_path / "st")
    assert found.shape == (len(TEXTS), 12)
    np.testing.assert_allclose(found, model.encode(TEXTS, prompt_name="query"), atol=1e-5)
    np.testing.assert_allclose(
        ours(tmp_path / "st", prompt="old "), model.encode(TEXTS, prompt_name="document"), atol=1e-5
    )
    assert np.abs(ours(tmp_path / "st", prompt="") - found).max() > 1e-4


@pytest.mark.parametrize(
    ("kind", "config", "pooling"),
    [
        ("Qwen3", {"num_key_value_heads": 1, "head_dim": 16}, "lasttoken"),
        ("Llama", {"num_key_value_heads": 2}, "mean"),
        ("ModernBert", {"local_attention": 8, "global_attn_every_n_layers": 2}, "cls"),
        ("DebertaV2", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, "mean"),
        ("XLMRoberta", {}, "cls"),
    ],
)
def test_networks_of_other_families_equal_the_library(kind, config, pooling, tiny_bert, tmp_path):
    library()
    model = make_folder(
        tiny_bert, tmp_path / "st", kind=kind, pooling=pooling, config={**SMALL, **config}
    )
    np.testing.assert_allclose(ours(tmp_path / "st"), model.encode(TEXTS), atol=2e-5)


def test_a_decoder_without_settings_is_pooled_at_its_last_token(tiny_bert, tmp_path):
    library()
    config = {**SMALL, "num_key_value_heads": 1, "head_dim": 16}
    make_folder(tiny_bert, tmp_path / "st", kind="Qwen3", pooling="lasttoken", config=config)
    wanted = ours(tmp_path / "st")
    np.testing.assert_allclose(ours(tmp_path / "network"), wanted, atol=1e-6)
    assert read_sentence_folder(str(tmp_path / "network")) is None


def test_open_settings_are_those_of_the_folder(tiny_bert, tmp_path):
    library()
    make_folder(tiny_bert, tmp_path / "st", pooling="cls", prompts={"query": "q: "})
    name = f"encoder.name={tmp_path / 'st'}"
    found = resolve_open_settings(load_config("unidec", [name, "data.max_tokens=32"]))
    assert (found.encoder.pooling, found.encoder.prompt) == ("first", "q: ")
    assert found.data.max_tokens == 24
    own = [name, "encoder.pooling=mean", "encoder.prompt=", "data.max_tokens=16"]
    found = resolve_open_settings(load_config("unidec", own))
    assert (found.encoder.pooling, found.encoder.prompt, found.data.max_tokens) == ("mean", "", 16)


def test_a_model_with_layers_after_pooling_is_saved_and_loaded(tiny_bert, tmp_path):
    library()
    from sentence_transformers.base.modules import Dense, Normalize

    layers = [Dense(32, 12), Normalize()]
    make_folder(tiny_bert, tmp_path / "st", layers=layers, prompts={"query": "old "})
    config = load_config("unidec", [f"encoder.name={tmp_path / 'st'}", "model.dim=8"])
    encoder, tokenizer = build_encoder(config.encoder, [], generator=torch.Generator())
    model = build_model(config, encoder, 3).eval()
    save_model(tmp_path / "model", model, tokenizer, TextConfig("all", 24, "x"))
    again, words, _ = load_model(tmp_path / "model")
    tokens = encode(TEXTS, words, max_tokens=24)
    assert tokens.ids.tolist() == encode(TEXTS, tokenizer, max_tokens=24).ids.tolist()
    with torch.no_grad():
        torch.testing.assert_close(again.query_vectors(tokens), model.query_vectors(tokens))


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "max"}, "pools by max; umpteen pools by mean"),
        ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pools by cls and mean"),
        ("2_Dense/config.json", {"activation_function": "a.b.Odd"}, "a dense layer with 'odd'"),
        ("2_Dense/config.json", {"use_residual": True}, "with a residual connection"),
    ],
)
def test_what_umpteen_does_not_have_is_refused(file, change, says, tiny_bert, tmp_path):
    library()
    from sentence_transformers.base.modules import Dense

    make_folder(tiny_bert, tmp_path / "st", layers=[Dense(32, 12)])
    about = json.loads((tmp_path / "st" / file).read_text())
    (tmp_path / "st" / file).write_text(json.dumps(about | change))
    with pytest.raises(ConfigError, match=says):
        read_sentence_folder(str(tmp_path / "st"))


def test_a_prompt_that_is_not_pooled_is_refused(tiny_bert, tmp_path):
    model = make_folder(tiny_bert, tmp_path / "st", prompts={"query": "red "})
    model[1].include_prompt = False
    model.save(str(tmp_path / "without"))
    with pytest.raises(ConfigError, match="leaves the tokens of its prompt out of the pooling"):
        ours(tmp_path / "without")
    np.testing.assert_allclose(
        ours(tmp_path / "without", prompt=""), model.encode(TEXTS), atol=1e-5
    )


def test_older_folders_say_their_pooling_in_other_words(tmp_path, tiny_bert):
    modules = [
        {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
        {"idx": 2, "path": "2_LSTM", "type": "sentence_transformers.models.LSTM"},
    ]
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "modules.json").write_text(json.dumps(modules[:2]))
    old = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
    (tmp_path / "1_Pooling" / "config.json").write_text(json.dumps(old))
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 77}')
    found = read_sentence_folder(str(tmp_path))
    assert (found.pooling, found.max_tokens) == ("first", 77)
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ConfigError, match="has a module 'LSTM'; umpteen reads Transformer"):
        read_sentence_folder(str(tmp_path))
