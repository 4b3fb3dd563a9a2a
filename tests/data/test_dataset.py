import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data.dataset import (
    Dataset,
    Split,
    drop_pairs,
    hold_out_validation,
    targets_from_rows,
)
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError


def make_split(n=6, n_labels=5, seed=0, filters=()):
    rng = np.random.default_rng(seed)
    targets = sp.csr_matrix((rng.random((n, n_labels)) < 0.4).astype(np.float32))
    return Split(
        [f"t{i}" for i in range(n)],
        targets,
        contents=[f"c{i}" for i in range(n)],
        ids=[f"q{i}" for i in range(n)],
        filters=np.array(filters, np.int64).reshape(-1, 2),
    )


def test_select_takes_everything_along_and_renumbers_filters():
    split = make_split(filters=[(0, 1), (4, 2), (4, 3), (5, 0)])
    part = split.select(np.array([4, 2, 0]))
    assert part.titles == ["t4", "t2", "t0"]
    assert part.contents == ["c4", "c2", "c0"]
    assert part.ids == ["q4", "q2", "q0"]
    assert np.array_equal(part.targets.toarray(), split.targets.toarray()[[4, 2, 0]])
    assert sorted(map(tuple, part.filters.tolist())) == [(0, 2), (0, 3), (2, 1)]
    assert part.filters.dtype == np.int64


def test_select_of_a_split_without_filters_has_none():
    part = make_split().select(np.array([1]))
    assert part.filters.shape == (0, 2)
    assert len(part) == 1


def test_dropped_pairs_are_gone_and_the_rest_is_as_before():
    rng = np.random.default_rng(3)
    dense = (rng.random((7, 9)) < 0.5) * rng.uniform(0.1, 1, (7, 9)).astype(np.float32)
    pairs = np.argwhere(rng.random((7, 9)) < 0.3)
    expected = dense.copy()
    expected[pairs[:, 0], pairs[:, 1]] = 0
    result = drop_pairs(sp.csr_matrix(dense), pairs)
    assert np.array_equal(result.toarray(), expected)
    assert result.nnz == np.count_nonzero(expected)
    assert result.dtype == np.float32
    assert result.has_sorted_indices


def test_pairs_are_told_apart_where_float32_could_not():
    # Row times labels plus column is far above 2^24 here: keys must be whole numbers throughout.
    n_labels = 40_000_001
    targets = sp.csr_matrix(
        (np.ones(3, np.float32), ([0, 1, 1], [40_000_000, 39_999_999, 40_000_000])),
        shape=(2, n_labels),
    )
    kept = drop_pairs(targets, np.array([[1, 39_999_999]]))
    assert list(zip(*map(list, kept.nonzero()), strict=True)) == [(0, 40_000_000), (1, 40_000_000)]


def test_targets_from_rows_are_sorted_ones():
    matrix = targets_from_rows([[3, 1], [], [0]], 4)
    assert matrix.indices.tolist() == [1, 3, 0]
    assert matrix.dtype == np.float32
    assert matrix.data.tolist() == [1.0, 1.0, 1.0]
    assert targets_from_rows([], 4).shape == (0, 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"titles": ["a"]}, "1 texts but 6 rows of labels"),
        ({"contents": ["a"]}, "6 texts but 1 contents"),
        ({"ids": ["a"]}, "6 texts but 1 ids"),
        ({"filters": np.array([[6, 0]])}, "filter pair points outside"),
        ({"filters": np.array([[0, 5]])}, "filter pair points outside"),
        ({"filters": np.array([[0, -1]])}, "filter pair points outside"),
    ],
)
def test_parts_that_do_not_fit_together_are_an_error(change, says):
    whole = make_split()
    fields = {"titles": whole.titles, "targets": whole.targets, "contents": None, "ids": None}
    with pytest.raises(DataError, match=says):
        Split(**{**fields, **change})


