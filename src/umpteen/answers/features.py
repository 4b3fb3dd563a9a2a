"""What the fusion model reads of a candidate: each view's scores, beside the query's others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.candidates import VIEWS, Candidates

FLOOR = 0.003
"""Added to votes before their logarithm: less than one of a hundred neighbours says."""
PER_VIEW = {"de": 3, "clf": 3, "votes": 4, "words": 4, "word_votes": 4}
"""Features of each view."""


def feature_parts(views: tuple[str, ...]) -> list[str]:
    """The part each feature belongs to, ``"frequency"`` for the last two."""
    own = [VIEWS[view] for view in views for _ in range(PER_VIEW[view])]
    return [*own, "frequency", "frequency"]


def features(
    candidates: Candidates, views: tuple[str, ...], label_counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """(C, F) of each candidate.

    Cosines: the distance to the query's best, and the cosine. Votes: logarithm, whether there are
    any, share. Words: log-softmax over the query's candidates, score, whether any word is known.
    Each view's first once more, times the logarithm of the label's training queries: rare and
    frequent labels are trusted to different views. Last that logarithm and its square.

    Args:
        candidates: With the scores of all views.
        views: Which to read, in order.
        label_counts: (L,) training queries; a row beyond it counts 0.

    Returns:
        Float64.
    """
    counts = np.zeros(len(candidates))
    known = candidates.rows < len(label_counts)
    counts[known] = label_counts[candidates.rows[known]]
    frequency = np.log1p(counts)
    columns: list[NDArray[np.float64]] = []
    for view in views:
        own = _of_view(view, candidates.scores[view].astype(np.float64), candidates)
        columns += [*own, own[0] * frequency]
    return np.stack([*columns, frequency, frequency**2], axis=1)


def _of_view(
    view: str, scores: NDArray[np.float64], candidates: Candidates
) -> list[NDArray[np.float64]]:
    if view in ("votes", "word_votes"):
        return [np.log(scores + FLOOR), (scores > 0).astype(np.float64), scores]
    if view == "words":
        return [log_shares(scores, candidates), scores, (scores != 0).astype(np.float64)]
    return [scores - of_query(np.maximum, scores, candidates), scores]


def of_query(
    reduce: np.ufunc, values: NDArray[np.float64], candidates: Candidates
) -> NDArray[np.float64]:
    """(C,) the reduction over the candidate's query."""
    if not len(values):
        return values
    starts = candidates.starts
    sizes = np.diff(np.append(starts, len(values)))
    return np.repeat(reduce.reduceat(values, starts), sizes)


def log_shares(scores: NDArray[np.float64], candidates: Candidates) -> NDArray[np.float64]:
    """(C,) log-softmax over each query's candidates."""
    shifted = scores - of_query(np.maximum, scores, candidates)
    return shifted - np.log(of_query(np.add, np.exp(shifted), candidates))
