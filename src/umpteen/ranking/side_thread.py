"""A thread beside the one that answers: searches of vectors run there while terms are counted."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Value = TypeVar("Value")
MAX_THREADS = 16
"""As many calls search at the same time; further ones wait for a thread."""


def started(work: Callable[[], Value]) -> Callable[[], Value]:
    """Start work on another thread, where torch may use more than one.

    Args:
        work: Should spend most of its time without the interpreter's lock.

    Returns:
        Waits for the work and returns its result; does the work itself where nothing was started.
    """
    if torch.get_num_threads() < 2:
        return work
    running: Future[Value] = _threads(os.getpid()).submit(work)
    return running.result


@functools.lru_cache(1)
def _threads(pid: int) -> ThreadPoolExecutor:
    """Return the threads of a process; those of its parent do not exist in a fork."""
    return ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="searches")
