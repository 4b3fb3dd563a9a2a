"""Focal loss: binary cross-entropy in which easy candidates count less."""

import torch
from torch.nn.functional import softplus

from umpteen.objectives.base import sum_by_row, without_positives


class FocalLoss:
    """One-vs-all loss that weighs each candidate by the share of it that is wrong."""

    monotone = True
    block_copies = 12

    def __init__(self, gamma=2.0):
        self.gamma = gamma

    def row_stats(self, scores, positives):
        negatives = without_positives(scores, positives)
        return self._term(negatives).sum(dim=1, keepdim=True)

    def merge(self, stats):
        return stats.sum(dim=0)

    def loss(self, stats, positive_scores, positives, weights):
        terms = weights * positives.targets * self._term(-positive_scores)
        counted = torch.zeros_like(stats[:, 0]).index_fill(0, positives.rows, 1.0)
        return stats[:, 0] * counted + sum_by_row(terms, positives.rows, len(stats))

    def _term(self, scores):
        """The loss of candidates that should score low."""
        return torch.sigmoid(scores) ** self.gamma * softplus(scores)

    @staticmethod
    def definition(s, targets, alive, gamma=2.0):
        def probability(j):
            return 1 / (1 + torch.exp(-s[j]))

        negatives = sum(
            -(probability(j) ** gamma) * torch.log(1 - probability(j))
            for j in alive
            if j not in targets
        )
        return negatives, {
            p: -t * (1 - probability(p)) ** gamma * torch.log(probability(p))
            for p, t in targets.items()
        }
