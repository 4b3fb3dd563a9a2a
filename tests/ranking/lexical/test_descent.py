"""Descent on pair scores: the linear map, its gradient, the optimum, convergence, devices."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.ranking.lexical import descent, host_loss
from umpteen.ranking.lexical import hard_negatives as mining
from umpteen.ranking.lexical import pair_features as features_module
from umpteen.ranking.lexical.descent import RAISED, descend
from umpteen.ranking.lexical.device_loss import RidgeLoss, largest_eigenvalues, logistic_slopes
from umpteen.ranking.lexical.hard_negatives import mine_hard_negatives
from umpteen.ranking.lexical.host_loss import HostRidgeLoss
from umpteen.ranking.lexical.pair_features import (
    LabelledPairs,
    gather_scores,
    pair_features,
    scatter_slopes,
)
from umpteen.ranking.lexical.ranker_training import LexicalConfig, train_weights

RNG = np.random.default_rng(8)
ROWS = np.array([0, 1, 6, 0, 6, 1, 3, 3, 0, 6])
LABELS = np.array([0, 0, 0, 1, 1, 2, 2, 3, 4, 4])
POSITIVE = np.array([1, 0, 0, 0, 1, 0, 1, 0, 1, 0], bool)
PAIRS = LabelledPairs(ROWS, LABELS, POSITIVE)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_GPU])]


def sparse(n, m, share=0.5):
    dense = np.where(RNG.random((n, m)) < share, RNG.random((n, m)) + 0.1, 0)
    return sp.csr_matrix(dense.astype(np.float32))


@pytest.mark.parametrize("entries", [1, 25, 1 << 20])
@pytest.mark.parametrize(("pairs", "threads", "blocks"), [(1, 2, 5), (3, 1, 3), (1 << 18, 2, 1)])
def test_features_times_weights_are_the_scores_of_pairs(
    entries, pairs, threads, blocks, monkeypatch
):
    monkeypatch.setattr(features_module, "TABLE_ENTRIES", entries)
    monkeypatch.setattr(features_module, "BLOCK_PAIRS", pairs)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    queries, weights = sparse(7, 11), sparse(5, 11)
    rows, labels = ROWS, LABELS
    made = pair_features(queries, weights, rows, labels)
    assert len(made.blocks) == blocks
    scores = made.times(torch.from_numpy(weights.data))
    np.testing.assert_allclose(scores, (queries @ weights.T).toarray()[rows, labels], rtol=1e-5)
    slopes = RNG.random(len(rows)).astype(np.float32)
    expected = np.zeros((5, 11))
    np.add.at(expected, labels, slopes[:, None] * queries.toarray()[rows])
    transposed = made.transposed_times(torch.from_numpy(slopes)).numpy()
    np.testing.assert_allclose(transposed, expected[weights.nonzero()], rtol=1e-5)
    squares = np.zeros((5, 11))
    np.add.at(squares, labels, queries.toarray()[rows] ** 2)
    np.testing.assert_allclose(made.squares(), squares[weights.nonzero()], rtol=1e-5)


def test_gather_and_scatter_equal_the_sparse_product_in_double():
    rows, labels = ROWS, LABELS
    weights = sparse(5, 11)
    made = pair_features(sparse(7, 11), weights, rows, labels)
    wide = replace(made, values=made.values.double())
    given = torch.from_numpy(RNG.normal(size=weights.nnz))
    slopes = torch.from_numpy(RNG.normal(size=len(rows)))
    parts = (wide.values, wide.positions, wide.starts)
    torch.testing.assert_close(gather_scores(*parts, given), wide.times(given))
    torch.testing.assert_close(
        scatter_slopes(*parts, slopes, wide.n_weights), wide.transposed_times(slopes)
    )


def plain_loss(scores, offset):
    total = 0.0
    for score, right in zip(scores, POSITIVE, strict=True):
        wrong = offset - score if right else score - offset
        total = total + torch.logaddexp(wrong, torch.zeros_like(wrong))
    return total


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1.0, 50.0, 1e4])
def test_loss_and_slopes_equal_a_loop(scale):
    given = (scale * RNG.normal(size=len(ROWS))).astype(np.float32)
    wide = torch.from_numpy(given).double().requires_grad_()
    expected = plain_loss(wide, 0.0)
    (expected_slopes,) = torch.autograd.grad(expected, wide)
    signs = torch.from_numpy(np.where(POSITIVE, -1.0, 1.0))
    loss, slopes = logistic_slopes(wide.detach(), signs)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(slopes, expected_slopes, rtol=1e-6, atol=1e-6)
    loss = host_loss.logistic_slopes_(given, POSITIVE)
    assert loss == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(given, expected_slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("right", [0, 1, 700, 999, 1000])
@pytest.mark.parametrize("pairs", [10, 1000, 1 << 20])
def test_at_the_offset_probabilities_sum_to_the_right_pairs(right, pairs, monkeypatch):
    monkeypatch.setattr(descent, "OFFSET_PAIRS", pairs)
    scores = (5 + 3 * RNG.normal(size=1000)).astype(np.float32)
    positive = RNG.permutation(1000) < right
    offset = descent.balancing_offset(scores, positive)
    used = slice(None, None, max(1, 1000 // pairs))
    found = (1 / (1 + np.exp(offset - scores[used].astype(np.float64)))).sum()
    assert found == pytest.approx(positive[used].sum(), abs=1e-4)


@pytest.mark.parametrize("block_pairs", [1, 1 << 18])
def test_the_loss_on_the_host_equals_that_of_a_device(block_pairs, monkeypatch):
    monkeypatch.setattr(features_module, "BLOCK_PAIRS", block_pairs)
    queries, pattern = sparse(7, 11), sparse(5, 11)
    made = pair_features(queries, pattern, ROWS, LABELS)
    anchor = RNG.random(pattern.nnz).astype(np.float32)
    parts = (made, POSITIVE, 3.5, anchor, pattern.indptr, 0.1)
    here, there = HostRidgeLoss.of(*parts), RidgeLoss.of(*parts)
    torch.testing.assert_close(here.size, there.size)
    for _ in range(2):  # buffers are used again
        weights = torch.from_numpy(RNG.normal(size=pattern.nnz).astype(np.float32))
        for own, other in zip(here(weights), there(weights), strict=True):
            torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_more_decay_is_tried_while_it_is_better(accepted):
    queries, pattern = sparse(7, 11), sparse(5, 11)
    anchor, asked = pattern.data.copy(), []

    def better(first, second):
        asked.append((first.copy(), second.copy()))
        return len(asked) <= accepted

    start, parts = np.zeros_like(anchor), (queries, pattern, anchor)
    done = descend(*parts, start, PAIRS, steps=800, decay=0.1, better=better)
    plain = [
        descend(*parts, start, PAIRS, steps=800, decay=0.1 * RAISED**number).weights
        for number in range(accepted + 2)
    ]
    assert len(asked) == accepted + 1
    for number, (first, second) in enumerate(asked):
        np.testing.assert_allclose(first, plain[number + 1], atol=2e-2)
        np.testing.assert_allclose(second, plain[number], atol=2e-2)
    np.testing.assert_allclose(done.weights, plain[accepted], atol=2e-2)
    assert done.decay == pytest.approx(0.1 * RAISED**accepted)
    assert done.converged


def objective(values, queries, pattern, anchor, decay):
    weights = torch.zeros(pattern.shape, dtype=torch.float64)
    weights[pattern.nonzero()] = values
    scores = (torch.from_numpy(queries.toarray()).double() @ weights.T)[ROWS, LABELS]
    offset = np.log((~POSITIVE).sum() / POSITIVE.sum())  # all scores of the start are 0
    return plain_loss(scores, offset) + decay / 2 * ((values - torch.from_numpy(anchor)) ** 2).sum()


@pytest.mark.parametrize("device", DEVICES)
def test_descent_converges_to_the_minimum(device):
    queries, pattern = sparse(7, 11), sparse(5, 11)
    anchor = pattern.data.copy()
    done = descend(
        queries, pattern, anchor, np.zeros_like(anchor), PAIRS, steps=400, decay=0.1, device=device
    )
    assert done.converged
    assert done.steps < 400
    values = torch.from_numpy(done.weights).double().requires_grad_()
    value = objective(values, queries, pattern, anchor, 0.1)
    (slope,) = torch.autograd.grad(value, values)
    assert slope.abs().max() < 1e-2
    assert done.loss == pytest.approx(float(value.detach()), rel=1e-5)
    start = torch.zeros(len(anchor), dtype=torch.float64)
    assert done.initial_loss == pytest.approx(
        float(objective(start, queries, pattern, anchor, 0.1)), rel=1e-5
    )


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("steps", [1, 3, 30])
@pytest.mark.parametrize("positive", ["some", "all", "none"])
def test_the_loss_never_rises_and_nothing_is_nan(scale, steps, positive):
    queries, pattern = sparse(7, 11) * np.float32(scale), sparse(5, 11)
    which = {"some": POSITIVE, "all": POSITIVE | True, "none": POSITIVE & False}[positive]
    start = (RNG.normal(size=pattern.nnz) * 3).astype(np.float32)
    pairs = LabelledPairs(ROWS, LABELS, which)
    done = descend(queries, pattern, start, start, pairs, steps=steps, decay=0.02)
    assert np.isfinite(done.weights).all()
    assert np.isfinite(done.loss)
    assert done.loss <= done.initial_loss


def test_a_step_that_is_too_long_is_shortened(monkeypatch):
    real = host_loss.largest_eigenvalues

    def too_small(*args):
        found, settled = real(*args)
        return found / 1e4, settled

    monkeypatch.setattr(host_loss, "largest_eigenvalues", too_small)
    queries, pattern = sparse(7, 11), sparse(5, 11)
    start = np.zeros(pattern.nnz, np.float32)
    done = descend(queries, pattern, start, start, PAIRS, steps=60, decay=0.02)
    assert done.loss < done.initial_loss


def test_descent_stops_in_time():
    queries, pattern = sparse(7, 11), sparse(5, 11)
    data = pattern.data
    done = descend(queries, pattern, data, data, PAIRS, steps=50, decay=0.1, until=-1.0)
    assert (done.steps, done.stopped_by, done.converged) == (1, "time", False)
    none = LabelledPairs(ROWS[:0], LABELS[:0], POSITIVE[:0])
    done = descend(queries, pattern, data, data, none, steps=50, decay=0.1)
    assert done.steps == 0
    np.testing.assert_array_equal(done.weights, data)


@pytest.mark.parametrize("on_host", [True, False])
def test_eigenvalues_are_those_of_each_labels_pairs(on_host):
    queries, weights = sparse(7, 11), sparse(5, 11, 0.9)
    rows, labels = ROWS, LABELS
    made = pair_features(queries, weights, rows, labels)
    owner = torch.from_numpy(np.repeat(np.arange(5), np.diff(weights.indptr)))
    scale = RNG.random(weights.nnz) + 0.5
    given = torch.from_numpy(scale.astype(np.float32))
    if on_host:
        ((_, matrix),) = made.host_blocks()
        parts = (matrix, owner.numpy(), 5, given.numpy())
        found, converged = host_loss.largest_eigenvalues(*parts)
    else:
        found, converged = largest_eigenvalues(made, owner, 5, given)
    assert converged
    for label in range(5):
        words = weights[label].indices
        own = queries.toarray()[rows[labels == label]][:, words]
        own = own * scale[weights.indptr[label] : weights.indptr[label + 1]]
        expected = np.linalg.norm(own, 2) ** 2 if len(own) else 0.0
        assert found[label] <= expected * 1.001
        assert found[label] >= 0.8 * expected


@pytest.mark.parametrize("path", ["dense", "partly dense", "sparse", "device"])
def test_hard_negatives_are_those_of_the_dense_product(path, monkeypatch):
    monkeypatch.setattr(mining, "BLOCK_ENTRIES", 40)
    monkeypatch.setattr(mining, "FEW_LABELS", 0 if path == "sparse" else 1000)
    monkeypatch.setattr(mining, "DENSE_WEIGHTS", 45 if path == "partly dense" else 1 << 20)
    queries, weights = sparse(33, 8), sparse(8, 25)
    weights.data -= 0.4
    scores = (queries @ weights).toarray()
    if path == "device":
        blocks = list(mining._on_device(queries, weights, 4, torch.device("cpu")))
        assert len(blocks) > 1
        found = np.concatenate(blocks)
    else:
        found = mine_hard_negatives(queries, weights, 4)
    for row, labels in zip(scores, found, strict=True):
        best = np.argsort(-row, kind="stable")[:4]
        assert labels[labels >= 0].tolist() == [label for label in best if row[label] > 0]


def test_out_of_time_the_first_texts_are_mined(monkeypatch):
    monkeypatch.setattr(mining, "BLOCK_ENTRIES", 45)
    queries, weights = sparse(13, 8), sparse(8, 15)
    found = mine_hard_negatives(queries, weights, 4, until=-1.0)
    assert 0 < len(found) < 13
    np.testing.assert_array_equal(found, mine_hard_negatives(queries, weights, 4)[: len(found)])


@pytest.mark.gpu
@NEEDS_GPU
def test_training_agrees_on_a_gpu():
    queries, first = sparse(40, 30, 0.2), sparse(20, 30, 0.3)
    own = sp.csr_matrix((RNG.random((40, 20)) < 0.1).astype(np.float32))
    found = [
        train_weights(
            queries, own, first, None, LexicalConfig(), 0, device, np.inf, lambda line: None
        ).toarray()
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-2, atol=1e-2)
