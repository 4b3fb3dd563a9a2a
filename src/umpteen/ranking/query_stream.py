"""Texts of a large request, made ready block by block while the device ranks the block before.

Tokenizing and counting terms take the CPU about as long as a GPU takes to rank. One thread prepares
the next block meanwhile, so that a request takes the longer of both and not their sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch

from umpteen.ranking.queries import Queries


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
