"""A store that was damaged, cut, removed or replaced is noticed, served with care, and repaired."""

import contextlib
import shutil
import sqlite3

import numpy as np
import pytest

from umpteen.errors import StoreDamaged
from umpteen.store import DamageKind, NewLabel
from umpteen.store.change_store import FILE_NAME, REVISION_NAME
from umpteen.store.repair import find_damage, repair
from umpteen.store.schema import Header

from .helpers import LABELS, facts, open_store

SIDE_FILES = (f"{FILE_NAME}-wal", f"{FILE_NAME}-shm")


def fill(run):
    """Three added labels, two retirements and four examples; closed, so all is in one file."""
    store = open_store(run)
    store.add_labels([NewLabel(f"x{n}", f"added label {n}") for n in range(3)])
    store.retire_labels(["L1", "x1"])
    store.add_examples([f"example text {n}" for n in range(4)], [["L2"], ["x2", "L3"]] * 2)
    kept = facts(store.state())
    store.close()
    return kept


def copy_of(run, place):
    place.mkdir()
    for file in run.glob("changes*"):
        shutil.copy(file, place)
    return place


def put_back(place, run, *names):
    for name in names or [file.name for file in place.iterdir()]:
        shutil.copy(place / name, run / name)


def refused(run, kind):
    """Strict readers and every writer refuse; the damage is a value."""
    with pytest.raises(StoreDamaged, match=f"umpteen repair {run}") as error:
        open_store(run).state()
    assert error.value.damage.kind == kind
    patient = open_store(run, tolerant=True)
    state = patient.state()
    assert patient.damage == state.damage == error.value.damage
    with pytest.raises(StoreDamaged):
        patient.retire_labels(["L5"])
    return state


def test_a_removed_file_is_noticed(run):
    fill(run)
    running = open_store(run, tolerant=True)
    running.state()
    for name in (FILE_NAME, *SIDE_FILES):
        (run / name).unlink(missing_ok=True)
    refused(run, DamageKind.MISSING)
    assert running.state().retired_ids == ["L1", "x1"]  # a running service goes on as it was
    assert running.damage.kind == DamageKind.MISSING
    with pytest.raises(StoreDamaged):
        running.restore_labels(["L1"])


def test_a_running_reader_notices_that_everything_was_removed(run):
    fill(run)
    running = open_store(run, tolerant=True)
    running.state()
    for file in run.glob("changes*"):
        file.unlink()
    assert running.state().retired_ids == ["L1", "x1"]
    assert running.damage.kind == DamageKind.MISSING


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 8192, b"hello\n", b"SQLite format 3\0" + b"\0" * 99]
)
def test_another_content_is_noticed(run, content):
    fill(run)
    (run / FILE_NAME).write_bytes(content)
    refused(run, DamageKind.UNREADABLE if content else DamageKind.MISSING)


def test_a_file_cut_anywhere_is_noticed(run):
    kept = fill(run)
    content = (run / FILE_NAME).read_bytes()
    for cut in [*range(0, len(content), 512), len(content) - 1]:
        (run / FILE_NAME).write_bytes(content[:cut])
        with pytest.raises(StoreDamaged):
            open_store(run).state()
        with pytest.raises(StoreDamaged):
            open_store(run, tolerant=True).retire_labels(["L5"])
    (run / FILE_NAME).write_bytes(content)
    assert facts(open_store(run).state()) == kept


def test_a_lost_wal_is_noticed(run):
    fill(run)
    writer = open_store(run)
    writer.retire_labels(["L7"])
    copy = copy_of(run, run.parent / "copy")
    writer.close()
    for name in SIDE_FILES:
        (run / name).unlink(missing_ok=True)
    shutil.copy(copy / FILE_NAME, run / FILE_NAME)  # as after a crash, without its WAL
    state = refused(run, DamageKind.ROLLED_BACK)
    assert state.retired_ids == ["L1", "x1"]


