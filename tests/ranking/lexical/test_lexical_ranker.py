"""The lexical ranker: initial weights, sparsity, training, limits, files."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.errors import RunError
from umpteen.ranking.lexical import frequent_terms, ranker_training, sparsity
from umpteen.ranking.lexical.frequent_terms import FrequentTerms
from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.ranker_training import LexicalConfig, training_pairs
from umpteen.ranking.lexical.sparse_topk import product
from umpteen.ranking.lexical.sparsity import initial_weights, values_at, widen
from umpteen.ranking.lexical.vectorizer import Vectorizer

RNG = np.random.default_rng(4)
TEXTS = [f"{a} {b}" for a in ("red", "green", "blue", "old") for b in ("fox", "cat", "owl")] * 3
LABELS = ["fox", "cat", "owl", "anything red", "old things"]


def targets():
    matrix = np.zeros((len(TEXTS), len(LABELS)), np.float32)
    for row, text in enumerate(TEXTS):
        color, animal = text.split()
        matrix[row, ("fox", "cat", "owl").index(animal)] = 1
        matrix[row, 3] = color == "red"
        matrix[row, 4] = color == "old"
    return sp.csr_matrix(matrix)


def sparse(n, m, share=0.4):
    return sp.csr_matrix(
        np.where(RNG.random((n, m)) < share, RNG.random((n, m)) + 0.1, 0).astype(np.float32)
    )


def test_initial_weights_are_unit_sums_and_can_be_pruned():
    queries, labels = sparse(6, 9), sparse(3, 9)
    own = sp.csr_matrix(np.array([[1, 0, 0], [1, 1, 0]] * 3, np.float32))
    whole = initial_weights(queries, own, labels, 1000).toarray()
    # Six, three and no training texts: the label's own text counts 1 + 0.3 * 5, 1 + 0.3 * 2, 1.
    parts = [part.toarray().astype(np.float64) for part in (own, queries, labels)]
    sums = parts[0].T @ parts[1] + np.array([[2.5], [1.6], [1.0]]) * parts[2]
    expected = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    np.testing.assert_allclose(whole, expected, rtol=1e-5)
    pruned = initial_weights(queries, own, labels, 7)
    assert pruned.nnz <= 7
    kept = pruned.toarray() > 0
    for row, counts in zip(expected, kept, strict=True):
        assert row[counts].min() >= row[~counts].max() - 1e-6


def test_pairs_hold_positives_and_hard_negatives_but_no_filtered_pair():
    own = targets()
    near = np.full((len(TEXTS), 2), -1)
    near[:6] = [[0, 1], [4, 2], [3, -1], [1, 2], [2, 0], [1, -1]]
    filters = np.array([[0, 0], [1, 4]])
    pairs = training_pairs(own, near, filters)
    found = list(zip(pairs.rows.tolist(), pairs.labels.tolist(), strict=True))
    true = {pair for pair in zip(*(p.tolist() for p in own.nonzero()), strict=True) if pair[0] < 6}
    close = {(row, label) for row in range(6) for label in near[row].tolist() if label >= 0}
    assert found == sorted((true | close) - {(0, 0), (1, 4)}, key=lambda pair: pair[::-1])
    right = {pair for pair, yes in zip(found, pairs.positive, strict=True) if yes}
    assert right == true - {(0, 0)}


@pytest.mark.parametrize("max_weights", [7, 60, 150, 10_000])
@pytest.mark.parametrize("at_once", [1, 40, 300])
def test_sums_of_some_labels_at_a_time_are_those_of_all(max_weights, at_once, monkeypatch):
    rng = np.random.default_rng(5)

    def drawn(n, m, share):
        dense = np.where(rng.random((n, m)) < share, rng.random((n, m)), 0)
        return sp.csr_matrix(dense.astype(np.float32))

    queries, labels, own = drawn(40, 30, 0.3), drawn(23, 30, 0.1), drawn(40, 23, 0.2)
    near = np.where(rng.random((40, 3)) < 0.8, rng.integers(23, size=(40, 3)), -1)
    found = []
    for size in (1 << 40, at_once):
        monkeypatch.setattr(sparsity, "BLOCK_PRODUCTS", size)
        first = initial_weights(queries, own, labels, max_weights)
        found.append((first, widen(first, queries, near, max_weights)))
    for wanted, made in zip(*found, strict=True):
        np.testing.assert_array_equal(made.indptr, wanted.indptr)
        np.testing.assert_array_equal(made.indices, wanted.indices)
        np.testing.assert_array_equal(made.data, wanted.data)
        assert made.nnz <= max(max_weights, 23)


def test_within_the_limit_frequent_labels_keep_more_terms(monkeypatch):
    monkeypatch.setattr(sparsity, "MIN_WEIGHTS", 2)
    queries = sp.csr_matrix(np.eye(9, dtype=np.float32)[[0, 1, 2, 3, 0, 1, 2, 3, 5, 6, 7]])
    own = sp.csr_matrix(np.repeat(np.eye(2, dtype=np.float32), [8, 3], axis=0))
    labels = sp.csr_matrix((2, 9), dtype=np.float32)
    whole = initial_weights(queries, own, labels, 100)
    assert np.diff(whole.indptr).tolist() == [4, 3]
    kept = initial_weights(queries, own, labels, 6)
    assert np.diff(kept.indptr).tolist() == [4, 2]  # sums of 2 come before those of 1
    assert initial_weights(queries, own, labels, 4).nnz == 4
    near = np.array([[1]] * 8 + [[0]] * 3)  # each label is a hard negative of the other's texts
    assert np.diff(widen(kept, queries, near, 100).indptr).tolist() == [7, 6]
    wider = widen(kept, queries, near, 9)
    assert wider.nnz <= 9
    assert not (sp.csr_matrix(kept != 0) > sp.csr_matrix(wider != 0)).nnz  # none is lost


def test_texts_of_many_labels_get_more_hard_negatives():
    assert ranker_training.training_size(LexicalConfig(), 100, 10, 22.4)[0] == 100 + 16
    assert ranker_training.training_size(LexicalConfig(), 100, 10, 6.1)[0] == 100


def test_widening_adds_the_terms_of_texts_with_the_label_as_hard_negative():
    weights, queries = sparse(4, 9, 0.3), sparse(6, 9, 0.3)
    near = np.array([[0, 1], [2, -1], [-1, -1], [3, 0], [-1, -1], [1, 2]])
    wide = widen(weights, queries, near, 1000)
    expected = weights.toarray() != 0
    for row, labels in enumerate(near.tolist()):
        for label in labels:
            if label >= 0:
                expected[label] |= queries.toarray()[row] != 0
    np.testing.assert_array_equal(wide.toarray() != 0, expected)
    np.testing.assert_allclose(wide.toarray(), weights.toarray(), atol=1e-4)
    assert widen(weights, queries, near, weights.nnz).nnz <= weights.nnz
    np.testing.assert_allclose(values_at(weights, wide), weights[wide.nonzero()].A1, atol=1e-6)


def separation(steps, **options):
    config = LexicalConfig(steps=steps, **options)
    ranker, terms = LexicalRanker.fit(TEXTS, targets(), LABELS, config=config)
    scores = (terms @ ranker.weights).toarray()
    right = targets().toarray() > 0
    worst = np.where(right, scores, np.inf).min(axis=1)
    best_wrong = np.where(right, -np.inf, scores).max(axis=1)
    return float((worst - best_wrong).mean())


def test_training_separates_what_the_mean_confuses():
    assert separation((10, 20)) > separation(()) + 0.2
    assert separation((10, 20), max_products=1) > separation(()) + 0.2


def test_without_time_the_initial_weights_are_kept_and_the_log_says_it():
    lines = []
    ranker, terms = LexicalRanker.fit(TEXTS, targets(), LABELS, seconds=-1.0, log=lines.append)
    assert len(lines) == 1
    assert "no time" in lines[0]
    first, _ = LexicalRanker.fit(TEXTS, targets(), LABELS, config=LexicalConfig(steps=()))
    np.testing.assert_array_equal(ranker.weights.toarray(), first.weights.toarray())
    assert (terms @ ranker.weights).nnz


def test_the_log_reports_the_loss_of_each_round():
    lines = []
    LexicalRanker.fit(TEXTS, targets(), LABELS, log=lines.append)
    assert [line.split(":")[1].strip() for line in lines] == ["round 1 of 2", "round 2 of 2"]
    assert all("loss" in line and "warning" not in line for line in lines)


def test_limits_on_weights_and_postings_hold():
    config = LexicalConfig(max_weights=12, weights_per_label=0, min_weight=0.0)
    ranker, _ = LexicalRanker.fit(TEXTS, targets(), LABELS, config=config)
    assert 0 < ranker.weights.nnz <= 12
    config = LexicalConfig(max_postings=2, many_labels=4)
    pruned, _ = LexicalRanker.fit(TEXTS, targets(), LABELS, config=config)
    assert np.diff(pruned.weights.indptr).max() == 2
    config = LexicalConfig(max_postings=2, many_labels=5)
    whole, _ = LexicalRanker.fit(TEXTS, targets(), LABELS, config=config)
    assert np.diff(whole.weights.indptr).max() > 2


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_pruned_postings_do_not_change_the_scores_of_candidates(at_once, monkeypatch, tmp_path):
    monkeypatch.setattr(frequent_terms, "GATHERED_AT_ONCE", at_once)
    whole, terms = LexicalRanker.fit(TEXTS, targets(), LABELS)
    config = LexicalConfig(max_postings=1, many_labels=4)
    pruned, _ = LexicalRanker.fit(TEXTS, targets(), LABELS, config=config)
    assert pruned.weights.nnz < whole.weights.nnz
    np.testing.assert_array_equal(pruned.all_weights().toarray(), whole.weights.toarray())
    rows = RNG.integers(-1, len(LABELS) + 1, size=(len(TEXTS), 4))
    dense = np.pad((terms @ whole.weights).toarray(), ((0, 0), (0, 1)))
    expected = np.where(rows >= 0, np.take_along_axis(dense, np.maximum(rows, 0), 1), 0)
    pruned.save(tmp_path)
    for ranker in (whole, pruned, LexicalRanker.load(tmp_path, len(LABELS), Vectorizer)):
        found = ranker.look_up(terms, product(terms, ranker.weights), rows)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    none = pruned.frequent_terms.look_up(terms * 0, rows)
    assert not none.any()
    assert pruned.frequent_terms.look_up(terms[:0], rows[:0]).shape == (0, 4)


def test_the_table_of_frequent_terms_is_bounded(monkeypatch):
    monkeypatch.setattr(frequent_terms, "MAX_VALUES", 23)
    residual = sparse(9, 10)
    table = FrequentTerms.of(residual)
    assert len(table.terms) == 2
    sizes = np.asarray(abs(residual).sum(axis=1)).ravel()
    assert set(table.terms.tolist()) == set(np.argsort(-sizes)[:2].tolist())
    np.testing.assert_array_equal(table.table, residual.toarray()[table.terms])


@pytest.mark.parametrize("which", ["none", "all", "one"])
def test_degenerate_targets_give_finite_weights(which):
    dense = {"none": 0, "all": 1, "one": np.arange(len(LABELS)) == 2}[which]
    own = sp.csr_matrix(np.zeros((len(TEXTS), len(LABELS)), np.float32) + dense)
    ranker, _ = LexicalRanker.fit(TEXTS, own, LABELS)
    assert np.isfinite(ranker.weights.data).all()


def test_a_given_vectorizer_is_used():
    ranker, terms = LexicalRanker.fit(TEXTS, targets(), LABELS)
    again, same = LexicalRanker.fit(TEXTS, targets(), LABELS, vectorizer=ranker.vectorizer)
    assert again.vectorizer is ranker.vectorizer
    np.testing.assert_array_equal(again.weights.toarray(), ranker.weights.toarray())
    np.testing.assert_array_equal(same.toarray(), terms.toarray())


def test_a_loaded_ranker_has_the_same_weights_and_damage_raises_run_error(tmp_path):
    ranker, _ = LexicalRanker.fit(TEXTS, targets(), LABELS)
    ranker.save(tmp_path)
    again = LexicalRanker.load(tmp_path, len(LABELS), Vectorizer)
    np.testing.assert_array_equal(again.weights.toarray(), ranker.weights.toarray())
    with pytest.raises(RunError, match="damaged"):
        LexicalRanker.load(tmp_path, 2, Vectorizer)
    (tmp_path / "indices.npy").write_bytes(b"no")
    with pytest.raises(RunError, match="damaged"):
        LexicalRanker.load(tmp_path, len(LABELS), Vectorizer)
