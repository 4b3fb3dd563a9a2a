"""``umpteen.train`` from Python: temporary runs, settings, progress and logging."""

import gc
import logging
import sys
import types

import numpy as np
import pandas as pd
import pytest
from small_runs import SETTINGS

import umpteen
from umpteen.errors import ConfigError, RunError
from umpteen.training.api import as_overrides
from umpteen.training.progress import Bar, LogLines, Notebook, progress_reporters

SMALL = {key: value for key, _, value in (line.partition("=") for line in SETTINGS)}
QUICK = SMALL | {"train.epochs": 1, "ensemble.enabled": "off"}


@pytest.fixture(scope="module")
def frame(tiny_data):
    split = tiny_data["train"]
    cells = [";".join(tiny_data.labels.ids[row] for row in line.indices) for line in split.targets]
    return pd.DataFrame({"text": split.texts(), "labels": cells})


def test_a_run_without_out_is_removed_with_its_model(frame):
    model = umpteen.train(frame, overrides=QUICK)
    folder = model.folder
    assert (folder / "config.json").is_file()
    assert len(model.predict(frame["text"], 3)) == 60
    del model
    gc.collect()
    assert not folder.exists()


def test_saving_keeps_the_run(frame, tmp_path):
    model = umpteen.train(frame, overrides=QUICK)
    before = model.predict(frame["text"], 5)
    model.save(tmp_path / "kept")
    del model
    gc.collect()
    again = umpteen.Predictor.load(tmp_path / "kept")
    np.testing.assert_array_equal(again.predict(frame["text"], 5).rows, before.rows)


def test_data_of_several_kinds_gives_the_same_model(frame, tiny_data, tmp_path):
    lists = [cell.split(";") for cell in frame["labels"]]
    frame.to_csv(tmp_path / "data.csv", index=False)
    kinds = [(frame,), (frame["text"], lists), (str(tmp_path / "data.csv"),)]
    models = [umpteen.train(*given, overrides=QUICK) for given in kinds]
    tops = [model.predict(frame["text"], 5) for model in models]
    assert tops[0].ids == tops[1].ids == tops[2].ids
    report = umpteen.evaluate(models[0], frame, metrics=["P@1"])
    for given in ((frame["text"], lists), (tmp_path / "data.csv",)):
        assert umpteen.evaluate(models[0], *given, metrics=["P@1"]).as_json() == report.as_json()


def test_settings_are_strings_or_a_mapping():
    assert as_overrides(["train.epochs=3"]) == ["train.epochs=3"]
    given = {"train.epochs": 3, "ensemble.lexical": False, "encoder.name": "bag", "x": [1, 2]}
    assert as_overrides(given) == [
        "train.epochs=3", "ensemble.lexical=false", "encoder.name=bag", "x=[1, 2]",
    ]  # fmt: skip
    assert as_overrides((), encoder="bag") == ["encoder.name=bag"]
    with pytest.raises(ConfigError, match="overrides is one string"):
        as_overrides("train.epochs=3")


def test_a_folder_in_the_way_and_a_missing_one_are_sentences(frame, tmp_path, monkeypatch):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(RunError, match="is not empty"):
        umpteen.train(frame, out=tmp_path / "full", overrides=QUICK)
    with pytest.raises(ConfigError, match="resume needs the run folder"):
        umpteen.train(frame, resume=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="give it as out"):
        umpteen.train(frame, overrides=QUICK)


def test_nothing_is_printed_and_lines_are_logged(frame, capfd, caplog):
    with caplog.at_level(logging.INFO, logger="umpteen"):
        umpteen.train(frame, overrides=QUICK | {"ensemble.enabled": "auto"}, progress=False)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")
    names = {record.name for record in caplog.records}
    assert "umpteen.training" in names
    assert "Settings: " in caplog.text
    assert "Fitting the ensemble" in caplog.text
    assert "Epoch 1: " in caplog.text


def test_progress_is_shown_on_stderr_when_asked_for(frame, capfd, caplog):
    with caplog.at_level(logging.WARNING, logger="umpteen"):
        umpteen.train(frame, overrides=QUICK, progress=True)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "Settings: " in printed.err
    # Where logging shows the lines already, they are not printed again.
    with caplog.at_level(logging.INFO, logger="umpteen"):
        umpteen.train(frame, overrides=QUICK, progress=True)
    assert "Settings: " not in capfd.readouterr().err


def test_progress_is_shown_in_a_terminal_and_a_notebook_by_default(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    assert [type(each) for each in progress_reporters(None)] == [LogLines]
    assert [type(each) for each in progress_reporters(True)] == [LogLines, Bar]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert [type(each) for each in progress_reporters(None)] == [LogLines, Bar]
    assert [type(each) for each in progress_reporters(False)] == [LogLines]
    shown = pretend_notebook(monkeypatch)
    assert [type(each) for each in progress_reporters(None)] == [LogLines, Notebook]
    assert shown == [""]


def test_a_notebook_shows_a_bar_and_the_last_lines(frame, monkeypatch):
    shown = pretend_notebook(monkeypatch)
    umpteen.train(frame, overrides=QUICK)
    assert '<progress value="1.000" max="1">' in shown[-1]
    assert "epoch 1/1 loss" in shown[-1]
    assert "Settings: " in "".join(shown)
    assert max(len(text.splitlines()) for text in shown) <= 12


def pretend_notebook(monkeypatch):
    """Give the process a kernel's display; returns what is shown, in order."""
    shown = []

    class Output:
        update = staticmethod(shown.append)

    def display(html, display_id):
        shown.append(html)
        return Output()

    kernel = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: kernel)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    showing = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", showing)
    return shown
