"""Train one linear classifier per label: squared hinge loss, minibatch descent, all texts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.log_lines import Detail
from umpteen.ranking.lexical.batches import TextBatches
from umpteen.ranking.lexical.matrices import keep_largest, round_to_half

MARGIN = 1.0
"""Negatives must score at most 0, positives at least 2 * MARGIN."""
LABELS_AT_ONCE = {"cpu": 64, "cuda": 1024}
"""With 64 the weights of a block fit into a processor's cache."""
NAME = "One-vs-rest"


@dataclass(frozen=True)
class OneVsRestConfig:
    """Hyperparameters of the one-vs-rest classifiers."""

    epochs: int = 3
    batch: int = 256
    decay: float = 1.0
    """Half of it times the squared weights is added to the loss of all texts together."""
    min_weight: float = 0.03
    """Smaller weights are dropped."""
    max_weights: int = 16 << 20
    """Weights of all labels together, the largest of each label."""
    max_pairs: int = 1 << 28
    """Terms times labels, above which no classifiers are fitted."""
    min_texts: float = 10.0
    """Training texts per label, on average, below which no classifiers are fitted."""
    max_terms: int = 200
    """Words and word pairs of a text that are used, those of largest tf-idf."""
    char_ngrams: bool | None = None
    """Whether to use character n-grams; None decides by ``uses_characters``."""
    max_char_labels: int = 2000
    """Labels up to which character n-grams are used."""
    max_characters: int = 64 << 20
    """Characters of all training texts together up to which n-grams are used."""

    def suits(self, n_terms: int, targets: sp.csr_matrix) -> bool:
        """Return whether labels have enough texts and terms times labels is within the limit."""
        n_labels = targets.shape[1]
        few = 0 < n_terms * n_labels <= self.max_pairs
        return bool(few and targets.nnz >= self.min_texts * n_labels)

    def uses_characters(self, texts: Sequence[str], targets: sp.csr_matrix) -> bool:
        """Return whether character n-grams are used: few labels and not too much text."""
        if self.char_ngrams is not None:
            return self.char_ngrams
        if targets.shape[1] > self.max_char_labels:
            return False
        return sum(map(len, texts)) <= self.max_characters


