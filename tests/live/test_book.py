"""The changes of a run on disk: shared, compacted, repaired, carried over, and refused whole."""

import shutil

import numpy as np
import pytest
from hard_disks import no_room, not_allowed

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, JournalDamaged, LabelMismatch, NotWritten, RunError
from umpteen.live.book import FILE_NAME, LabelBook, carry, repair
from umpteen.live.changes import NewLabel
from umpteen.live.listing import list_labels
from umpteen.runs import RunFolder

LABELS = LabelSet([f"L{n}" for n in range(10)], [f"label {n}" for n in range(10)])
COUNTS = np.arange(10)[::-1] * 2


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", LABELS)


def make_run(path, labels):
    path.mkdir()
    (path / "config.json").write_text("{}")
    RunFolder(path).write_labels(labels, COUNTS[: len(labels)])
    return path


def test_a_change_is_seen_by_every_book_of_the_run(run):
    one, two = LabelBook.open(run), LabelBook.open(run)
    assert one.add([NewLabel("x", "new"), NewLabel("y", "newer")]) == 2
    assert one.add([NewLabel("x", "new")]) == 0
    two.refresh()
    assert two.changes.added_rows == {"x": 10, "y": 11}
    assert two.retire(["x", "L3"]) == 2
    assert one.retire(["x"]) == 0  # it is told before it decides
    assert one.restore(["L3", "y"]) == 1
    two.refresh()
    assert two.changes == one.changes == LabelBook.open(run).changes
    assert two.changes.retired == {"x"}


def test_a_refused_change_leaves_no_trace(run):
    book = LabelBook.open(run)
    book.add([NewLabel("x", "new")])
    before = (run / FILE_NAME).read_bytes()
    for change in (
        lambda: book.add([NewLabel("good", "good"), NewLabel("L1", "taken")]),
        lambda: book.retire(["x", "nobody"]),
        lambda: book.restore(["nobody"]),
    ):
        with pytest.raises(DataError):
            change()
    assert (run / FILE_NAME).read_bytes() == before


def test_compaction_keeps_everything_and_followers_come_along(run):
    book, follower = LabelBook.open(run), LabelBook.open(run)
    book.add([NewLabel("x", "new")])
    for _ in range(20):
        book.retire(["x", "L2"])
        book.restore(["x"])
    follower.refresh()
    assert not book.compact()  # not worth it yet
    revision = book.journal.revision
    assert book.compact(at_least=10)
    assert book.journal.n_records == 2
    assert book.journal.revision == revision
    assert not book.compact(at_least=2)  # cannot get smaller
    follower.refresh()
    assert follower.changes == book.changes == LabelBook.open(run).changes
    assert follower.retire(["L5"]) == 1
    assert LabelBook.open(run).changes.retired == {"L2", "L5"}


def test_a_run_of_other_labels_is_told(run, tmp_path):
    LabelBook.open(run).retire(["L1"])
    other = make_run(tmp_path / "other", LabelSet(["L1"], ["one"]))
    shutil.copy(run / FILE_NAME, other / FILE_NAME)
    with pytest.raises(LabelMismatch, match="move the file away"):
        LabelBook.open(other)


def damage(run):
    file = run / FILE_NAME
    file.write_bytes(file.read_bytes().replace(b'"L1"', b'"L9"'))


def test_a_damaged_journal_answers_with_a_sentence_and_is_repaired(run):
    book = LabelBook.open(run)
    for ids in (["L0"], ["L1"], ["L2"]):
        book.retire(ids)
    assert repair(run) is None
    damage(run)
    with pytest.raises(JournalDamaged, match=r"line 3: .* umpteen labels repair"):
        LabelBook.open(run)
    patient = LabelBook.open(run, tolerant=True)
    assert patient.changes.retired == {"L0", "L2"}
    with pytest.raises(JournalDamaged, match="line 3"):
        patient.retire(["L4"])
    aside, kept = repair(run)
    assert aside.read_bytes().count(b"\n") == 4
    assert kept.retired == {"L0", "L2"}
    patient.refresh()
    assert not patient.damage
    assert patient.retire(["L4"]) == 1
    assert LabelBook.open(run).changes.retired == {"L0", "L2", "L4"}


