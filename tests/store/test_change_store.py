"""Changes of a run: granted whole or refused whole, seen by every reader, never made twice."""

import copy
import os
import pickle
import sqlite3
import subprocess
import sys
import threading

import numpy as np
import pytest
from hard_disks import no_room, not_allowed

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, LabelMismatch, NotWritten
from umpteen.store import ChangeStore, NewLabel, text_digest
from umpteen.store.change_store import FILE_NAME, REVISION_NAME

from .helpers import LABELS, facts, make_run, open_store

pytestmark = pytest.mark.processes


def test_a_run_without_changes_has_no_file(run):
    store = open_store(run)
    before = sorted(run.iterdir())
    assert store.revision == 0
    state = store.state()
    assert state.labels is LABELS
    assert (len(state.retired_rows), len(state.examples), state.allowed) == (0, 0, None)
    assert store.restore_labels(["L1"]) == store.add_labels([]) == 0
    assert store.add_labels([NewLabel("L1", "label 1")]) == 0
    with pytest.raises(DataError):
        store.retire_labels(["nobody"])
    assert sorted(run.iterdir()) == before


def test_a_change_is_seen_by_every_store_of_the_run(run):
    one, two = open_store(run), open_store(run)
    assert one.add_labels([NewLabel("x", "new"), NewLabel("y", "newer", "more")]) == 2
    assert one.add_labels([NewLabel("x", "new")]) == 0
    assert two.state().labels.rows["y"] == 11
    assert two.retire_labels(["x", "L3", "x"]) == 2
    assert one.retire_labels(["x"]) == 0
    assert one.restore_labels(["L3", "y"]) == 1
    assert two.add_examples(["some text", "other\x00text"], [["y", "L1"], ["L1"]]) == 2
    found = facts(one.state())
    assert found == facts(two.state()) == facts(open_store(run).state())
    assert found["revision"] == one.revision == 4
    assert found["retired"] == ["x"]
    assert found["examples"] == {
        text_digest("some text"): ("y", "L1"), text_digest("other\x00text"): ("L1",)
    }  # fmt: skip
    assert one.example_texts(one.state().examples.digests) == ["some text", "other\x00text"]
    np.testing.assert_array_equal(np.flatnonzero(~one.state().allowed), [10])
    assert not one.state().allowed.flags.writeable


def test_a_state_is_the_same_object_until_something_changes(run):
    store, other = open_store(run), open_store(run)
    assert store.state() is store.state()
    other.retire_labels(["L1"])
    state = store.state()
    assert state is store.state() is store.read(state)
    other.retire_labels(["L1"])
    assert state is store.state()


def test_an_earlier_state_stays_as_it_was(run):
    store = open_store(run)
    store.add_labels([NewLabel("x", "new")])
    store.add_examples(["a", "b"], [["x"], ["L1"]])
    before = store.state()
    kept = facts(before)
    store.add_labels([NewLabel("y", "newer", "with content")])
    store.retire_labels(["x", "L2"])
    store.add_examples(["b", "c"], [["y"], ["y"]])
    after = store.state()
    assert facts(before) == kept
    assert before.examples.find("c") is None
    assert before.labels.contents is None
    assert after.examples.find("c") == 2
    assert after.example_label_ids(1) == ["y"]
    assert before.example_label_ids(1) == ["L1"]
    # Two readers may go on from the same state.
    assert facts(store.read(before)) == facts(open_store(run).read(before)) == facts(after)


def test_label_rows_of_examples_are_csr(run):
    store = open_store(run)
    store.add_examples(["a", "b", "c"], [["L1"], ["L4", "L2"], ["L9"]])
    indptr, indices = store.state().examples.label_rows()
    assert (indptr.tolist(), indices.tolist()) == ([0, 1, 3, 4], [1, 4, 2, 9])
    indptr, indices = store.state().examples.label_rows(1, 2)
    assert (indptr.tolist(), indices.tolist()) == ([0, 2], [4, 2])
    assert store.state().examples.revisions[:] == [1, 1, 1]


