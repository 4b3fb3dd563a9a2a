"""The machine that a plan is made on: its device, memory and speed, measured in a second or two."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from umpteen.plan.machines import MACHINES, TERA, Machine

REPEATS = 6
SIZES = {"cpu": (1024, 64 << 20), "cuda": (8192, 1 << 30)}
"""Rows of the matrices that are multiplied, and bytes that are copied, to measure a device."""
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def this_machine(device: str = "auto") -> Machine:
    """Return the device that training would use here.

    A GPU in the table keeps its rates there; anything else is measured.

    Returns:
        The device with its own memory. Other load on the machine makes the rates lower.
    """
    if device == "cpu" or not torch.cuda.is_available():
        return replace(
            MACHINES["cpu"],
            memory=float(host_memory()),
            products=measure_products(torch.device("cpu"), torch.float32),
            bandwidth=measure_bandwidth(torch.device("cpu")),
        )
    place = torch.device("cuda", torch.cuda.current_device())
    about = torch.cuda.get_device_properties(place)
    known = known_gpu(about.name, about.total_memory)
    if known is not None:
        return replace(known, memory=float(about.total_memory))
    return Machine(
        about.name,
        float(about.total_memory),
        measure_products(place, torch.bfloat16),
        measure_bandwidth(place),
    )


def known_gpu(name: str, memory: float) -> Machine | None:
    """Return the row of the table for a device's own name; the nearest memory where two match.

    Example:
        >>> known_gpu("NVIDIA A100-SXM4-40GB", 42e9).name
        'a100-40'
    """
    words = name.lower().replace("rtx ", "rtx")
    found = [machine for key, machine in MACHINES.items() if key.split("-")[0] in words]
    return min(found, key=lambda machine: abs(machine.memory - memory), default=None)


def host_memory() -> int:
    """Return the bytes of memory that this process may use: the machine's, or its container's."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in CGROUP_LIMITS:
        try:
            memory = min(memory, int(Path(file).read_text()))
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return memory


def measure_products(device: torch.device, dtype: torch.dtype) -> float:
    """Return the floating point operations a second of a large matrix product."""
    n, _ = SIZES[device.type]
    left = torch.ones(n, n, dtype=dtype, device=device)
    out = torch.empty_like(left)
    return 2.0 * n**3 / _best_seconds(lambda: torch.mm(left, left, out=out), device)


def measure_bandwidth(device: torch.device) -> float:
    """Return the bytes a second that a copy reads and writes."""
    _, size = SIZES[device.type]
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return min(2.0 * size / _best_seconds(lambda: target.copy_(source), device), 10 * TERA)


def _best_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return the shortest of several repeats: other work on the machine only adds."""
    best = float("inf")
    for _ in range(REPEATS):
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return best
