"""Memory and CPU time of a service's processes, from ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path


def processes(pid):
    """The process and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


def resident(pid):
    """MiB of the process and its workers."""
    pages = sum(int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in processes(pid))
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def private(pid):
    """Unique set size in MiB; pages of files that no other process has mapped are among it."""
    return _memory(pid, "Private_")


def anonymous(pid):
    """MiB that belong to no file: what a leak would make grow."""
    return _memory(pid, "Anonymous:")


def _memory(pid, kind):
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # the process has ended
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024


def cpu_seconds(pid):
    """CPU seconds of the process and its workers."""
    ticks = 0
    for each in processes(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
