"""The network of a re-ranker and its training: positives of a text against wrong candidates."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from umpteen.ranking.reranking.shortlist import pair_features
from umpteen.types import Log

WIDTH = 64
LIMIT = 8.0
"""Largest standardized feature."""
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 1e-2
WARMUP = 0.1
"""Share of the steps or of the time in which the learning rate rises."""


class ScoreNetwork(nn.Module):
    """Two hidden layers from standardized features to what is added to the ensemble's score.

    It starts with 0 for every pair: the order of the ensemble. With a transformer it starts with
    that one's score.

    Args:
        n_features: F.
        direct: Column of a score that is also added as it is, with a factor that is learned.
        width: Of the hidden layers.
        dropout: On the hidden layers, while training.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self, n_features: int, direct: int | None = None, width: int = WIDTH, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.direct = direct
        self.factor = None if direct is None else nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))
        self.first = nn.Linear(n_features, width)
        self.second = nn.Linear(width, width)
        self.last = nn.Linear(width, 1)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def standardize_(self, values: Tensor) -> None:
        """Take mean and scale from (N, F) features."""
        self.mean.copy_(values.double().mean(dim=0))
        scale = values.double().std(dim=0, correction=0)
        self.scale.copy_(torch.where(scale > 1e-6, scale, 1.0))

    def forward(self, features: Tensor) -> Tensor:
        """Score pairs.

        Args:
            features: (P, F).

        Returns:
            (P,) what is added to the ensemble's score.
        """
        inputs = ((features - self.mean) / self.scale).clamp(-LIMIT, LIMIT)
        hidden = self.dropout(gelu(self.first(inputs)))
        hidden = self.dropout(gelu(self.second(hidden)) + hidden)
        made: Tensor = self.last(hidden).squeeze(1)
        return made if self.factor is None else made + self.factor * features[:, self.direct]


@dataclass(frozen=True)
class RerankExamples:
    """Shortlists of N labelled texts, from scorers that were not trained on them."""

    features: Tensor
    """(N, n, F)."""
    base: Tensor
    """(N, n) scores of the ensemble without tail boost."""
    rows: Tensor
    """(N, n) label rows, -1 for none."""
    positive: Tensor
    """(N, n) which are right."""
    texts: Tensor
    """(N,) the position of each text among the texts that are read."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def usable(self) -> Tensor:
        """(N,) texts with a right and a wrong candidate."""
        valid = self.rows >= 0
        return (self.positive & valid).any(dim=1) & (~self.positive & valid).any(dim=1)

    def select(self, chosen: Tensor) -> RerankExamples:
        """Return some of the texts."""
        parts = (self.features, self.base, self.rows, self.positive, self.texts)
        return RerankExamples(*(part[chosen] for part in parts))

    def with_pair_scores(self, scores: Tensor) -> RerankExamples:
        """Append the features of a transformer's (N, n) scores."""
        more = pair_features(scores, self.rows >= 0)
        return replace(self, features=torch.cat([self.features, more], dim=2))


def join_examples(parts: list[RerankExamples]) -> RerankExamples:
    """Return all texts of several sets; positions of texts must not collide."""
    names = ("features", "base", "rows", "positive", "texts")
    return RerankExamples(*(torch.cat([getattr(p, name) for p in parts]) for name in names))


def listwise_loss(scores: Tensor, positive: Tensor, valid: Tensor) -> Tensor:
    """Average ``text_losses`` over the texts that have a right and a wrong candidate."""
    losses, usable = text_losses(scores, positive, valid)
    return losses.sum() / usable.sum().clamp_min(1)


def text_losses(scores: Tensor, positive: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the mean loss of each text's positives.

    The loss of a positive is its negative log-softmax among the wrong candidates and itself.
    Positives do not compete with each other.

    Args:
        scores: (B, n).
        positive: (B, n) which are right.
        valid: (B, n) candidates.

    Returns:
        (B,) losses, 0 for texts without a right or a wrong candidate, and (B,) whether a text has
        both.
    """
    right, wrong = positive & valid, ~positive & valid
    usable = right.any(dim=1) & wrong.any(dim=1)
    against = torch.where(wrong, scores, -torch.inf)
    against = torch.where(usable[:, None], against, 0.0).logsumexp(dim=1, keepdim=True)
    losses = torch.nn.functional.softplus(against - torch.where(right, scores, 0.0))
    mean = torch.where(right, losses, 0.0).sum(dim=1) / right.sum(dim=1).clamp_min(1)
    return torch.where(usable, mean, 0.0), usable


@dataclass(frozen=True)
class TrainOptions:
    """How a network is trained."""

    epochs: int = 20
    batch: int = 128
    seed: int = 0
    seconds: float = math.inf
    """No further step after this long; the learning rate falls with the time."""


def train_network(
    examples: RerankExamples,
    network: ScoreNetwork,
    options: TrainOptions,
    *,
    log: Log = lambda line: None,
) -> None:
    """Train a network."""
    examples = examples.select(examples.usable.nonzero()[:, 0])
    if not len(examples) or not options.epochs:
        return
    network.standardize_(examples.features[examples.rows >= 0])
    optimizer = torch.optim.AdamW(network.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    rng = np.random.default_rng([options.seed, 0x4E4])
    steps = options.epochs * math.ceil(len(examples) / options.batch)
    schedule = LearningRate(optimizer, steps, options.seconds)
    network.train()
    losses: list[Tensor] = []
    for epoch in range(options.epochs):
        order = torch.from_numpy(rng.permutation(len(examples))).to(examples.rows.device)
        for own in order.split(options.batch):
            if not schedule.step():
                break
            batch = examples.select(own)
            scores = batch.base + network_scores(batch, network)
            loss = listwise_loss(scores, batch.positive, batch.rows >= 0)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
        if (epoch + 1) % max(1, options.epochs // 4) == 0 and losses:
            mean = float(torch.stack(losses).mean())
            log(f"Re-ranker, epoch {epoch + 1} of {options.epochs}: loss {mean:.4f}")
            losses = []
    network.eval()


def network_scores(batch: RerankExamples, network: ScoreNetwork) -> Tensor:
    """(B, n) scores of the network; 0 for none."""
    shape = batch.rows.shape
    found = network(batch.features.reshape(-1, batch.features.shape[2])).reshape(shape)
    return torch.where(batch.rows >= 0, found, 0.0)


class LearningRate:
    """Rises, then falls to 0 by steps or by time, whichever is further."""

    def __init__(self, optimizer: torch.optim.Optimizer, steps: int, seconds: float) -> None:
        self._groups = [(group, group["lr"]) for group in optimizer.param_groups]
        self._steps, self._seconds = max(1, steps), seconds
        self._started, self._step = time.monotonic(), 0

    def step(self) -> bool:
        """Set the rate of the next step; False when steps or time are used up."""
        passed = (time.monotonic() - self._started) / self._seconds
        done = max(self._step / self._steps, passed)
        left = 1.0 - done
        factor = left * min(1.0, (done + 1.0 / self._steps) / WARMUP)
        for group, rate in self._groups:
            group["lr"] = max(0.0, factor) * rate
        self._step += 1
        return left > 0.0
