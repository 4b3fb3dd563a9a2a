"""The two passes of a loss over all labels, block by block, on one rank or several. No scores here.

``label_stream`` makes and differentiates the scores of any objective, ``explicit_gradients`` those
of objectives whose summary has a name.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Shards
from umpteen.compute.precision import full_precision
from umpteen.compute.streaming.label_pairs import place, same_on_all, sort_pairs, weigh
from umpteen.compute.streaming.label_products import ApplyBlock, BlockGradient, sum_over_labels
from umpteen.errors import UmpteenError
from umpteen.types import Positives

logger = logging.getLogger(__name__)


class LabelPasses:
    """One loss over all labels: the pairs, the blocks, and what the two passes leave each other.

    How a block is summarised (``_scan``) and its slopes are made (``_replay``) is a subclass's.
    """

    def __init__(
        self,
        objective: Any,
        reduction: Callable[[Positives, int], Tensor],
        queries: Tensor,
        shards: Shards,
        positives: Positives,
        ignored: Any,
        forward: float,
        factors: torch.dtype,
    ) -> None:
        self.objective = objective
        self.factors = factors
        self.ranks, self.own = shards.ranks, shards.own
        n_labels = shards.n_labels
        self.n_queries = len(queries)
        self.size = max(1, len(self.own))
        device = queries.device
        given = Positives(
            place(positives.rows, device),
            place(positives.cols, device),
            place(positives.targets, device).to(queries.dtype),
        )
        sort = partial(sort_pairs, n_queries=self.n_queries, n_labels=n_labels, device=device)
        self.pairs = sort(positives.rows, positives.cols)
        self.ignored = None if ignored is None else sort(ignored[:, 0], ignored[:, 1])
        # Sorted by label, so each rank's pairs are together, in the order of the ranks.
        self.pair_bounds = np.searchsorted(self.pairs.labels, shards.bounds)
        order = self.pairs.order
        self.of_queries = self.of_labels = None
        self.query_share = forward / max(1, self.pairs.n_rows)
        self.label_share = (1 - forward) / max(1, self.pairs.n_cols)
        reduction = same_on_all(reduction, self.ranks)
        if forward > 0:
            self.of_queries = weigh(reduction, given, self.n_queries, order, labels_choose=False)
        if forward < 1:
            turned = given.transposed()
            self.of_labels = weigh(reduction, turned, n_labels, order, labels_choose=True)
        self.cached: tuple[Tensor, ...] | None = None
        self.exchanged: tuple[Tensor, Tensor] | None = None
        self.at = self.own.start
        """Where the second pass is; blocks before it are done."""

    def retrying(self, function: Callable[[], Any]) -> Any:
        """Call the function until it fits the memory, with half the block each time.

        The function must not wait for other ranks, which do not call it again.
        """
        while True:
            try:
                return function()
            except torch.OutOfMemoryError as error:
                if self.size == 1:
                    raise UmpteenError(
                        f"the scores of {self.n_queries} queries and one label do not fit the "
                        "memory; use a smaller batch"
                    ) from error
            self.size = (self.size + 1) // 2
            self._forget()
            torch.cuda.empty_cache()
            logger.warning("out of memory; going on with %d labels at once", self.size)

    def collect(self, queries: Tensor, labels: Tensor) -> Tensor:
        """Return the first pass: the loss, and its gradient by summaries and positives' scores."""
        side = self.of_queries
        with torch.no_grad():
            self._look_ahead(queries, labels)
            total, summaries, found = self.retrying(lambda: self._scan(queries, labels))
            if self.of_labels is not None:
                total = self.ranks.sum_(total)
            if side is None:
                result: Tensor = total
                return result
            return total + self._exchange(summaries, found)

    def _look_ahead(self, queries: Tensor, labels: Tensor) -> None:
        """Compute what the objective needs of all labels before the first pass."""

    def _scan(self, queries: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the blocks of this rank add: loss from labels, summaries, positives' scores.

        Returns:
            A scalar, (blocks, B, S) and (P of this rank,); the last two are empty where queries
            do not choose.
        """
        raise NotImplementedError

    def _exchange(self, summaries: Tensor, found: Tensor) -> Tensor:
        """Return the loss from queries by the (blocks, B, S) of all ranks and positives' scores."""
        with full_precision(summaries):
            merged = self.objective.merge(summaries)
        self.exchanged = (
            self.ranks.stack(merged),  # (ranks, B, S)
            self.ranks.concatenate(found, self.pair_bounds),  # (P,)
        )
        return self._from_queries(summaries)

    def _from_queries(self, summaries: Tensor) -> Tensor:
        """Return the loss from queries, the same on every rank.

        Its gradient by what is this rank's.

        Another rank's summaries and positives' scores are numbers here: that rank does its own.
        """
        side = self.of_queries
        assert side is not None
        assert self.exchanged is not None
        all_merged, all_scores = self.exchanged
        leaves = summaries.requires_grad_(), all_scores.detach().clone().requires_grad_()
        rank = self.ranks.rank
        with torch.enable_grad(), full_precision(summaries):
            merged = self.objective.merge(leaves[0])
            if self.ranks.exchanges:
                each = [*all_merged.unbind(0)]
                each[rank] = merged
                merged = self.objective.merge(torch.stack(each))
            rows = self.objective.loss(merged, leaves[1], side.positives, side.weights)
            loss = rows.sum() * self.query_share
        self.cached = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return loss.detach()

    def replay(
        self,
        queries: Tensor,
        labels: Tensor,
        gradient: Tensor,
        by_queries: bool,
        apply_block: ApplyBlock | None,
    ) -> Tensor | None:
        """Return the second pass: each block's gradient by its labels, and the sum by the queries.

        Args:
            queries: (B, D).
            labels: (labels of this rank, D).
            gradient: By the loss, a scalar.
            by_queries: Whether that gradient is wanted.
            apply_block: Told of every block once, however often memory runs out; or None.

        Returns:
            (B, D) or None.
        """
        self.at = self.own.start
        total = torch.zeros_like(queries) if by_queries else None
        with torch.no_grad():
            self.retrying(lambda: self._replay(queries, labels, gradient, total, apply_block))
        return total

    def update(
        self, queries: Tensor, labels: Tensor, weight: Tensor, by_queries: bool, apply: ApplyBlock
    ) -> tuple[Tensor, Tensor | None]:
        """Run both passes, with the gradients of ``weight * loss``.

        The loss, and that by queries.
        """
        loss = self.collect(queries, labels)
        return loss, self.replay(queries, labels, weight, by_queries, apply)

    def _replay(
        self,
        queries: Tensor,
        labels: Tensor,
        gradient: Tensor,
        total: Tensor | None,
        apply_block: ApplyBlock | None,
    ) -> None:
        """Run the blocks from ``at`` on; see ``replay``. Each ends with ``_push``."""
        raise NotImplementedError

    def _push(
        self,
        slopes: Tensor,
        block: Tensor,
        queries: Tensor,
        place: tuple[int, int],
        total: Tensor | None,
        apply_block: ApplyBlock | None,
    ) -> None:
        """Send the slopes (C, B) of a block on to queries and labels; the block is then done."""
        if total is not None:
            added = sum_over_labels(slopes, block, total.dtype)
        start, stop = (row - self.own.start for row in place)
        if apply_block is not None:
            apply_block(slice(start, stop), BlockGradient(slopes, queries))
        if total is not None:
            total += added
        self.at = max(place[1], place[0] + 1)

    def _forget(self) -> None:
        """Drop what belongs to blocks of the old size."""
        self.cached = None

    def _blocks(self) -> Iterator[tuple[int, int, slice]]:
        """Yield half-open ranges of this rank's labels, and where their positives are.

        Blocks that the second pass has done stay apart from those to come.
        """
        done = min(self.at, self.own.stop)
        for first, last in ((self.own.start, done), (done, self.own.stop)):
            for start in range(first, last, self.size):
                stop = min(start + self.size, last)
                yield start, stop, self.pairs.between(start, stop)
        if not len(self.own):
            yield done, done, self.pairs.between(done, done)

    def _block(self, labels: Tensor, start: int, stop: int) -> Tensor:
        """Return rows of this rank's labels, by their place among all."""
        return labels[start - self.own.start : stop - self.own.start]
