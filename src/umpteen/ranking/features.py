"""Features of candidates: the scores of each retriever, relative to the query's other candidates.

The features of a retriever depend on its kind alone. A new retriever declares a kind in
its ``spec``; a new kind adds a function to ``FEATURES``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.retriever_specs import FREQUENCY, RETRIEVER_SPECS

VOTE_FLOOR = 0.003
"""Added to votes before the logarithm; less than one of a hundred neighbours adds."""
MARGIN = 1.0
"""Score of one-vs-rest that is as likely right as wrong."""
STEEPNESS = 4.0
"""Factor of a margin in the sigmoid."""

KindFeatures = Callable[[Tensor, Tensor, Tensor], list[Tensor]]


def cosine_features(scores: Tensor, valid: Tensor, reference: Tensor) -> list[Tensor]:
    """Return the difference to the query's best cosine among ``reference``, and the cosine.

    Args:
        scores: (B, K), 0 at padding.
        valid: (B, K) candidates.
        reference: (B, K) candidates whose scores the best is taken of; where a query has none, the
            smallest score replaces the best.

    Returns:
        Columns of shape (B, K); values at padding are arbitrary.
    """
    best = torch.where(reference, scores, -torch.inf).amax(dim=1, keepdim=True)
    if reference is not valid:
        lowest = torch.where(valid, scores, torch.inf).amin(dim=1, keepdim=True)
        best = torch.maximum(best, lowest)
    return [scores - best, scores]


def vote_features(scores: Tensor, valid: Tensor, reference: Tensor) -> list[Tensor]:
    """Return the logarithm of the votes, whether there are any, and the votes."""
    return [torch.log(scores + VOTE_FLOOR), (scores > 0).to(scores.dtype), scores]


def logit_features(scores: Tensor, valid: Tensor, reference: Tensor) -> list[Tensor]:
    """Return the log-softmax over the query's candidates, the score, and whether it is not 0."""
    return [log_shares(scores, valid), scores, (scores != 0).to(scores.dtype)]


def margin_features(scores: Tensor, valid: Tensor, reference: Tensor) -> list[Tensor]:
    """Return the log-sigmoid of the scaled margin, the score, and the log-softmax of the margin."""
    scaled = STEEPNESS * (scores - MARGIN)
    return [torch.nn.functional.logsigmoid(scaled), scores, log_shares(scaled, valid)]


FEATURES: dict[str, KindFeatures] = {
    "cosine": cosine_features,
    "votes": vote_features,
    "logit": logit_features,
    "margin": margin_features,
}
"""Kind to the function (scores, valid, reference) that returns its columns."""
N_FEATURES = {"cosine": 2, "votes": 3, "logit": 3, "margin": 3}
"""Columns of each kind; the ensemble adds the first one times the log count."""
NO_VOTES = (math.log(VOTE_FLOOR), 0.0, 0.0)
"""Features of a label without votes."""


def feature_owners(retrievers: tuple[str, ...]) -> list[str]:
    """Return the retriever of each column, ``frequency`` for the last two.

    Example:
        >>> feature_owners(("dual",))
        ['dual', 'dual', 'dual', 'frequency', 'frequency']
    """
    own = [name for name in retrievers for _ in range(N_FEATURES[RETRIEVER_SPECS[name].kind] + 1)]
    return [*own, FREQUENCY, FREQUENCY]


def columns(
    candidates: Candidates, retrievers: tuple[str, ...], dtype: torch.dtype = torch.float32
) -> Iterator[Tensor]:
    """Compute the features one column at a time.

    For each retriever its kind's columns and the first of them times the logarithm of the label's
    training texts, which lets rare and frequent labels trust different retrievers. Then that
    logarithm and its square.

    Args:
        candidates: With the scores of these retrievers.
        retrievers: Which to read, in order.
        dtype: Of the computation.

    Yields:
        (B, K) each; values at padding places are arbitrary. ``feature_owners`` has the order.
    """
    frequency = torch.log1p(candidates.counts.to(dtype))
    for name in retrievers:
        own = retriever_columns(candidates, name, dtype)
        yield from own
        yield own[0] * frequency
    yield frequency
    yield frequency * frequency


def retriever_columns(
    candidates: Candidates, name: str, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """Compute the columns of one retriever by its kind."""
    spec = RETRIEVER_SPECS[name]
    valid = candidates.valid
    scores = candidates.filled(candidates.scores[name].to(dtype), 0.0)
    reference = candidates.seen if spec.needs_training else valid
    return FEATURES[spec.kind](scores, valid, reference)


def matrix(
    candidates: Candidates, retrievers: tuple[str, ...], dtype: torch.dtype = torch.float64
) -> Tensor:
    """Compute all features at once, for fitting.

    Args:
        candidates: With the scores of these retrievers.
        retrievers: Which to read, in order.
        dtype: Of the computation.

    Returns:
        (B, K, F), 0 at padding places.
    """
    valid = candidates.valid
    return torch.stack(
        [torch.where(valid, column, 0.0) for column in columns(candidates, retrievers, dtype)],
        dim=2,
    )


def log_shares(scores: Tensor, valid: Tensor) -> Tensor:
    """Return the log-softmax over each query's candidates.

    Args:
        scores: (B, K).
        valid: (B, K) candidates.

    Returns:
        (B, K); -inf at padding places.
    """
    masked = torch.where(valid, scores, -torch.inf)
    return torch.log_softmax(masked, dim=1)


def query_best(candidates: Candidates, name: str) -> Tensor:
    """Return the (B,) largest score of a retriever; 0 for a query without candidates."""
    best = candidates.filled(candidates.scores[name], -torch.inf).amax(dim=1)
    if candidates.complete:
        return best
    return torch.where(candidates.valid.any(dim=1), best, 0.0)
