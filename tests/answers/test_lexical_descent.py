"""Training of word weights: the linear map, its gradient, its optimum, and devices alike."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.answers import near_labels as near_module
from umpteen.answers import overlaps as overlaps_module
from umpteen.answers.lexical_descent import Pairs, PairSoftmax, descend, largest_eigenvalues
from umpteen.answers.near_labels import near_labels
from umpteen.answers.overlaps import Overlaps, gathered, overlaps, scattered
from umpteen.answers.words import heaviest

RNG = np.random.default_rng(8)
ROWS = np.array([0, 0, 0, 1, 1, 3, 3, 6, 6, 6])
LABELS = np.array([0, 1, 4, 0, 2, 2, 3, 0, 1, 4])
POSITIVE = np.array([1, 0, 1, 0, 0, 1, 0, 0, 1, 0], bool)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_GPU])]


def sparse(n, m, share=0.5):
    dense = np.where(RNG.random((n, m)) < share, RNG.random((n, m)) + 0.1, 0)
    return sp.csr_matrix(dense.astype(np.float32))


def by_label():
    order = np.argsort(LABELS, kind="stable")
    return ROWS[order], LABELS[order]


@pytest.mark.parametrize("entries", [1, 25, 1 << 20])
def test_overlaps_times_weights_are_the_scores_of_pairs(entries, monkeypatch):
    monkeypatch.setattr(overlaps_module, "TABLE_ENTRIES", entries)
    queries, weights = sparse(7, 11), sparse(5, 11)
    rows, labels = by_label()
    made = overlaps(queries, weights, rows, labels)
    scores = made.times(torch.from_numpy(weights.data))
    np.testing.assert_allclose(scores, (queries @ weights.T).toarray()[rows, labels], rtol=1e-5)
    slopes = RNG.random(len(rows)).astype(np.float32)
    expected = np.zeros((5, 11))
    np.add.at(expected, labels, slopes[:, None] * queries.toarray()[rows])
    turned = made.turned_times(torch.from_numpy(slopes)).numpy()
    np.testing.assert_allclose(turned, expected[weights.nonzero()], rtol=1e-5)
    squares = np.zeros((5, 11))
    np.add.at(squares, labels, queries.toarray()[rows] ** 2)
    np.testing.assert_allclose(made.squares(), squares[weights.nonzero()], rtol=1e-5)


def test_what_other_devices_do_equals_the_sparse_product_in_double():
    rows, labels = by_label()
    weights = sparse(5, 11)
    made = overlaps(sparse(7, 11), weights, rows, labels)
    wide = Overlaps(made.values.double(), made.places, made.starts, made.n_weights)
    given = torch.from_numpy(RNG.normal(size=weights.nnz))
    slopes = torch.from_numpy(RNG.normal(size=len(rows)))
    parts = (wide.values, wide.places, wide.starts)
    torch.testing.assert_close(gathered(*parts, given), wide.times(given))
    torch.testing.assert_close(scattered(*parts, slopes, wide.n_weights), wide.turned_times(slopes))


def loss(scores):
    total = 0.0
    for query in np.unique(ROWS):
        own, right = scores[query == ROWS], POSITIVE[query == ROWS]
        if right.any():
            each = own[right] - torch.logsumexp(own, 0)
            total = total - each.mean() * np.sqrt(right.sum())
    return total


def test_slopes_are_those_of_the_loss_written_as_a_loop():
    scores = torch.from_numpy(RNG.normal(size=len(ROWS))).requires_grad_()
    (expected,) = torch.autograd.grad(loss(scores), scores)
    found = PairSoftmax(Pairs(ROWS, LABELS, POSITIVE)).slopes(scores.detach())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def objective(values, queries, support, anchor, decay):
    weights = torch.zeros(support.shape, dtype=torch.float64)
    weights[support.nonzero()] = values
    scores = (torch.from_numpy(queries.toarray()).double() @ weights.T)[ROWS, LABELS]
    return loss(scores) + decay / 2 * ((values - torch.from_numpy(anchor)) ** 2).sum()


@pytest.mark.parametrize("device", DEVICES)
def test_descent_reaches_the_minimum(device):
    queries, support = sparse(7, 11), sparse(5, 11)
    anchor = support.data.copy()
    done = descend(
        queries,
        support,
        anchor,
        np.zeros_like(anchor),
        Pairs(ROWS, LABELS, POSITIVE),
        steps=400,
        decay=0.1,
        device=device,
    )
    assert done.steps == 400
    values = torch.from_numpy(done.weights).double().requires_grad_()
    value = objective(values, queries, support, anchor, 0.1)
    (slope,) = torch.autograd.grad(value, values)
    assert slope.abs().max() < 1e-3
    assert value < objective(torch.from_numpy(anchor).double(), queries, support, anchor, 0.1)


def test_descent_stops_in_time():
    queries, support = sparse(7, 11), sparse(5, 11)
    pairs = Pairs(ROWS, LABELS, POSITIVE)
    data = support.data
    done = descend(queries, support, data, data, pairs, steps=50, decay=0.1, until=-1.0)
    assert done.steps == 1
    none = Pairs(ROWS[:0], LABELS[:0], POSITIVE[:0])
    done = descend(queries, support, data, data, none, steps=50, decay=0.1)
    assert done.steps == 0
    np.testing.assert_array_equal(done.weights, data)


def test_eigenvalues_are_those_of_each_labels_pairs():
    queries, weights = sparse(7, 11), sparse(5, 11, 0.9)
    rows, labels = by_label()
    made = overlaps(queries, weights, rows, labels)
    owner = torch.from_numpy(np.repeat(np.arange(5), np.diff(weights.indptr)))
    scale = RNG.random(weights.nnz) + 0.5
    found = largest_eigenvalues(made, owner, 5, torch.from_numpy(scale.astype(np.float32))).numpy()
    for label in range(5):
        words = weights[label].indices
        own = queries.toarray()[rows[labels == label]][:, words]
        own = own * scale[weights.indptr[label] : weights.indptr[label + 1]]
        expected = np.linalg.norm(own, 2) ** 2 if len(own) else 0.0
        assert found[label] <= expected * 1.001
        assert found[label] >= 0.8 * expected


@pytest.mark.parametrize("most", [1, 3, 100])
def test_the_heaviest_of_each_row_are_kept(most):
    matrix = sparse(9, 14)
    found = heaviest(matrix, most).toarray()
    for row, kept in zip(matrix.toarray(), found, strict=True):
        largest = np.sort(row[row > 0])[::-1][:most]
        np.testing.assert_array_equal(np.sort(kept[kept > 0])[::-1], largest)
        np.testing.assert_array_equal(kept[kept > 0], row[kept > 0])


@pytest.mark.parametrize("way", ["few", "some dense", "many", "device"])
def test_near_labels_are_those_of_the_dense_product(way, monkeypatch):
    monkeypatch.setattr(near_module, "BLOCK_ENTRIES", 40)
    monkeypatch.setattr(near_module, "FEW_LABELS", 0 if way == "many" else 1000)
    monkeypatch.setattr(near_module, "DENSE_WEIGHTS", 45 if way == "some dense" else 1 << 20)
    queries, turned = sparse(13, 8), sparse(8, 15)
    turned.data -= 0.4
    scores = (queries @ turned).toarray()
    if way == "device":
        blocks = list(near_module._on_device(queries, turned, 4, torch.device("cpu")))
        assert len(blocks) > 1
        found = np.concatenate(blocks)
    else:
        found = near_labels(queries, turned, 4)
    for row, labels in zip(scores, found, strict=True):
        best = np.argsort(-row, kind="stable")[:4]
        assert labels[labels >= 0].tolist() == [label for label in best if row[label] > 0]


@pytest.mark.gpu
@NEEDS_GPU
def test_near_labels_and_weights_agree_on_a_gpu():
    from umpteen.answers.lexical_training import LexicalRecipe, train_weights

    queries, first = sparse(40, 30, 0.2), sparse(20, 30, 0.3)
    own = sp.csr_matrix((RNG.random((40, 20)) < 0.1).astype(np.float32))
    found = [
        train_weights(
            queries, own, first, None, LexicalRecipe(), 0, device, np.inf, lambda text: None
        ).toarray()
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-2, atol=1e-2)


def test_out_of_time_the_first_queries_are_answered(monkeypatch):
    monkeypatch.setattr(near_module, "BLOCK_ENTRIES", 45)
    queries, turned = sparse(13, 8), sparse(8, 15)
    found = near_labels(queries, turned, 4, until=-1.0)
    assert 0 < len(found) < 13
    np.testing.assert_array_equal(found, near_labels(queries, turned, 4)[: len(found)])
