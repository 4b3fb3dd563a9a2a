"""Batches made on the model's device, by a thread with a stream of its own.

Drawing, uniting and gathering are device array code, so that the host only launches it. What must
be known of sizes blocks the preparing thread; the thread that trains never waits, its stream does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.data.pool import AllLabels, Pool, PoolSource
from umpteen.data.pool_on_device import DeviceDraws, DevicePoolBuilder
from umpteen.data.samplers import step_seed
from umpteen.data.tokens import TokenStore
from umpteen.data.tokens_on_device import TokensOnDevice
from umpteen.data.transfer import on_stream, to_device_together
from umpteen.training.batch import Batch, join, made_ahead
from umpteen.types import Ragged, RowIndices

TABLE_BYTES = 2 << 30
"""What targets, token ids and mined negatives may each take on the device; what does not fit stays
on the host."""


def fits_device(
    targets: sp.csr_matrix, filters: NDArray[Any], table_bytes: int = TABLE_BYTES
) -> bool:
    """Return whether the entries of a ``DevicePoolBuilder`` may lie on the device."""
    return 8 * (targets.nnz + len(filters)) <= table_bytes


class DeviceBatchMaker:
    """Makes the batches that ``BatchMaker`` makes, by other draws and on a device.

    A batch is a pure function of queries, step and the run's seed, on one kind of device.
    """

    def __init__(
        self,
        queries: TokenStore,
        labels: TokenStore,
        pools: DevicePoolBuilder | PoolSource,
        device: torch.device,
        *,
        seed: int,
        encode_labels: bool,
        everything: AllLabels | None = None,
        layout: Callable[[Ragged], Any] | None = None,
        table_bytes: int = TABLE_BYTES,
    ) -> None:
        self._stores = (queries, labels) if encode_labels else (queries,)
        self._tokens = None
        if layout is None:
            self._tokens = TokensOnDevice(self._stores, device, max_bytes=table_bytes)
        self._layout = layout
        self._pools: Any = pools
        self._device = device
        self._seed = seed
        self._encode_labels = encode_labels
        self._everything = everything
        self._table_bytes = table_bytes
        self._draws = DeviceDraws(device)
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            # Small work that the next step needs goes before the large work of this one.
            self._stream = torch.cuda.Stream(device, priority=-1)
        self._given: NDArray[Any] | None = None
        self._negatives: Any = None
        self._follow_training()

    @property
    def negatives(self) -> NDArray[Any] | None:
        """(N, H) mined hard negatives of each query, -1 where there is none."""
        return self._given

    @negatives.setter
    def negatives(self, given: NDArray[Any] | None) -> None:
        if given is self._given:
            return
        self._given = self._negatives = given
        if given is not None and given.nbytes <= self._table_bytes:
            self._negatives = torch.from_numpy(np.array(given)).to(self._device)
        self._follow_training()

    def make(self, queries: RowIndices, step: int) -> Batch:
        """Return the batch of these queries at this step, for the caller's stream."""
        return self._taken_over(self._make(queries, step))

    def make_ahead(
        self, batch_rows: Sequence[RowIndices], *, start: int, first_step: int
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from position ``start``; a thread keeps two ready."""
        made = made_ahead(self._make, batch_rows, start=start, first_step=first_step)
        with contextlib.closing(made):  # its thread ends with this, whoever still looks at it
            for batch in made:
                yield self._taken_over(batch)

    def _make(self, queries: RowIndices, step: int) -> Batch:
        """Return the batch, to be used only after its event, if it has one."""
        with torch.no_grad(), on_stream(self._stream):
            draws = self._draws.seeded(step_seed(self._seed, step))
            pool: Pool = self._pools.build(queries, draws, self._negatives_of(queries))
            rows, label_rows = [queries], None
            if self._encode_labels:
                label_rows = torch.as_tensor(pool.labels)[: pool.n_text].cpu().numpy()
                rows.append(label_rows)
            tokens = self._tokens_of(rows)
            ready = None
            if self._stream is not None:
                ready = torch.cuda.Event()
                ready.record(self._stream)
        everything = None if self._everything is None else self._everything.pairs(queries)
        return Batch(queries, tokens, pool, ready, label_rows, everything)

    def _tokens_of(self, rows: list[RowIndices]) -> Ragged:
        """Return the tokens of these rows of the stores, one store after the other."""
        if self._tokens is not None:
            return self._tokens.take(list(enumerate(rows)))
        assert self._layout is not None
        parts = [store.take(some) for store, some in zip(self._stores, rows, strict=True)]
        tokens = functools.reduce(join, parts)
        return dataclasses.replace(tokens, layout=self._layout(tokens))

    def _taken_over(self, batch: Batch) -> Batch:
        """Let the caller's stream wait for the batch; the caller itself does not."""
        if batch.ready is not None:
            here = torch.cuda.current_stream(self._device)
            here.wait_event(batch.ready)
            for tensor in _tensors(batch):  # or its memory could go to the next batch too soon
                tensor.record_stream(here)
        return batch

    def _negatives_of(self, queries: RowIndices) -> Any:
        if self._negatives is None:
            return None
        if not isinstance(self._negatives, Tensor):
            return self._negatives[queries]
        return self._negatives[to_device_together([queries], self._device)[0]]

    def _follow_training(self) -> None:
        """Make the batch stream wait for copies that the training stream has queued."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))


def _tensors(part: Any) -> Iterator[Tensor]:
    """Yield all tensors in a batch, a layout, or whatever these are made of."""
    if isinstance(part, Tensor):
        yield part
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from _tensors(getattr(part, field.name))
    elif isinstance(part, dict):
        yield from _tensors(list(part.values()))
    elif isinstance(part, list | tuple):
        for inner in part:
            yield from _tensors(inner)
