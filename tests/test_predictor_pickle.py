"""Pickled, deep-copied and dumped predictors; temporary runs and their folders."""

import copy
import gc
import json
import multiprocessing
import pickle
import shutil
from pathlib import Path

import forks
import joblib
import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen.errors import RunError
from umpteen.run_files import TemporaryRun, pack_run, unpack_run

TEXTS = ["about red apple quite", "old river", ""]


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def temporary_model(tiny_run):
    """A model as ``train`` without ``out`` returns it."""
    files = pack_run(tiny_run, umpteen.Predictor.load(tiny_run, device="cpu").labels)
    owner = unpack_run(files)
    model = umpteen.Predictor.load(owner.path, device="cpu")
    model.temporary = owner
    return model


def same(model, other):
    wanted, found = model.predict(TEXTS, 5), other.predict(TEXTS, 5)
    np.testing.assert_array_equal(wanted.rows, found.rows)
    np.testing.assert_array_equal(wanted.scores, found.scores)


@pytest.mark.parametrize("again", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
@pytest.mark.parametrize("temporary", [False, True])
def test_a_copy_predicts_the_same(again, temporary, tiny_run, run):
    model = temporary_model(tiny_run) if temporary else umpteen.Predictor.load(run, device="cpu")
    other = again(model)
    assert other is not model
    assert other.load_options == model.load_options
    same(model, other)
    assert (other.folder == model.folder) is not temporary


def test_a_pickle_holds_the_path_and_no_files(run):
    model = umpteen.Predictor.load(run, device="cpu", with_ensemble=False)
    held = pickle.dumps(model)
    assert len(held) < 2000
    other = pickle.loads(held)
    assert other.heads == model.heads
    other.add_labels({"new": "a new label"})
    assert "new" in model.snapshot().labels.ids  # both follow the same folder


def test_a_model_without_changes_stays_so(run):
    model = umpteen.Predictor.load(run, device="cpu")
    model.add_labels({"new": "a new label"})
    other = pickle.loads(pickle.dumps(model.as_trained()))
    assert "new" not in other.snapshot().labels.ids


def test_a_folder_that_is_gone_or_another_is_a_sentence(run):
    model = umpteen.Predictor.load(run, device="cpu")
    held = pickle.dumps(model)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"more": 1}))
    with pytest.raises(RunError, match="holds another run than when the model was pickled"):
        pickle.loads(held)
    shutil.rmtree(run)
    with pytest.raises(RunError, match="run does not exist here; a pickled model holds the path"):
        pickle.loads(held)
    with pytest.raises(RunError, match="not a run folder any more"):
        pickle.dumps(model)


def test_a_model_without_a_folder_cannot_be_pickled(tiny_run):
    model = umpteen.Predictor.load(tiny_run, device="cpu")
    model.folder = None
    with pytest.raises(RunError, match="can be pickled or copied"):
        pickle.dumps(model)


def test_changes_travel_with_a_temporary_run(tiny_run):
    model = temporary_model(tiny_run)
    model.add_labels({"new": "quince"})
    other = copy.deepcopy(model)
    assert "new" in other.snapshot().labels.ids
    other.add_labels({"newer": "medlar"})
    assert "newer" not in model.snapshot().labels.ids


def mapped_files(folder):
    return {line.split()[-1] for line in Path("/proc/self/maps").open() if str(folder) in line}


def answer_and_maps(model):
    return model.predict(TEXTS, 5).rows.tolist(), len(mapped_files(model.folder))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="needs /proc")
def test_a_worker_maps_the_run_folder(run):
    model = umpteen.Predictor.load(run, device="cpu")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        rows, maps = pool.apply(answer_and_maps, (model,))
    assert rows == model.predict(TEXTS, 5).rows.tolist()
    assert maps >= 1


def print_answer(file):
    """Called in another process."""
    print(joblib.load(file).predict(TEXTS[:1], 3).ids[0])


@pytest.mark.slow
def test_a_temporary_model_is_loaded_by_joblib_in_another_process(tiny_run, tmp_path):
    model = temporary_model(tiny_run)
    wanted = str(model.predict(TEXTS[:1], 3).ids[0])
    joblib.dump(model, tmp_path / "model.joblib")
    folder = model.folder
    del model
    gc.collect()
    assert not folder.exists()
    said = tmp_path / "said.txt"
    done = forks.run(__file__, "print_answer", str(tmp_path / "model.joblib"), file=said)
    assert done == (0, f"{wanted}\n")


def test_the_folder_lives_as_long_as_the_last_model(tiny_run):
    model = temporary_model(tiny_run)
    folder, trained = model.folder, model.as_trained()
    del model
    gc.collect()
    assert folder.exists()
    del trained
    gc.collect()
    assert not folder.exists()
    assert not folder.parent.exists()


def test_saving_keeps_a_temporary_run_and_moves_the_model(tiny_run, tmp_path):
    model = temporary_model(tiny_run)
    before, place = model.predict(TEXTS, 5), model.folder
    model.save(tmp_path / "kept")
    gc.collect()
    assert model.folder == tmp_path / "kept"
    assert model.temporary is None
    assert not place.exists()
    np.testing.assert_array_equal(model.predict(TEXTS, 5).rows, before.rows)
    model.add_labels({"new": "quince"})
    again = umpteen.Predictor.load(tmp_path / "kept", device="cpu")
    assert "new" in again.snapshot().labels.ids


def test_the_folder_is_left_alone_by_another_process(monkeypatch):
    import os

    owner = TemporaryRun()
    folder = owner.parent
    monkeypatch.setattr(os, "getpid", lambda: -1)
    del owner
    gc.collect()
    assert folder.exists()
    folder.rmdir()


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil", "a\\..\\evil", ""])
def test_packed_names_stay_inside_the_folder(name):
    with pytest.raises(RunError, match="outside its folder"):
        unpack_run({name: b""})


def test_packed_files_hold_no_checkpoints(tiny_run, tiny_data, tmp_path):
    fit(tiny_data, tmp_path / "run", "train.epochs=1")
    names = pack_run(tmp_path / "run", tiny_data.labels)
    assert (tmp_path / "run" / "checkpoints").is_dir()
    assert not [name for name in names if name.startswith(("checkpoints", "cache"))]
    assert "config.json" in names


@pytest.mark.parametrize("which", ["best", "last"])
def test_packed_files_hold_one_model(which, tiny_run):
    names = json.loads((tiny_run / "models.json").read_text())
    assert names["best"] != names["last"]
    model = umpteen.Predictor.load(tiny_run, device="cpu", which=which)
    files = pack_run(tiny_run, model.labels, which=which)
    models = {name.rpartition("/")[0] for name in files if name.endswith("model.json")}
    assert models == {names[which]}
    packed = unpack_run(files)
    again = umpteen.Predictor.load(packed.path, device="cpu", which=which)
    wanted = model.predict(TEXTS, 5, head="combined")
    np.testing.assert_array_equal(again.predict(TEXTS, 5, head="combined").rows, wanted.rows)
