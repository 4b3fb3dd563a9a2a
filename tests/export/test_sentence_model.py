"""Exported folders give the vectors of the run in sentence-transformers itself."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from small_runs import fit

from umpteen.cli import main
from umpteen.errors import ConfigError, UmpteenError
from umpteen.export.sentence_model import export
from umpteen.model.vectors import head_columns
from umpteen.predictor import Predictor

TEXTS = [
    "red",
    "old river",
    "tiny red apple near the window",
    "mirror " * 70,
    "zzzq 7 !?",
    "Ünï",
]


def reload(folder):
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(folder), device="cpu")


def wanted(predictor, head):
    columns = head_columns(predictor.model, head)
    return predictor.vectors(TEXTS)[:, columns].numpy()


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_a_bag_is_equal_in_sentence_transformers(tiny_run, head, tmp_path):
    predictor = Predictor.load(tiny_run, device="cpu")
    said = export(predictor, str(tmp_path / "out"), head=head)
    model = reload(tmp_path / "out")
    assert said.startswith("WordEmbeddings + WordWeights + Pooling + Dense + Dense + Normalize")
    np.testing.assert_allclose(model.encode(TEXTS), wanted(predictor, head), atol=2e-6)
    np.testing.assert_allclose(model.encode(TEXTS[:1]), wanted(predictor, head)[:1], atol=2e-6)
    types = [each["type"] for each in json.loads((tmp_path / "out" / "modules.json").read_text())]
    assert all(each.startswith("sentence_transformers.") for each in types)


@pytest.fixture(scope="module")
def transformer_run(tiny_data, tiny_bert, tmp_path_factory):
    run = tmp_path_factory.mktemp("transformer") / "run"
    fit(tiny_data, run, f"encoder.name={tiny_bert}", "encoder.pooling=first", "train.epochs=1")
    return run


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_a_transformer_is_equal_in_sentence_transformers(transformer_run, head, tmp_path):
    predictor = Predictor.load(transformer_run, device="cpu")
    export(predictor, str(tmp_path / "out"), head=head)
    model = reload(tmp_path / "out")
    np.testing.assert_allclose(model.encode(TEXTS), wanted(predictor, head), atol=2e-6)


def test_an_exported_folder_can_be_an_encoder_again(transformer_run, tmp_path):
    from umpteen.model.sentence_folder import read_sentence_folder

    export(Predictor.load(transformer_run, device="cpu"), str(tmp_path / "out"))
    found = read_sentence_folder(str(tmp_path / "out"))
    assert found.pooling == "first"
    assert [layer.kind for layer in found.layers] == ["dense", "normalize"]


def test_the_command_writes_a_folder_and_overwrites_none(tiny_run, tmp_path):
    words = ["export", str(tiny_run), str(tmp_path / "out"), "--to", "sentence-transformers"]
    first = CliRunner().invoke(main, words)
    assert first.exit_code == 0, first.stderr
    assert "Wrote" in first.stderr
    again = CliRunner().invoke(main, words)
    assert again.exit_code == 1
    assert "exists already" in again.stderr
    unknown = CliRunner().invoke(main, [*words[:-1], "sentence-transformer"])
    assert "Did you mean 'sentence-transformers'?" in unknown.stderr


def test_what_has_no_stock_module_is_refused(tiny_data, tiny_run, tmp_path):
    fit(tiny_data, tmp_path / "run", "encoder.name=convolution", "train.epochs=1")
    with pytest.raises(ConfigError, match="an encoder of the kind 'convolution' is none of"):
        export(Predictor.load(tmp_path / "run", device="cpu"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    with pytest.raises(ConfigError, match="the head 'combined' cannot be exported"):
        export(Predictor.load(tiny_run, device="cpu"), str(tmp_path / "out"), head="combined")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "x").write_text("")
    with pytest.raises(UmpteenError, match="exists already"):
        export(Predictor.load(tiny_run, device="cpu"), str(tmp_path / "out"))
