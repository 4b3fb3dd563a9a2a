"""Facts about this process: memory and versions."""

from __future__ import annotations

import os
import platform

from umpteen import __version__


def resident_bytes() -> float:
    """Return the resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def unique_bytes(pid: int | str = "self") -> float:
    """Return the memory of a process that no other process shares (unique set size).

    Args:
        pid: The process; by default this one.
    """
    total = 0
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as handle:
        for line in handle:
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) << 10
    return total


def build_info() -> dict[str, str]:
    """Return the versions of what serves."""
    import torch
    import uvicorn

    return {
        "version": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "uvicorn": uvicorn.__version__,
    }
