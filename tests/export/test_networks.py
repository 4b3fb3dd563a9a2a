"""Exported networks: equal to torch on texts of any length, used by predict and serve."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from small_runs import fit

from umpteen.cli import main
from umpteen.errors import ConfigError, RunError
from umpteen.evaluation import evaluate
from umpteen.export import onnx_model, openvino_model
from umpteen.export.onnx_model import rounding_loss
from umpteen.model.exported_encoder import ExportedEncoder
from umpteen.predictor import Predictor
from umpteen.ranking.trained_examples import digest_texts, read_digests
from umpteen.run_folder import RunFolder

TEXTS = ["red", "", "old river", "tiny red apple near the window", "mirror " * 70, "red", "Ünï 7!?"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tiny_data, tiny_bert, tmp_path_factory):
    """A run of a transformer with both networks in it; each layer takes a second to export."""
    from transformers import AutoModel

    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    folder = tmp_path_factory.mktemp("exported")
    run, encoder = folder / "run", shutil.copytree(tiny_bert, folder / "encoder")
    AutoModel.from_pretrained(tiny_bert, num_hidden_layers=1).save_pretrained(encoder)
    fit(tiny_data, run, f"encoder.name={encoder}", "train.epochs=2", "ensemble.enabled=auto",
        "ensemble.min_queries=5", "validation.share=0.4")  # fmt: skip
    predictor = Predictor.load(run, device="cpu")
    onnx_model.export(predictor, str(run / "backends" / "onnx"))
    return run


def test_onnx_equals_torch_on_any_texts(exported):
    wanted = Predictor.load(exported, device="cpu")
    found = Predictor.load(exported, backend="onnx")
    assert isinstance(found.encoder, ExportedEncoder)
    np.testing.assert_allclose(found.vectors(TEXTS), wanted.vectors(TEXTS), atol=1e-5)
    for text in TEXTS:
        np.testing.assert_allclose(found.vectors([text]), wanted.vectors([text]), atol=1e-5)
    a, b = found.predict(TEXTS, 5), wanted.predict(TEXTS, 5)
    assert a.ids == b.ids
    np.testing.assert_allclose(a.scores, b.scores, atol=1e-4)


def test_openvino_equals_torch(exported):
    pytest.importorskip("openvino")
    wanted = Predictor.load(exported, device="cpu")
    openvino_model.export(wanted, str(exported / "backends" / "openvino"))
    found = Predictor.load(exported, backend="openvino")
    np.testing.assert_allclose(found.vectors(TEXTS), wanted.vectors(TEXTS), atol=1e-4)
    np.testing.assert_allclose(found.vectors(TEXTS[:1]), wanted.vectors(TEXTS[:1]), atol=1e-4)


def test_the_commands_take_a_backend(exported, tmp_path):
    words = ["predict", str(exported), "-", "-k", "2"]
    plain = CliRunner().invoke(main, words, input="red apple\nold river\n")
    found = CliRunner().invoke(main, [*words, "--backend", "onnx"], input="red apple\nold river\n")
    assert found.exit_code == 0, found.stderr
    ids = [
        [label["id"] for label in json.loads(line)["labels"]]
        for line in found.stdout.split("\n")[:2]
    ]
    assert ids == [
        [label["id"] for label in json.loads(line)["labels"]]
        for line in plain.stdout.split("\n")[:2]
    ]


def test_int8_is_written_only_where_validation_loses_little(
    exported, tiny_data, tmp_path, monkeypatch
):
    predictor = Predictor.load(exported, device="cpu")
    with pytest.raises(ConfigError, match="int8 is measured before it is written"):
        onnx_model.export(predictor, str(tmp_path / "a"), precision="int8")
    monkeypatch.setattr(onnx_model, "MAX_LOSS", 100.0)
    said = onnx_model.export(predictor, str(tmp_path / "int8"), precision="int8", data=tiny_data)
    assert "int8" in said
    loss = rounding_loss(predictor, tmp_path / "int8", "onnx", tiny_data)
    assert f"{loss:.2f} points lost" in said
    rounded = ExportedEncoder(predictor.encoder, tmp_path / "int8", "onnx").vectors(TEXTS)
    difference = np.abs(rounded - predictor.vectors(TEXTS)).max()
    assert 1e-5 < difference < 0.2
    monkeypatch.setattr(onnx_model, "MAX_LOSS", loss - 0.01)
    with pytest.raises(ConfigError, match="int8 loses .* points of P@1 or P@5 on validation"):
        onnx_model.export(predictor, str(tmp_path / "b"), precision="int8", data=tiny_data)
    assert not (tmp_path / "b").exists()


def test_int8_is_measured_on_the_texts_that_the_run_held_out(
    exported, tiny_data, tmp_path, monkeypatch
):
    measured, held = [], set(read_digests(RunFolder(exported).held_out).tolist())

    def seen(predictor, data, **options):
        measured.append(set(digest_texts(data["validation"].texts()).tolist()))
        return evaluate(predictor, data, **options)

    monkeypatch.setattr(onnx_model, "evaluate", seen)
    train = tiny_data["train"]
    order = np.random.default_rng(0).permutation(len(train))  # another draw of the same size
    data = dataclasses.replace(tiny_data, splits={"train": train.select(order)})
    predictor = Predictor.load(exported, device="cpu")
    rounding_loss(predictor, exported / "backends" / "onnx", "onnx", data)
    assert measured == [held, held]
    RunFolder(exported).held_out.rename(tmp_path / "held_out.npy")
    try:
        rounding_loss(predictor, exported / "backends" / "onnx", "onnx", data)
    finally:
        (tmp_path / "held_out.npy").rename(RunFolder(exported).held_out)
    assert 0 < len(measured[-1]) < len(train)


def test_a_network_of_another_model_is_refused(exported, tiny_run, tmp_path):
    from umpteen.model.exported_encoder import ABOUT

    folder = exported / "backends" / "onnx"
    about = json.loads((folder / ABOUT).read_text())
    (folder / ABOUT).write_text(json.dumps(about | {"model": "other"}))
    try:
        with pytest.raises(RunError, match="was exported from another model"):
            Predictor.load(exported, backend="onnx")
    finally:
        (folder / ABOUT).write_text(json.dumps(about))
    copied = shutil.copytree(exported, tmp_path / "run", ignore=shutil.ignore_patterns("backends"))
    with pytest.raises(RunError, match=r"make it with: umpteen export .* --to openvino"):
        Predictor.load(copied, backend="openvino")
    with pytest.raises(ConfigError, match="of the kind 'bag', which runs in torch alone"):
        Predictor.load(tiny_run, backend="onnx")
    with pytest.raises(ConfigError, match="backend 'tensorrt' is not known"):
        Predictor.load(tiny_run, backend="tensorrt")


def test_a_bag_is_no_network(tiny_run, tmp_path):
    pytest.importorskip("onnxscript")
    result = CliRunner().invoke(
        main, ["export", str(tiny_run), str(tmp_path / "x"), "--to", "onnx"]
    )
    assert result.exit_code == 1
    assert "the encoder is of the kind 'bag'" in result.stderr
    wrong = ["export", str(tiny_run), str(tmp_path / "x"), "--to", "openvino", "--head", "dual"]
    assert "--head is no option of --to openvino" in CliRunner().invoke(main, wrong).stderr
