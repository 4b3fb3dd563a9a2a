"""One-vs-rest: slopes, a plainly written step, the rule, time, files, laws, devices."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.errors import RunError
from umpteen.ranking.lexical import one_vs_rest_training as module
from umpteen.ranking.lexical.batches import DeviceRows, TextBatches, largest_eigenvalue
from umpteen.ranking.lexical.matrices import unit_rows
from umpteen.ranking.lexical.one_vs_rest import OneVsRest
from umpteen.ranking.lexical.one_vs_rest_training import (
    OneVsRestConfig,
    hinge_slopes,
    prune_weights,
    signs_of,
    total_loss,
    train_block,
    train_one_vs_rest,
)

RNG = np.random.default_rng(11)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_GPU])]
ANIMALS, COLORS = ("fox", "cat", "owl"), ("red", "green", "blue", "old")
TEXTS = [f"{color} {animal} seen" for color in COLORS for animal in ANIMALS] * 5
LABELS = ["about foxes", "about cats", "about owls", "red"]
WORDS = OneVsRestConfig(char_ngrams=False)


def targets():
    rows = [[a in text for a in ANIMALS] + ["red" in text] for text in TEXTS]
    return sp.csr_matrix(np.array(rows, np.float32))


def sparse(n, m, share=0.4):
    dense = np.where(RNG.random((n, m)) < share, RNG.random((n, m)) + 0.1, 0)
    return sp.csr_matrix(dense.astype(np.float32))


def test_slopes_are_those_of_the_loss():
    scores = torch.from_numpy(3 * RNG.normal(size=(7, 5))).requires_grad_()
    signs = torch.from_numpy(RNG.integers(-1, 2, size=(7, 5)).astype(np.float64))
    loss = torch.clamp(1 - signs * (scores - 1), min=0).square()
    (loss * (signs != 0)).sum().backward()
    np.testing.assert_allclose(hinge_slopes(scores.detach(), signs), scores.grad, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_sparse_rows_times_is_the_product(device):
    matrix = sp.csr_matrix(sparse(9, 13, 0.2).toarray() * (np.arange(9) != 3)[:, None])
    matrix.data = matrix.data.astype(np.float32)
    other = RNG.normal(size=(13, 5)).astype(np.float32)
    product = DeviceRows.of(matrix, device).times(torch.from_numpy(other).to(device))
    np.testing.assert_allclose(product.cpu(), matrix @ other, rtol=1e-5, atol=1e-6)


def test_the_largest_eigenvalue_is_that_of_the_dense_matrix():
    matrix = sparse(6, 10)
    found, converged = largest_eigenvalue(matrix)
    assert found == pytest.approx(np.linalg.norm(matrix.toarray(), 2) ** 2, rel=1e-2)
    assert converged
    assert largest_eigenvalue(matrix * 0) == (0.0, True)


def test_steps_equal_those_written_densely():
    queries, n, decay = unit_rows(sparse(11, 8)), 11, 0.7
    signs = RNG.integers(-1, 2, size=(11, 3)).astype(np.int8)
    batches = TextBatches.of(queries, 4, 0, "cpu")
    found, losses = train_block(batches, signs, queries.shape, 2, decay)

    dense, weights = queries.toarray().astype(np.float64), np.zeros((8, 3))
    curvature = (dense**2).sum(axis=0)
    scale = 1 / np.sqrt(1 + curvature)
    scale *= (dense**2).sum() / (dense**2 @ scale).sum()
    damping = 1 / np.maximum(1, dense**2 @ scale)
    order = np.concatenate([some.rows.numpy() for some in batches.batches])
    assert sorted(order) == list(range(n))
    scaled = np.sqrt(damping[:, None] * scale) * dense
    largest = np.linalg.norm(scaled[order[:4]], 2) ** 2
    parts = [order[:4], order[4:8], order[8:]] * 2
    visits = np.maximum(1, sum((dense[rows] > 0).any(axis=0) for rows in parts[:3]))
    for number, rows in enumerate(parts):
        scores, sign = dense[rows] @ weights, signs[rows].astype(np.float64)
        slope = -2 * sign * np.maximum(0, 1 - sign * (scores - 1))
        bending = 1 + (largest - 1) * (slope != 0).sum(axis=0) / 4
        change = dense[rows].T @ (damping[rows, None] * slope)
        seen = (dense[rows] > 0).any(axis=0)
        change += (seen / visits)[:, None] * weights * decay
        weights -= 0.5 * (1 - number / 6) / bending * scale[:, None] * change
    np.testing.assert_allclose(found.numpy(), weights, rtol=1e-2, atol=1e-3)
    short = np.maximum(0, 1 - signs * (dense @ found.numpy() - 1)) * (signs != 0)
    expected = (short**2).sum() + decay / 2 * (found.numpy() ** 2).sum()
    assert losses[1] == pytest.approx(expected, rel=1e-5)
    assert losses[0] == pytest.approx(4.0 * (signs == 1).sum(), rel=1e-5)


def test_many_epochs_approach_the_minimum():
    queries = unit_rows(sparse(40, 15))
    signs = np.where(RNG.random((40, 3)) < 0.3, 1, -1).astype(np.int8)
    batches = TextBatches.of(queries, 8, 0, "cpu")
    _, losses = train_block(batches, signs, queries.shape, 300, 1.0)

    weights = torch.zeros(15, 3, dtype=torch.float64, requires_grad=True)
    dense, sign = torch.from_numpy(queries.toarray()).double(), torch.from_numpy(signs).double()
    solver = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def loss():
        solver.zero_grad()
        short = (1 - sign * (dense @ weights - 1)).clamp_min(0)
        value = short.square().sum() + 0.5 * weights.square().sum()
        value.backward()
        return value

    solver.step(loss)
    best = float(loss().detach())
    assert best <= losses[1] < best + 0.05 * (losses[0] - best)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
@pytest.mark.parametrize("which", ["random", "all", "none", "first only"])
def test_the_loss_never_rises_and_nothing_is_nan(which, scale):
    queries = unit_rows(sparse(23, 9)) * np.float32(scale)
    signs = np.where(RNG.random((23, 4)) < 0.3, 1, -1)
    signs = {"all": signs * 0 + 1, "none": signs * 0 - 1}.get(which, signs).astype(np.int8)
    if which == "first only":
        signs[:] = np.where(np.arange(4) == 0, 1, -1)
    batches = TextBatches.of(queries, 5, 0, "cpu")
    weights, losses = train_block(batches, signs, queries.shape, 3, 1.0)
    assert torch.isfinite(weights).all()
    start = total_loss(batches, torch.from_numpy(signs), torch.zeros_like(weights), 1.0)
    after = total_loss(batches, torch.from_numpy(signs), weights, 1.0)
    assert (after <= start).all()
    assert losses[1] <= losses[0]


@pytest.mark.parametrize("config", [WORDS, OneVsRestConfig()])
def test_labels_are_separated_and_a_second_fit_is_equal(config):
    fitted = OneVsRest.fit(TEXTS, targets(), LABELS, config=config)
    assert (fitted.char_ngrams is None) == (config is WORDS)
    scores = (fitted.transform(TEXTS) @ fitted.weights).toarray()
    right = targets().toarray() > 0
    assert scores[right].min() > 1.0 > scores[~right].max()
    again = OneVsRest.fit(TEXTS, targets(), LABELS, config=config)
    np.testing.assert_array_equal(fitted.weights.toarray(), again.weights.toarray())


@pytest.mark.parametrize("config", [WORDS, OneVsRestConfig()])
def test_one_text_scores_as_in_a_batch(config):
    fitted = OneVsRest.fit(TEXTS, targets(), LABELS, config=config)
    together = (fitted.transform(TEXTS[:5]) @ fitted.weights).toarray()
    alone = [(fitted.transform([text]) @ fitted.weights).toarray() for text in TEXTS[:5]]
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=1e-5)
    raw = fitted.vectorizer.transform_raw(TEXTS[:5])
    given = (fitted.transform(TEXTS[:5], raw) @ fitted.weights).toarray()
    np.testing.assert_array_equal(given, together)


def test_filtered_pairs_are_neither_positive_nor_negative(monkeypatch):
    monkeypatch.setattr(module, "LABELS_AT_ONCE", {"cpu": 2})
    queries, own = unit_rows(sparse(20, 9)), (RNG.random((20, 5)) < 0.3).astype(np.float32)
    filters = np.array([[3, 0], [4, 4], [19, 2]])
    other = own.copy()
    other[tuple(filters.T)] = 1 - other[tuple(filters.T)]
    found = [
        train_one_vs_rest(queries, sp.csr_matrix(which), filters=filters).toarray()
        for which in (own, other)
    ]
    np.testing.assert_array_equal(*found)
    signs = signs_of(sp.csc_matrix(own), filters, 2, 5)
    expected = 2 * own[:, 2:5] - 1
    expected[[4, 19], [2, 0]] = 0
    np.testing.assert_array_equal(signs, expected)


def test_the_rule_requires_few_labels_and_many_texts():
    config = OneVsRestConfig(max_pairs=40, min_texts=1.5)
    six, five = (sp.csr_matrix(np.arange(16).reshape(4, 4) < n) for n in (6, 5))
    assert config.suits(10, six)
    assert not config.suits(11, six)
    assert not config.suits(10, five)
    assert not config.suits(10, sp.csr_matrix((4, 0), dtype=np.float32))
    never = OneVsRestConfig(min_texts=1e9)
    assert OneVsRest.fit(TEXTS, targets(), LABELS, config=never) is None


@pytest.mark.parametrize(("seconds", "word"), [(3.5, "cut by"), (1.1, "no time")])
def test_what_does_not_fit_the_time_is_logged(monkeypatch, seconds, word):
    ticks = iter(np.arange(0, 100, 0.3))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(module, "LABELS_AT_ONCE", {"cpu": 1})
    lines = []
    queries, ones = unit_rows(sparse(20, 9)), sp.csr_matrix(np.ones((20, 7)))
    found = train_one_vs_rest(queries, ones, until=seconds, log=lines.append)
    assert len(lines) == 1
    assert word in lines[0]
    assert (found is None) == (word == "no time")
    assert found is None or np.diff(found.tocsc().indptr).all()


def test_weights_are_pruned_to_the_largest():
    weights = torch.tensor([[0.5, -0.01], [-0.7, 0.3], [0.2, 0.04], [0.0, -0.9]])
    kept = prune_weights(weights, 0.03, 2).toarray()
    expected = np.array([[0.5, -0.7, 0, 0], [0, 0.3, 0, -0.9]], np.float32)
    np.testing.assert_allclose(kept, expected, rtol=1e-3)
    bound = OneVsRestConfig(max_weights=9, min_weight=0.0)
    fitted = OneVsRest.fit(TEXTS, targets(), LABELS, config=bound)
    assert 0 < fitted.weights.nnz <= 9


@pytest.mark.parametrize("config", [WORDS, OneVsRestConfig(max_terms=3)])
def test_loaded_classifiers_score_the_same_and_damage_raises_run_error(config, tmp_path):
    fitted = OneVsRest.fit(TEXTS, targets(), LABELS, config=config)
    fitted.save(tmp_path)
    again = OneVsRest.load(tmp_path, len(LABELS))
    np.testing.assert_array_equal(
        (again.transform(TEXTS) @ again.weights).toarray(),
        (fitted.transform(TEXTS) @ fitted.weights).toarray(),
    )
    shared = OneVsRest.load(tmp_path, len(LABELS), vectorizer=fitted.vectorizer)
    assert shared.vectorizer is fitted.vectorizer
    (tmp_path / "weights.npy").write_bytes(b"no")
    with pytest.raises(RunError, match="damaged"):
        OneVsRest.load(tmp_path, len(LABELS))
    (tmp_path / "one_vs_rest.json").write_text("{}")
    with pytest.raises(RunError, match="damaged"):
        OneVsRest.load(tmp_path, len(LABELS))


@pytest.mark.gpu
@NEEDS_GPU
def test_training_agrees_on_a_gpu():
    queries = unit_rows(sparse(300, 40))
    own = sp.csr_matrix((RNG.random((300, 70)) < 0.1).astype(np.float32))
    config = OneVsRestConfig(batch=64, min_weight=0.0)
    found = [train_one_vs_rest(queries, own, config=config, device=d) for d in ("cpu", "cuda")]
    np.testing.assert_allclose(found[0].toarray(), found[1].toarray(), rtol=1e-2, atol=1e-2)
