"""Losses over all labels whose summaries are known by name: explicit gradients, no graph of scores.

Where an objective says that its ``row_stats`` is a log-sum-exp or a sum of softplus
(``types.ScoreSummary``), the derivative of the summary by each score is known, so a block needs no
more than its scores and, in their place or beside them, its slopes. ``label_stream`` does the same
for any objective and is what this must equal. Scores are (C, B) here, labels by rows: then a block
of any size has rows of one length, which matrix units like.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import softplus

from umpteen.compute.precision import at_least_float32
from umpteen.compute.streaming.label_passes import LabelPasses
from umpteen.compute.streaming.label_products import ApplyBlock, multiply
from umpteen.errors import UmpteenError
from umpteen.types import ScoreSummary

PAIRS_AT_ONCE = 1 << 13
USE_KERNELS = True
"""Whether GPUs take the kernels; turned off to compare."""


class SummaryFunctions(Protocol):
    """One summary of scores (C, B), and its slopes; scores of -inf are absent."""

    copies: int
    """Block-sized tensors alive at once, in float32."""

    def summarise(self, scores: Tensor) -> Tensor:
        """Summarise (C, B) as (n, B) parts, to be merged later."""

    def merge(self, parts: Tensor) -> Tensor:
        """Merge (n, B) to (B,)."""

    def slopes_(self, scores: Tensor, shift: Tensor, factor: Tensor, kind: torch.dtype) -> Tensor:
        """Return ``factor`` (B,) times the summary's derivative by each score.

        (C, B) in the given type.

        ``shift`` (B,) is the summary over all labels, 0 where it is -inf. Scores may be lost.
        """

    def summarise_and_slopes_(
        self, scores: Tensor, factor: Tensor, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Return parts of the summary and the slopes in one pass.

        Where slopes do not depend on the other labels.
        """


