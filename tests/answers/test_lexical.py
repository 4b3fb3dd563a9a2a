"""Sparse weights: the linear form, its gradient, its first values, and what training brings."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.answers.lexical import Lexical, best_columns, dense_blocks, nearest_texts
from umpteen.answers.lexical_training import (
    LexicalRecipe,
    first_weights,
    learn_lexical,
    overlaps,
    softmax_slope,
    training_pairs,
)
from umpteen.errors import RunError

RNG = np.random.default_rng(4)
TEXTS = [f"{a} {b}" for a in ("red", "green", "blue", "old") for b in ("fox", "cat", "owl")] * 3
LABELS = ["fox", "cat", "owl", "anything red", "old things"]


def targets():
    rows = []
    for text in TEXTS:
        color, animal = text.split()
        own = [("fox", "cat", "owl").index(animal)]
        own += [3] if color == "red" else [4] if color == "old" else []
        rows.append(own)
    matrix = sp.lil_matrix((len(TEXTS), len(LABELS)), dtype=np.float32)
    for row, own in enumerate(rows):
        matrix[row, own] = 1.0
    return matrix.tocsr()


def sparse(n, m, share=0.4):
    return sp.csr_matrix(
        np.where(RNG.random((n, m)) < share, RNG.random((n, m)) + 0.1, 0).astype(np.float32)
    )


@pytest.mark.parametrize("at_once", [1, 17, 1 << 20])
def test_overlaps_times_weights_are_the_scores_of_pairs(at_once, monkeypatch):
    monkeypatch.setattr("umpteen.answers.lexical_training.ENTRIES_AT_ONCE", at_once)
    queries, weights = sparse(7, 11), sparse(5, 11)
    rows = np.array([0, 0, 1, 3, 6, 6, 6])
    labels = np.array([4, 1, 0, 2, 0, 1, 4])
    matrix = overlaps(queries, weights, rows, labels)
    expected = (queries @ weights.T).toarray()[rows, labels]
    np.testing.assert_allclose(matrix @ weights.data, expected, rtol=1e-5)


def test_the_slope_is_that_of_the_loss():
    starts, sizes = np.array([0, 3, 5]), np.array([3, 2, 4])
    positive = np.array([1, 0, 1, 0, 0, 0, 1, 0, 0], bool)
    n_positives = np.array([2.0, 0.0, 1.0], np.float32)
    scores = RNG.normal(size=9)

    def loss(values):
        total = 0.0
        for start, size in zip(starts, sizes, strict=True):
            own = values[start : start + size]
            right = positive[start : start + size]
            if right.any():
                total -= (own[right] - np.log(np.exp(own).sum())).mean()
        return total

    slope = softmax_slope(scores, positive, starts, sizes, n_positives)
    for place in range(9):
        step = np.zeros(9)
        step[place] = 1e-5
        measured = (loss(scores + step) - loss(scores - step)) / 2e-5
        assert slope[place] == pytest.approx(measured, abs=1e-6)


def test_first_weights_are_unit_sums_and_can_be_cut():
    queries, labels = sparse(6, 9), sparse(3, 9)
    own = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0]] * 3, np.float32))
    whole = first_weights(queries, own, labels, 1000).toarray()
    sums = own.toarray().T @ queries.toarray() + labels.toarray()
    expected = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    cut = first_weights(queries, own, labels, 7)
    assert cut.nnz <= 7
    kept = cut.toarray() > 0
    for row, counts in zip(expected, kept, strict=True):
        assert row[counts].min() >= row[~counts].max() - 1e-6


def test_pairs_hold_all_positives_and_no_filtered_pair():
    from umpteen.answers.words import Words

    words = Words.learn([*TEXTS, *LABELS])
    queries, own = words.vectors(TEXTS), targets()
    weights = first_weights(queries, own, words.vectors(LABELS), 10**6)
    filters = np.array([[0, 0], [1, 4]])
    recipe = LexicalRecipe(candidates=2)
    rows, labels, positive = training_pairs(queries, own, weights, filters, recipe, 0)
    found = set(zip(rows.tolist(), labels.tolist(), strict=True))
    true = set(zip(*(part.tolist() for part in own.nonzero()), strict=True))
    assert found & {(0, 0), (1, 4)} == set()
    assert true - {(0, 0)} <= found
    right = {
        pair for pair, yes in zip(zip(rows, labels, strict=True), positive, strict=True) if yes
    }
    assert right == true - {(0, 0)}
    few = training_pairs(queries, own, weights, None, LexicalRecipe(most_products=40), 0)
    assert 0 < len(set(few[0].tolist())) < len(TEXTS)


def test_training_separates_what_the_mean_confuses():
    def separated(steps):
        recipe = LexicalRecipe(steps=steps)
        lexical, vectors = learn_lexical(TEXTS, targets(), LABELS, recipe=recipe)
        scores = (vectors @ lexical.weights).toarray()
        right = targets().toarray() > 0
        worst = np.where(right, scores, np.inf).min(axis=1)
        best_wrong = np.where(right, -np.inf, scores).max(axis=1)
        return float((worst - best_wrong).mean())

    assert separated(20) > separated(0) + 0.5


@pytest.mark.parametrize("k", [1, 3, 8, 50])
def test_best_columns_are_the_sorted_positive_scores(k):
    scores = RNG.integers(-2, 4, size=(9, 40)).astype(np.float32)  # many ties
    top = best_columns(scores, k)
    for row, (columns, values) in enumerate(zip(top.rows, top.scores, strict=True)):
        order = sorted(range(40), key=lambda c: (-scores[row, c], c))
        expected = [c for c in order if scores[row, c] > 0][:k]
        assert columns[columns >= 0].tolist() == expected
        np.testing.assert_array_equal(values[: len(expected)], scores[row, expected])
        assert np.isneginf(values[len(expected) :]).all()


def test_blocks_are_the_product():
    left, right = sparse(7, 5), sparse(5, 6)
    blocks = list(dense_blocks(left, right, block_bytes=50))
    assert len(blocks) > 2
    whole = np.concatenate([block for _, block in blocks])
    np.testing.assert_allclose(whole, (left @ right).toarray(), rtol=1e-6)


def test_nearest_texts_are_by_cosine():
    ours, others = sparse(4, 8), sparse(6, 8)
    top = nearest_texts(ours, others.T.tocsr(), 2)
    scores = (ours @ others.T).toarray()
    np.testing.assert_array_equal(top.rows, np.argsort(-scores, axis=1, kind="stable")[:, :2])


def test_a_saved_scorer_answers_the_same_and_damage_is_a_sentence(tmp_path):
    lexical, vectors = learn_lexical(TEXTS, targets(), LABELS)
    lexical.save(tmp_path)
    again = Lexical.load(tmp_path, len(LABELS))
    np.testing.assert_allclose(
        (again.words.vectors(TEXTS) @ again.weights).toarray(),
        (vectors @ lexical.weights).toarray(),
        atol=0.05,  # half precision of weights up to 40
    )
    with pytest.raises(RunError, match="damaged"):
        Lexical.load(tmp_path, 2)
    (tmp_path / "indices.npy").write_bytes(b"no")
    with pytest.raises(RunError, match="damaged"):
        Lexical.load(tmp_path, len(LABELS))


def test_labels_added_since_are_scored_by_their_words():
    lexical, vectors = learn_lexical(TEXTS, targets(), LABELS)
    scores = lexical.scores(vectors[:4], ["red fox", "nothing known"])
    assert scores.shape == (4, 7)
    np.testing.assert_allclose(scores[:, :5], (vectors[:4] @ lexical.weights).toarray())
    assert scores[0, 5] == pytest.approx(20.0, rel=1e-5)  # the same words
    assert (scores[:, 6] == 0).all()
    others = lexical.scores(vectors[:4], ["nothing known", "red fox", "red fox"])
    np.testing.assert_array_equal(others[:, 5:], scores[:, [6, 5, 5]])
    np.testing.assert_array_equal(lexical.scores(vectors[:4]), scores[:, :5])
