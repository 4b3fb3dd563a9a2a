"""A split is stratified by label, keeps equal texts together, and depends on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.dataset import Dataset
from umpteen.data.splitting import choose_rows, split_dataset
from umpteen.errors import DataError


def many(n=2000, n_labels=60, seed=3):
    """Labels of very different frequency, one to five on a text, some texts twice."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, n_labels + 1)
    labels = [
        random.choice(n_labels, random.integers(1, 6), replace=False, p=weights / weights.sum())
        for _ in range(n)
    ]
    texts = [f"text {i if i % 10 else i // 20}" for i in range(n)]
    return Dataset.from_lists(texts, [[f"l{label}" for label in row] for row in labels])


@pytest.mark.parametrize("share", [0.1, 0.25])
def test_every_label_gives_its_share(share):
    data = many()
    made = split_dataset(data, test=share)
    assert len(made["train"]) + len(made["test"]) == len(data["train"])
    assert abs(len(made["test"]) - share * 2000) < 0.02 * 2000
    before = data.label_counts
    inside = made["test"].targets.getnnz(axis=0)
    # Of labels with many texts the share is close: within four deviations of a random draw's.
    error = np.abs(inside - share * before) / np.sqrt(before * share * (1 - share))
    assert error[before >= 50].max() < 4
    random = np.random.default_rng(0).permutation(2000)[: len(made["test"])]
    drawn = data["train"].targets[random].getnnz(axis=0)
    spread = np.abs(drawn - share * before) / np.sqrt(before)
    ours = np.abs(inside - share * before) / np.sqrt(before)
    assert ours.mean() < spread.mean()


def test_no_text_is_on_both_sides_and_no_label_is_lost():
    made = split_dataset(many(), test=0.2, validation=0.1)
    texts = {name: set(split.titles) for name, split in made.splits.items()}
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["validation"]
    assert not texts["test"] & texts["validation"]
    used = many().label_counts > 0
    assert (made.label_counts[used] > 0).all()


def test_the_seed_decides():
    data = many(300)
    one, again = split_dataset(data, seed=5), split_dataset(data, seed=5)
    assert one["test"].titles == again["test"].titles
    assert one["test"].titles != split_dataset(data, seed=6)["test"].titles


def test_rows_keep_their_order_ids_and_labels():
    data = many(300)
    made = split_dataset(data)
    rows = [data["train"].titles.index(text) for text in made["test"].titles]
    assert len(rows) > 10
    for row, source in enumerate(rows):
        if data["train"].titles.count(data["train"].titles[source]) == 1:
            got = made["test"].targets[row].indices.tolist()
            assert got == data["train"].targets[source].indices.tolist()


def test_the_only_text_of_a_label_stays_in_train():
    labels = [["common", f"own{i}"] if i < 50 else ["common"] for i in range(100)]
    made = split_dataset(Dataset.from_lists([f"t{i}" for i in range(100)], labels), test=0.3)
    assert len(made["test"]) == 30
    assert made["test"].targets.getnnz(axis=0)[1:].sum() == 0


def test_lost_labels_come_back():
    targets = sp.csr_matrix(np.array([[1, 1], [1, 1], [1, 0], [1, 0]]))
    for seed in range(20):
        random = np.random.default_rng(seed)
        rows = choose_rows(targets, np.arange(4), 3, random)
        kept = np.delete(targets.toarray(), rows, axis=0)
        assert (kept.sum(axis=0) > 0).all()


def test_rows_without_labels_take_part():
    labels = [["a"] if i % 2 else [] for i in range(100)]
    made = split_dataset(Dataset.from_lists([f"t{i}" for i in range(100)], labels), test=0.2)
    assert len(made["test"]) == 20
    assert (made["test"].targets.getnnz(axis=1) == 0).sum() == 10


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"test": 1.5}, "share of test is 1.5; expected"),
        ({"test": -0.1}, "share of test is -0.1; expected"),
        ({"test": 0.0}, "nothing to split"),
        ({"test": 0.6, "validation": 0.5}, "leave nothing for train"),
        ({"test": 0.0001}, "no row can go to test"),
    ],
)
def test_impossible_shares_are_refused(options, says):
    with pytest.raises(DataError, match=says):
        split_dataset(many(100), **options)


def test_a_split_that_is_there_is_not_replaced():
    made = split_dataset(many(200))
    with pytest.raises(DataError, match=r"has a test split already \(it has: train, test\)"):
        split_dataset(made)
    assert "validation" in split_dataset(made, test=0, validation=0.1)