class LogSumExp:
    """log sum exp(s); its slope is exp(s - itself)."""

    copies = 4

    def summarise(self, scores: Tensor) -> Tensor:  # noqa: D102
        return torch.logsumexp(at_least_float32(scores), dim=0, keepdim=True)

    def merge(self, parts: Tensor) -> Tensor:  # noqa: D102
        return torch.logsumexp(parts, dim=0)

    def slopes_(  # noqa: D102
        self, scores: Tensor, shift: Tensor, factor: Tensor, kind: torch.dtype
    ) -> Tensor:
        return at_least_float32(scores).sub_(shift).exp_().mul_(factor).to(kind)

    def summarise_and_slopes_(  # noqa: D102
        self, scores: Tensor, factor: Tensor, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        raise AssertionError("the slopes of a log-sum-exp depend on all labels")


class SoftplusSum:
    """sum log(1 + exp(s)); its slope is sigmoid(s)."""

    copies = 4

    def summarise(self, scores: Tensor) -> Tensor:  # noqa: D102
        return softplus(at_least_float32(scores)).sum(dim=0, keepdim=True)

    def merge(self, parts: Tensor) -> Tensor:  # noqa: D102
        return parts.sum(dim=0)

    def slopes_(  # noqa: D102
        self, scores: Tensor, shift: Tensor, factor: Tensor, kind: torch.dtype
    ) -> Tensor:
        return at_least_float32(scores).sigmoid_().mul_(factor).to(kind)

    def summarise_and_slopes_(  # noqa: D102
        self, scores: Tensor, factor: Tensor, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        return self.summarise(scores), self.slopes_(scores, factor, factor, kind)


PLAIN: dict[str, SummaryFunctions] = {"logsumexp": LogSumExp(), "softplus": SoftplusSum()}


def summary_functions(name: str, device: torch.device, dtype: torch.dtype) -> SummaryFunctions:
    """Return what computes a summary there, by its name in ``types.ScoreSummary``."""
    if name not in PLAIN:
        raise UmpteenError(
            f"an objective's summary is {name!r}; it may be {' or '.join(PLAIN)}, or left out"
        )
    fits = USE_KERNELS and device.type == "cuda" and dtype == torch.float32
    if fits and find_spec("triton") is not None:
        from umpteen.compute.kernels.label_kernels import KERNELS

        return KERNELS[name]
    return PLAIN[name]


class ExplicitGradients(LabelPasses):
    """A loss from queries to labels by an objective with a named summary."""

    def __init__(self, *given: Any, summary: ScoreSummary, functions: SummaryFunctions) -> None:
        super().__init__(*given)
        self.form, self.functions = summary, functions
        first, last = self.pair_bounds[self.ranks.rank : self.ranks.rank + 2]
        self.own_pairs = slice(int(first), int(last))
        self.shift: Tensor | None = None
        """(B,) this rank's summary, where the slopes need it."""
        self.parts: list[Tensor] | None = None
        """(n, B) of each block that is done, where one pass does all."""
        kind = torch.promote_types(self.factors, torch.float32)
        self.nothing = torch.full((), float("-inf"), dtype=kind, device=self.pairs.rows.device)

    def _scan(self, queries: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rounded = queries.to(self.factors)
        parts = []
        for start, stop, part in self._blocks():
            block = self._block(labels, start, stop).to(self.factors)
            scores = self._turned(rounded, block, start, stop, part, self._places(part, start))
            parts.append(self.functions.summarise(scores))
            del scores
        summary = self.functions.merge(torch.cat(parts))  # (B,)
        self.shift = summary.masked_fill(torch.isneginf(summary), 0.0)
        return queries.new_zeros(()), summary.view(1, -1, 1), self._found(rounded, labels)

    def update(
        self, queries: Tensor, labels: Tensor, weight: Tensor, by_queries: bool, apply: ApplyBlock
    ) -> tuple[Tensor, Tensor | None]:
        """Update the labels; in one pass where the slopes need no summary of all labels."""
        if not self.form.linear:
            return super().update(queries, labels, weight, by_queries, apply)
        with torch.no_grad():
            found = self._found(queries.to(self.factors), labels)
            # The loss is linear in the summary: its gradient at 0 is its gradient anywhere.
            self._exchange(queries.new_zeros(1, self.n_queries, 1), found)
            self.parts = []
            gradient = self.replay(queries, labels, weight, by_queries, apply)
            summary = self.functions.merge(torch.cat(self.parts))
            return self._exchange(summary.view(1, -1, 1), found), gradient

    def _replay(
        self,
        queries: Tensor,
        labels: Tensor,
        gradient: Tensor,
        total: Tensor | None,
        apply_block: ApplyBlock | None,
    ) -> None:
        assert self.cached is not None
        rounded = queries.to(self.factors)
        factor = self.cached[0][0, :, 0] * gradient  # (B,)
        at_positives = self._positive_slopes(factor, gradient)  # (P,)
        for start, stop, part in self._blocks():
            if start < self.at:
                continue
            block = self._block(labels, start, stop).to(self.factors)
            places = self._places(part, start)
            scores = self._turned(rounded, block, start, stop, part, places)
            if self.parts is not None:
                summary, slopes = self.functions.summarise_and_slopes_(scores, factor, self.factors)
            else:
                assert self.shift is not None
                slopes = self.functions.slopes_(scores, self.shift, factor, self.factors)
            del scores
            if places is not None:
                slopes.index_put_(places, at_positives[part])
            self._push(slopes, block, rounded, (start, stop), total, apply_block)
            if self.parts is not None:
                self.parts.append(summary)
            del slopes

    def _forget(self) -> None:
        """Keep the summaries: they are merged over blocks, which may have any size."""

    def _turned(
        self,
        queries: Tensor,
        block: Tensor,
        start: int,
        stop: int,
        part: slice,
        places: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Return scores (C, B) with -inf at whatever does not count in the summary."""
        scores = multiply(block, queries.T, self.nothing.dtype)
        if self.ignored is not None:
            pairs = self.ignored.between(start, stop)
            if pairs.start < pairs.stop:
                gone = self.ignored.cols[pairs] - start, self.ignored.rows[pairs]
                scores.index_put_(gone, self.nothing)
        assert self.of_queries is not None
        absent = self.of_queries.absent
        if places is not None:
            if not self.form.over_positives:
                scores.index_put_(places, self.nothing)
            elif absent is not None:
                scores.index_put_(places, scores[places] + absent[part].to(scores.dtype))
        return scores

    def _places(self, part: slice, start: int) -> tuple[Tensor, Tensor] | None:
        """Return where a block's positives are in its (C, B) scores; None where it has none."""
        if part.start == part.stop:
            return None
        return self.pairs.cols[part] - start, self.pairs.rows[part]

    def _found(self, queries: Tensor, labels: Tensor) -> Tensor:
        """Return the scores of this rank's positives (P,), 0 for a dropped one.

        From the rounded factors, so that they differ from the blocks' by the order of adding only.
        """
        kind = torch.promote_types(self.factors, torch.float32)
        rows = self.pairs.rows[self.own_pairs].split(PAIRS_AT_ONCE)
        cols = (self.pairs.cols[self.own_pairs] - self.own.start).split(PAIRS_AT_ONCE)
        pieces = [
            (queries[r].to(kind) * labels[c].to(self.factors).to(kind)).sum(dim=1)
            for r, c in zip(rows, cols, strict=True)
        ]
        found = torch.cat(pieces)
        assert self.of_queries is not None
        if self.of_queries.absent is None:
            return found
        return found.masked_fill(torch.isneginf(self.of_queries.absent[self.own_pairs]), 0.0)

    def _positive_slopes(self, factor: Tensor, gradient: Tensor) -> Tensor:
        """Return the whole gradient by each positive's score (P,), 0 for a dropped one."""
        side = self.of_queries
        assert side is not None
        assert self.cached is not None
        assert self.exchanged is not None
        slopes = self.cached[1] * gradient
        if self.form.over_positives:
            assert self.shift is not None
            rows = side.positives.rows
            slopes = slopes + factor[rows] * torch.exp(self.exchanged[1] - self.shift[rows])
        if side.absent is not None:
            slopes = slopes.masked_fill(torch.isneginf(side.absent), 0.0)
        return slopes.to(self.factors)
