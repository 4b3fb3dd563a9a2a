"""Features of candidates that come from corrections alone."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.corrections import CorrectionWeights
from umpteen.ranking.ensemble_model import KnnConfig
from umpteen.ranking.queries import Queries
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.retrievers.knn import VotingRetriever
from umpteen.ranking.snapshot import Snapshot

VOTES = {
    "knn": KnnConfig(20, 0.1, background=0.6),
    "lexical_knn": KnnConfig(20, 0.1, background=0.5),
}
"""How corrections vote. The background keeps few corrections from changing unrelated texts."""


def correction_votes(
    queries: Queries,
    snapshot: Snapshot,
    rows: Tensor,
    retrievers: Mapping[str, Retriever],
    name: str,
) -> Tensor:
    """Return the (B, K) votes of the nearest corrections; 0 where there is no such retriever.

    Args:
        queries: B texts.
        snapshot: Of the request.
        rows: (B, K) labels, -1 for padding.
        retrievers: By name.
        name: Whose neighbours vote, one of ``VOTES``.
    """
    retriever = retrievers.get(name)
    if isinstance(retriever, VotingRetriever):
        return retriever.correction_votes(queries, snapshot, rows, VOTES[name])
    return torch.zeros(rows.shape, device=rows.device)


def added_by_corrections(
    queries: Queries,
    snapshot: Snapshot,
    found: Candidates,
    retrievers: Mapping[str, Retriever],
    learned: CorrectionWeights,
) -> Tensor:
    """Return the (B, K) values that corrections add to scores; 0 at padding places."""
    total = learned.count_values(found.rows, found.counts == 0)
    for weight, name in zip(learned.weights.tolist(), VOTES, strict=False):
        if weight:
            votes = correction_votes(queries, snapshot, found.rows, retrievers, name)
            total.add_(votes, alpha=weight)
    return found.filled(total, 0.0)
