"""The split, the labels kept and the filters, on material small enough to check by eye."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data.sources.assembly import Material, assemble, held_out, text_key
from umpteen.errors import DataError

WORDS = st.lists(st.sampled_from(["a", "A", "b ", "c", "d d", "d  D", "e", "f"]), max_size=25)


@settings(deadline=None)
@given(WORDS, st.floats(0.05, 0.95), st.integers(0, 5), st.data())
def test_a_text_is_on_one_side_alone(texts, share, seed, data):
    may = np.array([data.draw(st.booleans()) for _ in texts], bool)
    test = held_out(texts, share=share, seed=seed, may=may)
    tested = {text_key(t) for t, chosen in zip(texts, test, strict=True) if chosen}
    trained = {text_key(t) for t, chosen in zip(texts, test, strict=True) if not chosen}
    assert not tested & trained
    assert not (test & ~may).any()
    free = {text_key(t) for t in texts} - {
        text_key(t) for t, allowed in zip(texts, may, strict=True) if not allowed
    }
    assert len(tested) == round(share * len(free))


def test_the_seed_chooses_the_split():
    texts = [f"text {i}" for i in range(101)]
    first = held_out(texts, share=0.25, seed=1)
    assert first.sum() == 25
    assert (first == held_out(texts, share=0.25, seed=1)).all()
    assert (first != held_out(texts, share=0.25, seed=2)).any()


def material(**changes):
    n = 40
    values = {
        "ids": [f"q{i}" for i in range(n)],
        "titles": [f"text {i}" for i in range(n)],
        # x on all, "rare" on the last query, "ghost" on none, "unknown" is no label at all
        "positives": [["x", "x", "unknown"] + (["rare"] if i == n - 1 else []) for i in range(n)],
        "label_titles": {"ghost": "a ghost", "rare": "a rare one", "x": "an x"},
        "own": {"q0": "x", "q1": "x", "q2": "ghost"},
    }
    return Material(**{**values, **changes})


def test_labels_are_those_with_enough_training_queries():
    may = np.ones(40, bool)
    may[-1] = False
    data = assemble(material(may_test=may), name="m", test_share=0.3, seed=0)
    assert list(data.labels.ids) == ["rare", "x"]
    assert list(data.labels.titles) == ["a rare one", "an x"]
    # q0 and q1 are x themselves and have no other label, so they are gone
    assert data.label_counts.tolist() == [1, len(data["train"])]
    assert len(data["train"]) + len(data["test"]) == 38
    data = assemble(material(may_test=may), name="m", test_share=0.3, seed=0, min_queries=2)
    assert list(data.labels.ids) == ["x"]


def test_a_query_left_without_labels_is_dropped():
    positives = [["x"] if i % 2 else ["unknown"] for i in range(40)]
    data = assemble(material(positives=positives, own={}), name="m", test_share=0.25, seed=0)
    assert len(data["train"]) + len(data["test"]) == 20
    assert data["train"].targets.getnnz(axis=1).min() == 1


def test_a_query_that_is_a_label_becomes_a_filter_pair_and_no_positive():
    positives = [["x", "y"]] * 40
    titles = {"ghost": "a ghost", "x": "an x", "y": "a y"}
    data = assemble(
        material(positives=positives, label_titles=titles), name="m", test_share=0.25, seed=3
    )
    found = {
        (split.ids[row], data.labels.ids[label])
        for split in (data["train"], data["test"])
        for row, label in split.filters.tolist()
    }
    assert found == {("q0", "x"), ("q1", "x")}
    for split in (data["train"], data["test"]):
        has_x = split.targets[:, [data.labels.row("x")]].toarray().ravel() > 0
        assert has_x.tolist() == [query not in ("q0", "q1") for query in split.ids]


def test_contents_travel_with_their_queries():
    contents = [f"content {i}" for i in range(40)]
    texts = {"ghost": "boo", "rare": "few", "x": "more of x"}
    data = assemble(
        material(contents=contents, label_contents=texts), name="m", test_share=0.25, seed=0
    )
    assert list(data.labels.contents) == [texts[i] for i in data.labels.ids]
    for split in (data["train"], data["test"]):
        assert [t.split()[1] for t in split.titles] == [c.split()[1] for c in split.contents]


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0])
def test_an_impossible_share_is_an_error(share):
    with pytest.raises(DataError, match="between 0 and 1"):
        assemble(material(), name="m", test_share=share, seed=0)


def test_nothing_left_is_an_error():
    with pytest.raises(DataError, match="too small"):
        assemble(material(positives=[["unknown"]] * 40), name="m", test_share=0.25, seed=0)
    with pytest.raises(DataError, match="at least 1"):
        assemble(material(), name="m", test_share=0.25, seed=0, min_queries=0)
