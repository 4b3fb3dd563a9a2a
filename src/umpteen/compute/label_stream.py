"""The two passes of a loss over all labels, block by block, on one rank or several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.label_pairs import place, sort_pairs, weigh
from umpteen.compute.sharding import Ranks, Shards
from umpteen.errors import UmpteenError
from umpteen.types import Positives

logger = logging.getLogger(__name__)


class LabelStream:
    """One loss over all labels: the pairs, the blocks, and what the two passes leave each other."""

    def __init__(
        self,
        objective: Any,
        reduction: Callable[[Positives, int], Tensor],
        queries: Tensor,
        shards: Shards,
        positives: Positives,
        ignored: Any,
        forward: float,
    ) -> None:
        self.objective = objective
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
        order = place(self.pairs.order, device)
        self.of_queries = self.of_labels = None
        self.query_share = forward / max(1, self.pairs.n_rows)
        self.label_share = (1 - forward) / max(1, self.pairs.n_cols)
        reduction = _same_on_all(reduction, self.ranks)
        if forward > 0:
            self.of_queries = weigh(reduction, given, self.n_queries, order, labels_choose=False)
        if forward < 1:
            turned = given.transposed()
            self.of_labels = weigh(reduction, turned, n_labels, order, labels_choose=True)
        self.prepared: Tensor | None = None
        self.cached: tuple[Tensor, ...] | None = None
        self.exchanged: tuple[Tensor, Tensor] | None = None

    def retrying(self, function: Callable[[], Any]) -> Any:
        """Call the function until it fits the memory, with half the block each time.

        The function must not wait for other ranks: they do not know that it is called again.
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
            self.cached = None
            torch.cuda.empty_cache()
            logger.warning("out of memory; going on with %d labels at once", self.size)

    def collect(self, queries: Tensor, labels: Tensor) -> Tensor:
        """The first pass: the loss, and its gradient by summaries and positives' scores."""
        side = self.of_queries
        with torch.no_grad():
            if side is not None and hasattr(self.objective, "prepare"):
                over = self._over_blocks(queries, labels)
                self.prepared = self.objective.prepare(over, side.positives, self.n_queries)
            total, summaries, found = self.retrying(lambda: self._scan(queries, labels))
            if self.of_labels is not None:
                total = self.ranks.sum_(total)
            if side is None:
                result: Tensor = total
                return result
            with _full_precision(queries):
                merged = self.objective.merge(summaries)
            self.exchanged = (
                self.ranks.stack(merged),  # (ranks, B, S)
                self.ranks.concatenate(found, self.pair_bounds),  # (P,)
            )
        return total + self._from_queries(summaries)

    def _scan(self, queries: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """This rank's blocks: its part of the loss from labels, the summaries, positives' scores.

        Returns:
            A scalar, (blocks, B, S) and (P of this rank,); the last two are empty where queries
            do not choose.
        """
        side = self.of_queries
        total = queries.new_zeros(())
        summaries, positive_scores = [], []
        for start, stop, part in self._blocks():
            scores = self._scores(queries, self._block(labels, start, stop), start, stop)
            if self.of_labels is not None:
                total = total + self._from_labels(scores, part, start)
            if side is not None:
                seen, found, inside = side.view(scores, part, start)
                summaries.append(self._summary(seen, inside, self.prepared))
                positive_scores.append(found)
                del seen
            del scores  # or it would stay while the next block is made
        if side is None:
            return total, total.new_empty(0), total.new_empty(0)
        return total, torch.stack(summaries), torch.cat(positive_scores)

    def _from_queries(self, summaries: Tensor) -> Tensor:
        """The loss from queries, the same on every rank, and its gradient by what is this rank's.

        Another rank's summaries and positives' scores are numbers here: that rank does its own.
        """
        side = self.of_queries
        assert side is not None
        assert self.exchanged is not None
        all_merged, all_scores = self.exchanged
        leaves = summaries.requires_grad_(), all_scores.detach().clone().requires_grad_()
        rank = self.ranks.rank
        with torch.enable_grad(), _full_precision(summaries):
            merged = self.objective.merge(leaves[0])
            if self.ranks.world > 1:
                each = [*all_merged.unbind(0)]
                each[rank] = merged
                merged = self.objective.merge(torch.stack(each))
            rows = self.objective.loss(merged, leaves[1], side.positives, side.weights)
            loss = rows.sum() * self.query_share
        self.cached = torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True)
        return loss.detach()

    def replay(
        self, queries: Tensor, labels: Tensor, gradient: Tensor, needs: tuple[bool, bool]
    ) -> list[Tensor | None]:
        """The second pass: the loss's gradients by queries and labels."""
        side = self.of_queries
        if side is not None and self.cached is None:  # the blocks are smaller than they were
            with torch.no_grad():
                _, summaries, _ = self._scan(queries, labels)
            self._from_queries(summaries)
        totals = [
            torch.zeros_like(value) if need else None
            for value, need in zip((queries, labels), needs, strict=True)
        ]
        held = queries.detach().requires_grad_(needs[0])
        for i, (start, stop, part) in enumerate(self._blocks()):
            block = self._block(labels, start, stop).detach().requires_grad_(needs[1])
            outputs, pushed = [], []
            with torch.enable_grad():
                scores = self._scores(held, block, start, stop)
                if side is not None and self.cached is not None:
                    seen, found, inside = side.view(scores, part, start)
                    outputs += [self._summary(seen, inside, self.prepared), found]
                    pushed += [self.cached[0][i] * gradient, self.cached[1][part] * gradient]
                    del seen
                if self.of_labels is not None:
                    outputs.append(self._from_labels(scores, part, start))
                    pushed.append(gradient)
                del scores
            wanted = [value for value, need in zip((held, block), needs, strict=True) if need]
            gradients = list(torch.autograd.grad(outputs, wanted, pushed))
            if totals[1] is not None:
                self._block(totals[1], start, stop).copy_(gradients.pop())
            if totals[0] is not None:
                totals[0] += gradients.pop()
        return totals

    def _blocks(self) -> Iterator[tuple[int, int, slice]]:
        """Half-open ranges of this rank's labels, and where their positives are."""
        first, last = self.own.start, self.own.stop
        for start in range(first, max(first + 1, last), self.size):
            stop = min(start + self.size, last)
            yield start, stop, self.pairs.between(start, stop)

    def _block(self, labels: Tensor, start: int, stop: int) -> Tensor:
        """Rows of this rank's labels, by their place among all."""
        return labels[start - self.own.start : stop - self.own.start]

    def _scores(self, queries: Tensor, block: Tensor, start: int, stop: int) -> Tensor:
        with _full_precision(queries):
            scores = queries @ block.to(queries.dtype).T  # (B, stop - start)
        if self.ignored is not None:
            part = self.ignored.between(start, stop)
            nothing = torch.full((), float("-inf"), dtype=scores.dtype, device=scores.device)
            scores.index_put_((self.ignored.rows[part], self.ignored.cols[part] - start), nothing)
        return scores

    def _summary(self, scores: Tensor, positives: Positives, prepared: Tensor | None) -> Tensor:
        with _full_precision(scores):
            if prepared is None:
                summary: Tensor = self.objective.row_stats(scores, positives)
            else:
                summary = self.objective.row_stats(scores, positives, prepared)
        return summary

    def _from_labels(self, scores: Tensor, part: slice, start: int) -> Tensor:
        """The block's part of the loss from labels to queries: each of its labels is whole here."""
        side = self.of_labels
        assert side is not None
        seen, found, inside = side.view(scores, part, start)
        prepared = None
        if hasattr(self.objective, "prepare"):
            whole = seen.detach()
            with torch.no_grad():
                prepared = self.objective.prepare(
                    lambda function, merge: merge(function(whole).unsqueeze(0)), inside, len(whole)
                )
        stats = self._summary(seen, inside, prepared)
        with _full_precision(scores):
            rows = self.objective.loss(stats, found, inside, side.weights[part])
        return rows.sum() * self.label_share

    def _over_blocks(self, queries: Tensor, labels: Tensor) -> Callable[..., Tensor | None]:
        def over_blocks(
            function: Callable[[Tensor], Tensor], merge: Callable[[Tensor], Tensor]
        ) -> Tensor | None:
            merged = self.retrying(lambda: self._merge_blocks(queries, labels, function, merge))
            return merged if self.ranks.world == 1 else merge(self.ranks.stack(merged))

        return over_blocks

    def _merge_blocks(
        self,
        queries: Tensor,
        labels: Tensor,
        function: Callable[[Tensor], Tensor],
        merge: Callable[[Tensor], Tensor],
    ) -> Tensor | None:
        side = self.of_queries
        assert side is not None
        merged: Tensor | None = None
        for start, stop, part in self._blocks():
            scores = self._scores(queries, self._block(labels, start, stop), start, stop)
            seen, _, _ = side.view(scores, part, start)
            del scores
            result = function(seen)
            del seen
            both = [result] if merged is None else [merged, result]
            merged = merge(torch.stack(both))
        return merged


def _same_on_all(
    reduction: Callable[[Positives, int], Tensor], ranks: Ranks
) -> Callable[[Positives, int], Tensor]:
    """A reduction that draws, drawn on the first rank; others give the same everywhere anyway."""
    if ranks.world == 1 or not getattr(reduction, "drops", False):
        return reduction
    return _FromFirst(reduction, ranks)


class _FromFirst:
    drops = True

    def __init__(self, reduction: Callable[[Positives, int], Tensor], ranks: Ranks) -> None:
        self.reduction, self.ranks = reduction, ranks

    def __call__(self, positives: Positives, n_rows: int) -> Tensor:
        return self.ranks.from_first(self.reduction(positives, n_rows))


def _full_precision(values: Tensor) -> torch.autocast:
    return torch.autocast(values.device.type, enabled=False)