def test_a_text_that_is_added_again_gets_the_new_labels(run):
    store = open_store(run)
    store.add_examples(["a", "b"], [["L1"], ["L2"]])
    assert store.add_examples(["a", "b"], [["L1"], ["L2"]]) == 0
    assert store.revision == 1
    assert store.add_examples(["a", "b", "a"], [["L5"], ["L2"], ["L3"]]) == 1
    state = store.state()
    assert [state.example_label_ids(place) for place in range(2)] == [["L3"], ["L2"]]
    assert state.examples.revisions[:] == [2, 1]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s.add_labels([NewLabel("good", "good"), NewLabel("L1", "taken")]), "never used"),
        (lambda s: s.add_labels([NewLabel("good", "good"), NewLabel("x", "newer")]), "never used"),
        (lambda s: s.add_labels([NewLabel("x", "new", "content")]), "never used"),
        (lambda s: s.add_labels([NewLabel("z", "one"), NewLabel("z", "two")]), "never used"),
        (lambda s: s.add_labels([NewLabel("g", "g"), NewLabel("L2", "label 2")]), "restore it"),
        (lambda s: s.add_labels([NewLabel("good", "good"), NewLabel("b", "\ud800")]), "surrogate"),
        (lambda s: s.retire_labels(["L1", "nobody"]), "no label has the id 'nobody'"),
        (lambda s: s.retire_labels(["L1", "\ud800"]), "no label has the id"),
        (lambda s: s.restore_labels(["nobody"]), "no label has the id 'nobody'"),
        (lambda s: s.add_examples(["a", "b"], [["x"], ["nobody"]]), "example 2: no label has"),
        (lambda s: s.add_examples(["a", "b"], [["x"], ["L2"]]), "example 2: the label 'L2' is ret"),
        (lambda s: s.add_examples(["a", "a"], [["nobody"], ["x"]]), "example 1: no label has"),
        (lambda s: s.add_examples(["a", "\ud800"], [["x"], ["x"]]), "lone surrogate"),
    ],
)
def test_a_refused_change_leaves_no_trace(run, change, sentence):
    store = open_store(run)
    store.add_labels([NewLabel("x", "new")])
    store.retire_labels(["L2"])
    before = facts(store.state())
    with pytest.raises(DataError, match=sentence):
        change(store)
    assert facts(store.state()) == facts(open_store(run).state()) == before


def test_rows_are_never_given_again(run):
    store = open_store(run)
    store.add_labels([NewLabel("x", "new")])
    store.retire_labels(["x"])
    store.add_labels([NewLabel("y", "newer")])
    assert store.state().labels.rows["y"] == 11
    with pytest.raises(DataError, match="is retired; restore it instead"):
        store.add_labels([NewLabel("x", "new")])


def test_a_store_of_other_labels_is_refused(run, tmp_path):
    open_store(run).retire_labels(["L1"])
    with pytest.raises(LabelMismatch, match="move the file and changes.revision away"):
        ChangeStore.open(run, LabelSet(["L1"], ["one"]), tolerant=True)


def test_the_settings_of_the_file_are_those_that_are_promised(run):
    store = open_store(run)
    store.retire_labels(["L1"])
    connection = store._writer._link.get()[0]
    names = ("journal_mode", "synchronous", "foreign_keys", "user_version", "application_id")
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]
    assert found == ["wal", 2, 1, 1, 0x756D7074]


def test_any_path_will_do_and_a_copy_opens_its_own_connections(tmp_path, monkeypatch):
    run = make_run(tmp_path / "a run?mode=ro#%41 ä")
    monkeypatch.chdir(run)
    store = open_store(".")
    store.retire_labels(["L1"])
    monkeypatch.chdir(tmp_path)
    for copied in (copy.deepcopy(store), pickle.loads(pickle.dumps(store))):
        assert copied.retire_labels(["L2"]) in (0, 1)
        assert copied.state().retired_ids == ["L1", "L2"]
    assert store.state().retired_ids == ["L1", "L2"]
    assert sorted(p.name for p in tmp_path.iterdir()) == [run.name]
    state = pickle.loads(pickle.dumps(store.state()))
    assert facts(state) == facts(store.state())


