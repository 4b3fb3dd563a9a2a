import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from umpteen.data.tokens import encode
from umpteen.errors import RunError
from umpteen.model.frugal.bag import BagEncoder
from umpteen.model.frugal.tables import train_tokenizer
from umpteen.model.model import Model
from umpteen.model.pretrained import load_network, load_tokenizer
from umpteen.model.storage import TextConfig, load_model, load_vectors, save_model
from umpteen.model.transformer import TransformerEncoder

READING = TextConfig(text="title", max_tokens=9, label_fingerprint="abc")
TEXTS = ["red apple near", "old river", "tiny"]


def make_model(encoder, heads=("dual", "classifier")):
    torch.manual_seed(0)
    model = Model(
        encoder,
        heads=heads,
        dim=6,
        n_labels=5,
        dropout=0.2,
        label_dropout=0.1,
        dual_temperature=0.07,
        learn_temperatures=True,
        share_temperature=len(heads) == 2,
    )
    if model.label_vectors is not None:
        torch.nn.init.normal_(model.label_vectors)
    return model.eval()


@pytest.fixture(scope="module")
def tokenizer(tiny_data):
    return train_tokenizer(tiny_data["train"].texts(), vocabulary=200)


@pytest.fixture
def folder(tokenizer, tmp_path):
    torch.manual_seed(1)
    model = make_model(BagEncoder(torch.randn(tokenizer.get_vocab_size(), 8), hidden=3))
    vectors = np.random.default_rng(0).normal(size=(5, 12)).astype(np.float32)
    save_model(tmp_path / "model", model, tokenizer, READING, vectors=vectors)
    return tmp_path / "model"


@pytest.mark.parametrize("heads", [("dual", "classifier"), ("dual",), ("classifier",)])
@pytest.mark.parametrize("kind", ["bag", "transformer"])
def test_a_loaded_model_gives_the_same_vectors(kind, heads, tokenizer, tiny_bert, tmp_path):
    if kind == "bag":
        encoder = BagEncoder(torch.randn(tokenizer.get_vocab_size(), 8), hidden=3)
    else:
        encoder = TransformerEncoder(load_network(str(tiny_bert)), pooling="first")
        tokenizer = load_tokenizer(str(tiny_bert))
    model = make_model(encoder, heads)
    save_model(tmp_path / "model", model, tokenizer, READING)
    loaded, its_tokenizer, text_config = load_model(tmp_path / "model")
    assert text_config == READING
    assert not loaded.training
    assert loaded.heads == heads
    tokens = encode(TEXTS, tokenizer, max_tokens=9)
    again = encode(TEXTS, its_tokenizer, max_tokens=9)
    assert np.array_equal(tokens.ids, again.ids)
    with torch.no_grad():
        assert torch.equal(loaded.query_vectors(again), model.query_vectors(tokens))
    before, after = model.state_dict(), loaded.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert loaded.dual_head is None or loaded.dual_head.dropout.p == 0.2
    assert loaded.label_dropout.p == 0.1
    assert loaded.log_scales.requires_grad
    assert loaded.share_temperature == model.share_temperature == (len(heads) == 2)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_loaded_model_normalizes_as_it_did(normalize, tokenizer, tmp_path):
    encoder = BagEncoder(torch.randn(tokenizer.get_vocab_size(), 8), hidden=3)
    model = Model(encoder, heads=("dual",), dim=6, n_labels=5, normalize=normalize).eval()
    save_model(tmp_path / "model", model, tokenizer, READING)
    loaded, _, _ = load_model(tmp_path / "model", mapped=True)
    tokens = encode(TEXTS, tokenizer, max_tokens=9)
    with torch.no_grad():
        found = loaded.query_vectors(tokens)
        assert torch.equal(found, model.query_vectors(tokens))
    assert torch.allclose(found.norm(dim=1), torch.ones(3)) == normalize


def test_a_model_of_before_the_setting_normalizes(folder):
    about = json.loads((folder / "model.json").read_text())
    del about["normalize"]
    (folder / "model.json").write_text(json.dumps(about))
    assert load_model(folder)[0].normalize


def test_saving_again_replaces_the_folder_as_a_whole(folder, tokenizer):
    (folder / "stray").write_text("x")
    model = make_model(BagEncoder(torch.zeros(tokenizer.get_vocab_size(), 8)), ("dual",))
    save_model(folder, model, tokenizer, READING)
    assert not (folder / "stray").exists()
    assert not (folder / "vectors.npy").exists()
    assert load_model(folder)[0].heads == ("dual",)
    assert [p.name for p in folder.parent.iterdir()] == ["model"]


