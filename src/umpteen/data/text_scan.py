"""One pass over the texts of a data set, then one over their hashes: what repeats, leaks, is long.

Texts are compared by 64-bit hashes. The hashes go into parts by their first bits, and one part at a
time is sorted, so that memory does not grow with the number of texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from umpteen.data.csr import row_sums
from umpteen.data.dataset import Dataset, Split
from umpteen.data.growing_array import GrowingArray
from umpteen.sorted_unique import sorted_unique

SHOWN = 5
TEXTS_AT_ONCE = 1 << 15
ROWS_OF_PART = 1 << 22
Integers = NDArray[np.int64]


@dataclass
class Places:
    """How many rows are so, and the first of them."""

    count: int = 0
    rows: list[int] = field(default_factory=list)

    def add(self, rows: Integers) -> None:
        """Add rows; of all that are added the smallest are kept."""
        self.count += len(rows)
        first = np.partition(rows, SHOWN)[:SHOWN] if len(rows) > SHOWN else rows
        self.rows = sorted([*self.rows, *first.tolist()])[:SHOWN]


@dataclass
class Repeats:
    """Texts of a split that are there again."""

    count: int = 0
    first: tuple[int, int] | None = None
    """Two rows with the same text; the smallest of all."""
    differing: int = 0
    """Texts whose rows have different labels."""
    first_differing: tuple[int, int] | None = None


@dataclass
class SplitScan:
    """What was found in the texts of one split."""

    size: int
    empty: Places = field(default_factory=Places)
    long: Places = field(default_factory=Places)
    repeats: Repeats = field(default_factory=Repeats)
    in_train: Places = field(default_factory=Places)


def scan_texts(dataset: Dataset, max_words: int | None = None) -> dict[str, SplitScan]:
    """Look at every text of a data set; case and blanks do not count where texts are compared."""
    found = {name: SplitScan(len(split)) for name, split in dataset.splits.items()}
    total = sum(each.size for each in found.values())
    bits = max(0, (total - 1) // ROWS_OF_PART).bit_length()
    # The sum of a random number for each label: equal sums by chance are out of reach.
    weights = np.random.default_rng(0).integers(1, 2**62, len(dataset.labels), np.int64)
    parts = {
        name: _hash_texts(split, found[name], weights, bits, max_words)
        for name, split in dataset.splits.items()
    }
    for part in range(1 << bits):
        own = {name: _Hashed.of(arrays[part]) for name, arrays in parts.items()}
        for name, each in own.items():
            each.count_repeats(found[name].repeats)
            if name != "train" and "train" in own:
                found[name].in_train.add(each.rows[np.isin(each.hashes, own["train"].hashes)])
    return found


def texts_in_blocks(split: Split) -> Iterator[tuple[int, list[str]]]:
    """Yield the row of the first text, and the texts, of each block."""
    texts, start = iter(split.texts()), 0
    while block := list(islice(texts, TEXTS_AT_ONCE)):
        yield start, block
        start += len(block)


def _hash_texts(
    split: Split, found: SplitScan, weights: Integers, bits: int, max_words: int | None
) -> list[GrowingArray]:
    """Return hash, row and key of the labels of each text that is not empty, in parts."""
    parts = [GrowingArray(np.int64) for _ in range(1 << bits)]
    for start, block in texts_in_blocks(split):
        words = [text.split() for text in block]
        counts = np.fromiter(map(len, words), np.int64, len(words))
        found.empty.add(start + np.flatnonzero(counts == 0))
        if max_words is not None:
            found.long.add(start + np.flatnonzero(counts > max_words))
        hashes = (hash(" ".join(each).casefold()) for each in words)
        three = np.empty((len(block), 3), np.int64)
        three[:, 0] = np.fromiter(hashes, np.int64, len(block))
        three[:, 1] = np.arange(start, start + len(block))
        three[:, 2] = row_sums(split.targets, weights, slice(start, start + len(block)))
        three = three[counts > 0]
        if not bits:
            parts[0].extend(three.reshape(-1))
            continue
        of = three[:, 0].view(np.uint64) >> np.uint64(64 - bits)
        three = three[np.argsort(of, kind="stable")]
        cuts = np.cumsum(np.bincount(of.astype(np.int64), minlength=len(parts)))[:-1]
        for part, rows in zip(parts, np.split(three, cuts), strict=True):
            part.extend(rows.reshape(-1))
    return parts


@dataclass(frozen=True)
class _Hashed:
    """The texts of a split in one part, equal ones together, in the order of their rows."""

    hashes: Integers
    rows: Integers
    keys: Integers

    @classmethod
    def of(cls, array: GrowingArray) -> _Hashed:
        three = array.finish().reshape(-1, 3)
        order = np.argsort(three[:, 0], kind="stable")
        return cls(three[order, 0], three[order, 1], three[order, 2])

    def count_repeats(self, found: Repeats) -> None:
        again = np.flatnonzero(self.hashes[1:] == self.hashes[:-1]) + 1
        if not len(again):
            return
        begins = np.ones(len(self.hashes), bool)
        begins[again] = False
        firsts = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
        found.count += len(again)
        found.first = self._least(again, firsts, found.first)
        differs = again[self.keys[again] != self.keys[again - 1]]
        if len(differs):
            found.differing += len(sorted_unique(firsts[differs]))
            found.first_differing = self._least(differs, firsts, found.first_differing)

    def _least(
        self, places: Integers, firsts: Integers, before: tuple[int, int] | None
    ) -> tuple[int, int]:
        """Return the pair of a row and the one before it whose text comes first in the split."""
        place = int(places[np.argmin(self.rows[firsts[places]])])
        pair = int(self.rows[place - 1]), int(self.rows[place])
        return pair if before is None else min(pair, before)
