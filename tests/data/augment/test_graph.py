"""Counts in blocks under limits, and what the limits drop."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.augment import gandalf, graph
from umpteen.data.augment.graph import Counts, GraphOptions

DEFAULTS = GraphOptions()


def relevance(n=90, n_labels=17, seed=1):
    rng = np.random.default_rng(seed)
    # Frequent labels first, so that blocks differ in work.
    shares = 0.6 / np.arange(1, n_labels + 1)
    return sp.csr_matrix((rng.random((n, n_labels)) < shares).astype(np.float32))


def whole(y, labels, options=DEFAULTS):
    counts = Counts(y, options)
    parts = list(counts.blocks(labels))
    used = np.concatenate([queries for _, _, queries in parts])
    return sp.vstack([block for _, block, _ in parts]).toarray(), used, counts.dropped, parts


@pytest.mark.parametrize("work", [1, 7, 100, 1 << 25])
def test_blocks_of_any_size_are_the_whole_product(monkeypatch, work):
    monkeypatch.setattr(graph, "BLOCK_WORK", work)
    y = relevance()
    labels = np.array([3, 0, 16, 8, 9])
    found, used, dropped, parts = whole(y, labels)
    dense = y.toarray()
    np.testing.assert_array_equal(found, (dense.T @ dense)[labels])
    np.testing.assert_array_equal(used, dense.sum(axis=0)[labels])
    assert dropped == graph.Dropped()
    assert [(p.start, p.stop) for p, _, _ in parts][0][0] == 0
    assert parts[-1][0].stop == 5
    assert len(parts) == 5 or work > 1


def test_queries_with_too_many_positives_are_left_out_and_counted():
    y = relevance()
    dense = y.toarray()
    long = dense.sum(axis=1) > 2
    found, _, dropped, _ = whole(y, np.arange(17), GraphOptions(max_positives=2))
    np.testing.assert_array_equal(found, dense[~long].T @ dense[~long])
    assert dropped.queries == long.sum()
    assert dropped.entries == dense[long].sum()
    assert dropped.labels_without == ((dense.sum(0) > 0) & (dense[~long].sum(0) == 0)).sum()


def test_frequent_labels_are_counted_on_a_draw_of_their_queries():
    y = relevance(n=4000)
    options = GraphOptions(max_queries=500)
    found, used, dropped, _ = whole(y, np.arange(17), options)
    own = y.toarray().sum(axis=0)
    large = own > 500
    assert large.any()
    assert not large.all()
    np.testing.assert_array_equal(used, np.minimum(own, 500))
    assert dropped.labels_drawn == large.sum()
    assert dropped.entries_drawn == (own[large] - 500).sum()
    np.testing.assert_array_equal(found.diagonal(), used)  # each drawn query once, and its own
    exact = (y.toarray().T @ y.toarray()) / np.maximum(own, 1)[:, None]
    np.testing.assert_allclose(found / np.maximum(used, 1)[:, None], exact, atol=0.08)
    np.testing.assert_array_equal(found[~large], (y.toarray().T @ y.toarray())[~large])


def test_a_drawn_row_does_not_depend_on_the_blocks(monkeypatch):
    y = relevance(n=300)
    options = GraphOptions(max_queries=20)
    one = gandalf.label_targets(y, np.arange(17), options, lambda *d: None)[0].toarray()
    monkeypatch.setattr(graph, "BLOCK_WORK", 50)
    two = gandalf.label_targets(y, np.arange(17), options, lambda *d: None)[0].toarray()
    np.testing.assert_array_equal(one, two)
