"""The benchmark of labels whose text is a test text: what it counts, cuts and leaves out."""

import numpy as np
import pytest
import scipy.sparse as sp
from bench.training import label_texts

from umpteen.data.augment.rows import augment
from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats import load_dataset
from umpteen.data.labels import LabelSet


def split(titles, pairs, n_labels, filters=()):
    targets = sp.lil_matrix((len(titles), n_labels), dtype=np.float32)
    for row, column in pairs:
        targets[row, column] = 1
    return Split(titles, targets.tocsr(), filters=np.array(filters, np.int64).reshape(-1, 2))


@pytest.fixture
def data():
    """Return labels a to f; the texts of b and e are test texts."""
    train = split(["t", "u", "D ", "w"], [(0, 1), (0, 2), (1, 1), (1, 3), (2, 4), (3, 5)], 6)
    test = split(["B", "x", "e"], [(0, 2), (0, 0), (1, 1), (2, 5)], 6, [(0, 1)])
    labels = LabelSet([f"l{i}" for i in range(6)], list("abcdef"))
    return Dataset(labels, {"train": train, "test": test})


def test_figures_are_those_counted_by_hand(data):
    found = label_texts.statistics(data)
    assert found["labels that are test texts, %"] == pytest.approx(100 * 2 / 6)
    assert found["test texts that are labels, %"] == pytest.approx(100 * 2 / 3)
    # The row of b has c and d, each with half of b's texts; that of e has none. c is an answer.
    assert found["targets a row"] == 1.0
    assert found["targets that are answers, %"] == 50.0
    assert found["heaviest is one, %"] in (0.0, 100.0)
    assert found["answers that are targets, %"] == pytest.approx(100 / 3)


def test_gandalf_makes_no_rows_of_the_labels_that_are_left_out(data, tmp_path):
    label_texts.write_copies(data, tmp_path)
    rows = {}
    for name in label_texts.COPIES:
        copy = load_dataset(tmp_path / name)
        made = augment(copy["train"], copy.labels)
        rows[name] = {-1 - source for source in made.sources.tolist() if source < 0}
        assert (copy["train"].targets != data["train"].targets).nnz == 0
    assert rows["all"] == set(range(6))
    assert rows["left-out"] == {0, 2, 3, 5}
    assert len(rows["as-many"]) == 4
    assert rows["as-many"] >= {1, 4}


def test_a_cut_keeps_the_first_labels_and_texts_up_to_them_that_have_one(data):
    part = label_texts.cut(data, 0.5)
    assert part.labels.titles == ["a", "b", "c"]
    assert list(part["test"].titles) == ["B"]
    assert part["test"].targets.toarray().tolist() == [[1, 0, 1]]
    assert part["test"].filters.tolist() == [[0, 1]]
    assert len(label_texts.cut(data, 1.0)["train"]) == 1
