"""The best candidates of each text, and the features of the other scorers there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from umpteen.ranking.candidates import Candidates, take, top_k
from umpteen.ranking.features import columns, feature_owners, log_shares

BASE_FEATURES = 4
"""Features of the ensemble's own score."""
PAIR_FEATURES = 3
"""Features of a transformer's score; the score itself comes first."""


@dataclass(frozen=True)
class Shortlist:
    """The candidates of B texts that are re-ranked, best first."""

    places: Tensor
    """(B, n) positions among all candidates; -1 for none."""
    rows: Tensor
    """(B, n) label rows, -1 for none."""
    base: Tensor
    """(B, n) scores of the ensemble without tail boost; 0 for none."""

    @property
    def valid(self) -> Tensor:
        """(B, n) which places hold a candidate."""
        return self.places >= 0

    def part(self, start: int, stop: int) -> Shortlist:
        """Return some of the texts."""
        return Shortlist(self.places[start:stop], self.rows[start:stop], self.base[start:stop])


def shortlist(
    found: Candidates, scores: Tensor, base: Tensor, n: int, min_share: float = 0.0
) -> Shortlist:
    """Choose the candidates to re-rank.

    Args:
        found: All candidates.
        scores: (B, K) that they are ranked by.
        base: (B, K) the same without tail boost.
        n: Candidates of a text, at most.
        min_share: Leave out candidates with a smaller share in the softmax of the scores. A text
            with fewer than two others is sure: none of its candidates is chosen.

    Returns:
        The shortlist.
    """
    places = top_k(scores, found.rows, n)
    if min_share > 0:
        shares = take(log_shares(scores, found.valid), places, -torch.inf).exp()
        kept = (places >= 0) & (shares >= min_share)
        kept &= kept.sum(dim=1, keepdim=True) > 1
        places = torch.where(kept, places, -1)
    return Shortlist(places, take(found.rows, places, -1), take(base, places, 0.0))


def n_scorer_features(retrievers: tuple[str, ...]) -> int:
    """Return the number of columns of ``scorer_features``."""
    return len(feature_owners(retrievers)) + len(retrievers) + BASE_FEATURES


def scorer_features(found: Candidates, chosen: Shortlist, retrievers: tuple[str, ...]) -> Tensor:
    """Compute the features of all scorers, and the places that they rank candidates on.

    Args:
        found: All candidates, with the scores of these retrievers.
        chosen: Those to re-rank.
        retrievers: Which to read, in order.

    Returns:
        (B, n, F) float32; 0 for none. The features of the ensemble for each retriever, the
        logarithm of each retriever's rank in the shortlist, and of the ensemble the distance to
        the best, the log share, the logarithm of the rank and the distance to the next.
    """
    places, valid = chosen.places, chosen.valid
    made = [take(column, places, 0.0) for column in columns(found, retrievers)]
    made += [
        torch.log1p(_ranks(take(found.scores[name].float(), places, 0.0), valid))
        for name in retrievers
    ]
    base = chosen.base
    masked = torch.where(valid, base, -torch.inf)
    best = torch.where(valid.any(dim=1), masked.amax(dim=1), 0.0)[:, None]
    level = torch.where(valid.any(dim=1), masked.logsumexp(dim=1), 0.0)[:, None]
    following = torch.nn.functional.pad(base[:, 1:], (0, 1)) if base.shape[1] else base
    has_next = torch.nn.functional.pad(valid[:, 1:], (0, 1)) if base.shape[1] else valid
    made += [
        base - best,
        base - level,
        torch.log1p(_ranks(base, valid)),
        torch.where(has_next, base - following, 0.0),
    ]
    stacked = torch.stack([column.float() for column in made], dim=2)
    return torch.where(valid[:, :, None], stacked, 0.0)


def pair_features(scores: Tensor, valid: Tensor) -> Tensor:
    """(B, n, PAIR_FEATURES) a transformer's (B, n) scores, log shares and ranks; 0 for none."""
    masked = torch.where(valid, scores, -torch.inf)
    level = torch.where(valid.any(dim=1), masked.logsumexp(dim=1), 0.0)[:, None]
    made = torch.stack([scores, scores - level, torch.log1p(_ranks(scores, valid))], dim=2)
    return torch.where(valid[:, :, None], made, 0.0)


def _ranks(scores: Tensor, valid: Tensor) -> Tensor:
    """(B, n) how many places have a higher score, ties by place; 0 is the best."""
    masked = torch.where(valid, scores, -torch.inf)
    order = masked.argsort(dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order)
    counted = torch.arange(order.shape[1], device=order.device).expand_as(order)
    return ranks.scatter_(1, order, counted).to(scores.dtype)
