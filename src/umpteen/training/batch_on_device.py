"""Batches made on the model's device, by a thread with a stream of its own.

Drawing, uniting and gathering are device array code, so that the host only launches it. What must
be known of sizes blocks the preparing thread; the thread that trains never waits, its stream does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.data.pool import Pool, PoolSource
from umpteen.data.pool_on_device import DeviceDraws, DevicePoolBuilder
from umpteen.data.samplers import step_seed
from umpteen.data.tokens import TokenStore
from umpteen.data.tokens_on_device import TokensOnDevice
from umpteen.data.transfer import to_device_together
from umpteen.training.batch import Batch, Rows, made_ahead

TABLE_BYTES = 2 << 30
"""What token ids, and mined negatives, may each take on the device; what does not fit is gathered
on the host."""


class DeviceBatchMaker:
    """Makes the batches that ``BatchMaker`` makes, by other draws and on a device.

    A batch is a pure function of queries, step and the run's seed, on one kind of device.

    Args:
        queries: Tokens of the training queries.
        labels: Tokens of the labels.
        pools: Draws the pools: on the device, or on the host where nothing is drawn.
        device: The model's.
        seed: The run's seed.
        encode_labels: Whether the batch carries the tokens of its pool's labels.
        table_bytes: See ``TABLE_BYTES``.
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
        table_bytes: int = TABLE_BYTES,
    ) -> None:
        stores = (queries, labels) if encode_labels else (queries,)
        self._tokens = TokensOnDevice(stores, device, most_bytes=table_bytes)
        self._pools: Any = pools
        self._device = device
        self._seed = seed
        self._encode_labels = encode_labels
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

    def make(self, queries: Rows, step: int) -> Batch:
        """The batch of these queries at this step, for the caller's stream."""
        return self._taken_over(self._make(queries, step))

    def make_ahead(self, plan: Sequence[Rows], *, start: int, first_step: int) -> Iterator[Batch]:
        """The batches of an epoch's plan from position ``start``; a thread keeps two ready."""
        for batch in made_ahead(self._make, plan, start=start, first_step=first_step):
            yield self._taken_over(batch)

    def _make(self, queries: Rows, step: int) -> Batch:
        """The batch, to be used only after its event, if it has one."""
        with torch.no_grad(), self._own_stream():
            draws = self._draws.seeded(step_seed(self._seed, step))
            pool: Pool = self._pools.build(queries, draws, self._negatives_of(queries))
            chosen = [(0, queries)]
            if self._encode_labels:
                labels = torch.as_tensor(pool.labels)[: pool.n_text]
                chosen.append((1, labels.cpu().numpy()))
            tokens = self._tokens.take(chosen)
            ready = None
            if self._stream is not None:
                ready = torch.cuda.Event()
                ready.record(self._stream)
        return Batch(queries, tokens, pool, ready)

    def _taken_over(self, batch: Batch) -> Batch:
        """Let the caller's stream wait for the batch; the caller itself does not."""
        if batch.ready is not None:
            here = torch.cuda.current_stream(self._device)
            here.wait_event(batch.ready)
            for tensor in _tensors(batch):  # or its memory could go to the next batch too soon
                tensor.record_stream(here)
        return batch

    def _negatives_of(self, queries: Rows) -> Any:
        if self._negatives is None:
            return None
        if not isinstance(self._negatives, Tensor):
            return self._negatives[queries]
        return self._negatives[to_device_together([queries], self._device)[0]]

    def _own_stream(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def _follow_training(self) -> None:
        """What the training stream was told to copy must be there before batches are made."""
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._device))


def _tensors(batch: Batch) -> Iterator[Tensor]:
    pools = [batch.pool] if batch.pool.text is None else [batch.pool, batch.pool.text]
    found = [batch.tokens.ids]
    for pool in pools:
        pairs = pool.positives
        found += [pool.labels, pool.ignored, pairs.rows, pairs.cols, pairs.targets]
    return (tensor for tensor in found if isinstance(tensor, Tensor))
