"""CPU threads: how many torch uses for a while, and work that is shared among as many."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Given = TypeVar("Given")
Made = TypeVar("Made")


@contextlib.contextmanager
def cpu_threads(n: int) -> Iterator[None]:
    """Let torch use n CPU threads inside the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def map_in_threads(function: Callable[[Given], Made], items: Iterable[Given]) -> Iterator[Made]:
    """Yield the function of each item in their order, as many at once as torch has threads.

    For functions that spend their time outside of Python, such as sparse products. A few items are
    begun before they are asked for.
    """
    n = torch.get_num_threads()
    if n == 1:
        yield from map(function, items)
        return
    begun: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(n) as pool:
        try:
            for item in items:
                begun.append(pool.submit(function, item))
                if len(begun) > n:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for left in begun:
                left.cancel()
