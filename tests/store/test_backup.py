"""A backup is a whole run of one moment, taken while it changes, and can be put back."""

import os
import shutil
import threading

import pytest
from hard_disks import no_room
from waiting import until

from umpteen.errors import NotWritten, RunError, StoreDamaged, UmpteenError
from umpteen.run_folder import RunFolder
from umpteen.store import NewLabel
from umpteen.store import backup as backup_module
from umpteen.store.backup import backup
from umpteen.store.change_store import FILE_NAME

from .helpers import LABELS, facts, open_store


def test_a_backup_holds_the_run_and_its_changes(run, tmp_path):
    (run / "models" / "epoch-1").mkdir(parents=True)
    (run / "models" / "epoch-1" / "weights").write_bytes(b"w" * 1000)
    (run / ".labels.jsonl.0123abcd.tmp").write_text("left by a kill")
    assert backup(run, tmp_path / "none", LABELS) == 0
    assert not list((tmp_path / "none").glob("changes*"))
    store = open_store(run)
    store.add_labels([NewLabel("x", "new")])
    store.add_examples(["a"], [["x"]])
    assert backup(run, tmp_path / "out", LABELS) == 2
    copy = tmp_path / "out"
    assert (copy / "models" / "epoch-1" / "weights").read_bytes() == b"w" * 1000
    assert sorted(p.name for p in copy.iterdir()) == [
        "changes.revision", FILE_NAME, "config.json", "labels.columns", "labels.jsonl", "models"
    ]  # fmt: skip
    assert RunFolder(copy).read_labels()[0].fingerprint == LABELS.fingerprint
    other = open_store(copy)
    assert facts(other.state()) == facts(store.state())
    assert other.example_texts(other.state().examples.digests) == ["a"]
    assert other.retire_labels(["x"]) == 1
    assert store.state().retired_ids == []


def test_a_backup_taken_during_changes_is_of_one_moment_and_can_be_restored(run, tmp_path):
    store, stop = open_store(run), threading.Event()

    def write():
        n = 0
        while not stop.is_set():
            store.add_labels([NewLabel(f"{n}-{part}", "t") for part in range(3)])
            store.add_examples([f"{n}-{part}" for part in range(2)], [[f"{n}-0"]] * 2)
            n += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        until(lambda: store.revision >= 4)
        revision = [backup(run, tmp_path / f"copy{n}", LABELS) for n in range(5)]
        until(lambda: store.revision > revision[0])
    finally:
        stop.set()
        thread.join()
    assert revision == sorted(revision)
    for n, expected in enumerate(revision):
        state = open_store(tmp_path / f"copy{n}").state()
        assert state.revision == expected
        assert len(state.added) == 3 * ((expected + 1) // 2)
        assert len(state.examples) == 2 * (expected // 2)
    running = open_store(run, tolerant=True)
    assert running.state().revision > revision[0]
    # Restore it under the running reader.
    run.rename(tmp_path / "broken")
    shutil.copytree(tmp_path / "copy0", run)
    assert running.state().revision == revision[0]
    assert running.damage is None
    assert running.retire_labels(["L1"]) == 1
    assert open_store(run).revision == revision[0] + 1


def test_a_run_that_changes_all_the_time_is_refused(run, tmp_path, monkeypatch):
    real = shutil.copy2

    def copy_and_touch(source, target):
        real(source, target)
        (run / "steps.jsonl").write_text(os.urandom(8).hex())

    monkeypatch.setattr(backup_module.shutil, "copy2", copy_and_touch)
    with pytest.raises(RunError, match="changed during each of 5 attempts"):
        backup(run, tmp_path / "out", LABELS)
    assert not (tmp_path / "out").exists()


def test_mistakes_are_sentences(run, tmp_path):
    with pytest.raises(RunError, match="lies inside the run"):
        backup(run, run / "copy", LABELS)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(UmpteenError, match="exists already"):
        backup(run, tmp_path / "full", LABELS)
    store = open_store(run)
    store.add_examples(["t" * 30_000], [["L1"]])
    with no_room(20_000), pytest.raises(NotWritten):
        backup(run, tmp_path / "out", LABELS)
    assert not (tmp_path / "out").exists()
    store.close()
    (run / FILE_NAME).unlink()
    with pytest.raises(StoreDamaged):
        backup(run, tmp_path / "out", LABELS)