def hinge_slopes(scores: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Return the slopes of ``max(0, MARGIN - sign * (score - MARGIN)) ** 2``.

    Args:
        scores: (B, L).
        signs: (B, L) 1 for positives, -1 for negatives, 0 for filtered pairs.

    Returns:
        (B, L).
    """
    short = (MARGIN - signs * (scores - MARGIN)).clamp_min_(0)
    return short.mul_(signs).mul_(-2)


def train_one_vs_rest(
    queries: sp.csr_matrix,
    targets: sp.csr_matrix,
    *,
    filters: NDArray[np.int64] | None = None,
    config: OneVsRestConfig = OneVsRestConfig(),  # noqa: B008 - frozen
    seed: int = 0,
    device: torch.device | str = "cpu",
    until: float = np.inf,
    log: Callable[[str], None] = lambda line: None,
) -> sp.csr_matrix | None:
    """Train one linear classifier per label on all texts.

    Args:
        queries: (N, V).
        targets: (N, L).
        filters: (M, 2) pairs (text, label) that are neither positive nor negative.
        config: Hyperparameters.
        seed: Seed of the order of texts.
        device: Where to compute.
        until: In ``time.monotonic``; epochs are reduced to fit.
        log: Called with progress lines.

    Returns:
        (V, L) weights, or None where there is no time for one epoch.
    """
    if time.monotonic() >= until:
        log(Detail(f"{NAME}: left out, no time for one epoch"))
        return None
    batches = TextBatches.of(queries, config.batch, seed, device)
    own = sp.csc_matrix(targets)
    n_labels = own.shape[1]
    width = LABELS_AT_ONCE.get(torch.device(device).type, 1024)
    each = max(1, config.max_weights // max(1, n_labels))
    parts: list[sp.csr_matrix] = []
    losses = np.zeros(2)
    fewest, seconds = config.epochs, 0.0
    for first in range(0, n_labels, width):
        last = min(n_labels, first + width)
        began = time.monotonic()
        epochs = config.epochs
        if parts:
            fitting = (until - began) / max(1e-9, seconds * (n_labels - first) / width)
            epochs = int(min(config.epochs, fitting))
            if epochs < 1 and len(parts) == 1:
                log(Detail(f"{NAME}: left out, no time for one epoch"))
                return None
        fewest = min(fewest, max(1, epochs))
        signs = signs_of(own, filters, first, last)
        weights, block_losses = train_block(
            batches, signs, queries.shape, max(1, epochs), config.decay
        )
        losses += block_losses
        parts.append(prune_weights(weights, config.min_weight, each))
        seconds = (time.monotonic() - began) / max(1, epochs)
    log(Detail(_report(losses, n_labels, fewest, config.epochs)))
    return sp.csr_matrix(sp.vstack(parts, format="csr").T)


def _report(losses: NDArray[np.float64], n_labels: int, fewest: int, epochs: int) -> str:
    before, after = losses / max(1, n_labels)
    line = f"{NAME}: loss {before:.2f} to {after:.2f} per label in {fewest} of {epochs} epochs"
    return line + ("; warning: epochs cut by the time limit" if fewest < epochs else "")


def signs_of(
    targets: sp.csc_matrix, filters: NDArray[np.int64] | None, first: int, last: int
) -> NDArray[np.int8]:
    """Return (N, last - first) 1 for positives, 0 for filtered pairs, -1 for all others."""
    signs = np.full((targets.shape[0], last - first), -1, np.int8)
    own = targets[:, first:last].tocoo()
    signs[own.row, own.col] = 1
    if filters is not None and len(filters):
        here = filters[(filters[:, 1] >= first) & (filters[:, 1] < last)]
        signs[here[:, 0], here[:, 1] - first] = 0
    return signs


def train_block(
    batches: TextBatches, signs: NDArray[np.int8], shape: tuple[int, int], epochs: int, decay: float
) -> tuple[torch.Tensor, NDArray[np.float64]]:
    """Train the weights (V, l) of a block of labels from 0, with steps that shrink to 0.

    A step of full length is right for one text alone. The step of a label is shorter the more
    texts of a batch fall short of the margin, since each adds curvature. A label whose loss ends
    above that of zero weights gets zero weights.

    Args:
        batches: Batches and step sizes.
        signs: (N, l), see ``hinge_slopes``.
        shape: (N, V).
        epochs: Passes over the texts.
        decay: See ``OneVsRestConfig``.

    Returns:
        Weights on the batches' device, and the total loss before and after.
    """
    device = batches.scale.device
    weights = torch.zeros(shape[1], signs.shape[1], device=device)
    wanted = torch.from_numpy(signs).to(device)
    before = total_loss(batches, wanted, weights, decay)
    size = max((len(some.rows) for some in batches.batches), default=1)
    left = total = epochs * len(batches.batches)
    for _ in range(epochs):
        for some in batches.batches:
            slope = hinge_slopes(some.texts.times(weights), wanted[some.rows].float())
            short = (slope != 0).sum(dim=0) / size
            step = 0.5 * left / total / (1.0 + batches.crowding * short)  # (l,)
            own = weights[some.terms]
            change = some.transposed.times(slope.mul_(some.damping))
            change.addcmul_(own, some.decay, value=decay)
            change.mul_(batches.scale[some.terms]).mul_(step)
            weights[some.terms] = own.sub_(change)
            left -= 1
    after = total_loss(batches, wanted, weights, decay)
    worse = ~(after <= before)
    weights[:, worse] = 0.0
    after = torch.where(worse, before, after)
    return weights, np.array([float(before.sum()), float(after.sum())])


def total_loss(
    batches: TextBatches, signs: torch.Tensor, weights: torch.Tensor, decay: float
) -> torch.Tensor:
    """Return (l,) squared hinge of all texts plus ``decay / 2 * |weights|^2``."""
    loss = decay / 2 * weights.double().square().sum(dim=0)
    for some in batches.batches:
        sign = signs[some.rows].float()
        short = (MARGIN - sign * (some.texts.times(weights) - MARGIN)).clamp_min_(0)
        loss += short.mul_(sign.abs()).double().square().sum(dim=0)
    return loss


def prune_weights(weights: torch.Tensor, min_weight: float, max_weights: int) -> sp.csr_matrix:
    """Return (l, V) the largest weights of each label, in half precision as they are saved."""
    dense = round_to_half(weights.T.cpu().numpy())
    kept = sp.csr_matrix(np.where(np.abs(dense) >= min_weight, dense, np.float32(0)))
    return keep_largest(kept, max_weights)
