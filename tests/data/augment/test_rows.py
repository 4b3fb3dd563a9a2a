"""Which rows an augmentation leaves, with which texts, targets and filter pairs."""

import numpy as np
import pytest

from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.rows import augment, choose_labels, row_count
from umpteen.data.dataset import Split, drop_pairs, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, DataError

LABELS = LabelSet(["a", "b", "c", "d"], ["apple", "banana", "Cherry ", ""], ["", "long", "", ""])
TRAIN = Split(
    ["red", "cherry", "yellow", "green"],
    targets_from_rows([[0, 2], [0, 1], [1], [0, 2, 3]], 4),
    ids=["q0", "q1", "q2", "q3"],
    filters=np.array([[1, 1], [1, 2], [3, 3]]),
)


def test_label_texts_follow_the_queries():
    found = augment(TRAIN, LABELS)
    assert list(found.split.titles) == [*TRAIN.titles, "apple", "banana", "Cherry "]
    assert list(found.split.contents) == [""] * 5 + ["long", ""]
    assert found.split.ids == ["q0", "q1", "q2", "q3", "label a", "label b", "label c"]
    assert found.sources.tolist() == [0, 1, 2, 3, -1, -2, -3]
    np.testing.assert_array_equal(found.split.targets[:4].toarray(), TRAIN.targets.toarray())
    assert found.split.targets.dtype == np.float32
    assert found.labels_without_text == 1


def test_targets_come_from_the_queries_without_their_filter_pairs():
    found = augment(TRAIN, LABELS).split.targets[4:].toarray()
    # Left of the queries' labels: {0, 2}, {0}, {1}, {0, 2}.
    np.testing.assert_allclose(found, [[1, 0, 2 / 3, 0], [0, 1, 0, 0], [1, 0, 1, 0]], rtol=1e-6)


def test_a_label_text_takes_over_the_filters_of_a_query_of_the_same_text_but_not_its_own():
    split = augment(TRAIN, LABELS).split
    assert split.filters.tolist() == [[1, 1], [1, 2], [3, 3], [6, 1]]
    assert split.filtered_targets()[6].indices.tolist() == [0, 2]


def test_positives_of_a_query_of_the_same_text_are_no_negatives_of_the_label_row():
    train = Split(
        ["Apple", "red", "apple", "other"],
        targets_from_rows([[3], [0, 1], [1, 2], [0]], 4),
        filters=np.array([[0, 0], [2, 2]]),
    )
    split = augment(train, LABELS, rows="only").split
    # The apple row: target 1 of itself, 1/2 of banana; date is a positive of the query "Apple",
    # cherry is filtered for the query "apple"; nothing is said twice.
    np.testing.assert_allclose(split.targets[0].toarray()[0], [1, 0.5, 0, 0])
    assert split.filters.tolist() == [[0, 2], [0, 3]]
    plain = augment(train, LABELS).split
    assert plain.filters.tolist() == [[0, 0], [2, 2], [4, 2], [4, 3]]


def test_label_rows_alone():
    found = augment(TRAIN, LABELS, rows="only")
    assert list(found.split.titles) == ["apple", "banana", "Cherry "]
    assert found.split.filters.tolist() == [[2, 1]]
    np.testing.assert_array_equal(
        found.split.targets.toarray(), augment(TRAIN, LABELS).split.targets[4:].toarray()
    )


def test_as_many_rows_as_queries_drawn_from_both():
    found = augment(TRAIN, LABELS, rows="sampled", options=GraphOptions(seed=1))
    assert len(found.split) == 4
    assert len(set(found.sources.tolist())) == 4
    whole = augment(TRAIN, LABELS)
    rows = [whole.sources.tolist().index(source) for source in found.sources]
    np.testing.assert_array_equal(
        found.split.targets.toarray(), whole.split.targets[rows].toarray()
    )
    draws = {
        tuple(augment(TRAIN, LABELS, rows="sampled", options=GraphOptions(seed=s)).sources.tolist())
        for s in range(8)
    }
    assert len(draws) > 1


def test_a_share_takes_random_labels_or_the_rarest():
    counts = np.arange(100)[::-1]
    tail = choose_labels(counts, share=0.25, order="tail")
    np.testing.assert_array_equal(tail, np.arange(75, 100))
    drawn = choose_labels(counts, share=0.25)
    assert len(drawn) == 25
    assert drawn.min() < 50
    assert (np.diff(drawn) > 0).all()


def test_smaller_shares_are_part_of_larger_ones():
    counts = np.random.default_rng(0).integers(0, 5, 50)
    for order in ("random", "tail"):
        small = choose_labels(counts, share=0.25, order=order)
        assert np.isin(small, choose_labels(counts, share=0.5, order=order)).all()


@pytest.mark.parametrize("rows", ["added", "only", "sampled"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_the_number_of_rows_is_known_beforehand(tiny_data, rows, share):
    found = augment(tiny_data["train"], tiny_data.labels, rows=rows, share=share)
    assert len(found.split) == row_count(60, 40, rows=rows, share=share)


def test_what_was_left_out_is_said():
    said = augment(TRAIN, LABELS, options=GraphOptions(max_positives=1, max_queries=1)).sentences()
    assert said[0] == "3 label texts as training rows, 1.0 targets each, beside 4 queries"
    assert "2 queries with more than max_positives labels (4 entries); 1 labels" in said[1]
    assert said[-1] == "left out: 1 labels without a text"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"rows": "some"}, "rows is 'some'; it must be one of added, only, sampled"),
        ({"order": "head"}, "order is 'head'"),
        ({"share": 0.0}, "share is 0.0; it must be above 0 and at most 1"),
    ],
)
def test_a_wrong_choice_is_named(wrong, says):
    with pytest.raises(DataError, match=says):
        augment(TRAIN, LABELS, **wrong)


def test_a_method_that_is_not_known_is_named():
    with pytest.raises(ConfigError, match="augmentation 'gandalv' is not known.*'gandalf'"):
        augment(TRAIN, LABELS, method="gandalv")


def test_without_any_text_label_rows_alone_are_refused():
    with pytest.raises(DataError, match="no label has a text"):
        augment(TRAIN, LabelSet(list("abcd"), [""] * 4), rows="only")


def test_the_split_given_is_not_changed():
    before = TRAIN.targets.toarray().copy()
    augment(TRAIN, LABELS, rows="sampled")
    np.testing.assert_array_equal(TRAIN.targets.toarray(), before)
    np.testing.assert_array_equal(drop_pairs(TRAIN.targets, TRAIN.filters).sum(), 6)
