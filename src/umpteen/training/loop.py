"""The training loop: a generator of ticks. It prints nothing, writes nothing and reads no clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.compute.distributed.gradient_sums import sum_gradients_
from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.data.samplers import clustered_batches, coarser, shuffled_batches, step_seed
from umpteen.errors import TrainingStopped
from umpteen.model.model import Model
from umpteen.training.batch import Batch, BatchMaker
from umpteen.training.batch_on_device import DeviceBatchMaker
from umpteen.training.data_parallel import shared_parameters
from umpteen.training.embedding_bank import EmbeddingBank
from umpteen.training.host_table import HostTable
from umpteen.training.optim import Optimizers, schedule
from umpteen.training.refresh import Refreshed


@dataclass(frozen=True)
class StepInfo:
    """What happened in one step."""

    step: int
    """Counted from 1 over the whole run."""
    epoch: int
    """Counted from 1."""
    loss: float
    labels: int
    """Labels in the pool."""
    positives: float
    """Positives in the pool per query."""
    queries: int
    lr_factor: float


@dataclass(frozen=True)
class Tick:
    """One step was taken; the infos of earlier ones may have arrived."""

    finished: list[StepInfo]
    epoch_done: bool


@dataclass
class Position:
    """Where a run stands; all that resuming needs beside weights and optimizers."""

    epoch: int = 0
    """The epoch under way, from 0."""
    batch: int = 0
    """The next batch of that epoch."""
    step: int = 0
    """Steps taken."""
    refresh_epoch: int = -1
    """The epoch of the refresh in force; -1 for none."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Validation results so far."""
    stage: int = 0
    """The stage under way, from 0; epochs and steps are counted through all stages."""


