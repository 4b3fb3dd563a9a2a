"""Ranks: how a job starts on several, which labels are whose, and all that goes between them.

The only file that calls torch.distributed. With one rank every method returns what it was given.
No loss, no model and no optimizer here. Nothing is pickled on its way: what travels are tensors,
and JSON as bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from umpteen.errors import ConfigError, RankLost

PATIENCE_SECONDS = 3600.0
"""The others wait this long while the first rank validates; who ends is noticed at once."""


@dataclass(frozen=True)
class LabelShard:
    """The label rows start .. stop - 1 of one rank."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def even_bounds(n: int, world: int) -> NDArray[np.int64]:
    """Return where each rank's part of n things starts, and n: (world + 1,).

    Example:
        >>> even_bounds(7, 3).tolist()
        [0, 2, 4, 7]
    """
    return np.arange(world + 1, dtype=np.int64) * n // world


@dataclass(frozen=True)
class Ranks:
    """This process among those of its job; ``Ranks()`` is a job of one.

    Every method but the properties is to be called by all ranks, in the same order. Each raises
    ``RankLost`` when another rank does not answer.
    """

    rank: int = 0
    world: int = 1
    restarts: int = 0
    """How often torchrun has started the job again."""
    forced: bool = False
    """Whether one rank exchanges with itself, to try the backend of its device."""

    @property
    def exchanges(self) -> bool:
        """Whether tensors travel at all."""
        return self.world > 1 or self.forced

    @property
    def first(self) -> bool:
        """Whether this rank is the one that writes and reports."""
        return self.rank == 0

    def bounds(self, n: int) -> NDArray[np.int64]:
        """Return where each rank's part of n things starts, and n."""
        return even_bounds(n, self.world)

    def shard(self, n: int) -> LabelShard:
        """Return this rank's part of n things."""
        return self.part(self.bounds(n))

    def part(self, bounds: NDArray[np.integer]) -> LabelShard:
        """Return this rank's part by given bounds (world + 1,)."""
        return LabelShard(int(bounds[self.rank]), int(bounds[self.rank + 1]))

    def gather_rows(self, own: Tensor, bounds: NDArray[np.integer]) -> Tensor:
        """Return the rows of all ranks, one rank's after the other's, with gradients.

        The gradient of a row is the sum of what all ranks send back to it, so each rank may use all
        rows for its own part of a loss. All ranks must go backward through it.

        Args:
            own: (n, D) of this rank.
            bounds: (world + 1,) where each rank's rows are in the result.

        Returns:
            (N, D).
        """
        if not self.exchanges:
            return own
        # An input that needs a gradient, or a rank whose rows need none would stay out of backward.
        anchor = torch.empty(0, requires_grad=True)
        result: Tensor = _GatheredRows.apply(anchor, own, self, bounds)
        return result

    def concatenate(self, own: Tensor, bounds: NDArray[np.integer]) -> Tensor:
        """Gather rows like ``gather_rows``, without gradients, for (n, ...) of any type."""
        if not self.exchanges:
            return own
        part = self.part(bounds)
        # A sum over zeros: rows may differ in number, which a gathering call would have to pad.
        everyone = own.new_zeros((int(bounds[-1]), *own.shape[1:]))
        everyone[part.start : part.stop] = own.detach()
        return self.sum_(everyone)

    def stack(self, own: Tensor) -> Tensor:
        """Return the same-shaped tensors of all ranks: (...) to (world, ...), without gradients."""
        own = own.detach().contiguous()
        if not self.exchanges:
            return own.unsqueeze(0)
        found = [torch.empty_like(own) for _ in range(self.world)]
        with self._answered():
            dist.all_gather(found, own)
        return torch.stack(found)

    def sum_(self, values: Tensor) -> Tensor:
        """Put the sum over ranks in the place of each rank's values."""
        if self.exchanges and values.numel():
            with self._answered():
                dist.all_reduce(values)
        return values

    def from_first(self, values: Tensor) -> Tensor:
        """Return the first rank's values, for same-shaped tensors."""
        if not self.exchanges:
            return values
        values = values.detach().clone()
        with self._answered():
            dist.broadcast(values, 0)
        return values

    def json_from_first(self, value: Any) -> Any:
        """Return the first rank's value, made of JSON values; the others' is ignored."""
        if not self.exchanges:
            return value
        text = json.dumps(value).encode() if self.first else b""
        found = self.arrays_from_first([np.frombuffer(text, np.uint8)])
        return json.loads(found[0].tobytes())

    def json_of_all(self, value: Any) -> list[Any]:
        """Return the values of all ranks, made of JSON values, on every rank."""
        if not self.exchanges:
            return [value]
        text = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        size = int(self.highest(len(text))[0])
        padded = torch.nn.functional.pad(text, (0, size - len(text)), value=ord(" "))
        return [json.loads(each.numpy().tobytes()) for each in self.stack(padded)]

    def arrays_from_first(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """Return the first rank's arrays; the others' give their number and type."""
        if not self.exchanges:
            return list(arrays)
        found = []
        for array in arrays:
            shape = torch.zeros(8, dtype=torch.int64)
            if self.first:
                shape[0] = array.ndim
                shape[1 : 1 + array.ndim] = torch.tensor(array.shape, dtype=torch.int64)
            ndim, *sizes = self.from_first(shape).tolist()
            given = array if self.first else np.empty(sizes[:ndim], array.dtype)
            tensor = torch.from_numpy(np.array(given))
            found.append(self.from_first(tensor).numpy() if tensor.numel() else tensor.numpy())
        return found

    def highest(self, *numbers: float) -> list[float]:
        """Return the highest of all ranks, number by number; a truth counts 1."""
        values = torch.tensor([float(number) for number in numbers], dtype=torch.float64)
        if self.exchanges:
            with self._answered():
                dist.all_reduce(values, dist.ReduceOp.MAX)
        return values.tolist()

    def rows_to_first(self, own: Tensor, bounds: NDArray[np.integer]) -> Tensor | None:
        """Return all rows on the first rank's host, None on the others.

        The others do not need the memory.

        Args:
            own: (n, ...) of this rank.
            bounds: (world + 1,) where each rank's rows are in the result.

        Returns:
            (N, ...) on the CPU, or None.
        """
        here = own.detach().cpu().contiguous()
        if not self.exchanges:
            return here
        if not self.first:
            if here.numel():
                with self._answered():
                    dist.send(here, 0)
            return None
        whole = here.new_empty((int(bounds[-1]), *here.shape[1:]))
        whole[int(bounds[0]) : int(bounds[1])] = here
        for rank in range(1, self.world):
            rows = whole[int(bounds[rank]) : int(bounds[rank + 1])]
            if rows.numel():
                with self._answered():
                    dist.recv(rows, rank)
        return whole

    def wait(self) -> None:
        """Return when all ranks are here."""
        self.highest(0.0)

    @contextlib.contextmanager
    def first_goes_first(self) -> Iterator[None]:
        """Run the block on the first rank alone, then on the others."""
        if not self.first:
            self.wait()
        yield
        if self.first:
            self.wait()

    def close(self) -> None:
        """Leave the job, at its end."""
        if self.exchanges and dist.is_initialized():
            dist.destroy_process_group()

    @contextlib.contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).strip().splitlines() or ["no reason given"]
            raise RankLost(
                f"rank {self.rank} of {self.world} (counted from 0) gets no answer from the "
                f"others: one has ended or hangs; its message: ({reason[0][:200]}); start the "
                "job again with --resume, or let torchrun do so with --max-restarts"
            ) from error