@pytest.mark.parametrize("in_place", [True, False])
def test_an_older_copy_is_noticed(run, tmp_path, in_place):
    fill(run)
    old = copy_of(run, tmp_path / "old")
    running = open_store(run, tolerant=True)
    open_store(run).retire_labels(["L8"])
    assert running.state().retired_ids == ["L1", "L8", "x1"]
    if in_place:
        running.close()  # or SQLite would write its WAL into the copy, and nothing would be lost
    else:
        (run / FILE_NAME).unlink()
    for name in SIDE_FILES:
        (run / name).unlink(missing_ok=True)
    put_back(old, run, FILE_NAME)
    assert refused(run, DamageKind.ROLLED_BACK).retired_ids == ["L1", "x1"]
    # A process that has seen the later state keeps to it: the label does not come back.
    assert running.state().retired_ids == ["L1", "L8", "x1"]
    assert running.damage.kind == DamageKind.ROLLED_BACK
    report = repair(run, LABELS)
    assert (report.lost_changes, report.retired, report.labels) == (1, 2, 3)
    assert running.state().retired_ids == ["L1", "x1"]
    assert running.damage is None
    assert running.retire_labels(["L8"]) == 1
    assert running.revision == 6


def test_an_older_copy_with_its_revision_file_is_noticed_by_a_running_reader(run, tmp_path):
    fill(run)
    old = copy_of(run, tmp_path / "old")
    running = open_store(run, tolerant=True)
    open_store(run).retire_labels(["L8"])
    assert "L8" in running.state().retired_ids
    for file in run.glob("changes*"):
        file.unlink()
    put_back(old, run)
    assert "L8" in running.state().retired_ids
    assert running.damage.kind == DamageKind.ROLLED_BACK
    assert open_store(run).state().retired_ids == ["L1", "x1"]  # a restart takes the copy


def test_the_store_of_another_history_is_noticed(run, tmp_path):
    fill(run)
    from .helpers import make_run

    other = make_run(tmp_path / "other")
    store = open_store(other)
    for n in range(9):
        store.retire_labels([f"L{n}"])
    store.close()
    running = open_store(run, tolerant=True)
    before = facts(running.state())
    put_back(other, run, FILE_NAME)
    refused(run, DamageKind.REPLACED)
    assert facts(running.state()) == before
    put_back(other, run, REVISION_NAME)
    assert running.state().revision == 9
    assert running.damage is None


