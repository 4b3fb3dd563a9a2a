"""How benchmarks take time: steps queued one behind the other, by the device's own clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Timing:
    """Of one step."""

    ms: float
    """The median between events on the device that lie before and after each step."""
    wall_ms: float
    """All steps together on the host's clock, the last one waited for, over their number."""
    gib: float
    """The most memory at any time; not a number without a GPU."""
    result: Any
    """What the last step gave."""


def wait(device: torch.device) -> None:
    """Until the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(step: Callable[[], Any], *, repeats: int, device: torch.device, warm: int = 1) -> Timing:
    """Time a step without waiting for the device between repetitions, as training would run it."""
    result = None
    for _ in range(warm):
        result = step()
    wait(device)
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    moments: list[Any] = []

    def tick() -> None:
        if cuda:
            moments.append(torch.cuda.Event(enable_timing=True))
            moments[-1].record()
        else:
            moments.append(time.perf_counter())

    started = time.perf_counter()
    tick()
    for _ in range(repeats):
        result = step()
        tick()
    wait(device)
    wall = 1000 * (time.perf_counter() - started) / repeats
    pairs = zip(moments[:-1], moments[1:], strict=True)
    gaps = [a.elapsed_time(b) if cuda else 1000 * (b - a) for a, b in pairs]
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if cuda else float("nan")
    return Timing(statistics.median(gaps), wall, peak, result)
