"""A fast first pass in few bits and an exact second one over what it leaves. No files here.

The first pass scores every label in bfloat16 or float8 and keeps only the highest score of each
group of eight (``groups.py``). The second takes each query's best groups and scores their labels as
the exact index would. Why that loses nothing: a label outside the chosen groups scored at most the
best group left out, b, in the first pass, and its exact score is at most b + e, where e bounds the
error of the first pass. Where the k-th exact score is above b + e, no label outside can be among
the k best, nor equal to one of them. Where it is not, the query is reported as unsure.

Of large tables whole spans are kept instead of groups (``spans.py``), and vectors that are in few
bits already are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.errors import ConfigError
from umpteen.extras import installed
from umpteen.index.groups import (
    GROUP,
    GROUPS_PER_SPAN,
    SPAN,
    best_spans,
    group_and_place,
    groups_of,
    labels_per_block,
    members,
    plain_maxima,
    plain_scores,
    plain_span_maxima,
)
from umpteen.index.topk import keys_of, rows_of, scores_of

FIRST_PASSES = {"bfloat16": torch.bfloat16, "float8": torch.float8_e4m3fn}
_LARGEST_FLOAT8 = 448.0
_PADDED_LABELS = 256
_PADDED_BYTES = 128
_QUERIES_TOGETHER = 128  # a tile of the kernel
_ENOUGH_QUERIES = 512
"""Where fewer fit the memory with the maxima of all groups, spans are kept instead."""
_MOST_QUERIES = 4096
_ROWS_ROUNDED = 1 << 18  # at a time


class TwoPass:
    """Searches vectors that stay where they are, beside a copy of them in few bits.

    With bfloat16 the bound on the error is that of the worst case, so an answer that is not unsure
    is the exact one. With float8 the worst case is never met and far too wide; the bound is four
    standard deviations of roundings that are independent, so about one label in ten thousand near
    the k-th place may be missed.

    Args:
        vectors: (L, D) float32 or bfloat16.
        first_pass: A key of ``FIRST_PASSES``.
        memory_bytes: What a search may take.
        kernels: Whether to use Triton; None where there is a GPU and Triton.

    Raises:
        ConfigError: If the first pass is not known.
    """

    def __init__(
        self,
        vectors: torch.Tensor,
        first_pass: str,
        *,
        memory_bytes: int,
        kernels: bool | None = None,
    ) -> None:
        if first_pass not in FIRST_PASSES:
            raise ConfigError(
                f"first_pass {first_pass!r} is not known. Known: {', '.join(FIRST_PASSES)}."
            )
        self.vectors = vectors
        self.dtype = FIRST_PASSES[first_pass]
        self.memory_bytes = memory_bytes
        self.kernels = vectors.is_cuda and installed("triton") if kernels is None else kernels
        n_labels, dim = vectors.shape
        self.n_padded = -(-n_labels // _PADDED_LABELS) * _PADDED_LABELS
        per_step = _PADDED_BYTES // self.dtype.itemsize
        self.dim_padded = -(-dim // per_step) * per_step
        self.scale = torch.ones((), device=vectors.device)
        if self.dtype is torch.float8_e4m3fn:
            low, high = vectors.aminmax()
            self.scale = _LARGEST_FLOAT8 / torch.maximum(-low, high).float().clamp(min=1e-30)
        self.longest = torch.zeros((), device=vectors.device)
        self.error = torch.zeros((), device=vectors.device)
        # A copy that is as large as the table is made only where the table is small.
        copy_bytes = self.n_padded * self.dim_padded * self.dtype.itemsize
        self.shared = (
            vectors.dtype is self.dtype
            and dim == self.dim_padded
            and vectors.is_contiguous()
            and copy_bytes > memory_bytes
        )
        self._round_labels()

    def _round_labels(self) -> None:
        """Make the copy in few bits, or of shared vectors that of the last few; bound the error."""
        n_labels, dim = self.vectors.shape
        self.few_bits, first_copied = self.vectors, 0
        if self.shared:
            first_copied = n_labels // _PADDED_LABELS * _PADDED_LABELS
        shape = (self.n_padded - first_copied, self.dim_padded)
        copy = self.vectors.new_zeros(shape, dtype=self.dtype)
        for first in range(0, n_labels, _ROWS_ROUNDED):
            exact = self.vectors[first : first + _ROWS_ROUNDED].float()
            self.longest = torch.maximum(self.longest, exact.norm(dim=1).amax())
            if not self.shared:
                rounded = (exact * self.scale).to(self.dtype)
                copy[first : first + len(exact), :dim] = rounded
                off = (exact - rounded.float() / self.scale).norm(dim=1).amax()
                self.error = torch.maximum(self.error, off)
        if self.shared:
            copy[: n_labels - first_copied] = self.vectors[first_copied:]
            self.tail = copy
        else:
            self.few_bits = copy

    def search(
        self,
        queries: torch.Tensor,
        k: int,
        pairs: NDArray[np.int64],
        retired: NDArray[np.int64],
        *,
        widen: int = 1,
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.float32]], NDArray[np.bool_]]:
        """Return rows and scores of every query on the host, and which of them are unsure.

        Args:
            queries: (B, D) of the vectors' dtype.
            k: How many labels to return, at most L.
            pairs: (M, 2) pairs (query position, label row) that must not be returned.
            retired: Rows that no query may get.
            widen: How many times as many groups to look into as would usually do.

        Returns:
            ((B, k) rows, (B, k) scores), (B,) unsure.
        """
        device = queries.device
        bias = torch.zeros(self.n_padded, device=device)
        bias[len(self.vectors) :] = -torch.inf
        bias.index_fill_(0, _send(retired, device), -torch.inf)
        counts = np.bincount(pairs[:, 0], minlength=len(queries))
        # Queries that lose about as many labels go together: all of a block look equally wide.
        order = np.argsort(counts, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        held, there = _send(pairs, device), _send(rank, device)
        owners, by_owner = there[held[:, 0]].sort(stable=True)
        labels = held[by_owner, 1]
        counts = counts[order]
        ends = np.concatenate([[0], np.cumsum(counts)])
        queries = queries[_send(order, device)] if len(pairs) else queries
        found = []
        by_spans = self._keeps_spans(counts, k, widen)
        for start, stop, width in self._blocks(counts, k, widen, by_spans=by_spans):
            here = slice(int(ends[start]), int(ends[stop]))
            losses = (owners[here] - start, labels[here])
            choose = self._groups_by_span if by_spans else self._groups
            found.append(self._search(queries[start:stop], k, width, losses, bias, choose))
        parts = [torch.cat(part) for part in zip(*found, strict=True)]
        if len(pairs):  # put in the callers' order where that is quick
            parts = [part[there] for part in parts]
        rows, scores, unsure = (part.cpu().numpy() for part in parts)
        return (rows, scores), unsure

    def _keeps_spans(self, counts: NDArray[np.int64], k: int, widen: int) -> bool:
        """Return whether only spans' maxima are kept: few queries would fit with all groups'."""
        if self.shared:
            return True
        first, stop, _ = self._blocks(counts, k, widen)[0]
        return stop - first < min(len(counts), _ENOUGH_QUERIES)

    def _blocks(
        self, counts: NDArray[np.int64], k: int, widen: int, *, by_spans: bool = False
    ) -> list[tuple[int, int, int]]:
        """Return (first query, last + 1, groups or spans to look into).

        Counts, of labels lost, rise.
        """
        n_groups = self.n_padded // (SPAN if by_spans else GROUP)

        def width(query: int) -> int:
            # Half as many again: the error of the first pass may lift that many above.
            return min(widen * (k + k // 2 + 16) + int(counts[query]), n_groups)

        def fit(width: int) -> int:
            bytes_each = 5 * n_groups + (24 * GROUPS_PER_SPAN + 40 * GROUP) * width
            if by_spans:  # a block of labels takes what memory there is
                bytes_each = max(40 * SPAN * width, self.memory_bytes // _MOST_QUERIES)
            count = max(1, self.memory_bytes // bytes_each)
            return count // _QUERIES_TOGETHER * _QUERIES_TOGETHER or count

        blocks, start = [], 0
        while start < len(counts):
            most = min(len(counts), start + fit(width(start)))
            stop = min(most, start + fit(width(most - 1)))
            blocks.append((start, stop, width(stop - 1)))
            start = stop
        return blocks

    def _search(
        self,
        queries: torch.Tensor,
        k: int,
        width: int,
        losses: tuple[torch.Tensor, torch.Tensor],
        bias: torch.Tensor,
        choose: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rounded, scale, error = self._round(queries)
        groups, left_out = choose(rounded, bias, width)
        scores = self._passes()[-1](queries, self.vectors, groups)
        rows = members(groups).flatten(1)
        scores += bias[rows]
        drop_pairs_(scores, groups, losses)
        keys = keys_of(scores, rows).topk(k, dim=1).values
        top = scores_of(keys)
        # Not "<=": a score that is not a number must be looked at again.
        unsure = ~(top[:, -1] > left_out / scale + error) & (left_out > -torch.inf)
        return rows_of(keys), top, unsure

    def _groups(
        self, queries: torch.Tensor, bias: torch.Tensor, width: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best groups of all, and a score that no other one exceeds."""
        maxima, best = self._passes()[0](queries, self.few_bits, bias)
        return best_groups(maxima, best, width)

    def _groups_by_span(
        self, queries: torch.Tensor, bias: torch.Tensor, width: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all groups of the best spans, and a score that no other span exceeds."""
        size = labels_per_block(len(queries), self.memory_bytes, _PADDED_LABELS)
        spans, left_out = best_spans(
            queries, self._label_blocks(bias, size), width, self._passes()[1]
        )
        return groups_of(spans), left_out

    def _label_blocks(
        self, bias: torch.Tensor, size: int
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Yield (first label, labels in few bits, their bias), all padded labels in order."""
        whole = self.n_padded - len(self.tail) if self.shared else self.n_padded
        for first in range(0, whole, size):
            here = slice(first, min(first + size, whole))
            yield first, self.few_bits[here], bias[here]
        if whole < self.n_padded:
            yield whole, self.tail, bias[whole:]

    def _passes(self) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
        """Return what gives maxima of groups, maxima of spans, and scores of candidates."""
        if not self.kernels:
            return plain_maxima, plain_span_maxima, plain_scores
        from umpteen.index.kernels import candidate_scores, group_maxima, span_maxima

        return group_maxima, span_maxima, candidate_scores

    def _round(self, queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries in few bits, what their first scores are multiplied by.

        The error's bound.
        """
        exact = queries.float()
        scale = torch.ones(len(queries), 1, device=queries.device)
        if self.dtype is torch.float8_e4m3fn:
            scale = _LARGEST_FLOAT8 / exact.abs().amax(dim=1, keepdim=True).clamp(min=1e-30)
        rounded = exact.new_zeros(len(queries), self.dim_padded, dtype=self.dtype)
        rounded[:, : exact.shape[1]] = (exact * scale).to(self.dtype)
        length = exact.norm(dim=1)
        off = (exact - rounded[:, : exact.shape[1]].float() / scale).norm(dim=1)
        dim = exact.shape[1]
        if self.dtype is torch.float8_e4m3fn:
            # A float8 product is summed with some 14 bits on present GPUs.
            spread = torch.hypot(length * self.error, off * self.longest) / math.sqrt(dim)
            error = 4 * spread + length * self.longest * 2.0**-11
        else:
            sums = length * self.longest * dim * 2.0**-22
            error = length * self.error + off * (self.longest + self.error) + sums
        return rounded, scale[:, 0] * self.scale, error


def best_groups(
    maxima: torch.Tensor, best: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the groups with the highest maxima, by way of the spans with the highest maxima.

    Args:
        maxima: (B, groups).
        best: (B, spans), each the highest of its groups.
        width: How many groups to choose.

    Returns:
        (B, W) groups, rising, W at most the width; and (B,) a score that no other group exceeds.
    """
    n_spans = best.shape[1]
    top = best.topk(min(width + 1, n_spans), dim=1)
    spans = top.indices[:, :width]  # (B, at most width)
    groups = spans[:, :, None] * GROUPS_PER_SPAN
    groups = groups + torch.arange(GROUPS_PER_SPAN, device=best.device)
    groups = groups.flatten(1)
    left_out = best.new_full((len(best),), -torch.inf)
    if n_spans > width:
        left_out = top.values[:, width]
    count = min(width, groups.shape[1])
    inner = maxima.gather(1, groups).topk(min(count + 1, groups.shape[1]), dim=1)
    if groups.shape[1] > count:
        left_out = torch.maximum(left_out, inner.values[:, count])
    return groups.gather(1, inner.indices[:, :count]).sort(dim=1).values, left_out


def drop_pairs_(
    scores: torch.Tensor, groups: torch.Tensor, losses: tuple[torch.Tensor, torch.Tensor]
) -> None:
    """Set the scores of pairs to -inf where they are among the candidates.

    Args:
        scores: (B, W * GROUP) of the groups' labels.
        groups: (B, W), rising.
        losses: (M,) query positions and (M,) label rows.
    """
    owners, labels = losses
    if not len(owners):
        return
    # One rising list for all queries: a query's groups lie between those of its neighbours.
    most = torch.iinfo(torch.int32).max
    listed = (torch.arange(len(groups), device=groups.device)[:, None] * most + groups).flatten()
    group, place = group_and_place(labels)
    wanted = owners * most + group
    at = torch.searchsorted(listed, wanted).clamp(max=len(listed) - 1)
    # A pair that is no candidate meets some other score, and leaves it as it is.
    value = torch.where(listed[at] == wanted, -torch.inf, torch.inf)
    scores.view(-1).scatter_reduce_(0, at * GROUP + place, value, "amin")


def _send(array: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Copy to the device without waiting for the work that is queued there."""
    # torch warns about read-only memory that is never written.
    owned = array if array.flags.writeable else array.copy()
    return torch.from_numpy(owned).to(device, non_blocking=True)
