"""An immutable list that shares its chunks with the lists made from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
CHUNK = 1024


class ChunkedList(Sequence[Item], Generic[Item]):
    """An immutable list; appending and replacing copy only the chunks that change.

    A list of n items is a tuple of n / 1024 chunks, so a list with one more item costs at most
    n / 1024 + 1024 copied references.

    Example:
        >>> one = ChunkedList("ab")
        >>> two = one.updated("c", {0: "x"})
        >>> list(one), list(two)
        (['a', 'b'], ['x', 'b', 'c'])
    """

    __slots__ = ("_chunks", "_length")

    def __init__(self, items: Sequence[Item] = ()) -> None:
        self._length = len(items)
        self._chunks: tuple[list[Item], ...] = tuple(
            list(items[start : start + CHUNK]) for start in range(0, len(items), CHUNK)
        )

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Item]:
        return chain.from_iterable(self._chunks)

    def __getitem__(self, position: Any) -> Any:
        if isinstance(position, slice):
            start, stop, step = position.indices(self._length)
            if step == 1:
                return self._range(start, stop)
            return [self[i] for i in range(start, stop, step)]
        position = range(self._length)[position]
        return self._chunks[position // CHUNK][position % CHUNK]

    def updated(
        self, appended: Sequence[Item], replaced: Mapping[int, Item] | None = None
    ) -> ChunkedList[Item]:
        """Return a list with more items at the end and others in place of some."""
        if not appended and not replaced:
            return self
        chunks = list(self._chunks)
        own: set[int] = set()
        for position, item in (replaced or {}).items():
            number = position // CHUNK
            if number not in own:
                own.add(number)
                chunks[number] = list(chunks[number])
            chunks[number][position % CHUNK] = item
        start = 0
        if chunks and appended and len(chunks[-1]) < CHUNK:
            start = CHUNK - len(chunks[-1])
            chunks[-1] = [*chunks[-1], *appended[:start]]
        chunks.extend(
            list(appended[begin : begin + CHUNK]) for begin in range(start, len(appended), CHUNK)
        )
        return self._of(tuple(chunks), self._length + len(appended))

    @classmethod
    def _of(cls, chunks: tuple[list[Item], ...], length: int) -> ChunkedList[Item]:
        made = cls.__new__(cls)
        made._chunks, made._length = chunks, length
        return made

    def _range(self, start: int, stop: int) -> list[Item]:
        if stop <= start:
            return []
        first, last = start // CHUNK, (stop - 1) // CHUNK
        items = list(chain.from_iterable(self._chunks[first : last + 1]))
        return items[start - first * CHUNK : stop - first * CHUNK]
