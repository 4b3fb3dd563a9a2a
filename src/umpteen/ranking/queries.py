"""The texts of one request, with what was computed from them. Lives as long as the request."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import scipy.sparse as sp
import torch

Value = TypeVar("Value")


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
        """Return the result of ``compute``, called the first time only.

        Args:
            name: Of the result.
            compute: Computes it.
            snapshot: What it was computed from; computed again for another snapshot.

        Returns:
            The result.
        """
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