def test_nothing_in_a_model_folder_is_a_pickle(folder):
    for file in folder.rglob("*"):
        if file.is_file():
            assert file.suffix in (".json", ".safetensors", ".npy")
    np.load(folder / "vectors.npy", allow_pickle=False)


def test_vectors_are_read_back_and_their_shape_is_checked(folder):
    model, _, _ = load_model(folder)
    assert load_vectors(folder, model).shape == (5, 12)
    np.save(folder / "vectors.npy", np.zeros((4, 12), np.float32))
    with pytest.raises(RunError, match=r"shape \(4, 12\), expected \(5, 12\)"):
        load_vectors(folder, model)
    (folder / "vectors.npy").write_bytes(b"no")
    with pytest.raises(RunError, match=r"vectors.npy cannot be read"):
        load_vectors(folder, model)


def edit_json(folder, **changes):
    file = folder / "model.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def change_heads(folder, change):
    tensors = load_file(folder / "heads.safetensors")
    change(tensors)
    save_file(tensors, folder / "heads.safetensors")


DAMAGE = {
    "another version": lambda f: edit_json(f, format=99),
    "not an object": lambda f: (f / "model.json").write_text("[1]"),
    "not JSON": lambda f: (f / "model.json").write_text("{"),
    "no model.json": lambda f: (f / "model.json").unlink(),
    "a key gone": lambda f: (f / "model.json").write_text('{"format": 1}'),
    "another label count": lambda f: edit_json(f, n_labels=4),
    "no heads": lambda f: (f / "heads.safetensors").unlink(),
    "heads cut short": lambda f: (f / "heads.safetensors").write_bytes(
        (f / "heads.safetensors").read_bytes()[:-9]
    ),
    "a head missing": lambda f: change_heads(f, lambda t: t.pop("label_vectors")),
    "a head too many": lambda f: change_heads(f, lambda t: t.update(more=torch.zeros(1))),
    "no encoder": lambda f: shutil.rmtree(f / "encoder"),
    "encoder cut short": lambda f: (f / "encoder" / "encoder.safetensors").write_bytes(b"12"),
    "no tokenizer": lambda f: (f / "encoder" / "tokenizer.json").unlink(),
    "tokenizer damaged": lambda f: (f / "encoder" / "tokenizer.json").write_text('{"a": 1}'),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_folder_is_one_error_that_names_it(folder, name):
    DAMAGE[name](folder)
    with pytest.raises(RunError, match="model"):
        load_model(folder)


def test_a_classifier_on_the_dual_head_stays_one(tokenizer, tmp_path):
    encoder = BagEncoder(torch.randn(tokenizer.get_vocab_size(), 8), hidden=3)
    model = Model(
        encoder, heads=("dual", "classifier"), dim=6, n_labels=5, classifier_head="dual"
    ).eval()
    save_model(tmp_path / "model", model, tokenizer, READING)
    loaded, _, _ = load_model(tmp_path / "model")
    assert loaded.shares_head
    with torch.no_grad():
        vectors = loaded.query_vectors(encode(TEXTS, tokenizer, max_tokens=9))
    torch.testing.assert_close(vectors[:, :6], vectors[:, 6:])
    # A folder from before there was a choice has a head of its own.
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    del about["classifier_head"]
    (tmp_path / "model" / "model.json").write_text(json.dumps(about))
    with pytest.raises(RunError, match="missing .*classifier_head.linear"):
        load_model(tmp_path / "model")


@pytest.mark.parametrize("dual_only", [False, True])
def test_mapped_label_vectors_are_those_of_the_file(tiny_data, tmp_path, dual_only):
    from small_runs import fit

    from umpteen.model.storage import load_model
    from umpteen.run_folder import RunFolder

    changes = ("model.heads=['dual']",) if dual_only else ()
    fit(tiny_data, tmp_path / "run", "train.epochs=1", *changes)
    folder = RunFolder(tmp_path / "run").model("best")
    (whole, _, _), (lazy, _, _) = load_model(folder), load_model(folder, mapped=True)
    assert lazy.n_labels == whole.n_labels == 40
    theirs = lazy.state_dict()
    assert set(theirs) == set(whole.state_dict())
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, theirs[name]), name