def test_a_journal_that_is_lost_does_not_bring_retired_labels_back(run):
    book = LabelBook.open(run)
    book.retire(["L1"])
    content = (run / FILE_NAME).read_bytes()
    (run / FILE_NAME).unlink()
    book.refresh()
    assert book.changes.retired == {"L1"}
    with pytest.raises(JournalDamaged, match="is gone or empty since it was read"):
        book.retire(["L2"])
    (run / FILE_NAME).write_bytes(content)
    book.refresh()
    assert not book.damage
    book.retire(["L2"])
    assert LabelBook.open(run).changes.retired == {"L1", "L2"}


def test_a_full_disk_and_a_read_only_folder_refuse_and_forget_nothing(run):
    book = LabelBook.open(run)
    book.retire(["L1"])
    with no_room((run / FILE_NAME).stat().st_size + 10), pytest.raises(NotWritten):
        book.add([NewLabel("x", "t" * 500)])
    with not_allowed(run), pytest.raises(NotWritten, match="nothing was changed"):
        book.retire(["L2"])
    assert "x" not in book.changes
    assert book.changes.retired == {"L1"}
    assert book.add([NewLabel("x", "t" * 500)]) == 1
    assert LabelBook.open(run).changes == book.changes


def test_changes_are_carried_to_a_later_run(run, tmp_path):
    book = LabelBook.open(run)
    book.add([NewLabel("x", "new"), NewLabel("y", "newer"), NewLabel("z", "third")])
    book.retire(["L1", "y", "L7"])
    later = make_run(tmp_path / "later", LabelSet(["L1", "L2", "x"], ["one", "two", "trained x"]))
    assert carry(run, later) == {"added": 2, "retired": 2}
    changes = LabelBook.open(later).changes
    assert [label.id for label in changes.added] == ["y", "z"]
    assert changes.retired == {"L1", "y"}
    assert carry(run, later) == {"added": 0, "retired": 0}
    with pytest.raises(RunError, match="are the same run"):
        carry(run, run)


def test_the_list_is_searched_ordered_and_paged(run):
    book = LabelBook.open(run)
    book.add([NewLabel("x", "Brand NEW label")])
    book.retire(["L3"])
    everything = list_labels(book.changes, COUNTS)
    assert [label.id for label in everything.labels] == [f"L{n}" for n in range(10)] + ["x"]
    assert everything.labels[3].state == "retired"
    assert (everything.labels[10].count, everything.labels[10].state) == (0, "added")
    found = list_labels(book.changes, COUNTS, search="label new")
    assert [label.id for label in found.labels] == ["x"]
    rare = list_labels(book.changes, COUNTS, order="rare", offset=1, limit=2)
    assert [label.id for label in rare.labels] == ["x", "L8"]
    assert rare.total == 11
    frequent = list_labels(book.changes, COUNTS, order="frequent", limit=1)
    assert frequent.labels[0].id == "L0"
    changed = list_labels(book.changes, COUNTS, changed=True)
    assert [label.id for label in changed.labels] == ["L3", "x"]


def test_the_search_finds_what_a_look_at_every_label_finds(tmp_path):
    rng = np.random.default_rng(2)
    parts = ["Ash", "OAK", "elm-tree", "straße", "İ", "a.b", "fir", "pine"]
    titles = [" ".join(rng.choice(parts, rng.integers(0, 4))) for _ in range(120)]
    labels = LabelSet([f"id{n}" for n in range(120)], titles)
    book = LabelBook(make_run(tmp_path / "run", LABELS), LABELS)
    book.changes.trained = labels
    counts = np.ones(120, np.int64)
    for search in ("ash", "oak FIR", "tree", "STRASSE", "a.b", "id7", "e", "nothing", "i id1 pine"):
        wanted = [
            label_id
            for label_id, title in zip(labels.ids, titles, strict=True)
            if all(word in f"{label_id} {title}".casefold() for word in search.casefold().split())
        ]
        found = list_labels(book.changes, counts, search=search, limit=500)
        assert [label.id for label in found.labels] == wanted, search
