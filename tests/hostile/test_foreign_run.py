"""A run folder of a stranger: nothing in it names code that is then run."""

import json
import shutil
import sys

import pytest
from small_runs import fit

from umpteen.config.loading import load_config
from umpteen.errors import UmpteenError
from umpteen.model.storage import load_model
from umpteen.predictor import Predictor
from umpteen.registry import TRUST_VARIABLE
from umpteen.run_folder import RunFolder


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A module that leaves a trace when it is imported; returns whether it was."""
    trace = tmp_path / "trace"
    code = f"""
from pathlib import Path
from umpteen.model.frugal.bag import BagEncoder as Encoder
from umpteen.index.exact import ExactIndex as Index
from umpteen.objectives.softmax import Softmax as Loss
from umpteen.metrics.precision import Precision as Metric
Path({str(trace)!r}).touch()
"""
    (tmp_path / "planted_code.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv(TRUST_VARIABLE, raising=False)
    yield trace.exists
    sys.modules.pop("planted_code", None)


def change(file, function):
    values = json.loads(file.read_text())
    function(values)
    file.write_text(json.dumps(values))


def model_json(run):
    return RunFolder(run).model() / "model.json"


def name_encoder(run):
    change(model_json(run), lambda about: about["encoder"].update(kind="planted_code:Encoder"))


def name_inner_encoder(run):
    def chunked(about):
        inner = about["encoder"]
        options = {"inner": "planted_code:Encoder", "options": inner["options"], "max_tokens": 8}
        about["encoder"] = {"kind": "chunked", "options": {**options, "before": 0, "behind": 0}}

    change(model_json(run), chunked)


def name_index(run):
    folder = RunFolder(run)
    for head in ("dual", "classifier"):
        place = folder.index / head
        place.mkdir(parents=True)
        about = {"kind": "planted_code:Index", "model": folder.model().name}
        (place / "about.json").write_text(json.dumps(about))
        predictor = Predictor.load(folder.path, device="cpu", with_indexes=False)
        from umpteen.index.exact import ExactIndex

        ExactIndex.build(predictor.label_vectors.numpy(head)).save(place / "index")


NAMES = [name_encoder, name_inner_encoder, name_index]


@pytest.mark.parametrize("name", NAMES)
def test_loading_a_run_imports_no_code_that_it_names(run, planted, name):
    name(run)
    with pytest.raises(UmpteenError, match=r"planted_code:\w+.*cannot name code.*--trust-code"):
        Predictor.load(run, device="cpu")
    assert not planted()


@pytest.mark.parametrize("name", NAMES)
def test_code_of_a_trusted_run_is_imported(run, planted, name, monkeypatch):
    name(run)
    monkeypatch.setenv(TRUST_VARIABLE, "1")
    assert len(Predictor.load(run, device="cpu").predict("old river mirror", 3).ids[0]) == 3
    assert planted()


@pytest.mark.parametrize("kind", ["no_such_kind", 7, None, ["bag"], {"bag": 1}])
def test_a_kind_that_is_no_name_is_a_sentence(run, kind):
    change(model_json(run), lambda about: about["encoder"].update(kind=kind))
    with pytest.raises(UmpteenError, match="unknown encoder"):
        load_model(RunFolder(run).model())


SETTINGS_WITH_CODE = [
    ("loss", "dual", "planted_code:Loss"),
    ("loss", "classifier", "planted_code:Loss"),
    ("loss", "reduction", "planted_code:Loss"),
    ("validation", "select", "planted_code:Metric@5"),
]


@pytest.mark.parametrize(("section", "key", "value"), SETTINGS_WITH_CODE)
def test_continuing_a_run_imports_no_code_of_its_settings(
    run, tiny_data, planted, section, key, value
):
    change(run / "config.json", lambda c: c["config"][section].update({key: value}))
    with pytest.raises(UmpteenError, match=f"{section}.{key} is '{value}'.*cannot name code"):
        fit(tiny_data, run, resume=True)
    with pytest.raises(UmpteenError, match="cannot name code"):
        load_config(str(run / "config.json"))
    assert not planted()


def test_settings_of_a_second_stage_are_read_alike(run, tiny_data, planted):
    change(
        run / "config.json",
        lambda c: c["config"].update(stage2={"loss": {"dual": "planted_code:Loss"}}),
    )
    with pytest.raises(UmpteenError, match=r"stage2.loss.dual is .*cannot name code"):
        fit(tiny_data, run, resume=True)
    assert not planted()


def test_fitting_the_ensemble_imports_no_code_of_the_settings(run, tiny_data_folder, planted):
    from click.testing import CliRunner

    from umpteen.cli import main

    change(run / "config.json", lambda c: c["config"]["loss"].update(dual="planted_code:Loss"))
    done = CliRunner().invoke(main, ["fit-ensemble", str(run), str(tiny_data_folder)])
    assert done.exit_code == 1
    assert "cannot name code" in done.stderr
    assert not planted()


def test_a_run_trained_with_code_of_the_user_predicts_without_it(tiny_data, tmp_path, planted):
    fit(tiny_data, tmp_path / "own", "loss.dual=planted_code:Loss", "train.epochs=1")
    assert planted()
    assert len(Predictor.load(tmp_path / "own", device="cpu").predict("old river", 3).ids[0]) == 3


def test_the_command_takes_the_trust_as_an_option(run, planted, monkeypatch):
    from click.testing import CliRunner

    from umpteen.cli import main

    monkeypatch.setenv(TRUST_VARIABLE, "")
    name_encoder(run)
    refused = CliRunner().invoke(main, ["predict", str(run), "-"], input="old river\n")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert not planted()
    done = CliRunner().invoke(main, ["--trust-code", "predict", str(run), "-"], input="river\n")
    assert done.exit_code == 0, done.stderr
    assert planted()