class LossWatch:
    """Collects losses from the device without waiting for it, and stops on one that is not finite.

    A loss is looked at when its copy has arrived, at the latest ``lag`` steps after its own.

    Args:
        lag: Steps a loss may wait.
        source_rows: From training rows to the rows of the user's own train split, for the message.
    """

    def __init__(
        self, lag: int = 8, source_rows: Callable[[NDArray[np.int64]], Any] | None = None
    ) -> None:
        self._lag = lag
        self._source_rows = source_rows or (lambda rows: rows)
        self._waiting: deque[tuple[torch.Tensor, Any, Batch, dict[str, Any]]] = deque()

    def push(self, loss: torch.Tensor, batch: Batch, info: dict[str, Any]) -> None:
        """Start copying a step's loss to the host."""
        event = None
        if loss.is_cuda:
            host = torch.empty((), pin_memory=True)
            host.copy_(loss, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
            loss = host
        self._waiting.append((loss, event, batch, info))

    def arrived(self) -> list[StepInfo]:
        """Return the infos whose losses are here."""
        infos = []
        while self._waiting:
            event = self._waiting[0][1]
            if event is not None and len(self._waiting) <= self._lag and not event.query():
                break
            infos.append(self._pop())
        return infos

    def drain(self) -> list[StepInfo]:
        """Return all infos, waiting for the device."""
        infos = []
        while self._waiting:
            infos.append(self._pop())
        return infos

    def _pop(self) -> StepInfo:
        loss, event, batch, info = self._waiting.popleft()
        if event is not None:
            event.synchronize()
        value = float(loss)
        if not math.isfinite(value):
            rows = np.sort(self._source_rows(batch.queries))
            texts = int((rows < 0).sum())  # of labels, which have no row in the user's data
            rows = rows[rows >= 0].tolist()
            shown = ", ".join(map(str, rows[:20])) + (", ..." if len(rows) > 20 else "")
            shown += f" and {texts} label texts" if texts else ""
            raise TrainingStopped(
                f"the loss became {value} at step {info['step']} (epoch {info['epoch']}), in the "
                f"batch of the {len(rows)} training rows {shown} (counted from 0)"
            )
        return StepInfo(loss=value, **info)


@dataclass
class Loop:
    """The parts a run is made of; ``ticks`` drives them."""

    model: Model
    optimizers: Optimizers
    loss_of: Callable[[Model, Batch, int], torch.Tensor]
    """The loss of a batch, a scalar; the number is the step's seed."""
    maker: BatchMaker | DeviceBatchMaker
    refresh: Callable[[Model, int], Refreshed] | None
    """Makes clusters and negatives from the model; None for random batches throughout."""
    keep_refresh: Callable[[Refreshed, int], None]
    """Told of every new refresh, before it is used."""
    n_queries: int
    batch_size: int
    first_epoch: int
    """Where the stage starts."""
    n_epochs: int
    """Where it ends."""
    refresh_epochs: int
    first_refresh: int
    clustered: bool
    cluster_size: Callable[[int], int]
    """Queries per cluster by epoch; 1 is random."""
    warmup: float
    clip_norm: float
    seed: int
    fall: str = "cosine"
    """How rates fall to zero after the warm-up."""
    max_steps: int = 0
    """Where the run ends, in the midst of an epoch; 0 for all epochs."""
    ranks: Ranks = ONE_RANK
    position: Position = field(default_factory=Position)
    refreshed: Refreshed | None = None
    bank: EmbeddingBank | None = None
    """Remembered label vectors, where the loss needs them; part of a checkpoint."""
    host: HostTable | None = None
    """Lends the label vectors, where they are in host memory."""
    watch: LossWatch = field(default_factory=LossWatch)
    n_batches: int = 0
    """Batches of the epoch under way; 0 before it is planned."""
    loop_of_stage: Callable[[int], Loop] | None = None
    """Makes a loop with the parts of another stage."""

    def turn_to(self, stage: int) -> None:
        """Take over the parts of a stage, at their beginning; where the run stands is kept."""
        if stage == self.position.stage:
            return
        assert self.loop_of_stage is not None
        other = self.loop_of_stage(stage)
        for part in fields(Loop):
            if part.name not in ("position", "refreshed", "watch", "loop_of_stage"):
                setattr(self, part.name, getattr(other, part.name))

    def flush(self) -> None:
        """Make sure that all weights are as the last step left them."""
        if self.host is not None:
            self.host.flush()

    def epochs_done(self) -> float:
        """Return the exact progress, in epochs."""
        at = self.position
        if not at.batch:
            return float(at.epoch)
        return at.epoch + at.batch / (self.n_batches or len(self.batch_rows()))

    def ticks(self) -> Iterator[Tick]:
        """Train from the position to the end, one tick per step.

        The caller may stop between any two ticks, save ``position``, weights and optimizers, and
        continue later as if nothing had happened: every draw depends on seed and step alone.
        """
        cuda = [torch.cuda.current_device()] if torch.cuda.is_available() else []
        with torch.random.fork_rng(devices=cuda):
            while self.position.epoch < self.n_epochs:
                yield from self._epoch()

    def batch_rows(self) -> list[Any]:
        """Return the batches of the epoch under way."""
        epoch = self.position.epoch
        size = self.cluster_size(epoch)
        if self.refreshed is None or not self.clustered or size == 1:
            return shuffled_batches(self.n_queries, self.batch_size, seed=self.seed, epoch=epoch)
        return clustered_batches(
            self.refreshed.order,
            coarser(self.refreshed.bounds, size),
            self.batch_size,
            seed=self.seed,
            epoch=epoch,
        )

    def _epoch(self) -> Iterator[Tick]:
        at = self.position
        if self._refresh_due() and self.refresh is not None:
            self.refreshed = self.refresh(self.model, at.epoch)
            at.refresh_epoch = at.epoch
            self.keep_refresh(self.refreshed, at.epoch)
        self.maker.negatives = None if self.refreshed is None else self.refreshed.negatives
        batch_rows = self.batch_rows()
        self.n_batches = len(batch_rows)
        self.model.train()
        batches = self.maker.make_ahead(batch_rows, start=at.batch, first_step=at.step)
        for batch in batches if self.host is None else self.host.ahead(batches):
            progress = self._progress(len(batch_rows))
            self._step(batch, schedule(progress, self.warmup, self.fall))
            at.step += 1
            at.batch += 1
            if self._ended():
                break
            if at.batch < len(batch_rows):
                yield Tick(self.watch.arrived(), epoch_done=False)
        # The last epoch may be cut short; it counts as done.
        at.epoch = self.n_epochs if self._ended() else at.epoch + 1
        at.batch = 0
        yield Tick(self.watch.drain(), epoch_done=True)

    def _ended(self) -> bool:
        return bool(self.max_steps) and self.position.step >= self.max_steps

    def _progress(self, n_batches: int) -> float:
        """Return the share of the run that is done after the next step."""
        at = self.position
        if self.max_steps:
            return min(1.0, (at.step + 1) / self.max_steps)
        done = at.epoch - self.first_epoch + (at.batch + 1) / n_batches
        return done / (self.n_epochs - self.first_epoch)

    def end_after(self, steps: int) -> None:
        """End the run after this many steps in all, in the epoch under way or a later one."""
        at, left = self.position, steps - self.position.step
        self.max_steps = steps
        if not left and not at.batch:
            self.n_epochs = at.epoch
            return
        n_batches = self.n_batches or len(self.batch_rows())
        further = max(0, left - (n_batches - at.batch))
        self.n_epochs = at.epoch + 1 + math.ceil(further / n_batches)

    def last_step(self) -> int:
        """Return the step the run ends with, where later epochs have as many as this one."""
        at, n_batches = self.position, self.n_batches or len(self.batch_rows())
        last = at.step + (self.n_epochs - at.epoch) * n_batches - at.batch
        return min(last, self.max_steps) if self.max_steps else last

    def _refresh_due(self) -> bool:
        at = self.position
        since = at.epoch - self.first_epoch - self.first_refresh
        return since >= 0 and at.refresh_epoch != at.epoch and since % self.refresh_epochs == 0

    def _step(self, batch: Batch, factor: float) -> None:
        at = self.position
        seed = step_seed(self.seed, at.step, (4,))
        # Dropout; forked, not the caller's. Each rank drops otherwise: it has other texts.
        rank = self.ranks.rank
        torch.manual_seed(step_seed(self.seed, at.step, (4, rank)) if rank else seed)
        self.optimizers.set_rates(factor)  # a loss over all labels may update their vectors itself
        loss = self.loss_of(self.model, batch, seed)
        loss.backward()
        if self.ranks.exchanges:  # or the parameters would be listed for nothing
            sum_gradients_(shared_parameters(self.model), self.ranks)
        self.optimizers.step(factor, clip_norm=self.clip_norm)
        if self.host is not None:
            self.host.leave()
        self.watch.push(
            loss.detach(),
            batch,
            {
                "step": at.step + 1,
                "epoch": at.epoch + 1,
                "labels": len(batch.pool.labels),
                "positives": len(batch.pool.positives) / len(batch.queries),
                "queries": len(batch.queries),
                "lr_factor": factor,
            },
        )
