"""Texts as sparse vectors of their words and word pairs (tf-idf). No label and no weight here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import RunError
from umpteen.files import read_json, write_json

TEXTS_AT_ONCE = 8192
_END = "\x00"
_TOKEN = re.compile(rf"[^\W_]+|{_END}")
LONGEST = 100
"""Features of a text that are kept, the heaviest by tf-idf: the others are common ones, whose sum
drowns what a long text is about."""
UNCUT = 1 << 62
LONG_TEXT = 64
"""Words of a text, on average, above which pairs of words are left out."""


@dataclass(frozen=True)
class Words:
    """A vocabulary of words and of pairs of neighbouring words, with their inverse frequencies.

    A word is a run of letters and digits in lower case. Feature w < W is a word; feature W + j is
    the j-th pair. Pairs are kept as ``first * W + second``, sorted.
    """

    words: dict[str, int]
    """Word to number; W of them."""
    pairs: NDArray[np.int64]
    """Sorted keys of pairs."""
    rarity: NDArray[np.float32]
    """(V,) ln((1 + N) / (1 + texts with the feature)) + 1."""
    longest: int = LONGEST
    """Features of a text that are kept, the heaviest."""

    @property
    def size(self) -> int:
        """V, words and pairs."""
        return len(self.rarity)

    @classmethod
    def learn(
        cls, texts: Sequence[str], *, least: int = 2, most: int = 1 << 20, pairs: bool | None = None
    ) -> Words:
        """Count words and pairs.

        Args:
            texts: What to count them in.
            least: Texts a feature must be in.
            most: Keep at most this many pairs, the most frequent first.
            pairs: Whether to count pairs; None for short texts only.

        Returns:
            The vocabulary.
        """
        numbers: dict[str, int] = {}
        fresh = count()
        parts = []
        for tokens in _tokens(texts):
            for word in set(tokens) - numbers.keys():
                numbers[word] = next(fresh)
            parts.append(np.fromiter(map(numbers.__getitem__, tokens), np.int64, len(tokens)))
        flat = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        end = numbers.pop(_END, -1)
        rows = np.cumsum(flat == end) - (flat == end)
        rows, flat = rows[flat != end], flat[flat != end]
        seen = _texts_with(rows, flat, max(1, len(numbers) + 1))
        frequent = [word for word, number in numbers.items() if seen[number] >= least]
        frequent.sort()
        words = {word: place for place, word in enumerate(frequent)}
        place_of = np.full(len(seen), -1, np.int64)
        place_of[[numbers[word] for word in frequent]] = np.arange(len(frequent))
        if pairs is None:
            pairs = len(flat) <= LONG_TEXT * max(1, len(texts))
        keys, texts_with = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if pairs:
            pair_rows, found = _pairs(rows, place_of[flat], len(words))
            order = np.lexsort((pair_rows, found))
            pair_rows, found = pair_rows[order], found[order]
            first = np.append(True, (np.diff(found) != 0) | (np.diff(pair_rows) != 0))
            keys, texts_with = np.unique(found[first[: len(found)]], return_counts=True)
            kept = np.flatnonzero(texts_with >= least)
            kept = np.sort(kept[np.argsort(-texts_with[kept], kind="stable")[:most]])
            keys, texts_with = keys[kept], texts_with[kept]
        in_texts = np.concatenate([seen[[numbers[word] for word in frequent]], texts_with])
        rarity = np.log((1 + len(texts)) / (1 + in_texts)) + 1
        return cls(words, keys, rarity.astype(np.float32))

    def grown(self, texts: Sequence[str]) -> Words:
        """The vocabulary with the words of some texts that it lacks, as rare as its rarest.

        Features of words stay where they are; those of pairs move up. No pairs are added.
        """
        found = dict.fromkeys(word for tokens in _tokens(texts) for word in tokens)
        new = [word for word in found if word != _END and word not in self.words]
        if not new:
            return self
        before, after = len(self.words), len(self.words) + len(new)
        words = {**self.words, **{word: before + place for place, word in enumerate(new)}}
        pairs = self.pairs // max(1, before) * after + self.pairs % max(1, before)
        rare = np.full(len(new), self.rarity.max(initial=1.0), np.float32)
        rarity = np.concatenate([self.rarity[:before], rare, self.rarity[before:]])
        return Words(words, pairs, rarity, self.longest)

    def vectors(self, texts: Sequence[str]) -> sp.csr_matrix:
        """(N, V) rows of length one: (1 + ln count) * rarity; a text without known words is 0.

        Only the ``longest`` heaviest of a text count.
        """
        return self._joined([self.cut(self._weighted(tokens)) for tokens in _tokens(texts)])

    def weighted(self, texts: Sequence[str]) -> sp.csr_matrix:
        """(N, V) as in ``vectors``, neither cut nor of length one: ``cut`` makes those of it."""
        return self._joined([self._weighted(tokens) for tokens in _tokens(texts)])

    def cut(self, weighted: sp.csr_matrix, longest: int | None = None) -> sp.csr_matrix:
        """``vectors(texts)`` from ``weighted(texts)``, or the same with another ``longest``."""
        return unit_rows(heaviest(weighted, self.longest if longest is None else longest))

    def _joined(self, blocks: list[sp.csr_matrix]) -> sp.csr_matrix:
        if not blocks:
            return sp.csr_matrix((0, self.size), dtype=np.float32)
        return blocks[0] if len(blocks) == 1 else sp.vstack(blocks, format="csr")

    def _weighted(self, tokens: list[str]) -> sp.csr_matrix:
        known = self.words
        flat = np.array([known.get(token, -1) for token in tokens], np.int64)
        ends = np.array([token == _END for token in tokens], bool)
        n = int(ends.sum())
        rows = np.cumsum(ends) - ends
        rows, flat = rows[~ends], flat[~ends]
        pair_rows, found = _pairs(rows, flat, len(known))
        places = np.searchsorted(self.pairs, found)
        hits = places < len(self.pairs)
        hits[hits] = self.pairs[places[hits]] == found[hits]
        is_word = flat >= 0
        all_rows = np.concatenate([rows[is_word], pair_rows[hits]])
        columns = np.concatenate([flat[is_word], len(known) + places[hits]])
        ones = np.ones(len(all_rows), np.float32)
        matrix = sp.csr_matrix((ones, (all_rows, columns)), shape=(n, self.size))
        matrix.sum_duplicates()
        matrix.data = (1 + np.log(matrix.data)) * self.rarity[matrix.indices]
        return matrix

    def save(self, folder: Path) -> None:
        """Write into a folder that exists."""
        known = {"longest": self.longest, "words": list(self.words)}
        write_json(folder / "words.json", known)
        np.save(folder / "pairs.npy", self.pairs, allow_pickle=False)
        np.save(folder / "rarity.npy", self.rarity, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> Words:
        """Read what ``save`` wrote.

        Raises:
            RunError: If something is missing or does not fit.
        """
        known = read_json(folder / "words.json", error=RunError)
        if isinstance(known, list):  # as it was written when texts were never cut
            known = {"longest": UNCUT, "words": known}
        try:
            listed, longest = known["words"], int(known["longest"])
            words = {word: number for number, word in enumerate(listed)}
            pairs = np.load(folder / "pairs.npy", allow_pickle=False)
            rarity = np.load(folder / "rarity.npy", allow_pickle=False)
            whole = (
                longest > 0
                and len(words) == len(listed)
                and rarity.shape == (len(words) + len(pairs),)
            )
        except (OSError, ValueError, TypeError, EOFError, KeyError) as error:
            raise RunError(f"{folder} cannot be read: {error}; fit it again") from error
        if not whole:
            raise RunError(f"{folder} is damaged: its parts do not fit; fit it again")
        return cls(words, pairs, rarity, longest)


def heaviest(matrix: sp.csr_matrix, most: int) -> sp.csr_matrix:
    """The matrix with the largest values of each row alone; of equal ones the first columns."""
    counts = np.diff(matrix.indptr)
    if not len(counts) or counts.max() <= most:
        return matrix
    rows = np.repeat(np.arange(len(counts)), counts)
    cut = np.flatnonzero((counts > most)[rows])
    order = cut[np.lexsort((-matrix.data[cut], rows[cut]))]
    starts = np.cumsum(np.where(counts > most, counts, 0))
    starts -= np.where(counts > most, counts, 0)
    kept = np.ones(matrix.nnz, bool)
    kept[cut] = False
    kept[order[np.arange(len(order)) - starts[rows[order]] < most]] = True
    indptr = np.concatenate([[0], np.cumsum(np.minimum(counts, most))])
    return sp.csr_matrix((matrix.data[kept], matrix.indices[kept], indptr), shape=matrix.shape)


def unit_rows(matrix: sp.csr_matrix) -> sp.csr_matrix:
    """The matrix with rows of length one; empty rows stay empty."""
    squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
    lengths = np.repeat(np.sqrt(np.maximum(squares, 1e-30)), np.diff(matrix.indptr))
    scaled = (matrix.data / lengths).astype(np.float32)
    return sp.csr_matrix((scaled, matrix.indices, matrix.indptr), shape=matrix.shape)


def _tokens(texts: Sequence[str]) -> Iterator[list[str]]:
    """The words of some texts at a time, each text closed by an end sign."""
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        some = [text.replace(_END, " ") for text in texts[start : start + TEXTS_AT_ONCE]]
        yield _TOKEN.findall((_END.join(some) + _END).lower())


def _pairs(
    rows: NDArray[np.int64], flat: NDArray[np.int64], n_words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Texts and keys of neighbouring known words."""
    together = (rows[1:] == rows[:-1]) & (flat[1:] >= 0) & (flat[:-1] >= 0)
    keys = flat[:-1] * n_words + flat[1:]
    return rows[:-1][together], keys[together]


def _texts_with(rows: NDArray[np.int64], features: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """(n,) how many texts have each feature."""
    distinct = np.unique(rows * n + features)
    return np.bincount(distinct % n, minlength=n)
