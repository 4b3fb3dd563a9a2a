"""The benchmark's data set: as many labels and tokens as it says, skewed, seeded, learnable."""

import numpy as np
import pytest
from bench.training import synthetic

from umpteen.data.formats import load_dataset


@pytest.fixture(scope="module")
def data():
    return synthetic.generate(5001, 4003, seed=3)


def test_sizes_are_those_it_says(data):
    about = synthetic.describe(data)
    assert data.targets.shape == (5001, 4003)
    assert (len(data.queries), len(data.labels)) == (5001, 4003)
    assert about["labels a query"] == pytest.approx(22, abs=1)
    for side in (data.queries, data.labels):
        assert side.lengths.mean() == pytest.approx(12, abs=0.3)
        assert side.lengths.min() >= 3
        assert side.lengths.max() <= 32
        assert (side.ids[side.offsets[:-1]] == 101).all()
        assert (side.ids[side.offsets[1:] - 1] == 102).all()
        assert side.ids.max() < 30_522
    assert about["labels without a query, %"] < 5


def test_targets_are_distinct_ascending_and_skewed(data):
    assert data.targets.has_canonical_format
    assert np.diff(data.targets.indptr).min() >= 1
    assert synthetic.describe(data)["share of positives at the most frequent 1 %"] > 0.1


def test_a_seed_gives_one_data_set(data):
    again, other = synthetic.generate(5001, 4003, seed=3), synthetic.generate(5001, 4003, seed=4)
    assert (data.targets != again.targets).nnz == 0
    assert np.array_equal(data.queries.ids, again.queries.ids)
    assert (data.targets != other.targets).nnz > 0


def test_several_pieces_are_one_data_set(monkeypatch):
    monkeypatch.setattr(synthetic, "AT_ONCE", 1000)
    data = synthetic.generate(5001, 4003, seed=3)
    assert data.targets.shape == (5001, 4003)
    assert data.targets.has_canonical_format
    assert data.queries.offsets[-1] == len(data.queries.ids)
    assert data.labels.offsets[-1] == len(data.labels.ids)
    first, second = (data.targets[start : start + 1000] for start in (0, 1000))
    assert (first != second).nnz > 0


def test_queries_have_words_of_their_labels(data):
    """By chance a word of a text is among 22 labels' 220 words in some 1 of 100 cases."""
    shared = []
    for row in range(50):
        own = data.targets.indices[data.targets.indptr[row] : data.targets.indptr[row + 1]]
        words = set(data.labels.take(own).ids.tolist())
        text = data.queries.take([row]).ids[1:-1]
        shared += [word in words for word in text.tolist()]
    assert np.mean(shared) > 0.3


def test_arrays_and_files_come_back(tmp_path):
    data = synthetic.generate(90, 40, seed=1)
    synthetic.save(data, tmp_path / "arrays")
    found = synthetic.load(tmp_path / "arrays")
    assert (found.targets != data.targets).nnz == 0
    assert np.array_equal(found.labels.ids, data.labels.ids)
    synthetic.write_lf_json(data, tmp_path / "files")
    read = load_dataset(tmp_path / "files")
    assert (len(read["train"]), len(read["test"]), len(read.labels)) == (81, 9, 40)
    assert (read["train"].targets != data.targets[:81]).nnz == 0