def test_the_audit_trail_says_who_changed_what_and_when(run):
    store = open_store(run)
    store.add_labels([NewLabel("x", "new"), NewLabel("y", "newer")], who="ann")
    store.retire_labels(["L1"])
    first, second = store.audit_trail()
    assert (first.revision, first.kind, first.count, first.who) == (1, "add_labels", 2, "ann")
    assert (second.revision, second.kind, second.count, second.who) == (2, "retire", 1, "")
    assert first.time <= second.time
    assert store.audit_trail(limit=1) == [second]
    store.restore_labels(["L1"], who="\ud800" + "x" * 1000)
    assert store.audit_trail(limit=1)[0].who == "?" + "x" * 199


def test_a_full_disk_refuses_and_forgets_nothing(run):
    store = open_store(run)
    store.retire_labels(["L1"])
    before = facts(store.state())
    with no_room((run / f"{FILE_NAME}-wal").stat().st_size + 100):
        with pytest.raises(NotWritten, match="nothing was changed"):
            store.add_labels([NewLabel("x", "t" * 9000)])
        with pytest.raises(NotWritten):
            store.add_examples(["t" * 50_000], [["L2"]])
        assert facts(store.state()) == before
    assert facts(open_store(run).state()) == before
    assert store.add_labels([NewLabel("x", "t" * 9000)]) == 1


def test_a_full_disk_at_the_first_change_leaves_a_run_without_changes(run):
    for size in (10, 5000, 33000):
        with no_room(size), pytest.raises(NotWritten):
            open_store(run).add_examples(["t" * 60_000], [["L2"]])
        assert facts(open_store(run).state())["revision"] == 0
    assert open_store(run).add_examples(["t" * 60_000], [["L2"]]) == 1


def test_a_folder_that_cannot_be_written_to_is_read_and_not_changed(run):
    with not_allowed(run):
        assert open_store(run).state().revision == 0
        with pytest.raises(NotWritten):
            open_store(run).retire_labels(["L2"])
    store = open_store(run)
    store.retire_labels(["L1"])
    store.close()  # no side files are left
    assert sorted(p.name for p in run.glob("changes*")) == [REVISION_NAME, FILE_NAME]
    with not_allowed(run):
        reader = open_store(run)
        assert reader.state().retired_ids == ["L1"]
        with pytest.raises(NotWritten, match="nothing was changed"):
            reader.retire_labels(["L2"])
    store.retire_labels(["L2"])  # side files are there now
    assert reader.state().retired_ids == ["L1", "L2"]
    with not_allowed(run):
        assert open_store(run).state().retired_ids == ["L1", "L2"]


def test_a_store_opened_for_reading_refuses_changes(run):
    store = open_store(run, read_only=True)
    with pytest.raises(NotWritten, match="open for reading only"):
        store.retire_labels(["L1"])


