"""The texts of one request, with what was computed from them. Lives as long as the request.

Tokenizing and counting terms take the CPU about as long as a GPU takes to rank. ``QueryStream``
prepares the next block in a thread, so that a request takes the longer of both and not their sum.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import scipy.sparse as sp
import torch

Value = TypeVar("Value")
MAX_THREADS = 16
"""As many calls search at the same time; further ones wait for a thread."""


@dataclass(frozen=True)
class Queries:
    """Texts to label and their search vectors.

    ``once`` keeps intermediate results, which retrieving and scoring share.
    """

    texts: Sequence[str]
    vectors: torch.Tensor
    """(B, heads * dim) on the model's device."""
    terms: sp.csr_matrix | None = field(default=None, repr=False)
    """(B, V) ``transform_raw`` of the texts, where it was computed beforehand."""
    _results: dict[Hashable, tuple[object, Any]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def device(self) -> torch.device:
        """Of the vectors."""
        return self.vectors.device

    def once(
        self, name: Hashable, compute: Callable[[], Value], *, snapshot: object | None = None
    ) -> Value:
        """Return the result of ``compute``, called once for each name and snapshot."""
        kept = self._results.get(name)
        if kept is None or kept[0] is not snapshot:
            kept = (snapshot, compute())
            self._results[name] = kept
        result: Value = kept[1]
        return result

    def blocks(self, size: int) -> Iterator[Queries]:
        """Yield the texts in blocks of ``size``, each a request of its own."""
        for start in range(0, len(self), size):
            yield self.block(start, min(len(self), start + size))

    def block(self, start: int, stop: int) -> Queries:
        """Some of the texts, as a request of their own."""
        if start == 0 and stop >= len(self):
            return self
        terms = None if self.terms is None else self.terms[start:stop]
        return Queries(self.texts[start:stop], self.vectors[start:stop], terms)


@dataclass(frozen=True)
class QueryStream:
    """Texts that are not encoded yet.

    Args:
        texts: All of them.
        device: Of the vectors.
        tokenize: From texts to what ``encode`` reads; called in another thread.
        count_terms: From texts to ``transform_raw``; called in that thread too.
        encode: From tokens to search vectors; called where blocks are taken.
    """

    texts: Sequence[str]
    device: torch.device
    tokenize: Callable[[Sequence[str]], Any]
    count_terms: Callable[[Sequence[str]], sp.csr_matrix]
    encode: Callable[[Any], torch.Tensor]

    def __len__(self) -> int:
        return len(self.texts)

    def blocks(self, size: int) -> Iterator[Queries]:
        """Yield the texts in blocks of ``size``, each a request of its own."""

        def prepare(start: int) -> tuple[Sequence[str], Any, sp.csr_matrix]:
            some = self.texts[start : start + size]
            return some, self.tokenize(some), self.count_terms(some)

        starts = range(0, len(self), size)
        with ThreadPoolExecutor(1, thread_name_prefix="queries") as thread:
            coming = [thread.submit(prepare, start) for start in starts[:2]]
            for number in range(len(starts)):
                some, tokens, terms = coming.pop(0).result()
                if number + 2 < len(starts):
                    coming.append(thread.submit(prepare, starts[number + 2]))
                yield Queries(some, self.encode(tokens), terms)


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
