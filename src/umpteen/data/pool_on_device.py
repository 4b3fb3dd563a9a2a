"""The label pool of a batch as device array code; the same pools as ``pool.PoolBuilder``.

Only how many labels and pairs there are comes back to the host, which waits for it: on a GPU this
belongs in a thread and a stream of its own.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from umpteen.data.pool import Pool, draws_to_fill, filter_matrix
from umpteen.data.transfer import to_device_together
from umpteen.types import Positives, RowIndices


class Draws(Protocol):
    """Where uniform numbers in [0, 1) come from: ``DeviceDraws``, or a NumPy generator."""

    def random(self, shape: Any) -> Any:
        """Return numbers of this shape."""


class DeviceDraws:
    """Uniform numbers drawn on a device; they depend on the seed alone."""

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device)

    def seeded(self, seed: int) -> DeviceDraws:
        """Begin again from a seed."""
        self._generator.manual_seed(seed)
        return self

    def random(self, shape: Any) -> Tensor:
        """Return numbers of this shape, float64."""
        device = self._generator.device
        return torch.rand(shape, generator=self._generator, device=device, dtype=torch.float64)


class DevicePoolBuilder:
    """``PoolBuilder`` with targets and filters on a device; from the same draws the same pools.

    Args:
        targets: CSR (N, L), filter pairs already removed.
        filters: (M, 2) (query row, label row) pairs that are neither positive nor negative.
        device: Where the entries are kept: 4 bytes each, and 4 more unless all targets are 1.
        positives_per_query: As for ``PoolBuilder``, and so are the other options.
        negatives_per_query: Hard negatives drawn for each query.
        max_labels: Cap on the pool; 0 for none.
        min_labels: What a smaller pool is filled up to; 0 for none.
        extra_positives: Further positives per query for the classifier alone.
    """

    def __init__(
        self,
        targets: sp.csr_matrix,
        filters: RowIndices,
        device: torch.device,
        *,
        positives_per_query: int,
        negatives_per_query: int,
        max_labels: int = 0,
        min_labels: int = 0,
        extra_positives: int = 0,
    ) -> None:
        self._device = device
        self._targets = _DeviceMatrix(targets, device)
        self._filters = _DeviceMatrix(filter_matrix(filters, targets.shape), device)
        self._beta = positives_per_query
        self._eta = negatives_per_query
        self._cap = max_labels
        self._least = min(min_labels, targets.shape[1])
        self._extra = extra_positives
        self._n_labels = int(targets.shape[1])
        # Label row to pool position; only the batch's own entries are written and cleared again.
        # Four bytes a label: of hundreds of millions they count.
        self._position = torch.full((self._n_labels,), -1, dtype=torch.int32, device=device)

    def build(self, queries: RowIndices, rng: Draws, negatives: Any = None) -> Pool:
        """Draw the pool of a batch.

        Args:
            queries: (B,) query rows, NumPy.
            rng: Decides the draws; nothing else does.
            negatives: (B, H) mined label rows of these queries, -1 where there is none.

        Returns:
            The pool, in tensors on the device.
        """
        places = [*self._targets.find(queries), *self._filters.find(queries)]
        starts, lengths, ignored_starts, ignored_lengths = to_device_together(places, self._device)
        rows, cols, values = self._targets.entries(starts, lengths, int(places[1].sum()))
        ignored_rows, ignored_cols, _ = self._filters.entries(
            ignored_starts, ignored_lengths, int(places[3].sum())
        )
        rank = _random_rank(rows, lengths, self._numbers(rng, len(rows)))
        hard = None if negatives is None else self._draw_columns(negatives, rng)
        base = self._union(cols, rank, hard)
        while len(base) < self._least:
            base = self._fill(base, rng)
        n_text = len(base)
        position = self._position
        counted: dict[str, Any] = {"dtype": torch.int32, "device": self._device}
        position.index_copy_(0, base, torch.arange(n_text, **counted))
        labels = base
        if self._extra:
            extra = self._distinct_extra(cols, rank)
            after = torch.arange(n_text, n_text + len(extra), **counted)
            position.index_copy_(0, extra, after)
            labels = torch.cat([base, extra])
        places_of_pairs = position[cols].long()
        ignored_places = position[ignored_cols].long()
        position.index_fill_(0, labels, -1)
        pool = _select(rows, places_of_pairs, values, ignored_rows, ignored_places)
        text = None
        if n_text < len(labels):
            inner = _select(*pool, below=n_text)
            text = _pool(base, n_text, inner)
        return _pool(labels, n_text, pool, text)

    def _numbers(self, rng: Draws, shape: Any) -> Tensor:
        return torch.as_tensor(rng.random(shape), device=self._device)

    def _draw_columns(self, negatives: Any, rng: Draws) -> Tensor | None:
        """Return (B * eta,) distinct entries of each row, -1 for those that are none."""
        table = torch.as_tensor(negatives, device=self._device)
        if self._eta <= 0 or table.shape[1] == 0:
            return None
        keys = self._numbers(rng, tuple(table.shape)).masked_fill(table < 0, 2.0)
        n = min(self._eta, table.shape[1])
        chosen = keys.topk(n, dim=1, largest=False, sorted=False).indices
        return table.gather(1, chosen).flatten().long()

    def _union(self, cols: Tensor, rank: Tensor, hard: Tensor | None) -> Tensor:
        """Return the distinct labels, ascending; over the cap, the most wanted ones."""
        # A label is 2 l where it is a positive and 2 l + 1 where it is a hard negative, so that
        # after sorting the first of its entries says whether it is any query's positive.
        none = 2 * self._n_labels
        wanted = torch.where(rank < self._beta, 2 * cols, none)
        if hard is not None:
            wanted = torch.cat([wanted, torch.where(hard >= 0, 2 * hard + 1, none)])
        ascending = pad(wanted, (0, 1), value=none).sort().values
        starts = _starts(ascending >> 1)
        first = ascending[starts][:-1]  # without the filler, which comes last
        labels = first >> 1
        if not self._cap or len(labels) <= self._cap:
            return labels
        counts = starts.diff()
        order = torch.argsort((first & 1) * len(ascending) - counts, stable=True)
        return labels[order[: self._cap]].sort().values

    def _fill(self, taken: Tensor, rng: Draws) -> Tensor:
        """Return labels (ascending), and others up to the least number.

        The first new ones drawn.
        """
        n_labels = self._n_labels
        numbers = self._numbers(rng, draws_to_fill(len(taken), self._least, n_labels))
        drawn = (numbers * n_labels).long().clamp_(max=n_labels - 1)
        ascending, places = drawn.sort(stable=True)
        starts = _starts(ascending)
        labels, first = ascending[starts], places[starts]
        new = first[~torch.isin(labels, taken, assume_unique=True)].sort().values
        return torch.cat([taken, drawn[new[: self._least - len(taken)]]]).sort().values

    def _distinct_extra(self, cols: Tensor, rank: Tensor) -> Tensor:
        further = (rank >= self._beta) & (rank < self._beta + self._extra)
        wanted = torch.where(further & (self._position[cols] < 0), cols, self._n_labels)
        ascending = pad(wanted, (0, 1), value=self._n_labels).sort().values
        return ascending[_starts(ascending)][:-1]


class _DeviceMatrix:
    """A CSR matrix with its entries on a device, and where rows start on the host."""

    def __init__(self, matrix: sp.csr_matrix, device: torch.device) -> None:
        self._indptr: NDArray[np.int64] = matrix.indptr.astype(np.int64)
        self._indices = torch.from_numpy(matrix.indices.astype(np.int32)).to(device)
        data = np.asarray(matrix.data, np.float32)
        self._data = None if (data == 1).all() else torch.from_numpy(data.copy()).to(device)

    def find(self, rows: RowIndices) -> tuple[RowIndices, RowIndices]:
        """Return (B,) where the rows start and how many entries they have."""
        starts = self._indptr[rows]
        return starts, self._indptr[rows + 1] - starts

    def entries(self, starts: Tensor, lengths: Tensor, total: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return all ``total`` entries of some rows as (position among them, column, value)."""
        device = starts.device
        rows = torch.repeat_interleave(
            torch.arange(len(starts), device=device), lengths, output_size=total
        )
        shift = starts - (lengths.cumsum(0) - lengths)
        flat = torch.arange(total, device=device) + shift[rows]
        values = torch.ones(total, device=device) if self._data is None else self._data[flat]
        return rows, self._indices[flat].long(), values


