"""The scores of blocks of labels, with gradients by automatic differentiation: any objective."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.precision import full_precision
from umpteen.compute.streaming.label_passes import LabelPasses
from umpteen.compute.streaming.label_products import ApplyBlock, multiply
from umpteen.types import Positives


class LabelStream(LabelPasses):
    """The passes of any objective, from queries to labels, back, or both."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.prepared: Tensor | None = None
        """What an objective that looks ahead found."""

    def _look_ahead(self, queries: Tensor, labels: Tensor) -> None:
        side = self.of_queries
        if side is not None and hasattr(self.objective, "prepare"):
            over = self._over_blocks(queries, labels)
            self.prepared = self.objective.prepare(over, side.positives, self.n_queries)

    def _scan(self, queries: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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

    def _replay(
        self,
        queries: Tensor,
        labels: Tensor,
        gradient: Tensor,
        total: Tensor | None,
        apply_block: ApplyBlock | None,
    ) -> None:
        side = self.of_queries
        if side is not None and self.cached is None:  # the blocks are smaller than they were
            _, summaries, _ = self._scan(queries, labels)
            self._from_queries(summaries)
        rounded = queries.to(self.factors)
        for i, (start, stop, part) in enumerate(self._blocks()):
            if start < self.at:
                continue
            block = self._block(labels, start, stop).to(self.factors)
            scores = self._scores(rounded, block, start, stop).requires_grad_()
            outputs, pushed = [], []
            with torch.enable_grad():
                if side is not None and self.cached is not None:
                    seen, found, inside = side.view(scores, part, start)
                    outputs += [self._summary(seen, inside, self.prepared), found]
                    pushed += [self.cached[0][i] * gradient, self.cached[1][part] * gradient]
                    del seen
                if self.of_labels is not None:
                    outputs.append(self._from_labels(scores, part, start))
                    pushed.append(gradient)
            (slopes,) = torch.autograd.grad(outputs, [scores], pushed)
            del scores, outputs
            if self.ignored is not None:
                pairs = self.ignored.between(start, stop)
                places = self.ignored.rows[pairs], self.ignored.cols[pairs] - start
                slopes.index_put_(places, slopes.new_zeros(()))
            self._push(slopes.to(self.factors).T, block, rounded, (start, stop), total, apply_block)
            del slopes

    def _scores(self, queries: Tensor, block: Tensor, start: int, stop: int) -> Tensor:
        # Of whatever the factors are, scores are at least float32.
        kind = torch.promote_types(self.factors, torch.float32)
        scores = multiply(queries.to(self.factors), block.to(self.factors).T, kind)  # (B, C)
        if self.ignored is not None:
            part = self.ignored.between(start, stop)
            nothing = torch.full((), float("-inf"), dtype=scores.dtype, device=scores.device)
            scores.index_put_((self.ignored.rows[part], self.ignored.cols[part] - start), nothing)
        return scores

    def _summary(self, scores: Tensor, positives: Positives, prepared: Tensor | None) -> Tensor:
        with full_precision(scores):
            if prepared is None:
                summary: Tensor = self.objective.row_stats(scores, positives)
            else:
                summary = self.objective.row_stats(scores, positives, prepared)
        return summary

    def _from_labels(self, scores: Tensor, part: slice, start: int) -> Tensor:
        """Return the block's part of the loss from labels to queries.

        Each of its labels is whole here.
        """
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
        with full_precision(scores):
            rows = self.objective.loss(stats, found, inside, side.weights[part])
        return rows.sum() * self.label_share

    def _over_blocks(self, queries: Tensor, labels: Tensor) -> Callable[..., Tensor | None]:
        def over_blocks(
            function: Callable[[Tensor], Tensor], merge: Callable[[Tensor], Tensor]
        ) -> Tensor | None:
            merged = self.retrying(lambda: self._merge_blocks(queries, labels, function, merge))
            return merged if not self.ranks.exchanges else merge(self.ranks.stack(merged))

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
