"""Tf-idf vectors of words (runs of letters and digits, in lower case) and word pairs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, read_json, write_json
from umpteen.ranking.lexical.matrices import count_terms, keep_largest, unit_rows, unit_values

TEXTS_AT_ONCE = 8192
END = "\x00"
"""Token that closes each text."""
_TOKEN = re.compile(rf"[^\W_]+|{END}")
MAX_TERMS = 100
"""Terms of a text that ``transform`` keeps: those of largest tf-idf."""
LONG_TEXT = 64
"""Mean words per text above which word pairs are left out."""
_UNKNOWN, _END = -1, -2


def tokenize(texts: Sequence[str]) -> list[str]:
    """Return the words of all texts in one list, each text closed by ``END``."""
    some = [text.replace(END, " ") for text in texts]
    return _TOKEN.findall((END.join(some) + END).lower()) if some else []


def token_blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the tokens of up to ``TEXTS_AT_ONCE`` texts at a time."""
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        yield tokenize(texts[start : start + TEXTS_AT_ONCE])


@dataclass(frozen=True)
class Vectorizer:
    """Sublinear tf-idf of words and of pairs of neighbouring words.

    Term w < W is a word, term W + j is the j-th pair. Pairs are stored as the sorted keys
    ``first * W + second``.
    """

    words: list[str]
    """W words, sorted when fitted."""
    pairs: NDArray[np.int64]
    """Sorted keys of word pairs."""
    idf: NDArray[np.float32]
    """(V,) ln((1 + N) / (1 + texts with the term)) + 1."""
    max_terms: int = MAX_TERMS
    """Terms of a text that ``transform`` keeps."""
    ids: dict[str, int] = field(init=False, repr=False, compare=False)
    """Word to column; ``END`` to a negative number."""

    def __post_init__(self) -> None:
        ids = {word: number for number, word in enumerate(self.words)}
        ids[END] = _END
        object.__setattr__(self, "ids", ids)

    @property
    def size(self) -> int:
        """Number of terms, V."""
        return len(self.idf)

    @property
    def fingerprint(self) -> str:
        """A digest of vocabulary and frequencies."""
        digest = hashlib.sha256("\0".join(self.words).encode("utf-8", "surrogatepass"))
        digest.update(self.pairs.tobytes() + self.idf.tobytes())
        return digest.hexdigest()[:16]

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        *,
        min_texts: int = 2,
        max_pairs: int = 1 << 20,
        pairs: bool | None = None,
        max_terms: int = MAX_TERMS,
    ) -> Vectorizer:
        """Collect the vocabulary and its inverse document frequencies.

        Args:
            texts: Training texts.
            min_texts: Texts that must contain a term.
            max_pairs: Keep at most this many pairs, the most frequent first.
            pairs: Whether to use word pairs; None uses them where texts are short on average.
            max_terms: Terms of a text that ``transform`` keeps.
        """
        return cls._fit(texts, min_texts, max_pairs, pairs, max_terms)[0]

    @classmethod
    def fit_transform(cls, texts: Sequence[str]) -> tuple[Vectorizer, sp.csr_matrix]:
        """Return ``fit`` with its defaults and its ``transform_raw``; texts are read once."""
        made, rows, columns = cls._fit(texts)
        return made, made._weighted(rows, columns, len(texts))

    @classmethod
    def _fit(
        cls,
        texts: Sequence[str],
        min_texts: int = 2,
        max_pairs: int = 1 << 20,
        pairs: bool | None = None,
        max_terms: int = MAX_TERMS,
    ) -> tuple[Vectorizer, NDArray[np.int64], NDArray[np.int64]]:
        """Return the vectorizer, and the text and the column of every token."""
        found, flat, rows = _number_words(texts)
        matrix = count_terms(rows, flat, (len(texts), len(found)))
        texts_with = np.bincount(matrix.indices, minlength=len(found))
        kept = np.flatnonzero(texts_with >= min_texts)
        kept = kept[np.argsort(np.array([found[i] for i in kept.tolist()], dtype=object))]
        words = [found[i] for i in kept.tolist()]
        column = np.full(len(found) + 1, _UNKNOWN, np.int64)
        column[kept] = np.arange(len(kept))
        if pairs is None:
            pairs = len(flat) <= LONG_TEXT * max(1, len(texts))
        keys, with_pair = np.zeros(0, np.int64), np.zeros(0, np.int64)
        columns = column[flat]
        if pairs:
            keys, with_pair = _frequent_pairs(rows, columns, len(words), min_texts, max_pairs)
        in_texts = np.concatenate([texts_with[kept], with_pair])
        idf = np.log((1 + len(texts)) / (1 + in_texts)) + 1
        return cls(words, keys, idf.astype(np.float32), max_terms), rows, columns

    def transform(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return (B, V) rows of length one; the row of a text without known words is empty."""
        made = keep_largest(self.transform_raw(texts), self.max_terms)
        made.data = unit_values(made)
        return made

    def transform_raw(self, texts: Sequence[str]) -> sp.csr_matrix:
        """Return (B, V) values (1 + ln count) * idf of all terms, neither cut nor normalized."""
        return self.transform_tokens(token_blocks(texts))

    def cut(self, raw: sp.csr_matrix, max_terms: int | None = None) -> sp.csr_matrix:
        """Keep the ``max_terms`` largest values of each row and scale rows to length one."""
        return unit_rows(keep_largest(raw, self.max_terms if max_terms is None else max_terms))

    def transform_tokens(self, blocks: Iterable[list[str]]) -> sp.csr_matrix:
        """Return ``transform_raw`` of texts that ``tokens.tokenize`` has already split."""
        made = [self._raw(tokens) for tokens in blocks]
        if not made:
            return sp.csr_matrix((0, self.size), dtype=np.float32)
        return made[0] if len(made) == 1 else sp.vstack(made, format="csr")

    def _raw(self, tokens: list[str]) -> sp.csr_matrix:
        known = self.ids
        flat = np.array([known.get(token, _UNKNOWN) for token in tokens], np.int64)
        rows = np.cumsum(flat == _END)
        return self._weighted(rows, flat, int(rows[-1]) if len(rows) else 0)

    def _weighted(self, rows: NDArray[np.int64], flat: NDArray[np.int64], n: int) -> sp.csr_matrix:
        """Return (n, V) values of tokens; those below 0 are no words of the vocabulary."""
        is_word = flat >= 0
        pair_rows, places = self._pair_columns(rows, flat, is_word)
        rows, columns = rows[is_word], flat[is_word]
        if len(places):
            rows, columns = np.concatenate([rows, pair_rows]), np.concatenate([columns, places])
        matrix = count_terms(rows, columns, (n, self.size))
        matrix.data = (1 + np.log(matrix.data)) * self.idf[matrix.indices]
        return matrix

    def _pair_columns(
        self, rows: NDArray[np.int64], flat: NDArray[np.int64], is_word: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if not len(self.pairs):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        both = np.flatnonzero(is_word[1:] & is_word[:-1] & (rows[1:] == rows[:-1]))
        keys = flat[both] * len(self.words) + flat[both + 1]
        places = np.searchsorted(self.pairs, keys)
        hits = self.pairs[np.minimum(places, len(self.pairs) - 1)] == keys
        return rows[both[hits]], len(self.words) + places[hits]

    def save(self, folder: Path) -> None:
        """Write JSON and ``.npy`` files into an existing folder."""
        write_json(folder / "words.json", {"max_terms": self.max_terms, "words": self.words})
        np.save(folder / "pairs.npy", self.pairs, allow_pickle=False)
        np.save(folder / "idf.npy", self.idf, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> Vectorizer:
        """Read what ``save`` wrote.

        Raises:
            RunError: If a file is missing or the files do not match.
        """
        stored = read_json(folder / "words.json", error=RunError)
        try:
            words, max_terms = list(stored["words"]), int(stored["max_terms"])
            pairs = np.load(folder / "pairs.npy", allow_pickle=False)
            idf = np.load(folder / "idf.npy", allow_pickle=False)
            made = cls(words, pairs.astype(np.int64), idf.astype(np.float32), max_terms)
            intact = (
                max_terms > 0
                and len(made.ids) == len(words) + 1
                and idf.shape == (len(words) + len(pairs),)
                and bool((np.diff(made.pairs) > 0).all())
            )
        except LOAD_ERRORS as error:
            raise RunError(
                f"{folder} cannot be read ({error}); run `umpteen fit-ensemble` again"
            ) from error
        if not intact:
            raise RunError(
                f"{folder} is damaged (sizes do not match); run `umpteen fit-ensemble` again"
            )
        return made


def _number_words(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct words, and the word and the text of every token."""
    numbers: dict[str, int] = {}
    fresh = count()
    blocks = [np.zeros(0, np.int64)]
    for tokens in token_blocks(texts):
        for word in set(tokens) - numbers.keys():
            numbers[word] = next(fresh)
        blocks.append(np.fromiter(map(numbers.__getitem__, tokens), np.int64, len(tokens)))
    flat = np.concatenate(blocks)
    ends = flat == numbers.get(END, _END)
    rows = np.cumsum(ends)
    return list(numbers), flat[~ends], rows[~ends]


def _frequent_pairs(
    rows: NDArray[np.int64], flat: NDArray[np.int64], n_words: int, min_texts: int, max_pairs: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted keys of frequent pairs and how many texts contain each."""
    together = (rows[1:] == rows[:-1]) & (flat[1:] >= 0) & (flat[:-1] >= 0)
    keys = (flat[:-1] * n_words + flat[1:])[together]
    distinct, places = np.unique(keys, return_inverse=True)
    n_texts = int(rows.max(initial=-1)) + 1
    matrix = count_terms(rows[:-1][together], places, (n_texts, len(distinct)))
    texts_with = np.bincount(matrix.indices, minlength=len(distinct))
    kept = np.flatnonzero(texts_with >= min_texts)
    kept = np.sort(kept[np.argsort(-texts_with[kept], kind="stable")[:max_pairs]])
    return distinct[kept], texts_with[kept]
