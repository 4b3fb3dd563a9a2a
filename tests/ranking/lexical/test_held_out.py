"""How far weights go from their anchor: the share that ranks held-out texts best."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.ranking.lexical import held_out as module
from umpteen.ranking.lexical.held_out import HeldOutTexts, LabelledTexts

N_TEXTS, N_TERMS, N_LABELS = 160, 40, 24
SHARES = (0.3, 0.7, 1.3)


def problem(noise, seed=3):
    """Texts of three terms, labels that own terms, and weights with noise on top of the truth."""
    rng = np.random.default_rng(seed)
    queries = np.zeros((N_TEXTS, N_TERMS), np.float32)
    for row in queries:
        row[rng.choice(N_TERMS, 3, replace=False)] = 0.3 + rng.random(3)
    right = (rng.random((N_LABELS, N_TERMS)) < 0.2) * 1.0
    truth = np.argsort(-(queries @ right.T), axis=1, kind="stable")[:, :4]
    targets = np.zeros((N_TEXTS, N_LABELS), np.float32)
    np.put_along_axis(targets, truth, 1.0, 1)
    anchor = (right + 0.1).astype(np.float32)
    weights = anchor + (noise * rng.normal(size=anchor.shape)).astype(np.float32)
    return queries, targets, anchor, weights


def plain_precision(scores, targets, banned):
    found = []
    for row, own, away in zip(scores, targets, banned, strict=True):
        best = [label for label in np.argsort(-row, kind="stable") if not away[label]]
        found.append(np.mean([own[best[:k]].sum() / k for k in (1, 3, 5)]))
    return np.array(found)


def plain_choice(queries, targets, anchor, weights, banned):
    whole = plain_precision(queries @ weights.T, targets, banned)
    best, chosen = 0.0, 1.0
    for share in SHARES:
        mixed = anchor + share * (weights - anchor)
        gains = plain_precision(queries @ mixed.T, targets, banned) - whole
        if gains.mean() > max(best, 2 * gains.std() / np.sqrt(len(gains))):
            best, chosen = gains.mean(), share
    return chosen


def choice(queries, targets, anchor, weights, filters=None):
    texts = LabelledTexts(["x"] * len(queries), sp.csr_matrix(targets), filters)
    judge = HeldOutTexts(sp.csr_matrix(queries), texts)
    return judge.best_share(anchor.ravel(), sp.csr_matrix(weights), SHARES)


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 1.0), (0.8, 0.3)])
@pytest.mark.parametrize("filtered", [False, True])
def test_the_share_is_that_of_a_loop(noise, expected, filtered):
    given = problem(noise)
    pairs = np.argwhere(np.random.default_rng(1).random((N_TEXTS, N_LABELS)) < 0.1)
    banned = np.zeros((N_TEXTS, N_LABELS), bool)
    if filtered:
        banned[pairs[:, 0], pairs[:, 1]] = True
        given[1][banned] = 0.0
    found = choice(*given, filters=pairs if filtered else None)
    assert found == plain_choice(*given, banned) == expected


@pytest.mark.parametrize(("added", "expected"), [(0.0, False), (0.05, False), (0.4, True)])
def test_weights_are_better_where_they_are_beyond_chance(added, expected):
    queries, targets, _, right = problem(0.003)  # without ties
    wrong = right.copy()
    wrong[1] += np.float32(added)  # a label that is ranked too high
    texts = LabelledTexts([""] * N_TEXTS, sp.csr_matrix(targets))
    better = HeldOutTexts(sp.csr_matrix(queries), texts).comparison(sp.csr_matrix(wrong))
    banned = np.zeros((N_TEXTS, N_LABELS), bool)
    gains = plain_precision(queries @ right.T, targets, banned)
    gains -= plain_precision(queries @ wrong.T, targets, banned)
    assert (gains.mean() > 0) == (added > 0)
    assert expected == bool(gains.mean() > max(0.0, 2 * gains.std() / np.sqrt(len(gains))))
    assert better(right.ravel(), wrong.ravel()) is expected
    assert not better(wrong.ravel(), right.ravel())


def test_weights_that_stop_short_go_farther():
    queries, targets, right, noisy = problem(0.8)
    half = noisy + np.float32(0.5) * (right - noisy)  # from noise half of the way to what is right
    assert choice(queries, targets, noisy, half) == 1.3


def test_few_texts_choose_nothing(monkeypatch):
    given = problem(0.8)
    assert choice(*(one[:99] if len(one) == N_TEXTS else one for one in given)) == 1.0
    products = np.count_nonzero(given[0]) * N_LABELS
    monkeypatch.setattr(module, "MAX_PRODUCTS", products * 99 // N_TEXTS)
    assert choice(*given) == 1.0
    monkeypatch.setattr(module, "MAX_PRODUCTS", products)
    assert choice(*given) == 0.3


def test_of_many_texts_some_are_used(monkeypatch):
    monkeypatch.setattr(module, "MAX_TEXTS", 100)
    queries, targets, *_ = problem(0.8)
    judge = HeldOutTexts(
        sp.csr_matrix(queries), LabelledTexts([""] * N_TEXTS, sp.csr_matrix(targets))
    )
    assert judge.rows[[0, -1]].tolist() == [0, N_TEXTS - 1]
    np.testing.assert_array_equal(judge.queries.toarray(), queries[judge.rows])
    np.testing.assert_array_equal(judge.truth.toarray(), targets[judge.rows])