def used_bytes(content):
    """Places of bytes that hold something, a few from each page."""
    rng = np.random.default_rng(5)
    places = np.flatnonzero(np.frombuffer(content, np.uint8))
    pages = [places[places // 4096 == page] for page in range(len(content) // 4096)]
    return sorted(int(p) for page in pages for p in rng.choice(page, min(25, len(page)), False))


def test_a_changed_byte_never_changes_what_is_read_unnoticed(run):
    kept = fill(run)
    content = (run / FILE_NAME).read_bytes()
    noticed = 0
    for place in used_bytes(content):
        damaged = bytearray(content)
        damaged[place] ^= 0x04
        (run / FILE_NAME).write_bytes(bytes(damaged))
        store = open_store(run, tolerant=True)
        state = store.state()
        texts = store.example_texts(state.examples.digests)
        if store.damage is None:
            assert facts(state) == kept, place
            assert all(text in ("", f"example text {n}") for n, text in enumerate(texts)), place
        else:
            noticed += 1
            # Whatever label can still be read by its id is retired if it was.
            present = {i for i in ("L1", "x1") if i in state.labels.rows}
            assert not state.store_id or present <= set(state.retired_ids), place
        store.close()
    assert noticed > 50
    (run / FILE_NAME).write_bytes(content)
    assert facts(open_store(run).state()) == kept
    assert find_damage(run, LABELS) is None


def spoil(run, statement):
    with contextlib.closing(sqlite3.connect(run / FILE_NAME)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize(
    ("statement", "lost"),
    [
        ("UPDATE labels SET text = 'other' WHERE seq = 0", {"lost_labels": 1}),
        ("DELETE FROM labels WHERE seq = 2", {"lost_labels": 1}),
        ("UPDATE retirements SET retired = 0 WHERE row = 1", {}),
        ("DELETE FROM retirements WHERE row = 11", {}),
        ("DELETE FROM retirements", {}),
        (
            "UPDATE examples SET label_rows = x'0400000000000000' WHERE seq = 1",
            {"lost_examples": 1},
        ),
        ("UPDATE examples SET text = 'other' WHERE seq = 1", {"lost_examples": 1}),
        ("DELETE FROM examples WHERE seq = 3", {"lost_examples": 1}),
        ("DELETE FROM store", {}),
        ("UPDATE store SET revision = 99", {}),
    ],
)
def test_what_can_be_read_is_kept(run, statement, lost):
    kept = fill(run)
    running = open_store(run, tolerant=True)
    running.state()
    spoil(run, statement)
    before = facts(running.state())
    report = repair(run, LABELS)
    counts = {"lost_labels": report.lost_labels, "lost_examples": report.lost_examples}
    assert counts == {"lost_labels": 0, "lost_examples": 0, **lost}
    assert report.aside.exists()
    assert repair(run, LABELS) is None
    state = open_store(run).state()
    assert facts(running.state()) == facts(state) != before
    assert running.damage is None
    found = facts(state)
    assert {"L1", "x1"} <= set(found["retired"])
    assert len(found["ids"]) == 13
    assert sum(a != b for a, b in zip(found["ids"], kept["ids"], strict=True)) == report.lost_labels
    for digest, ids in found["examples"].items():
        same = [a == b for a, b in zip(ids, kept["examples"][digest], strict=True)]
        assert same.count(False) <= report.lost_labels
    assert len(found["examples"]) == 4 - report.lost_examples
    assert found["revision"] > kept["revision"]
    assert open_store(run).retire_labels(["L9"]) == 1


@pytest.mark.parametrize("page", range(1, 11))
def test_a_lost_page_loses_no_more_than_its_rows(run, page):
    kept = fill(run)
    content = bytearray((run / FILE_NAME).read_bytes())
    start = (page - 1) * 4096
    assert start < len(content)
    content[start : start + 4096] = b"\0" * 4096
    (run / FILE_NAME).write_bytes(content)
    if find_damage(run, LABELS) is None:  # a page that nothing uses
        assert facts(open_store(run).state()) == kept
        return
    report = repair(run, LABELS)
    state = open_store(run).state()
    assert set(state.retired_ids) >= {"L1"}
    lost = [report.lost_labels, report.lost_examples]
    assert lost in ([0, 0], [3, 0], [0, 4]), page
    assert len(state.added) == 3
    if page == 1:
        assert lost == [0, 0]


def test_repair_of_a_lost_file_starts_again_above_the_old_revision(run):
    fill(run)
    (run / FILE_NAME).unlink()
    report = repair(run, LABELS)
    assert (report.aside, report.lost_changes) == (None, 3)
    store = open_store(run)
    assert store.revision == 4
    assert store.state().retired_ids == []


def test_a_store_written_by_a_newer_version_is_refused(run):
    from umpteen.errors import RunError

    fill(run)
    spoil(run, "PRAGMA user_version = 2")
    with pytest.raises(RunError, match="install a newer one"):
        open_store(run, tolerant=True)


@pytest.mark.parametrize("counts", ["-5, 0, 0", "4000000000000, 2, 4", "3, 2, 4000000000000"])
def test_a_forged_header_is_damage_and_ends(run, counts):
    fill(run)
    values = [int(n) for n in counts.split(",")]
    with contextlib.closing(sqlite3.connect(run / FILE_NAME)) as connection:
        store_id, fingerprint, revision = connection.execute(
            "SELECT id, fingerprint, revision FROM store"
        ).fetchone()
    crc = Header(store_id, fingerprint, revision, *values).crc
    names = ("n_labels", "n_retirements", "n_examples")
    sets = ", ".join(f"{name} = {value}" for name, value in zip(names, values, strict=True))
    spoil(run, f"UPDATE store SET {sets}, crc = {crc}")
    patient = open_store(run, tolerant=True)
    assert patient.state().retired_ids == ["L1", "x1"]
    assert patient.damage is not None


def test_foreign_tables_and_triggers_are_not_a_store(run):
    fill(run)
    spoil(run, "CREATE TRIGGER t AFTER INSERT ON labels BEGIN DELETE FROM retirements; END")
    refused(run, DamageKind.UNREADABLE)


def test_a_damaged_or_lost_revision_file_does_no_harm(run):
    kept = fill(run)
    (run / REVISION_NAME).write_bytes(b"\0" * 128)
    assert facts(open_store(run).state()) == kept
    (run / REVISION_NAME).unlink()
    assert open_store(run).retire_labels(["L4"]) == 1
    (run / FILE_NAME).unlink()
    refused(run, DamageKind.MISSING)  # the revision file was written again