def test_reads_do_not_wait_for_a_writer_and_a_writer_waits_for_a_while(run):
    store = open_store(run, busy_seconds=0.05)
    store.retire_labels(["L1"])
    other = sqlite3.connect(run / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("UPDATE retirements SET retired = 0")
    assert open_store(run).state().retired_ids == store.state().retired_ids == ["L1"]
    with pytest.raises(NotWritten, match="locked"):
        store.retire_labels(["L2"])
    other.execute("ROLLBACK")
    assert store.retire_labels(["L2"]) == 1
    other.close()


def test_many_threads_lose_nothing_and_see_whole_changes(run):
    store, wrong = open_store(run), []
    stop = threading.Event()

    def add(name):
        own = store if name == "a" else open_store(run)
        for n in range(10):
            own.add_labels([NewLabel(f"{name}{n}{part}", "t") for part in range(3)])
            own.add_examples([f"{name}{n}{part}" for part in range(2)], [[f"{name}{n}0"]] * 2)

    def read():
        state = None
        while not stop.is_set():
            state = store.state()
            for place in range(len(state.examples)):
                state.example_label_ids(place)
            if len(state.added) % 3 or len(state.examples) % 2:
                wrong.append(facts(state))

    readers = [threading.Thread(target=read) for _ in range(2)]
    writers = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in readers + writers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not wrong
    found = facts(store.state())
    assert found == facts(open_store(run).state())
    assert set(found["ids"][10:]) == {
        f"{a}{n}{p}" for a in "abcd" for n in range(10) for p in (0, 1, 2)
    }
    assert found["revision"] == 80


def test_processes_write_at_once_and_lose_nothing(run):
    code = (
        "import sys; from umpteen.data.labels import LabelSet\n"
        "from umpteen.store import ChangeStore, NewLabel\n"
        "labels = LabelSet([f'L{n}' for n in range(10)], [f'label {n}' for n in range(10)])\n"
        "store = ChangeStore.open(sys.argv[1], labels, busy_seconds=180)\n"
        "for n in range(15): store.add_labels([NewLabel(f'{sys.argv[2]}{n}', 't')])\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", code, str(run), name]) for name in "abc"]
    store = open_store(run)
    while any(child.poll() is None for child in children):
        state = store.state()
        assert state.revision == len(state.added)
    assert [child.returncode for child in children] == [0, 0, 0]
    added = list(store.state().added.ids)
    assert sorted(added) == sorted(f"{name}{n}" for name in "abc" for n in range(15))
    assert [i for i in added if i[0] == "a"] == [f"a{n}" for n in range(15)]


def test_a_forked_process_uses_connections_of_its_own(run):
    store = open_store(run)
    store.retire_labels(["L1"])
    store.state()
    child = os.fork()
    if not child:
        code = 1
        try:
            store.retire_labels(["L2"])
            code = 0 if store.state().retired_ids == ["L1", "L2"] else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert store.retire_labels(["L3"]) == 1
    assert store.state().retired_ids == ["L1", "L2", "L3"]


def test_a_fork_does_not_let_another_process_take_the_wal_from_a_child(run):
    """A child that inherited SQLite's locks on paper would lose what it writes afterwards."""
    store = open_store(run)
    store.retire_labels(["L1"])
    to_child, to_parent = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            store.retire_labels(["L2"])
            os.write(to_parent[1], b"1")
            os.read(to_child[0], 1)
            store.retire_labels(["L4"])
            code = 0
        finally:
            os._exit(code)
    os.read(to_parent[0], 1)
    store.close()
    code = (
        "import sys, sqlite3; c = sqlite3.connect(sys.argv[1])\n"
        "assert c.execute('SELECT count(*) FROM retirements').fetchone() == (2,); c.close()"
    )
    subprocess.run([sys.executable, "-c", code, str(run / FILE_NAME)], check=True)
    os.write(to_child[1], b"1")
    assert os.waitpid(child, 0)[1] == 0
    assert store.state().retired_ids == ["L1", "L2", "L4"]


def test_work_is_in_proportion_to_what_is_new(run):
    """20,000 examples in batches: each change and each read touches the same number of rows."""
    store = open_store(run)
    store.add_examples(["first"], [["L0"]])
    reader = open_store(run)
    steps = []
    for start in range(0, 20_000, 500):
        counts = []
        for connection in (store._writer._link.get()[0], reader.reader.connection()):
            count = [0]
            connection.set_progress_handler(lambda c=count: c.__setitem__(0, c[0] + 1) or 0, 100)
            counts.append(count)
        store.add_examples(
            [f"text {n}" for n in range(start, start + 500)], [[f"L{n % 7}"] for n in range(500)]
        )
        assert len(reader.state().examples) == start + 501
        steps.append([count[0] for count in counts])
    work = np.array(steps)  # in hundreds of SQLite instructions
    assert (work[-10:].mean(0) < 1.5 * work[2:12].mean(0) + 5).all(), work
