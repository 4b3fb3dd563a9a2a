"""What the fusion model reads of a candidate: each view's scores, beside the query's others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.candidates import VIEWS, Candidates
from umpteen.answers.margins import MARGIN

FLOOR = 0.003
"""Added to votes before their logarithm: less than one of a hundred neighbours says."""
STEEP = 4.0
"""Of the sigmoid that makes a probability of a margin."""
PER_VIEW = {"dual": 3, "classifier": 3, "votes": 4, "words": 4, "margins": 4, "word_votes": 4}
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
    Margins: logarithm of a sigmoid, score, log-softmax.
    Each view's first once more, times the logarithm of the label's training queries: rare and
    frequent labels are trusted to different views. Last that logarithm and its square.

    Args:
        candidates: With the scores of all views.
        views: Which to read, in order.
        label_counts: (L,) training queries; a row beyond it counts 0.

    Returns:
        Float64.
    """
    counts = counts_of(candidates, label_counts)
    frequency = np.log1p(counts)
    columns: list[NDArray[np.float64]] = []
    for view in views:
        own = _of_view(view, candidates.scores[view].astype(np.float64), candidates, counts > 0)
        columns += [*own, own[0] * frequency]
    return np.stack([*columns, frequency, frequency**2], axis=1)


def counts_of(candidates: Candidates, label_counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """(C,) training queries of each candidate's label; 0 for a row beyond them."""
    counts = np.zeros(len(candidates), np.int64)
    known = candidates.rows < len(label_counts)
    counts[known] = label_counts[candidates.rows[known]]
    return counts


def no_votes(views: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """(F,) which features are of votes, and what they are of a label that has none."""
    of_votes, nothing = [], []
    for view in views:
        voting = view in ("votes", "word_votes")
        of_votes += [voting] * PER_VIEW[view]
        nothing += [np.log(FLOOR) if voting else 0.0] + [0.0] * (PER_VIEW[view] - 1)
    return np.array([*of_votes, False, False]), np.array([*nothing, 0.0, 0.0])


def _of_view(
    view: str,
    scores: NDArray[np.float64],
    candidates: Candidates,
    trained: NDArray[np.bool_],
) -> list[NDArray[np.float64]]:
    if view in ("votes", "word_votes"):
        return [np.log(scores + FLOOR), (scores > 0).astype(np.float64), scores]
    if view == "margins":
        sure = STEEP * (scores - MARGIN)
        return [-np.logaddexp(0.0, -sure), scores, log_shares(sure, candidates)]
    if view == "words":
        return [log_shares(scores, candidates), scores, (scores != 0).astype(np.float64)]
    judged = scores
    if view == "classifier":  # a vector that was never trained must not set the measure
        judged = np.where(trained, scores, of_query(np.minimum, scores, candidates))
    return [scores - of_query(np.maximum, judged, candidates), scores]


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