ONE_RANK = Ranks()
"""A job of one."""


@dataclass(frozen=True)
class Shards:
    """Which labels of a loss each rank holds."""

    ranks: Ranks
    bounds: NDArray[np.integer]
    """(world + 1,) where each rank's labels start, ascending, and how many there are."""

    @property
    def n_labels(self) -> int:
        """Labels of all ranks."""
        return int(self.bounds[-1])

    @property
    def own(self) -> LabelShard:
        """The labels of this rank."""
        return self.ranks.part(self.bounds)


def all_here(n_labels: int) -> Shards:
    """Return all labels on the one rank there is."""
    return Shards(ONE_RANK, even_bounds(n_labels, 1))


class _GatheredRows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, own: Tensor, ranks: Ranks, bounds: NDArray[np.integer]
    ) -> Tensor:
        ctx.ranks, ctx.part = ranks, ranks.part(bounds)
        return ranks.concatenate(own, bounds)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        total = ctx.ranks.sum_(gradient.clone())
        return None, total[ctx.part.start : ctx.part.stop], None, None


def start_ranks(
    device: torch.device, *, patience: float = PATIENCE_SECONDS, forced: bool = False
) -> Ranks:
    """Join the job that torchrun started this process for; without torchrun, a job of one.

    On a GPU the process takes the one of its local rank. Tensors travel by nccl from GPUs, and by
    gloo from the host.

    Args:
        device: Where this rank computes.
        patience: Seconds until a rank that is silent counts as lost.
        forced: Whether a job of one joins a group too, and exchanges with itself.

    Raises:
        ConfigError: If the variables are not what torchrun sets.
        RankLost: If the others do not come.
    """
    given = os.environ
    if "WORLD_SIZE" not in given or "RANK" not in given:
        return ONE_RANK
    try:
        rank, world = int(given["RANK"]), int(given["WORLD_SIZE"])
        ranks = Ranks(rank, world, int(given.get("TORCHELASTIC_RESTART_COUNT", "0")), forced)
        local = int(given.get("LOCAL_RANK", "0"))
    except ValueError as error:
        raise ConfigError(
            f"RANK, WORLD_SIZE and LOCAL_RANK must be numbers, as torchrun sets them: {error}"
        ) from error
    if not 0 <= rank < world:
        raise ConfigError(f"RANK is {rank} and WORLD_SIZE {world}; ranks are 0 to WORLD_SIZE - 1")
    if device.type == "cuda":
        if local >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {rank} needs GPU {local}, but this machine has {torch.cuda.device_count()}; "
                "start at most one process for each GPU (torchrun --nproc-per-node)"
            )
        torch.cuda.set_device(local)
    if ranks.exchanges and not dist.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        silence = timedelta(seconds=patience)
        with ranks._answered():
            store, _, _ = next(dist.rendezvous("env://", rank, world, timeout=silence))
            # torchrun may keep its store over restarts, and with it the addresses of the dead.
            store = dist.PrefixStore(f"try-{ranks.restarts}", store)
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=world, timeout=silence
            )
    return ranks
