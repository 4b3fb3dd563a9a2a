"""The label set of now: trained labels, then added ones, without copies."""

import pytest

from umpteen.data.labels import LabelSet
from umpteen.store.labels import AddedLabels, grown_labels

TRAINED = LabelSet(["a", "b", "c"], ["apple", "pear", ""])


def test_added_labels_follow_the_trained_ones():
    added = AddedLabels.empty().extended(["x", "y"], ["new one", "other"], ["", "longer"])
    labels = grown_labels(TRAINED, added)
    assert [labels.row(i) for i in "abcxy"] == [0, 1, 2, 3, 4]
    assert list(labels.ids) == ["a", "b", "c", "x", "y"]
    assert list(labels.texts) == ["apple", "pear", "c", "new one", "other"]
    assert list(labels.contents) == ["", "", "", "", "longer"]
    assert labels.ids[-1] == "y"
    assert labels.titles[2:4] == ["", "new one"]
    assert labels.titles[:2] == ["apple", "pear"]
    assert labels.titles[3:] == ["new one", "other"]
    assert labels.ids[::2] == ["a", "c", "y"]
    assert (len(labels), len(labels.rows), list(labels.rows)) == (5, 5, list("abcxy"))
    assert "nobody" not in labels.rows
    with pytest.raises(IndexError):
        labels.ids[5]
    assert labels.fingerprint == LabelSet(labels.ids, labels.titles, labels.contents).fingerprint


def test_a_set_made_earlier_stays_as_it_was():
    first = AddedLabels.empty().extended(["x"], ["new"], [""])
    before = grown_labels(TRAINED, first)
    after = grown_labels(TRAINED, first.extended(["y"], ["newer"], ["c"]))
    assert len(before) == 4
    assert before.contents is None
    assert "y" not in before.rows
    assert list(before.ids) == ["a", "b", "c", "x"]
    assert after.rows["y"] == 4
    assert after.rows["x"] == before.rows["x"] == 3


def test_without_added_labels_it_is_the_trained_set():
    assert grown_labels(TRAINED, AddedLabels.empty()) is TRAINED
