"""Strings in arrays, memory-mapped perhaps: read one by one, and found by a sorted index of hashes.

Millions of Python strings take gigabytes and seconds; arrays in a file take neither before they are
used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.growing_array import GrowingArray, forget
from umpteen.errors import DataError

AT_ONCE = 1 << 15
SORTED_AT_ONCE = 1 << 22
"""Hashes that are sorted in memory; of more, parts by their first bits, into files."""
_PRIME = np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)


class MappedStrings(Sequence[str]):
    """UTF-8 strings one after the other; string i is ``raw[offsets[i]:offsets[i + 1]]``.

    Args:
        raw: (bytes,) uint8.
        offsets: (N + 1,) int64.
    """

    def __init__(self, raw: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(raw):
            raise ValueError("offsets do not fit the bytes")
        self.raw = raw
        self.offsets = offsets

    @classmethod
    def pack(cls, strings: Iterable[str]) -> MappedStrings:
        """Put strings into arrays; strings that are in arrays already stay as they are."""
        if isinstance(strings, cls):
            return strings
        raws, sizes, rest = [], [np.zeros(1, np.int64)], iter(strings)
        while some := list(islice(rest, AT_ONCE)):
            joined = "".join(some)
            if joined.isascii():
                each: Sequence[Any] = some
                raw = joined.encode("ascii")
            else:
                each = [one.encode("utf-8", "surrogatepass") for one in some]
                raw = b"".join(each)
            raws.append(np.frombuffer(raw, np.uint8))
            sizes.append(np.fromiter(map(len, each), np.int64, len(each)))
        whole = np.concatenate(raws) if raws else np.zeros(0, np.uint8)
        return cls(whole, np.cumsum(np.concatenate(sizes)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            return self._between(start, max(start, stop)) if step == 1 else [
                self[i] for i in range(start, stop, step)
            ]  # fmt: skip
        row = range(len(self))[row]
        start, stop = self.offsets[row : row + 2].tolist()
        return _decoded(self.raw[start:stop].tobytes())

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), AT_ONCE):
            some = self._between(start, min(start + AT_ONCE, len(self)))
            forget(self.raw)
            forget(self.offsets)
            yield from some

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str) or len(other) != len(self):
            return False
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def has(self, character: str) -> bool:
        """Return whether an ASCII character occurs in any of the strings."""
        blocks = range(0, len(self.raw), 1 << 24)
        return any((self.raw[at : at + (1 << 24)] == ord(character)).any() for at in blocks)

    def _between(self, start: int, stop: int) -> list[str]:
        bounds = self.offsets[start : stop + 1]
        if len(bounds) < 2:
            return []
        raw = self.raw[bounds[0] : bounds[-1]].tobytes()
        places = pairwise((bounds - bounds[0]).tolist())
        text = _decoded(raw)
        if len(text) == len(raw):
            return [text[a:b] for a, b in places]
        return [_decoded(raw[a:b]) for a, b in places]


class StringRows(Mapping[str, int]):
    """From string to position, by binary search over sorted hashes. Nothing is kept in memory.

    Args:
        strings: The strings, each of them once.
        hashes: (N,) their hashes, ascending.
        rows: (N,) the position of the string of each hash.
    """

    def __init__(
        self, strings: MappedStrings, hashes: NDArray[np.uint64], rows: NDArray[np.unsignedinteger]
    ) -> None:
        if not len(strings) == len(hashes) == len(rows):
            raise ValueError("the index does not fit the strings")
        self._strings, self._hashes, self._rows = strings, hashes, rows

    def __getitem__(self, string: str) -> int:
        key = hashes_of(MappedStrings.pack([string]))
        for place in range(int(np.searchsorted(self._hashes, key)[0]), len(self._hashes)):
            if self._hashes[place] != key[0]:
                break
            row = int(self._rows[place])
            if self._strings[row] == string:
                return row
        raise KeyError(string)

    def __len__(self) -> int:
        return len(self._strings)

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings)

    def find(self, strings: Sequence[str]) -> dict[str, int]:
        """Return the positions of those strings that are there, in one search."""
        wanted = list(dict.fromkeys(strings))
        keys = hashes_of(MappedStrings.pack(wanted))
        order = np.argsort(keys)  # neighbours read the same pages
        places = np.empty(len(keys), np.int64)
        places[order] = np.searchsorted(self._hashes, keys[order])
        if not len(self._hashes):
            return {}
        places = np.minimum(places, len(self._hashes) - 1)
        met = np.flatnonzero(self._hashes[places] == keys)
        found: dict[str, int] = {}
        for number, row in zip(met, self._rows[places[met]].tolist(), strict=True):
            string = wanted[number]
            if self._strings[row] != string:  # another string with the same hash
                if string not in self:
                    continue
                row = self[string]
            found[string] = row
        return found

    def first_repeat(self) -> tuple[int, int] | None:
        """Return the position of the first string that is there before, and the earlier one."""
        repeats: list[tuple[int, int]] = []
        for start in range(0, len(self._hashes) - 1, AT_ONCE):
            some = self._hashes[start : start + AT_ONCE + 1]
            for place in (start + np.flatnonzero(some[1:] == some[:-1])).tolist():
                rows = self._rows[place : place + 2].tolist()
                if self._strings[rows[0]] == self._strings[rows[1]]:
                    repeats.append((rows[1], rows[0]))
            repeats = [min(repeats)] if repeats else []
        forget(self._hashes)
        forget(self._rows)
        return repeats[0] if repeats else None


def sorted_hashes(
    strings: MappedStrings,
) -> tuple[NDArray[np.uint64], NDArray[np.unsignedinteger]]:
    """Return what ``StringRows`` takes: ascending hashes and the position of each.

    Those of many strings are in files, and memory does not grow with the number of strings.
    """
    small = np.dtype(np.uint32 if len(strings) < 1 << 32 else np.uint64)
    bits = max(0, (len(strings) - 1) // SORTED_AT_ONCE).bit_length()
    parts = [(GrowingArray(np.uint64), GrowingArray(small)) for _ in range(1 << bits)]
    for start, own in hashed_blocks(strings):
        rows = np.arange(start, start + len(own), dtype=small)
        of = own >> np.uint64(64 - bits) if bits else np.zeros_like(own)
        order = np.argsort(of, kind="stable")
        cuts = np.cumsum(np.bincount(of.astype(np.int64), minlength=len(parts)))[:-1]
        pieces = zip(np.split(own[order], cuts), np.split(rows[order], cuts), strict=True)
        for part, (hashes, places) in zip(parts, pieces, strict=True):
            part[0].extend(hashes)
            part[1].extend(places)
    found = GrowingArray(np.uint64), GrowingArray(small)
    for part in parts:
        hashes, rows = (array.finish() for array in part)
        order = np.argsort(hashes, kind="stable")
        found[0].extend(hashes[order])
        found[1].extend(rows[order])
    return found[0].finish(), found[1].finish()


def hashes_of(strings: MappedStrings) -> NDArray[np.uint64]:
    """Return (N,) a 64-bit polynomial hash of each string.

    Two strings may have the same one: the reader compares the strings too.
    """
    found = np.empty(len(strings), np.uint64)
    for start, own in hashed_blocks(strings):
        found[start : start + len(own)] = own
    return found


def hashed_blocks(strings: MappedStrings) -> Iterator[tuple[int, NDArray[np.uint64]]]:
    """Yield the position of the first string, and the hashes, of each block."""
    for start in range(0, len(strings), AT_ONCE):
        bounds = strings.offsets[start : start + AT_ONCE + 1]
        raw = strings.raw[bounds[0] : bounds[-1]]
        bounds = bounds - bounds[0]
        sizes = np.diff(bounds)
        powers = np.full(int(sizes.max(initial=0)) + 1, _PRIME)
        powers[0] = 1
        np.multiply.accumulate(powers, out=powers)
        place = np.arange(len(raw)) - np.repeat(bounds[:-1], sizes)
        terms = (raw.astype(np.uint64) + np.uint64(1)) * powers[place]
        sums = np.zeros(len(raw) + 1, np.uint64)
        np.cumsum(terms, out=sums[1:])  # modulo 2^64, and the differences too
        mixed = sums[bounds[1:]] - sums[bounds[:-1]]
        mixed ^= mixed >> np.uint64(32)
        mixed *= _MIX
        yield start, mixed ^ (mixed >> np.uint64(29))
        forget(strings.raw)
        forget(strings.offsets)


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise DataError(
            f"a text of the label table is damaged ({error}); remove labels.columns, which is made "
            "of labels.jsonl"
        ) from error
