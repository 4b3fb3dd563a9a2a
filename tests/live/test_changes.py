"""Changes as values: what is granted, what is refused, and that few records come to the same."""

import random

import pytest

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.live.changes import LONGEST_ID, LONGEST_TEXT, LabelChanges, NewLabel
from umpteen.live.labels import grown


@pytest.fixture
def changes():
    return LabelChanges(LabelSet(["a", "b", "c"], ["apple", "pear", ""]))


def do(changes, what, *arguments):
    record = getattr(changes, what)(*arguments)
    if record is not None:
        changes.apply(record)
    return record


def test_added_labels_follow_the_trained_ones(changes):
    do(changes, "add", [NewLabel("x", "new one"), NewLabel("y", "other", "longer")])
    assert [changes.row(i) for i in "abcxy"] == [0, 1, 2, 3, 4]
    labels = grown(changes)
    assert list(labels.ids) == ["a", "b", "c", "x", "y"]
    assert list(labels.texts) == ["apple", "pear", "c", "new one", "other"]
    assert list(labels.contents) == ["", "", "", "", "longer"]
    assert labels.row("y") == 4
    assert labels.ids[-1] == "y"
    assert labels.titles[2:4] == ["", "new one"]
    with pytest.raises(IndexError):
        labels.ids[5]
    assert labels.fingerprint == LabelSet(labels.ids, labels.titles, labels.contents).fingerprint


def test_a_set_made_earlier_stays_what_it_was(changes):
    before = grown(changes)
    do(changes, "add", [NewLabel("x", "new")])
    assert len(before) == 3
    assert before.contents is None
    assert "x" not in before.rows


def test_what_is_in_force_already_is_granted_and_writes_nothing(changes):
    assert changes.add([NewLabel("a", "apple")]) is None
    do(changes, "add", [NewLabel("x", "new", "c")])
    assert changes.add([NewLabel("x", "new", "c")]) is None
    assert do(changes, "retire", ["a", "a"]) == {"do": "retire", "ids": ["a"]}
    assert changes.retire(["a"]) is None
    assert do(changes, "restore", ["a", "b"]) == {"do": "restore", "ids": ["a"]}
    assert changes.restore(["a"]) is None
    assert changes.add([]) is None


def test_ids_are_never_given_twice(changes):
    do(changes, "add", [NewLabel("x", "new")])
    for taken in (NewLabel("a", "other"), NewLabel("x", "newer"), NewLabel("x", "new", "content")):
        with pytest.raises(DataError, match="ids are never given twice"):
            changes.add([NewLabel("fresh", "fresh"), taken])
    assert "fresh" not in changes
    with pytest.raises(DataError, match="ids are never given twice"):
        changes.add([NewLabel("z", "one"), NewLabel("z", "two")])
    do(changes, "retire", ["a", "x"])
    for retired in (NewLabel("a", "apple"), NewLabel("x", "new")):
        with pytest.raises(DataError, match="was retired; restore it instead"):
            changes.add([retired])


def test_unknown_ids_are_refused_whole(changes):
    for what in ("retire", "restore"):
        with pytest.raises(DataError, match="no label has the id 'nobody'"):
            getattr(changes, what)(["a", "nobody"])
    assert not changes.retired


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        (NewLabel("", "text"), "neither of them blank"),
        (NewLabel(" ", "text"), "neither of them blank"),
        (NewLabel("x", " \n"), "neither of them blank"),
        (NewLabel("x" * (LONGEST_ID + 1), "text"), "id of a label has 513 characters"),
        (NewLabel("x", "t" * (LONGEST_TEXT + 1)), "text of a label has"),
        (NewLabel("x", "t", "t" * (LONGEST_TEXT + 1)), "content of a label has"),
        (NewLabel("x", "\ud800"), "half a character"),
        (NewLabel(3, "text"), "must be a string, not 3"),
        (NewLabel("x", None), "must be a string, not None"),
    ],
)
def test_what_is_no_label_is_a_sentence(changes, label, sentence):
    with pytest.raises(DataError, match=sentence):
        changes.add([label])


def test_few_records_come_to_the_same(changes):
    rng = random.Random(3)
    for n in range(2500):
        if rng.random() < 0.5:
            do(changes, "add", [NewLabel(f"n{n}", f"text {n}")])
        ids = ["a", "b", "c", *changes.added_rows]
        do(changes, rng.choice(["retire", "restore"]), rng.sample(ids, 2))
    again = LabelChanges(changes.trained)
    records = list(changes.records())
    assert len(records) < 8
    for record in [*records, *records]:  # twice comes to the same, too
        again.apply(record)
    assert again == changes
