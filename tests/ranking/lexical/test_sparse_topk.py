"""Products, top-k and look-ups equal dense ones, on the host and on devices."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.ranking.lexical import device_topk, sparse_topk
from umpteen.ranking.lexical.device_topk import DeviceMatrix
from umpteen.ranking.lexical.sparse_topk import (
    inverted_index,
    look_up,
    product,
    prune_postings,
    top_k_of_rows,
)

RNG = np.random.default_rng(5)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_GPU])]


def sparse(n, m, share=0.4):
    values = RNG.integers(-3, 5, size=(n, m)) / 4  # exact in float32, many ties
    return sp.csr_matrix(np.where(RNG.random((n, m)) < share, values, 0).astype(np.float32))


def uneven(n, m):
    """Rows of very different lengths, some of them empty."""
    dense = sparse(n, m, 1.0).toarray()
    return sp.csr_matrix(dense * (RNG.random((n, m)) < RNG.random((n, 1)) ** 3))


def expected_top(scores, k):
    rows = np.full((len(scores), k), -1)
    best = np.full((len(scores), k), -np.inf)
    for i, row in enumerate(scores):
        order = [c for c in sorted(range(len(row)), key=lambda c: (-row[c], c)) if row[c] > 0][:k]
        rows[i, : len(order)], best[i, : len(order)] = order, row[order]
    return rows, best


@pytest.mark.parametrize("values", [40, 1 << 20])
@pytest.mark.parametrize("k", [0, 1, 3, 8, 50])
@pytest.mark.parametrize("n", [1, 23])
def test_top_k_equals_a_sort_of_the_dense_scores(n, k, values, monkeypatch):
    monkeypatch.setattr(sparse_topk, "PADDED_VALUES", values)
    monkeypatch.setattr(sparse_topk, "VALUES_AT_ONCE", values)
    scores = product(uneven(n, 9), sparse(9, 131, 0.1))
    if n > 1:
        scores = sp.vstack([scores, sparse(1, 131, 1.0), sparse(1, 131, 0.1)], format="csr")
    rows, best = top_k_of_rows(scores, k)
    expected = expected_top(scores.toarray(), k)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_allclose(best, expected[1])
    assert rows.dtype == np.int64
    assert best.dtype == np.float32


def test_top_k_of_nothing():
    rows, best = top_k_of_rows(sp.csr_matrix((3, 7), dtype=np.float32), 2)
    assert (rows == -1).all()
    assert np.isneginf(best).all()
    assert top_k_of_rows(sp.csr_matrix((0, 7), dtype=np.float32), 2)[0].shape == (0, 2)
    assert top_k_of_rows(sp.csr_matrix((2, 0), dtype=np.float32), 2)[0].shape == (2, 2)


@pytest.mark.parametrize("values", [1, 70, 1 << 20])
def test_look_up_reads_stored_values_and_zeros(values, monkeypatch):
    monkeypatch.setattr(sparse_topk, "SCRATCH_VALUES", values)
    scores = product(uneven(13, 9), sparse(9, 31))
    rows = RNG.integers(-1, 33, size=(13, 6))
    found = look_up(scores, rows)
    dense = np.pad(scores.toarray(), ((0, 0), (0, 2)))
    expected = np.where(rows >= 0, np.take_along_axis(dense, np.maximum(rows, 0), 1), 0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert look_up(scores[:0], rows[:0]).shape == (0, 6)
    assert look_up(scores, rows[:, :0]).shape == (13, 0)
    assert not look_up(sp.csr_matrix((13, 0), dtype=np.float32), rows).any()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("at_once", [1, 30, 1 << 20])
def test_a_device_gives_the_same_as_the_host(device, at_once, monkeypatch):
    monkeypatch.setattr(device_topk, "PRODUCTS_AT_ONCE", at_once)
    queries, weights = uneven(13, 9), sparse(9, 31)
    host = product(queries, weights)
    scores = product(queries, DeviceMatrix.of(weights, device))
    np.testing.assert_allclose(scores.values.cpu(), host.toarray(), rtol=1e-5, atol=1e-6)
    for k in (1, 4, 40):
        rows, best = top_k_of_rows(scores, k)
        expected = top_k_of_rows(host, k)
        np.testing.assert_array_equal(rows.cpu(), expected[0])
        np.testing.assert_allclose(best.cpu(), expected[1], rtol=1e-5)
    wanted = RNG.integers(-1, 33, size=(13, 6))
    found = look_up(scores, torch.from_numpy(wanted).to(device))
    np.testing.assert_allclose(found.cpu(), look_up(host, wanted), rtol=1e-5, atol=1e-6)
    none = product(queries[:0], DeviceMatrix.of(weights, device))
    assert top_k_of_rows(none, 3)[0].shape == (0, 3)
    nothing = product(queries * 0, DeviceMatrix.of(sp.csr_matrix((9, 31)), device))
    assert (top_k_of_rows(nothing, 3)[0] == -1).all()


@pytest.mark.parametrize("device", ["host", *DEVICES])
def test_nearest_texts_are_by_cosine(device):
    ours, others = abs(uneven(11, 8)), abs(sparse(17, 8))
    index = inverted_index(others)
    stored = index if device == "host" else DeviceMatrix.of(index, device)
    rows, scores = top_k_of_rows(product(ours, stored), 4)
    expected = expected_top((ours @ others.T).toarray(), 4)
    np.testing.assert_array_equal(torch.as_tensor(rows).cpu(), expected[0])
    np.testing.assert_allclose(torch.as_tensor(scores).cpu(), expected[1], rtol=1e-5)


def test_pruned_postings_keep_the_largest_of_each_term():
    weights = sparse(9, 31)
    assert prune_postings(weights, None) is weights
    pruned = prune_postings(weights, 4)
    assert np.diff(pruned.indptr).max() == 4
    for full, kept in zip(weights, pruned, strict=True):
        largest = np.sort(np.abs(full.data))[::-1][:4]
        np.testing.assert_array_equal(np.sort(np.abs(kept.data))[::-1], largest)
    assert np.diff(inverted_index(weights, 2).indptr).max() == 2
