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
N_FEATURES = len(VOTES) + 3


def correction_features(
    queries: Queries,
    snapshot: Snapshot,
    found: Candidates,
    retrievers: Mapping[str, Retriever],
    counts: Tensor,
) -> list[Tensor]:
    """Compute the features one column at a time.

    Votes of the nearest corrections by vectors and by terms; the logarithm of the label's
    corrections; for labels without training texts that logarithm again, and whether there is any.

    Args:
        queries: B texts.
        snapshot: Of the request.
        found: Their candidates.
        retrievers: By name; votes of one that is missing are 0.
        counts: (B, K) corrections of each candidate.

    Returns:
        ``N_FEATURES`` columns of shape (B, K), none below 0; values at padding are arbitrary.
    """
    columns = []
    for name, config in VOTES.items():
        retriever = retrievers.get(name)
        if isinstance(retriever, VotingRetriever):
            columns.append(retriever.correction_votes(queries, snapshot, found.rows, config))
        else:
            columns.append(torch.zeros(found.rows.shape, device=found.rows.device))
    logs = torch.log1p(counts)
    unseen = (found.counts == 0).to(logs.dtype)
    return [*columns, logs, logs * unseen, (counts > 0) * unseen]


def added_by_corrections(
    queries: Queries,
    snapshot: Snapshot,
    found: Candidates,
    retrievers: Mapping[str, Retriever],
    learned: CorrectionWeights,
) -> Tensor:
    """Return the (B, K) values that corrections add to scores; 0 at padding places."""
    counts = learned.counts_of(found.rows)
    total = torch.zeros(found.rows.shape, device=found.rows.device)
    columns = correction_features(queries, snapshot, found, retrievers, counts)
    for weight, column in zip(learned.weights.tolist(), columns, strict=True):
        if weight:
            total.add_(column, alpha=weight)
    return found.filled(total, 0.0)
