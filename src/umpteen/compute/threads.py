"""How many CPU threads torch uses for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def cpu_threads(n: int) -> Iterator[None]:
    """Let torch use n CPU threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
