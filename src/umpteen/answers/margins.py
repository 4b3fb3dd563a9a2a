"""Learn for each label what sets its queries apart from all others: squared hinge, all pairs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.query_batches import QueryBatches
from umpteen.answers.words import heaviest

Say = Callable[[str], None]
MARGIN = 1.0
"""Half of what lies between the labels that a query must not have, at 0, and those it must."""
LABELS_AT_ONCE = {"cpu": 64, "cuda": 1024}
"""With 64 the weights of a block stay in a processor's cache."""
NO_TIME = "words: no time to learn margins"


@dataclass(frozen=True)
class MarginsRecipe:
    """How margins are learned; the defaults were chosen on validation (docs/answers.md)."""

    epochs: int = 3
    batch: int = 256
    decay: float = 1.0
    """Half of it times the squared weights is added to the loss of all queries together."""
    least_weight: float = 0.03
    """Smaller ones are not kept."""
    most_weights: int = 16 << 20
    """Kept of all labels together, the largest of each."""
    most_pairs: int = 1 << 28
    """Pairs of a word and a label, above which margins are not learned."""
    least_queries: float = 10.0
    """Training queries of a label, on average, below which margins are not learned."""

    def suits(self, n_words: int, targets: sp.csr_matrix) -> bool:
        """Whether there are queries enough for each label, and not too many words and labels.

        Args:
            n_words: V.
            targets: (N, L).

        Returns:
            Whether to learn margins.
        """
        n_labels = targets.shape[1]
        few = 0 < n_words * n_labels <= self.most_pairs
        return bool(few and targets.nnz >= self.least_queries * n_labels)


def slopes(scores: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Of ``max(0, MARGIN - sign * (score - MARGIN)) ** 2`` by the score.

    Args:
        scores: (B, L).
        signs: (B, L) 1 for positives, -1 for others, 0 for pairs that count neither way.

    Returns:
        (B, L).
    """
    short = (MARGIN - signs * (scores - MARGIN)).clamp_min_(0)
    return short.mul_(signs).mul_(-2)


def learn_margins(
    queries: sp.csr_matrix,
    targets: sp.csr_matrix,
    *,
    filters: NDArray[np.int64] | None = None,
    recipe: MarginsRecipe = MarginsRecipe(),  # noqa: B008 - frozen
    seed: int = 0,
    device: torch.device | str = "cpu",
    until: float = np.inf,
    say: Say = lambda text: None,
) -> sp.csr_matrix | None:
    """One linear scorer for each label, trained on every query.

    Args:
        queries: (N, V).
        targets: (N, L).
        filters: (M, 2) pairs (query, label) that count neither way.
        recipe: How.
        seed: Of the order of queries.
        device: Where to compute.
        until: By ``time.monotonic``; epochs are as many as seem to fit.
        say: Told what was cut short.

    Returns:
        (V, L) weights, or None where there was no time for one epoch.
    """
    if time.monotonic() >= until:
        say(NO_TIME)
        return None
    batches = QueryBatches.of(queries, recipe.batch, seed, device)
    own = sp.csc_matrix(targets)
    n_labels = own.shape[1]
    width = LABELS_AT_ONCE.get(torch.device(device).type, 1024)
    each = max(1, recipe.most_weights // max(1, n_labels))
    parts: list[sp.csr_matrix] = []
    fewest, seconds = recipe.epochs, 0.0
    for first in range(0, n_labels, width):
        last = min(n_labels, first + width)
        began = time.monotonic()
        epochs = recipe.epochs
        if parts:
            fitting = (until - began) / max(1e-9, seconds * (n_labels - first) / width)
            epochs = int(min(recipe.epochs, fitting))
            if epochs < 1 and len(parts) == 1:
                say(NO_TIME)
                return None
        fewest = min(fewest, max(1, epochs))
        signs = signs_of(own, filters, first, last)
        weights = train_block(batches, signs, queries.shape, max(1, epochs), recipe.decay)
        parts.append(pruned(weights, recipe.least_weight, each))
        seconds = (time.monotonic() - began) / max(1, epochs)
    if fewest < recipe.epochs:
        say(f"words: margins cut short, down to {fewest} of {recipe.epochs} epochs for some labels")
    return sp.csr_matrix(sp.vstack(parts, format="csr").T)


def signs_of(
    targets: sp.csc_matrix, filters: NDArray[np.int64] | None, first: int, last: int
) -> NDArray[np.int8]:
    """(N, last - first) 1 for positives, 0 for filtered pairs, -1 for all others."""
    signs = np.full((targets.shape[0], last - first), -1, np.int8)
    own = targets[:, first:last].tocoo()
    signs[own.row, own.col] = 1
    if filters is not None and len(filters):
        here = filters[(filters[:, 1] >= first) & (filters[:, 1] < last)]
        signs[here[:, 0], here[:, 1] - first] = 0
    return signs


def train_block(
    batches: QueryBatches,
    signs: NDArray[np.int8],
    shape: tuple[int, int],
    epochs: int,
    decay: float,
) -> torch.Tensor:
    """(V, l) weights of some labels, from 0, by steps that shrink to 0.

    A step would be right to the end for a query that stands alone. Of a label's queries in a batch
    that fall short, each bends the loss for the others, so its step is shorter the more there are.

    Args:
        batches: What is common to all labels.
        signs: (N, l), see ``slopes``.
        shape: (N, V).
        epochs: How often each query is seen.
        decay: See the recipe.

    Returns:
        On the batches' device.
    """
    device = batches.scale.device
    weights = torch.zeros(shape[1], signs.shape[1], device=device)
    wanted = torch.from_numpy(signs).to(device)
    size = max((len(some.rows) for some in batches.parts), default=1)
    left, total = epochs * len(batches.parts), epochs * len(batches.parts)
    for _ in range(epochs):
        for some in batches.parts:
            slope = slopes(some.queries.times(weights), wanted[some.rows].float())
            short = (slope != 0).sum(dim=0) / size
            step = 0.5 * left / total / (1.0 + batches.crowding * short)  # (l,)
            before = weights[some.words]
            change = some.turned.times(slope.mul_(some.damping))
            change.add_(before, alpha=decay * len(some.rows) / shape[0])
            change.mul_(batches.scale[some.words]).mul_(step)
            weights[some.words] = before.sub_(change)
            left -= 1
    return weights


def pruned(weights: torch.Tensor, least: float, most: int) -> sp.csr_matrix:
    """(l, V) the weights of at least some size, and of those the largest of each label.

    In half precision, as they are saved.
    """
    dense = weights.T.to(torch.float16).cpu().numpy().astype(np.float32)
    kept = sp.csr_matrix(np.where(np.abs(dense) >= least, dense, np.float32(0)))
    size = kept.copy()
    size.data = np.abs(size.data)
    largest = heaviest(size, most)
    if largest.nnz == kept.nnz:
        return kept
    largest.data = np.ones_like(largest.data)
    return sp.csr_matrix(kept.multiply(largest))
