"""A restore puts a backup in place of a run in one step; no granted change is lost unseen."""

import threading

import pytest

from umpteen.errors import RunError, StoreDamaged
from umpteen.locks import exclusive_folder
from umpteen.store import NewLabel
from umpteen.store import backup as module
from umpteen.store.backup import backup, restore
from umpteen.store.change_store import FILE_NAME

from .helpers import LABELS, facts, open_store


@pytest.fixture
def saved(run, tmp_path):
    """A backup of a run with one added label."""
    open_store(run).add_labels([NewLabel("x", "new")])
    backup(run, tmp_path / "backup", LABELS)
    return tmp_path / "backup"


@pytest.mark.parametrize("in_one_step", [True, False])
def test_the_run_is_as_it_was_and_what_came_later_is_put_aside(
    run, saved, monkeypatch, in_one_step
):
    if not in_one_step:  # a system without an exchange of names
        monkeypatch.setattr(module.ctypes, "CDLL", lambda *given, **options: object())
    running = open_store(run, tolerant=True)
    before = facts(running.state())
    running.add_labels([NewLabel("y", "later")])
    (run / "extra").touch()
    done = restore(saved, run, LABELS)
    assert done.revision == 1
    assert done.aside == run.with_name("run.before-restore-1")
    assert facts(running.state()) == before
    assert running.damage is None
    assert not (run / "extra").exists()
    assert list(open_store(done.aside).state().added.ids) == ["x", "y"]
    assert running.add_labels([NewLabel("z", "goes on")]) == 1
    assert list(open_store(run).state().added.ids) == ["x", "z"]
    assert list(open_store(saved).state().added.ids) == ["x"]
    again = restore(saved, run, LABELS)
    assert again.aside == run.with_name("run.before-restore-2")
    assert list(running.state().added.ids) == ["x"]
    assert running.damage is None
    assert sorted(p.name for p in run.parent.iterdir() if p.name.startswith(".")) == []


def test_a_backup_becomes_a_new_run(saved, tmp_path):
    assert restore(saved, tmp_path / "new", LABELS).aside is None
    assert list(open_store(tmp_path / "new").state().added.ids) == ["x"]


def test_a_damaged_run_is_restored(run, saved):
    (run / FILE_NAME).write_bytes(b"not a store" * 1000)
    with pytest.raises(StoreDamaged):
        open_store(run).state()
    restore(saved, run, LABELS)
    assert list(open_store(run).state().added.ids) == ["x"]


def test_a_damaged_backup_changes_nothing(run, saved):
    (saved / FILE_NAME).unlink()
    with pytest.raises(StoreDamaged):
        restore(saved, run, LABELS)
    assert list(open_store(run).state().added.ids) == ["x"]
    assert [p.name for p in run.parent.iterdir() if "before" in p.name or "tmp" in p.name] == []


def test_mistakes_are_sentences(run, saved):
    with pytest.raises(RunError, match="lies inside the run"):
        restore(run, run, LABELS)
    with exclusive_folder(run, busy=RunError("busy")), pytest.raises(RunError, match="a training"):
        restore(saved, run, LABELS)
    assert list(open_store(run).state().added.ids) == ["x"]


def test_changes_during_restores_are_granted_to_one_of_the_folders(run, saved):
    """Each granted change is in the folder that was the run then: nowhere else, and not lost."""
    stop, granted, failures = threading.Event(), [], []

    def write(number):
        store, n = open_store(run), 0
        while not stop.is_set():
            label = f"{number}-{n}"
            try:
                granted.append(label) if store.add_labels([NewLabel(label, "t")]) else None
            except Exception as error:
                failures.append(error)
            n += 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        asides = [restore(saved, run, LABELS).aside for _ in range(6)]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    found = [label for place in [*asides, run] for label in open_store(place).state().added.ids]
    assert sorted(label for label in found if label != "x") == sorted(granted)