def _random_rank(rows: Tensor, lengths: Tensor, numbers: Tensor) -> Tensor:
    """Return a random order within each run of equal (ascending) rows.

    0, 1, 2, ... for each row.
    """
    # Stable, so that a sum that is rounded up to the next whole number stays in its own run.
    order = torch.argsort(rows + numbers, stable=True)
    first = (lengths.cumsum(0) - lengths)[rows]
    return torch.empty_like(order).scatter_(
        0, order, torch.arange(len(rows), device=rows.device) - first
    )


def _starts(ascending: Tensor) -> Tensor:
    """Return where each run of equal values starts; waits for the device."""
    return pad(ascending[1:] != ascending[:-1], (1, 0), value=True).nonzero().squeeze(1)


_Pairs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def _select(
    rows: Tensor,
    places: Tensor,
    values: Tensor,
    ignored_rows: Tensor,
    ignored_places: Tensor,
    below: int | None = None,
) -> _Pairs:
    """Return positives and ignored pairs whose place is in the pool, or in its first part."""
    inside = _inside(places, below)
    ignored = _inside(ignored_places, below)
    return (
        rows[inside],
        places[inside],
        values[inside],
        ignored_rows[ignored],
        ignored_places[ignored],
    )


def _inside(places: Tensor, below: int | None) -> Tensor:
    if not len(places):  # the usual case for filters: nothing to wait for
        return places
    chosen = places >= 0 if below is None else places < below
    return chosen.nonzero().squeeze(1)


def _pool(labels: Tensor, n_text: int, pairs: _Pairs, text: Pool | None = None) -> Pool:
    rows, cols, targets, ignored_rows, ignored_cols = pairs
    ignored = torch.stack([ignored_rows, ignored_cols], dim=1)
    return Pool(labels, n_text, Positives(rows, cols, targets), ignored, text)
