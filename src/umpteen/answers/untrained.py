"""Labels that no training query has: what is read of them, and how far it is to be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from umpteen.answers.candidates import VIEWS, Candidates
from umpteen.answers.features import log_shares, of_query
from umpteen.answers.lexical import SCALE

READ = {"dual": 2, "words": 3}
"""Features of each view that knows something of a label from its text alone."""
SHARE = 0.1
"""Of the labels that are hidden at a time."""
ENOUGH = 2000
"""Hidden positives to fit on; labels are hidden in turn until there are as many."""
BEYOND = 1e3
"""A score that no candidate is so far below."""
PAIRS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Trust:
    """Weights of what is read of a label without training queries; the last one of being one."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    weights: NDArray[np.float64]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: values.tolist() for name, values in vars(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], size: int) -> Trust:
        """The weights of ``as_json``, ``size`` of them."""
        names = ("mean", "scale", "weights")
        return cls(*(np.array(value[name], np.float64).reshape(size) for name in names))


def text_parts(views: tuple[str, ...]) -> list[str]:
    """The part each feature of ``text_features`` belongs to, ``"frequency"`` for the last."""
    return [*(VIEWS[view] for view in views for _ in range(READ.get(view, 0))), "frequency"]


def text_features(candidates: Candidates, views: tuple[str, ...]) -> NDArray[np.float64]:
    """(C, U) what a label's text alone says: distance to the query's best cosine, and cosine.

    Words: log-softmax over the query's candidates, score, whether any word is known. Last a one.
    """
    columns: list[NDArray[np.float64]] = []
    for view in views:
        if view in READ:
            scores = candidates.scores[view].astype(np.float64)
            columns += (
                [log_shares(scores, candidates), scores, (scores != 0).astype(np.float64)]
                if view == "words"
                else [scores - of_query(np.maximum, scores, candidates), scores]
            )
    return np.stack([*columns, np.ones(len(candidates))], axis=1)


def words_of_texts(
    queries: sp.csr_matrix, labels: sp.csr_matrix, candidates: Candidates
) -> NDArray[np.float32]:
    """(C,) what the words view would say of each label if it had been added: its text alone.

    Equals ``SCALE * (queries @ labels.T)[candidates.queries, candidates.rows]``.

    Args:
        queries: (N, V) word vectors.
        labels: (L, V) word vectors of label texts.
        candidates: The pairs.

    Returns:
        As ``Lexical.scores`` of added labels.
    """
    scores = np.zeros(len(candidates), np.float32)
    for start in range(0, len(scores), PAIRS_AT_ONCE):
        here = slice(start, start + PAIRS_AT_ONCE)
        left, right = queries[candidates.queries[here]], labels[candidates.rows[here]]
        scores[here] = SCALE * np.asarray(left.multiply(right).sum(axis=1)).ravel()
    return scores


def hide(
    candidates: Candidates, hidden: NDArray[np.bool_], words: NDArray[np.float32] | None
) -> Candidates:
    """The candidates as if some labels had been added after training.

    Args:
        candidates: The pairs.
        hidden: (C,) whose label it is to be.
        words: From ``words_of_texts``.

    Returns:
        Hidden labels have no votes and no margins, and in place of their weights for words their
        text.
    """
    scores = dict(candidates.scores)
    for view in ("votes", "word_votes", "margins"):
        if view in scores:
            scores[view] = np.where(hidden, np.float32(0.0), scores[view])
    if "words" in scores and words is not None:
        scores["words"] = np.where(hidden, words, scores["words"])
    return Candidates(candidates.queries, candidates.rows, scores, candidates.n_queries)


def turns(n_labels: int, n_positives: int, seed: int) -> list[NDArray[np.bool_]]:
    """(L,) masks of the labels to hide, one after the other: random tenths, none twice.

    Args:
        n_labels: L.
        n_positives: Among the candidates.
        seed: Of the choice.

    Returns:
        As many as bring ``ENOUGH`` positives, at most all tenths.
    """
    most = max(1, round(1 / SHARE))
    needed = int(np.ceil(ENOUGH / max(1.0, n_positives * SHARE)))
    of_label = np.random.default_rng([seed, 0x41D]).permutation(n_labels) % most
    return [of_label == turn for turn in range(min(most, needed))]


def fit_trust(
    given: NDArray[np.float64],
    trained: NDArray[np.float64],
    asked: NDArray[np.int64],
    hidden: NDArray[np.bool_],
    positive: NDArray[np.bool_],
    *,
    decay: float = 3e-4,
) -> Trust:
    """Fit against trained labels, whose scores stay, by the loss of ``fit_fusion``.

    No weight but the last is below 0: a nearer text never speaks against a label. Where few
    positives are hidden, chance would have it so.

    Args:
        given: (C, U) from ``text_features``.
        trained: (C,) scores of the labels that are not hidden.
        asked: (C,) a query's number, another for each turn of hiding.
        hidden: (C,) which are to be scored.
        positive: (C,) which are right.
        decay: Weight of the squared weights.

    Returns:
        The weights.
    """
    own = given[hidden]
    mean, scale = own.mean(axis=0), own.std(axis=0)
    scale = np.where(scale > 1e-9, scale, 1.0)
    mean[-1], scale[-1] = 0.0, 1.0
    inputs = (own - mean) / scale
    _, places = np.unique(asked, return_inverse=True)
    n = int(places.max()) + 1
    owners = places[hidden]
    rest = np.full(n, -BEYOND)  # log-sum-exp of a query's trained labels that are wrong
    known = ~hidden & ~positive
    np.logaddexp.at(rest, places[known], trained[known])
    right = np.bincount(places, positive, minlength=n)
    mass = 1.0 / np.maximum(right, 1.0)
    sure = ~hidden & positive
    own_right = positive[hidden]
    total = max(1.0, float((right > 0).sum()))

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = inputs @ weights
        others = np.where(own_right, -np.inf, scores)
        best = rest.copy()
        np.maximum.at(best, owners, others)
        powers = np.exp(others - best[owners])
        sums = np.exp(rest - best) + np.bincount(owners, powers, minlength=n)
        against = best + np.log(sums)  # log-sum-exp of all that is wrong
        behind = against[places[sure]] - trained[sure], (against[owners] - scores)[own_right]
        value = mass[places[sure]] @ np.logaddexp(0.0, behind[0])
        value += mass[owners[own_right]] @ np.logaddexp(0.0, behind[1])
        pulls = (mass[places[sure]] * expit(behind[0]), mass[owners[own_right]] * expit(behind[1]))
        push = np.bincount(places[sure], pulls[0], minlength=n)
        push += np.bincount(owners[own_right], pulls[1], minlength=n)
        slopes = (push / sums)[owners] * powers
        slopes[own_right] = -pulls[1]
        return value / total + decay * weights @ weights, slopes @ inputs / total + (
            2 * decay * weights
        )

    bounds = [(0.0, None)] * (inputs.shape[1] - 1) + [(None, None)]
    fitted = minimize(loss, np.zeros(inputs.shape[1]), jac=True, bounds=bounds, method="L-BFGS-B")
    return Trust(mean, scale, fitted.x)
