"""The label table in host memory: the rows of a step visit the device, and go back changed.

One worker thread does everything that touches the table, in the order it is asked to:

    fetch(0)  fetch(1)  write(0)  fetch(2)  write(1)  fetch(3)  write(2)  ...

Rows of step t + 1 are fetched while step t runs, so they are as step t - 1 left them; those that
step t has too are taken from its own visit, on the device, when its update is done. So every step
sees just what it would see in a table on the device, and the thread that trains waits neither for
copies nor for the device: a write waits for its copy to arrive, in the worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.optim.row_update import RowTable, update_rows_
from umpteen.data.transfer import on_stream
from umpteen.model.model import Model
from umpteen.training.batch import Batch
from umpteen.training.row_adamw import RowAdamW


@dataclass(frozen=True)
class Visit:
    """Some rows of the table and of its moments, on the device for one step."""

    rows: Tensor
    """(C,) which, on the host."""
    ids: Tensor
    """The same on the device."""
    table: RowTable
    """Of these rows alone."""
    vectors: Tensor
    """The table's vectors as what gradients are taken by."""
    here: Tensor
    """Places of the rows that the visit before has too, and ..."""
    there: Tensor
    """... their places in it."""
    ready: Any
    """The CUDA event after which all of it has arrived; None without a GPU."""


class HostTable:
    """Lends rows of a table in host memory to a model on a device."""

    def __init__(self, model: Model, optimizer: RowAdamW) -> None:
        assert model.label_vectors is not None
        self._model = model
        self._optimizer = optimizer
        self._parameter = model.label_vectors
        self._device = model.log_scales.device
        self._worker = ThreadPoolExecutor(max_workers=1)
        self._stream = torch.cuda.Stream(self._device) if self._on_gpu else None
        self._writes: deque[Future[None]] = deque()
        self._visit: Visit | None = None
        self._fetched: NDArray[np.int64] | None = None  # the worker's, by the fetch before

    @property
    def _on_gpu(self) -> bool:
        return self._device.type == "cuda"

    def ahead(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield the same batches, each with its rows on the device while it is out.

        The caller takes a step and calls ``leave`` before it asks for the next one.
        """
        self.flush()
        self._visit = self._fetched = None
        batch = next(batches, None)
        fetch = None if batch is None else self._worker.submit(self._fetch, batch)
        while batch is not None and fetch is not None:
            following = next(batches, None)
            coming = None if following is None else self._worker.submit(self._fetch, following)
            self._enter(fetch.result())
            yield batch
            batch, fetch = following, coming
        self.flush()

    def leave(self) -> None:
        """Update the rows by their gradient, and begin to write them back."""
        visit = self._visit
        assert visit is not None
        self._model.fetched = None
        gradient = visit.vectors.grad
        while self._writes and self._writes[0].done():
            self._writes.popleft().result()
        if gradient is None:
            return
        visit.vectors.grad = None
        at = self._optimizer.next_step(self._parameter)
        places = torch.arange(len(visit.ids), device=self._device)
        with torch.no_grad():
            update_rows_(visit.table, places, gradient, at, ids=visit.ids)
            changed, arrived = self._copied_to_host(visit.table)
        self._writes.append(self._worker.submit(self._write, visit.rows, changed, arrived))

    def flush(self) -> None:
        """Return when the table is as the last step left it."""
        while self._writes:
            self._writes.popleft().result()

    # -- the thread that trains -----------------------------------------------------------------

    def _enter(self, visit: Visit) -> None:
        if visit.ready is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(visit.ready)
            for tensor in (*visit.table.parts().values(), visit.ids, visit.here, visit.there):
                tensor.record_stream(stream)  # or its memory could be given away too soon
        before, self._visit = self._visit, visit
        if before is not None and len(visit.here):
            for name, part in visit.table.parts().items():
                part.index_copy_(0, visit.here, getattr(before.table, name)[visit.there])
        self._model.fetched = visit.vectors

    def _copied_to_host(self, table: RowTable) -> tuple[RowTable, Any]:
        if not self._on_gpu:
            return table, None
        host = table.map(
            lambda part: torch.empty(part.shape, dtype=part.dtype, pin_memory=True).copy_(
                part, non_blocking=True
            )
        )
        arrived = torch.cuda.Event()
        arrived.record()
        return host, arrived

    # -- the worker -----------------------------------------------------------------------------

    def _fetch(self, batch: Batch) -> Visit:
        with torch.no_grad(), on_stream(self._stream):
            labels: Any = batch.pool.labels
            if isinstance(labels, Tensor):
                if batch.ready is not None:
                    batch.ready.synchronize()
                labels = labels.cpu().numpy()
            before = labels[:0] if self._fetched is None else self._fetched
            self._fetched = labels
            _, there, here = np.intersect1d(before, labels, assume_unique=True, return_indices=True)
            rows = torch.as_tensor(labels, dtype=torch.int64)
            table = self._optimizer.table(self._parameter)
            moved = table.map(lambda part: self._moved(self._gathered(part, rows)))
            ids, placed_here, placed_there = (
                self._moved(self._pinned(torch.as_tensor(each, dtype=torch.int64)))
                for each in (rows, here, there)
            )
            ready = None
            if self._stream is not None:
                ready = torch.cuda.Event()
                ready.record(self._stream)
        vectors = moved.vectors.detach().requires_grad_()
        return Visit(rows, ids, moved, vectors, placed_here, placed_there, ready)

    def _gathered(self, part: Tensor, rows: Tensor) -> Tensor:
        shape = (len(rows), *part.shape[1:])
        gathered = torch.empty(shape, dtype=part.dtype, pin_memory=self._on_gpu)
        return torch.index_select(part, 0, rows, out=gathered)

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self._on_gpu else tensor

    def _moved(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, non_blocking=True)

    def _write(self, rows: Tensor, changed: RowTable, arrived: Any) -> None:
        if arrived is not None:
            arrived.synchronize()
        with torch.no_grad():
            table = self._optimizer.table(self._parameter)
            for name, part in changed.parts().items():
                getattr(table, name).index_copy_(0, rows, part)
