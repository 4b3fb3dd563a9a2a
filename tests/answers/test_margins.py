"""Margins: the slopes of the loss, a step written another way, the rule, time, saving, devices."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.answers import margins as module
from umpteen.answers.lexical import Lexical
from umpteen.answers.lexical_training import LexicalRecipe, learn_lexical
from umpteen.answers.margins import (
    MarginsRecipe,
    learn_margins,
    pruned,
    signs_of,
    slopes,
    train_block,
)
from umpteen.answers.query_batches import QueryBatches, Rows, largest_eigenvalue
from umpteen.answers.words import unit_rows
from umpteen.errors import RunError

RNG = np.random.default_rng(11)
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_GPU])]
ANIMALS, COLORS = ("fox", "cat", "owl"), ("red", "green", "blue", "old")
TEXTS = [f"{color} {animal} seen" for color in COLORS for animal in ANIMALS] * 5
LABELS = ["about foxes", "about cats", "about owls", "red"]


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
    np.testing.assert_allclose(slopes(scores.detach(), signs), scores.grad, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_rows_times_is_the_product(device):
    matrix = sp.csr_matrix(sparse(9, 13, 0.2).toarray() * (np.arange(9) != 3)[:, None])
    matrix.data = matrix.data.astype(np.float32)
    other = RNG.normal(size=(13, 5)).astype(np.float32)
    product = Rows.of(matrix, device).times(torch.from_numpy(other).to(device))
    np.testing.assert_allclose(product.cpu(), matrix @ other, rtol=1e-5, atol=1e-6)


def test_the_largest_eigenvalue_is_that_of_the_dense_matrix():
    matrix = sparse(6, 10)
    assert largest_eigenvalue(matrix) == pytest.approx(
        np.linalg.norm(matrix.toarray(), 2) ** 2, rel=1e-3
    )


def test_steps_are_those_written_densely():
    queries, n, decay = unit_rows(sparse(11, 8)), 11, 0.7
    signs = RNG.integers(-1, 2, size=(11, 3)).astype(np.int8)
    batches = QueryBatches.of(queries, 4, 0, "cpu")
    found = train_block(batches, signs, queries.shape, 2, decay).numpy()

    dense, weights = queries.toarray().astype(np.float64), np.zeros((8, 3))
    curvature = (dense**2).sum(axis=0)
    scale = 1 / np.sqrt(1 + curvature)
    scale *= (dense**2).sum() / (dense**2 @ scale).sum()
    damping = 1 / np.maximum(1, dense**2 @ scale)
    order = np.concatenate([some.rows.numpy() for some in batches.parts])
    assert sorted(order) == list(range(n))
    scaled = np.sqrt(damping[:, None] * scale) * dense
    largest = np.linalg.norm(scaled[order[:4]], 2) ** 2
    batches = [order[:4], order[4:8], order[8:]] * 2
    for number, rows in enumerate(batches):
        scores, sign = dense[rows] @ weights, signs[rows].astype(np.float64)
        slope = -2 * sign * np.maximum(0, 1 - sign * (scores - 1))
        bending = 1 + (largest - 1) * (slope != 0).sum(axis=0) / 4
        change = dense[rows].T @ (damping[rows, None] * slope)
        seen = (dense[rows] > 0).any(axis=0)[:, None]
        change += seen * weights * decay * len(rows) / n
        weights -= 0.5 * (1 - number / 6) / bending * scale[:, None] * change
    np.testing.assert_allclose(found, weights, rtol=1e-3, atol=1e-4)


def test_margins_set_labels_apart_and_come_out_the_same_again():
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS)
    scores = lexical.margin_scores(lexical.words.weighted(TEXTS))
    right = targets().toarray() > 0
    assert scores[right].min() > 1.0 > scores[~right].max()
    again, _ = learn_lexical(TEXTS, targets(), LABELS)
    np.testing.assert_array_equal(lexical.margins.toarray(), again.margins.toarray())


def test_a_text_alone_scores_as_in_company():
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS)
    together = lexical.margin_scores(lexical.words.weighted(TEXTS[:5]))
    alone = [lexical.margin_scores(lexical.words.weighted([text])) for text in TEXTS[:5]]
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=1e-6)


def test_filtered_pairs_count_neither_way(monkeypatch):
    monkeypatch.setattr(module, "LABELS_AT_ONCE", {"cpu": 2})
    queries, own = unit_rows(sparse(20, 9)), (RNG.random((20, 5)) < 0.3).astype(np.float32)
    filters = np.array([[3, 0], [4, 4], [19, 2]])
    other = own.copy()
    other[tuple(filters.T)] = 1 - other[tuple(filters.T)]
    found = [
        learn_margins(queries, sp.csr_matrix(which), filters=filters).toarray()
        for which in (own, other)
    ]
    np.testing.assert_array_equal(*found)
    signs = signs_of(sp.csc_matrix(own), filters, 2, 5)
    expected = 2 * own[:, 2:5] - 1
    expected[[4, 19], [2, 0]] = 0
    np.testing.assert_array_equal(signs, expected)


def test_the_rule_asks_for_few_labels_and_many_queries():
    recipe = MarginsRecipe(most_pairs=40, least_queries=1.5)
    six, five = (sp.csr_matrix(np.arange(16).reshape(4, 4) < n) for n in (6, 5))
    assert recipe.suits(10, six)
    assert not recipe.suits(11, six)
    assert not recipe.suits(10, five)
    assert not recipe.suits(10, sp.csr_matrix((4, 0), dtype=np.float32))
    without = LexicalRecipe(margins=MarginsRecipe(least_queries=1e9))
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS, recipe=without)
    assert lexical.margins is None


@pytest.mark.parametrize(("seconds", "said"), [(2.5, "down to 1 of 3"), (1.1, "no time")])
def test_what_does_not_fit_the_time_is_told(monkeypatch, seconds, said):
    ticks = iter(np.arange(0, 100, 0.3))
    monkeypatch.setattr(module.time, "monotonic", lambda: float(next(ticks)))
    monkeypatch.setattr(module, "LABELS_AT_ONCE", {"cpu": 1})
    told = []
    queries = unit_rows(sparse(20, 9))
    found = learn_margins(queries, sp.csr_matrix(np.ones((20, 7))), until=seconds, say=told.append)
    assert len(told) == 1
    assert said in told[0]
    assert (found is None) == (said == "no time")
    assert found is None or np.diff(found.tocsc().indptr).all()


def test_weights_are_pruned_to_the_largest():
    weights = torch.tensor([[0.5, -0.01], [-0.7, 0.3], [0.2, 0.04], [0.0, -0.9]])
    kept = pruned(weights, 0.03, 2).toarray()
    expected = np.array([[0.5, -0.7, 0, 0], [0, 0.3, 0, -0.9]], np.float32)
    np.testing.assert_allclose(kept, expected, rtol=1e-3)
    bound = LexicalRecipe(margins=MarginsRecipe(most_weights=9, least_weight=0.0))
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS, recipe=bound)
    assert 0 < lexical.margins.nnz <= 9


def test_saved_margins_are_the_same_and_damage_is_a_sentence(tmp_path):
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS)
    lexical.save(tmp_path)
    again = Lexical.load(tmp_path, len(LABELS))
    np.testing.assert_array_equal(again.margins.toarray(), lexical.margins.toarray())
    (tmp_path / "margins" / "weights.npy").write_bytes(b"no")
    with pytest.raises(RunError, match="damaged"):
        Lexical.load(tmp_path, len(LABELS))


@pytest.mark.gpu
@NEEDS_GPU
def test_margins_agree_on_a_gpu():
    queries = unit_rows(sparse(300, 40))
    own = sp.csr_matrix((RNG.random((300, 70)) < 0.1).astype(np.float32))
    recipe = MarginsRecipe(batch=64, least_weight=0.0)
    found = [learn_margins(queries, own, recipe=recipe, device=d) for d in ("cpu", "cuda")]
    np.testing.assert_allclose(found[0].toarray(), found[1].toarray(), rtol=1e-2, atol=1e-2)
