import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from umpteen.errors import DataError
from umpteen.metrics.bins import contributions, frequency_bins
from umpteen.metrics.hits import find_hits
from umpteen.metrics.precision import Precision
from umpteen.types import TopK


def test_bins_have_equal_volume_when_counts_allow_it():
    counts = np.array([10, 1, 1, 1, 1, 1, 5, 5, 5, 1, 1, 1, 1, 1, 5])  # 40 in all
    bins = frequency_bins(counts, 4)
    assert [int(counts[bins == b].sum()) for b in range(4)] == [10, 10, 10, 10]
    assert bins[0] == 0
    assert (bins[counts == 5] > 0).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.integers(1, 7))
@example([0, 0], 3)
@example([4, 0, 1, 0], 2)
def test_bins_fall_in_frequency_and_unseen_labels_are_last(counts, bins):
    counts = np.array(counts)
    bin_of = frequency_bins(counts, bins)
    for one in range(len(counts)):
        for two in range(len(counts)):
            if counts[one] > counts[two]:
                assert bin_of[one] <= bin_of[two]
    assert ((bin_of >= 0) & (bin_of < bins)).all()
    assert (bin_of[counts == 0] == bins - 1).all()
    # Nothing but its own first label can make a bin larger than its share.
    for b in range(bins - 1):
        inside = counts[bin_of == b]
        if len(inside):
            assert inside.sum() - inside.min() <= counts.sum() / bins


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6))
def test_bins_sum_to_precision_and_equal_a_count_by_hand(seed, k, bins):
    rng = np.random.default_rng(seed)
    n, n_labels = 9, 13
    truth = rng.random((n, n_labels)) < 0.4
    rows = np.argsort(rng.random((n, n_labels)), axis=1)[:, :5]
    topk = TopK(rows, np.zeros(rows.shape, np.float32))
    counts = rng.integers(0, 40, n_labels)
    hits = find_hits(topk, sp.csr_matrix(truth, dtype=float), label_counts=counts)
    shares = contributions(hits, k, bins)
    bin_of = frequency_bins(counts, bins)
    by_hand = [0.0] * bins
    for query in range(n):
        for label in rows[query, :k]:
            if truth[query, label]:
                by_hand[bin_of[label]] += 1 / (n * k)
    np.testing.assert_allclose(shares, by_hand)
    assert shares.sum() == pytest.approx(Precision(k).mean(hits))


def test_what_is_missing_is_said():
    hits = find_hits(TopK(np.array([[0]]), np.zeros((1, 1), "f")), sp.csr_matrix(np.ones((1, 1))))
    with pytest.raises(DataError, match="training counts"):
        contributions(hits, 1)
    with pytest.raises(DataError, match="0 bins"):
        frequency_bins(np.array([1]), 0)
