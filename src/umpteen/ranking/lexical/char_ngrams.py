"""Tf-idf vectors of character n-grams within words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.compute.packing import HASH_FACTOR
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, read_json, write_json
from umpteen.ranking.lexical.matrices import count_terms, keep_largest, unit_rows

CHARACTERS_AT_ONCE = 4 << 20
_SPACE, _END = 32, 0


@dataclass(frozen=True)
class CharNgrams:
    """Sublinear tf-idf of runs of ``min_n`` to ``max_n`` characters of a lower-case word.

    A word begins and ends with a space, which counts as a character. N-grams are stored as 64-bit
    hashes.
    """

    keys: NDArray[np.uint64]
    """Sorted hashes of the vocabulary."""
    idf: NDArray[np.float32]
    """(C,) ln((1 + N) / (1 + texts with the n-gram)) + 1."""
    min_n: int = 3
    max_n: int = 5
    max_terms: int = 1000
    """N-grams of a text that ``transform`` keeps: those of largest tf-idf."""

    @property
    def size(self) -> int:
        """Number of n-grams, C."""
        return len(self.keys)

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        *,
        min_n: int = 3,
        max_n: int = 5,
        min_texts: int = 2,
        max_size: int = 1 << 20,
        max_terms: int = 1000,
    ) -> CharNgrams:
        """Collect the n-grams that occur in at least ``min_texts`` texts.

        Args:
            texts: Training texts.
            min_n: Shortest n-gram, at least 3.
            max_n: Longest n-gram.
            min_texts: Texts that must contain an n-gram.
            max_size: Keep at most this many n-grams, the most frequent first.
            max_terms: N-grams of a text that ``transform`` keeps.
        """
        keys, counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        for n_texts, rows, found in _ngrams(texts, min_n, max_n):
            own, places = np.unique(found, return_inverse=True)
            matrix = count_terms(rows, places, (n_texts, len(own)))
            own_counts = np.bincount(matrix.indices, minlength=len(own))
            both = np.concatenate([keys, own])
            keys, places = np.unique(both, return_inverse=True)
            counts = np.bincount(places, weights=np.concatenate([counts, own_counts])).astype(
                np.int64
            )
        kept = np.flatnonzero(counts >= min_texts)
        kept = np.sort(kept[np.argsort(-counts[kept], kind="stable")[:max_size]])
        idf = np.log((1 + len(texts)) / (1 + counts[kept])) + 1
        return cls(keys[kept], idf.astype(np.float32), min_n, max_n, max_terms)

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return (B, C) rows of length one; the row of a text without known n-grams is empty."""
        made = [sp.csr_matrix((0, self.size), dtype=np.float32)]
        for n_texts, rows, found in _ngrams(texts, self.min_n, self.max_n):
            places = np.searchsorted(self.keys, found)
            hits = places < self.size
            hits[hits] = self.keys[places[hits]] == found[hits]
            matrix = count_terms(rows[hits], places[hits], (n_texts, self.size))
            matrix.data = (1 + np.log(matrix.data)) * self.idf[matrix.indices]
            made.append(unit_rows(keep_largest(matrix, self.max_terms)))
        return made[1] if len(made) == 2 else sp.vstack(made, format="csr")

    def save(self, folder: Path) -> None:
        """Write JSON and ``.npy`` files into an existing folder."""
        sizes = {"min_n": self.min_n, "max_n": self.max_n, "max_terms": self.max_terms}
        write_json(folder / "char_ngrams.json", sizes)
        np.save(folder / "char_ngrams.npy", self.keys, allow_pickle=False)
        np.save(folder / "char_idf.npy", self.idf, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> CharNgrams:
        """Read what ``save`` wrote.

        Raises:
            RunError: If a file is missing or the files do not match.
        """
        sizes = read_json(folder / "char_ngrams.json", error=RunError)
        try:
            numbers = [int(sizes[name]) for name in ("min_n", "max_n", "max_terms")]
            keys = np.load(folder / "char_ngrams.npy", allow_pickle=False).astype(np.uint64)
            idf = np.load(folder / "char_idf.npy", allow_pickle=False).astype(np.float32)
            intact = (
                keys.ndim == 1 and idf.shape == keys.shape and bool((keys[1:] > keys[:-1]).all())
            )
        except LOAD_ERRORS as error:
            raise RunError(
                f"{folder} cannot be read ({error}); run `umpteen fit-ensemble` again"
            ) from error
        if not intact or not 3 <= numbers[0] <= numbers[1] or numbers[2] < 1:
            raise RunError(
                f"{folder} is damaged (sizes do not match); run `umpteen fit-ensemble` again"
            )
        return cls(keys, idf, *numbers)


def _ngrams(
    texts: Sequence[str], min_n: int, max_n: int
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.uint64]]]:
    """Yield, for some texts at a time, their number and the text and hash of every n-gram."""
    for block in _blocks(texts):
        joined = "".join(f" {' '.join(text.replace(chr(_END), ' ').split())} \0" for text in block)
        codes = np.frombuffer(joined.lower().encode("utf-32-le", "surrogatepass"), np.uint32)
        ends = codes == _END
        row = np.cumsum(ends)
        breaks = np.cumsum((codes == _SPACE) | ends)  # inclusive
        hashes = np.ones(len(codes), np.uint64)
        rows, found = [], []
        for n in range(1, max_n + 1):
            hashes = hashes[: len(codes) - n + 1] * HASH_FACTOR + codes[n - 1 :]
            hashes ^= hashes >> np.uint64(29)
            if n < min_n or not len(hashes):
                continue
            start = np.arange(len(hashes))
            # No space inside, and first and last character in the same text.
            inside = breaks[np.maximum(start + n - 2, start)] - breaks[start]
            good = (inside == 0) & ~ends[start] & ~ends[start + n - 1]
            rows.append(row[start[good]])
            found.append(hashes[good])
        none = np.zeros(0, np.int64), np.zeros(0, np.uint64)
        yield len(block), np.concatenate([none[0], *rows]), np.concatenate([none[1], *found])


def _blocks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Split texts into blocks of about ``CHARACTERS_AT_ONCE`` characters."""
    lengths = np.cumsum([len(text) + 3 for text in texts])
    start = 0
    while start < len(texts):
        before = lengths[start - 1] if start else 0
        stop = int(np.searchsorted(lengths, before + CHARACTERS_AT_ONCE, side="right"))
        stop = max(start + 1, stop)
        yield texts[start:stop]
        start = stop
