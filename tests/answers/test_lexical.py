"""Sparse weights: the linear form, its gradient, its first values, and what training brings."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.answers.lexical import Lexical, best_columns, dense_blocks, nearest_texts
from umpteen.answers.lexical_training import LexicalRecipe, learn_lexical, training_pairs
from umpteen.answers.supports import first_weights, on_support, widened
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


def test_pairs_hold_all_positives_of_queries_looked_at_and_no_filtered_pair():
    own = targets()
    near = np.full((len(TEXTS), 2), -1)
    near[:6] = [[0, 1], [4, 2], [3, -1], [1, 2], [2, 0], [1, -1]]
    filters = np.array([[0, 0], [1, 4]])
    pairs = training_pairs(own, near, filters)
    found = list(zip(pairs.rows.tolist(), pairs.labels.tolist(), strict=True))
    true = {pair for pair in zip(*(p.tolist() for p in own.nonzero()), strict=True) if pair[0] < 6}
    close = {(row, label) for row in range(6) for label in near[row].tolist() if label >= 0}
    assert found == sorted((true | close) - {(0, 0), (1, 4)})
    right = {pair for pair, yes in zip(found, pairs.positive, strict=True) if yes}
    assert right == true - {(0, 0)}


def test_widening_lets_labels_weigh_the_words_of_near_queries():
    weights, queries = sparse(4, 9, 0.3), sparse(6, 9, 0.3)
    near = np.array([[0, 1], [2, -1], [-1, -1], [3, 0], [-1, -1], [1, 2]])
    wide = widened(weights, queries, near, 1000)
    expected = weights.toarray() != 0
    for row, labels in enumerate(near.tolist()):
        for label in labels:
            if label >= 0:
                expected[label] |= queries.toarray()[row] != 0
    np.testing.assert_array_equal(wide.toarray() != 0, expected)
    np.testing.assert_allclose(wide.toarray(), weights.toarray(), atol=1e-4)
    few = widened(weights, queries, near, weights.nnz)
    assert few.nnz <= weights.nnz
    np.testing.assert_allclose(on_support(weights, wide), weights[wide.nonzero()].A1, atol=1e-6)


def separated(steps, **options):
    recipe = LexicalRecipe(steps=steps, **options)
    lexical, vectors = learn_lexical(TEXTS, targets(), LABELS, recipe=recipe)
    scores = (vectors @ lexical.weights).toarray()
    right = targets().toarray() > 0
    worst = np.where(right, scores, np.inf).min(axis=1)
    best_wrong = np.where(right, -np.inf, scores).max(axis=1)
    return float((worst - best_wrong).mean())


def test_training_separates_what_the_mean_confuses():
    assert separated((10, 20)) > separated(()) + 0.2
    assert separated((10, 20), most_products=1) > separated(()) + 0.2


def test_out_of_time_it_says_so_and_still_answers():
    told = []
    late = LexicalRecipe(seconds=-1.0)
    lexical, vectors = learn_lexical(TEXTS, targets(), LABELS, recipe=late, say=told.append)
    assert told == ["words: no time to learn margins", "words: out of time before round 1 of 2"]
    assert lexical.margins is None
    first, _ = learn_lexical(TEXTS, targets(), LABELS, recipe=LexicalRecipe(steps=()))
    np.testing.assert_array_equal(lexical.weights.toarray(), first.weights.toarray())
    assert (vectors @ lexical.weights).nnz


def test_the_bound_on_weights_holds():
    bound = LexicalRecipe(most_weights=12, least_weight=0.0)
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS, recipe=bound)
    assert 0 < lexical.weights.nnz <= 12


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
    texts = [*TEXTS[:3], "a zebra, unheard of"]
    asked = lexical.words.vectors(texts)
    np.testing.assert_allclose(lexical.scores(asked), (asked @ lexical.weights).toarray())
    scores = lexical.scores_of_added(texts, asked, ["red fox", "nothing known"])
    assert scores.shape == (4, 2)
    assert scores[0, 0] == pytest.approx(20.0, rel=1e-5)  # the same words
    assert (scores[:, 1] == 0).all()
    others = lexical.scores_of_added(texts, asked, ["nothing known", "red fox", "red fox"])
    np.testing.assert_array_equal(others, scores[:, [1, 0, 0]])


def test_words_that_training_has_not_seen_count_for_an_added_label():
    lexical, _ = learn_lexical(TEXTS, targets(), LABELS)
    texts = ["zebra unheard", "red zebra", "red fox"]
    scores = lexical.scores_of_added(texts, lexical.words.vectors(texts), ["unheard zebra", "red"])
    assert scores[0] == pytest.approx([20.0, 0.0], rel=1e-5)
    assert 0 < scores[1, 0] < 20
    assert scores[2, 0] == 0
