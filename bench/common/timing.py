"""How benchmarks take time and memory: repeated calls, single spans, steps on a device.

Nothing heavy is imported until a device is named.
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


class Stopwatch:
    """The wall-clock and CPU seconds of a ``with`` block."""

    wall = cpu = 0.0

    def __enter__(self) -> Stopwatch:
        self._start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *error: object) -> None:
        self.wall = time.perf_counter() - self._start[0]
        self.cpu = time.process_time() - self._start[1]


def seconds(
    function: Callable[[], Any],
    *,
    repeats: int = 3,
    warm: int = 0,
    clock: Callable[[], float] = time.perf_counter,
    device: Any = None,
) -> list[float]:
    """The seconds of each of several calls; a device is waited for after each."""
    return each(lambda _: function(), range(warm + repeats), clock=clock, device=device)[warm:]


def each(
    function: Callable[[Any], Any],
    inputs: Iterable[Any],
    *,
    clock: Callable[[], float] = time.perf_counter,
    device: Any = None,
) -> list[float]:
    """The seconds of one call for each input."""
    found = []
    for given in inputs:
        start = clock()
        function(given)
        wait(device)
        found.append(clock() - start)
    return found


def fastest(function: Callable[[], Any], repeats: int, device: Any = None) -> tuple[float, float]:
    """The least wall-clock and the least CPU seconds; one call before them warms up."""
    function()
    watches = []
    for _ in range(repeats):
        with Stopwatch() as watch:
            function()
            wait(device)
        watches.append(watch)
    return min(watch.wall for watch in watches), min(watch.cpu for watch in watches)


def host_peak_gib() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# -- devices ---------------------------------------------------------------------------------------


def best_device() -> Any:
    """The GPU, else the CPU."""
    import torch

    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def is_cuda(device: Any) -> bool:
    """Whether a device, its name or nothing is a GPU."""
    return str(device).startswith("cuda")


def wait(device: Any) -> None:
    """Wait until the device has done all its work."""
    if is_cuda(device):
        import torch

        torch.cuda.synchronize(device)


def empty(device: Any) -> None:
    """Free the memory of work that is over."""
    gc.collect()
    if is_cuda(device):
        import torch

        torch.cuda.empty_cache()


def reset_peak(device: Any) -> None:
    """Count the peak memory of the device from here on."""
    wait(device)
    if is_cuda(device):
        import torch

        torch.cuda.reset_peak_memory_stats(device)


def peak_gib(device: Any) -> float:
    """The peak since then; not a number without a GPU."""
    if not is_cuda(device):
        return float("nan")
    import torch

    return torch.cuda.max_memory_allocated(device) / 2**30


class DeviceClock:
    """Moments on the device's own clock, without waiting for it."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._moments: list[Any] = []

    def tick(self) -> None:
        """Remember this moment."""
        if is_cuda(self.device):
            import torch

            self._moments.append(torch.cuda.Event(enable_timing=True))
            self._moments[-1].record()
        else:
            self._moments.append(time.perf_counter())

    def gaps(self) -> list[float]:
        """Milliseconds between one moment and the next."""
        wait(self.device)
        pairs = zip(self._moments[:-1], self._moments[1:], strict=True)
        if is_cuda(self.device):
            return [first.elapsed_time(second) for first, second in pairs]
        return [1000 * (second - first) for first, second in pairs]


@dataclass(frozen=True)
class Timing:
    """The cost of one step."""

    ms: float
    """The median between events on the device that lie before and after each step."""
    wall_ms: float
    """All steps together on the host's clock, the last one waited for, over their number."""
    gib: float
    """The most memory at any time; not a number without a GPU."""
    result: Any
    """What the last step returned."""


def timed(step: Callable[[], Any], *, repeats: int, device: Any, warm: int = 1) -> Timing:
    """Time a step without waiting for the device between repetitions, as training would run it."""
    result = None
    for _ in range(warm):
        result = step()
    reset_peak(device)
    clock = DeviceClock(device)
    with Stopwatch() as watch:
        clock.tick()
        for _ in range(repeats):
            result = step()
            clock.tick()
        wait(device)
    median = statistics.median(clock.gaps())
    return Timing(median, 1000 * watch.wall / repeats, peak_gib(device), result)
