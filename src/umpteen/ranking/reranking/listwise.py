"""Train the network of a re-ranker: every positive of a text against its wrong candidates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.precision import autocast, choose_precision
from umpteen.ranking.reranking.network import ScoreNetwork
from umpteen.ranking.reranking.pair_encoder import PairEncoder
from umpteen.types import Log, Ragged

NETWORK_LR, NETWORK_LR_BESIDE = 3e-3, 1e-3
"""Learning rates of the network alone, and beside a pair encoder."""
WEIGHT_DECAY = 1e-2
WARMUP = 0.1
"""Share of the steps in which the learning rate rises."""


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
class PairTexts:
    """Tokens of the texts and labels that a pair encoder reads."""

    texts: Ragged
    labels: Ragged


@dataclass(frozen=True)
class TrainOptions:
    """How a network is trained."""

    epochs: int = 20
    batch: int = 128
    negatives: int = 0
    """Wrong candidates of a text in a step, drawn at random; 0 for all."""
    encoder_lr: float = 1e-4
    """Learning rate of the pair encoder."""
    seed: int = 0
    seconds: float = math.inf
    """No further step after this long; the learning rate falls with the time."""


def train_network(
    examples: RerankExamples,
    network: ScoreNetwork,
    options: TrainOptions,
    *,
    encoder: PairEncoder | None = None,
    pairs: PairTexts | None = None,
    log: Log = lambda line: None,
) -> None:
    """Train a network, and the pair encoder with it.

    Args:
        examples: Shortlists of labelled texts.
        network: Changed in place; it is on the device of the examples.
        options: How.
        encoder: The pair encoder, changed in place.
        pairs: The tokens that it reads.
        log: Called with progress lines.
    """
    examples = examples.select(examples.usable.nonzero()[:, 0])
    if not len(examples):
        return
    device = examples.features.device
    network.standardize_(examples.features[examples.rows >= 0])
    optimizer = _optimizer(network, encoder, options)
    rng = np.random.default_rng([options.seed, 0x4E4])
    steps = options.epochs * math.ceil(len(examples) / options.batch)
    schedule = _schedule(steps, options.seconds)
    first = [group["lr"] for group in optimizer.param_groups]
    _set_training(network, encoder, True)
    total, counted, step = 0.0, 0, 0
    for epoch in range(options.epochs):
        order = rng.permutation(len(examples))
        for start in range(0, len(order), options.batch):
            factor = schedule(step)
            if factor <= 0.0:
                break
            for group, rate in zip(optimizer.param_groups, first, strict=True):
                group["lr"] = factor * rate
            batch = examples.select(
                torch.from_numpy(order[start : start + options.batch]).to(device)
            )
            if options.negatives:
                batch = drop_negatives(batch, options.negatives, rng)
            loss = listwise_loss(
                batch.base + network_scores(batch, network, encoder, pairs),
                batch.positive,
                batch.rows >= 0,
            )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(
                [p for group in optimizer.param_groups for p in group["params"]], 1.0
            )
            optimizer.step()
            total, counted, step = total + float(loss.detach()), counted + 1, step + 1
        if (epoch + 1) % max(1, options.epochs // 4) == 0 and counted:
            log(f"Re-ranker, epoch {epoch + 1} of {options.epochs}: loss {total / counted:.4f}")
            total, counted = 0.0, 0
    _set_training(network, encoder, False)


def network_scores(
    batch: RerankExamples,
    network: ScoreNetwork,
    encoder: PairEncoder | None = None,
    pairs: PairTexts | None = None,
) -> Tensor:
    """(B, n) scores of the network; 0 for none."""
    valid = batch.rows >= 0
    vectors = None
    if encoder is not None and pairs is not None:
        owners, places = (part.cpu().numpy() for part in valid.nonzero(as_tuple=True))
        texts = batch.texts.cpu().numpy()[owners]
        labels = batch.rows.cpu().numpy()[owners, places]
        with autocast(choose_precision("auto", valid.device), valid.device):
            vectors = encoder(encoder.pairs(pairs.texts, pairs.labels, texts, labels)).float()
    found = network(batch.features[valid], vectors)
    return torch.zeros(valid.shape, device=found.device).masked_scatter(valid, found)


def drop_negatives(batch: RerankExamples, n: int, rng: np.random.Generator) -> RerankExamples:
    """Keep all positives and n random wrong candidates of each text."""
    valid = batch.rows >= 0
    drawn = torch.from_numpy(rng.random(tuple(valid.shape))).to(valid.device)
    drawn = torch.where(valid & ~batch.positive, drawn, 2.0)
    limit = drawn.sort(dim=1).values[:, min(n, drawn.shape[1]) - 1 : min(n, drawn.shape[1])]
    kept = valid & (batch.positive | (drawn <= limit))
    rows = torch.where(kept, batch.rows, -1)
    return RerankExamples(batch.features, batch.base, rows, batch.positive & kept, batch.texts)


def _optimizer(
    network: ScoreNetwork, encoder: PairEncoder | None, options: TrainOptions
) -> torch.optim.Optimizer:
    groups = [{"params": list(network.parameters()), "lr": NETWORK_LR}]
    if encoder is not None:
        groups[0]["lr"] = NETWORK_LR_BESIDE
        groups.append({"params": list(encoder.parameters()), "lr": options.encoder_lr})
    return torch.optim.AdamW(groups, weight_decay=WEIGHT_DECAY)


def _set_training(network: ScoreNetwork, encoder: PairEncoder | None, mode: bool) -> None:
    network.train(mode)
    if encoder is not None:
        encoder.train(mode)


def _schedule(steps: int, seconds: float) -> Callable[[int], float]:
    """Rise, then fall to 0 by steps or by time, whichever is further."""
    started = time.monotonic()

    def factor(step: int) -> float:
        done = max(step / max(1, steps), (time.monotonic() - started) / seconds)
        rise = min(1.0, (step + 1) / max(1.0, WARMUP * steps))
        return rise * max(0.0, 1.0 - done)

    return factor
