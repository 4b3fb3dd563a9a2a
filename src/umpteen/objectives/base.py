"""The Objective protocol and the plain way to run one on a single block of scores.

An objective sees a block of scores (B, C) and the positives inside it, and never learns whether the
C candidates are a batch's pool, one chunk of all labels, or one device's shard. It is three plain
differentiable functions: a small summary of a block, an associative merge of summaries, and the
loss from the merged summary and the positives' scores. Whatever streams blocks or merges ranks
works for every objective, because it needs nothing else.

An objective that needs something of all candidates before it can summarise one block (soft
top-k: its threshold) has a fourth function, ``prepare``; the others do without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from umpteen.types import Positives

Reduction = Callable[[Positives, int], Tensor]
"""Positives and the number of rows to one weight per positive (P,), without the targets.

A reduction with ``drops = True`` gives some positives a weight of exactly 0, and they then count
neither way: not as positives, not as negatives, not as candidates. It keeps at least one positive
of every row that has one. Without the mark a weight of 0 only takes a positive's own term away.
A reduction with ``draws = True`` takes random numbers; on several ranks the first one draws.
"""

OverBlocks = Callable[[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]], Tensor]
"""``over_blocks(function, merge)`` applies a function, (B, C) to (B, M), to every block of scores,
and merges the n results, (n, B, M) to (B, M), associatively; without gradients."""


class Objective(Protocol):
    """A base loss; laws in ``tests/contracts/test_objectives.py``.

    Properties that not every loss has are declared, and tested where they are declared:
    ``shift_invariant = True`` if adding a constant to all scores of a query changes nothing, and
    ``monotone = True`` if, with targets of 1, the loss's slope by a positive's score is never above
    0 (it may still jump where a negative leaves the margin of ``triplet``).

    ``block_copies`` is the number of tensors of the size of a block that ``row_stats`` and its
    gradient hold at once, 10 where it is missing; it decides the size of blocks of all labels.

    A class may have a static method ``definition``, the formula for one query, which its results
    are then compared with. It gets the scores of a row, the targets of its positives by column, the
    columns that are present, and the options of the constructor as keywords. It returns the sum
    over the negatives, and the term of each positive by column.

    An objective may have an attribute ``summary`` (``types.ScoreSummary``) that names what its
    ``row_stats`` is; runners then take a faster way to the same numbers. One that inherits it and
    has another ``row_stats`` sets it to None.

    Pairs that count neither way come in with a score of -inf, which every objective must treat as
    absent. Positives that a reduction dropped come in with a target of 0, a weight of 0 and, in the
    block, a score of -inf.
    """

    def row_stats(self, scores: Tensor, positives: Positives) -> Tensor:
        """Summarise one block: scores (B, C) to (B, S)."""

    def merge(self, stats: Tensor) -> Tensor:
        """Merge the summaries of n blocks: (n, B, S) to (B, S); associative."""

    def loss(
        self, stats: Tensor, positive_scores: Tensor, positives: Positives, weights: Tensor
    ) -> Tensor:
        """Return the loss of each row (B,), zero for a row without positives.

        Args:
            stats: (B, S) merged over all blocks.
            positive_scores: (P,) scores of the positives of all blocks; 0 for a dropped one.
            positives: Their rows and targets.
            weights: (P,) from a reduction.
        """


def block_loss(
    objective: Objective | Any, reduction: Reduction, scores: Tensor, positives: Positives
) -> Tensor:
    """Return the mean loss over the rows that have a positive, for scores held whole.

    Args:
        objective: The base loss.
        reduction: How a row's positives are weighed against each other.
        scores: (B, C); -inf where a pair counts neither way.
        positives: Pairs inside the block.

    Returns:
        A scalar; zero, with a gradient of zero, when no row has a positive.
    """
    n_rows = scores.shape[0]
    weights = reduction(positives, n_rows)
    positive_scores = scores[positives.rows, positives.cols]  # (P,)
    if getattr(reduction, "drops", False):  # only then is a copy of the scores worth its memory
        gone = weights == 0
        kept = positive_scores.masked_fill(gone, float("-inf"))
        scores = scores.index_put((positives.rows, positives.cols), kept)
        positive_scores = positive_scores.masked_fill(gone, 0.0)
        positives = without(positives, gone)
    stats = summarise(objective, scores, positives, _look_ahead(objective, scores, positives))
    rows = objective.loss(stats, positive_scores, positives, weights)  # (B,)
    return mean_over_rows(rows, positives)


def mean_over_rows(rows: Tensor, positives: Positives) -> Tensor:
    """Return the mean of the losses (B,) over the rows that have a positive; 0 where none has."""
    # index_fill, since an assignment would copy its number from the host and wait for it.
    counted = torch.zeros_like(rows, requires_grad=False).index_fill(0, positives.rows, 1.0)
    return rows.sum() / counted.sum().clamp(min=1.0)


def without(positives: Positives, gone: Tensor) -> Positives:
    """Return the same pairs with a target of 0 where ``gone`` (P,) says so.

    The pairs stay in the list: taking them out would make its length wait for the device.
    """
    return Positives(positives.rows, positives.cols, positives.targets.masked_fill(gone, 0.0))


def summarise(
    objective: Any, scores: Tensor, positives: Positives, prepared: Tensor | None
) -> Tensor:
    """Compute ``row_stats`` of any objective, (B, C) to (B, S)."""
    if prepared is None:
        return objective.row_stats(scores, positives)
    return objective.row_stats(scores, positives, prepared)


def _look_ahead(objective: Any, scores: Tensor, positives: Positives) -> Tensor | None:
    prepare = getattr(objective, "prepare", None)
    if prepare is None:
        return None
    held = scores.detach()
    with torch.no_grad():
        return prepare(
            lambda function, merge: merge(function(held).unsqueeze(0)), positives, len(held)
        )


def logsumexp(scores: Tensor, dim: int) -> Tensor:
    """Compute ``torch.logsumexp`` with gradient zero, not NaN, where every entry is -inf."""
    empty = torch.isneginf(scores).all(dim=dim, keepdim=True)
    finite = torch.logsumexp(scores.masked_fill(empty, 0.0), dim=dim)
    return finite.masked_fill(empty.squeeze(dim), float("-inf"))


def highest_scores(scores: Tensor, n: int) -> Tensor:
    """Return the n highest scores of each row, (B, n), with -inf where a row has fewer."""
    found = scores.topk(min(n, scores.shape[1]), dim=1).values
    return pad(found, (0, n - found.shape[1]), value=float("-inf"))


def sum_by_row(values: Tensor, rows: Tensor, n_rows: int) -> Tensor:
    """Add up one value per positive into one per row: (P,) to (n_rows,)."""
    return torch.zeros(n_rows, dtype=values.dtype, device=values.device).index_add(0, rows, values)


def ranks_in_rows(keys: Tensor, rows: Tensor, n_rows: int) -> Tensor:
    """Return the place of each entry (P,) among those of its row, by rising keys; ties by order."""
    by_key = keys.argsort(stable=True)
    order = by_key[rows[by_key].argsort(stable=True)]  # by row, and by key within it
    counts = sum_by_row(torch.ones_like(rows), rows, n_rows)
    starts = counts.cumsum(0) - counts
    places = torch.arange(len(rows), device=rows.device)
    return torch.empty_like(places).index_put((order,), places - starts[rows[order]])


def without_positives(scores: Tensor, positives: Positives) -> Tensor:
    """Return a copy of the block in which the positives, and dropped ones too, are -inf: (B, C)."""
    nothing = torch.full((), float("-inf"), dtype=scores.dtype, device=scores.device)
    return scores.index_put((positives.rows, positives.cols), nothing)