def test_a_data_set_knows_its_splits_and_their_labels():
    labels = LabelSet(list("abcde"), list("ABCDE"))
    data = Dataset(labels, {"train": make_split()})
    assert "train" in data
    assert "test" not in data
    with pytest.raises(DataError, match="no 'test' split; it has: train"):
        data["test"]
    with pytest.raises(DataError, match="split 'dev' is not known"):
        Dataset(labels, {"dev": make_split()})
    with pytest.raises(DataError, match="has 4 labels, the label set has 5"):
        Dataset(labels, {"train": make_split(n_labels=4)})


def test_label_counts_are_of_train_alone():
    labels = LabelSet(list("abcde"), list("ABCDE"))
    train, test = make_split(seed=1), make_split(seed=2)
    data = Dataset(labels, {"train": train, "test": test})
    assert np.array_equal(data.label_counts, (train.targets.toarray() > 0).sum(axis=0))
    assert data.label_counts.dtype == np.int64


class TestHoldOutValidation:
    def hold(self, data, **options):
        return hold_out_validation(data, **{"share": 0.2, "max_queries": 100, "seed": 1, **options})

    def test_every_query_is_in_train_or_validation(self, tiny_data):
        held = self.hold(tiny_data)
        assert len(held["validation"]) == 12
        names = [*held["train"].ids, *held["validation"].ids]
        assert sorted(names) == sorted(tiny_data["train"].ids)
        assert held["test"] is tiny_data["test"]
        place = {name: row for row, name in enumerate(tiny_data["train"].ids)}
        for part in ("train", "validation"):
            rows = [place[name] for name in held[part].ids]
            expected = tiny_data["train"].targets[rows]
            assert (held[part].targets != expected).nnz == 0

    def test_the_seed_chooses(self, tiny_data):
        first, again, other = (self.hold(tiny_data, seed=s)["validation"].ids for s in (1, 1, 2))
        assert first == again
        assert first != other

    def test_at_most_so_many(self, tiny_data):
        assert len(self.hold(tiny_data, max_queries=3)["validation"]) == 3

    def test_a_validation_split_that_exists_is_kept(self, tiny_data):
        held = self.hold(tiny_data)
        assert self.hold(held, seed=5) is held

    def test_no_share_and_too_few_queries_hold_nothing_out(self, tiny_data):
        assert "validation" not in self.hold(tiny_data, share=0.0)
        assert "validation" not in self.hold(tiny_data, share=0.001)


@given(st.integers(0, 10_000), st.integers(2, 40), st.integers(1, 12), st.integers(1, 30))
@settings(max_examples=60, deadline=None)
def test_hold_out_leaves_every_label_a_training_query(seed, n, n_labels, most):
    rng = np.random.default_rng(seed)
    targets = sp.csr_matrix((rng.random((n, n_labels)) < 0.3).astype(np.float32))
    data = Dataset(
        LabelSet([str(i) for i in range(n_labels)], [f"label {i}" for i in range(n_labels)]),
        {"train": Split([f"text {i}" for i in range(n)], targets)},
    )
    held = hold_out_validation(data, share=0.5, max_queries=most, seed=seed)
    if "validation" not in held:
        assert n == 1
        return
    counts = np.asarray(data["train"].targets.getnnz(axis=0))
    left = np.asarray(held["train"].targets.getnnz(axis=0))
    texts = [*held["train"].titles, *held["validation"].titles]
    assert sorted(texts) == sorted(data["train"].titles)
    assert len(held["validation"]) <= min(most, max(1, round(n / 2)))
    spare = [
        row
        for row in range(n)
        if targets[row].nnz and all(counts[label] > 1 for label in targets[row].indices)
    ]
    if spare:
        assert (left[counts > 0] > 0).all()
        assert len(held["validation"]) > 0
    else:  # every query is some label's only one: any may go
        assert len(held["validation"]) == min(most, round(n / 2), n - 1)


def test_hold_out_takes_as_many_as_asked_where_labels_are_frequent():
    targets = sp.csr_matrix(np.ones((100, 3), np.float32))
    data = Dataset(
        LabelSet(["a", "b", "c"], ["a", "b", "c"]),
        {"train": Split([f"text {i}" for i in range(100)], targets)},
    )
    assert len(hold_out_validation(data, share=0.2, max_queries=500, seed=3)["validation"]) == 20
