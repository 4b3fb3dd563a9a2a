"""Features of two texts side by side: common words, common character n-grams, names that agree."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS
from umpteen.ranking.lexical.char_ngrams import CharNgrams
from umpteen.ranking.lexical.matrices import (
    load_csr,
    places_of_rows,
    round_to_half,
    row_numbers,
    save_csr,
)
from umpteen.ranking.lexical.vectorizer import Vectorizer

TEXT_FEATURES = 9
"""Three of the words, three of the characters, three of the names."""
NAME_BYTES = 32
"""Bytes of a name that are compared."""
MAX_WORDS, MAX_NGRAMS = 48, 48
"""Terms of a text or label that are compared, those with the largest tf-idf."""
_NAME_ENDS = re.compile(r": | - | \(|; |, ")


@dataclass(frozen=True)
class TextMatch:
    """Words, character n-grams and names of all labels. Reads label texts alone."""

    words: Vectorizer
    chars: CharNgrams
    label_words: sp.csr_matrix
    """(L, V) tf-idf rows of length one, rounded to half precision."""
    label_chars: sp.csr_matrix
    """(L, C) the same of character n-grams."""
    names: NDArray[np.uint8]
    """(L, NAME_BYTES) the labels' names in lower case; see ``name_bytes``."""

    @classmethod
    def of(cls, label_texts: Sequence[str]) -> TextMatch:
        """Build it from the texts of all labels."""
        words = Vectorizer.fit(label_texts, min_texts=1, pairs=False, max_terms=MAX_WORDS)
        chars = CharNgrams.fit(label_texts, min_n=3, max_n=4, min_texts=1, max_terms=MAX_NGRAMS)
        empty = sp.csr_matrix((0, words.size)), sp.csr_matrix((0, chars.size))
        none = np.zeros((0, NAME_BYTES), np.uint8)
        return cls(words, chars, *empty, none).extended(label_texts)

    def __len__(self) -> int:
        return len(self.names)

    def extended(self, label_texts: Sequence[str]) -> TextMatch:
        """Return it with more labels at the end; new words count as unknown."""
        if not label_texts:
            return self
        return replace(
            self,
            label_words=_below(self.label_words, self.words.transform(label_texts)),
            label_chars=_below(self.label_chars, self.chars.transform(label_texts)),
            names=np.concatenate([self.names, name_bytes(label_texts)]),
        )

    def features(self, texts: Sequence[str], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Compare texts with labels.

        Args:
            texts: B texts.
            rows: (B, n) label rows, -1 for none.

        Returns:
            (B, n, TEXT_FEATURES); 0 for none. Of words and of character n-grams the cosine and the
            shares of the label and of the text that are common; of names the common beginning in
            bytes and as a share of both, and whether they are equal.
        """
        made = np.zeros((*rows.shape, TEXT_FEATURES), np.float32)
        made[:, :, 0:3] = term_features(self.words.transform(texts), self.label_words, rows)
        made[:, :, 3:6] = term_features(self.chars.transform(texts), self.label_chars, rows)
        made[:, :, 6:9] = _name_features(name_bytes(texts), self.names, rows)
        made[rows < 0] = 0.0
        return made

    def save(self, folder: Path) -> None:
        """Write into an existing empty folder."""
        for name, part in (("words", self.words), ("chars", self.chars)):
            (folder / name).mkdir()
            part.save(folder / name)
            (folder / f"label_{name}").mkdir()
            save_csr(getattr(self, f"label_{name}"), folder / f"label_{name}")
        np.save(folder / "names.npy", self.names, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, n_labels: int) -> TextMatch:
        """Read what ``save`` wrote.

        Raises:
            RunError: If a file is missing or damaged.
        """
        words, chars = Vectorizer.load(folder / "words"), CharNgrams.load(folder / "chars")
        try:
            names = np.load(folder / "names.npy", allow_pickle=False)
            if names.shape != (n_labels, NAME_BYTES) or names.dtype != np.uint8:
                raise ValueError(f"names {names.shape} of {names.dtype}")
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; run `umpteen rerank` again") from error
        label_words = load_csr(folder / "label_words", (n_labels, words.size))
        label_chars = load_csr(folder / "label_chars", (n_labels, chars.size))
        return cls(words, chars, label_words, label_chars, names)


def term_features(
    texts: sp.csr_matrix, labels: sp.csr_matrix, rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Compare chosen pairs of sparse rows.

    Args:
        texts: (B, V) rows of length one, columns sorted.
        labels: (L, V) rows of length one.
        rows: (B, n) rows of ``labels``, -1 for none.

    Returns:
        (B, n, 3): the inner product, and the squared length of the common terms in the label and
        in the text.
    """
    flat = np.maximum(rows, 0).ravel()
    n_pairs, width = len(flat), np.int64(max(1, texts.shape[1]))
    made = np.zeros((n_pairs, 3), np.float32)
    if not n_pairs or not texts.nnz or not labels.nnz:
        return made.reshape(*rows.shape, 3)
    places, lengths = places_of_rows(labels.indptr, flat)
    pairs = np.repeat(np.arange(n_pairs), lengths)
    owners = pairs // max(1, rows.shape[1])
    keys = row_numbers(texts) * width + texts.indices
    wanted = owners * width + labels.indices[places]
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    common = keys[at] == wanted
    pairs, ours, theirs = pairs[common], texts.data[at[common]], labels.data[places[common]]
    for column, values in enumerate((ours * theirs, theirs * theirs, ours * ours)):
        made[:, column] = np.bincount(pairs, weights=values, minlength=n_pairs)
    return made.reshape(*rows.shape, 3)


def name_bytes(texts: Sequence[str]) -> NDArray[np.uint8]:
    """Return the first bytes of each text's name: what stands before a colon, comma or bracket.

    Example:
        >>> bytes(name_bytes(["Dog, domestic: an animal"])[0]).rstrip(bytes(1))
        b'dog'
    """
    names = [_NAME_ENDS.split(text, maxsplit=1)[0].strip().lower() for text in texts]
    cut = [name.encode("utf-8", "replace")[:NAME_BYTES].ljust(NAME_BYTES, b"\0") for name in names]
    return np.frombuffer(b"".join(cut), np.uint8).reshape(len(names), NAME_BYTES)


def _name_features(
    ours: NDArray[np.uint8], theirs: NDArray[np.uint8], rows: NDArray[np.int64]
) -> NDArray[np.float32]:
    if not len(theirs):
        return np.zeros((*rows.shape, 3), np.float32)
    labels = theirs[np.maximum(rows, 0)]
    same = (labels == ours[:, None, :]) & (labels != 0)
    beginning = np.minimum.accumulate(same, axis=2).sum(axis=2).astype(np.float32)
    sizes = np.maximum((labels != 0).sum(axis=2), (ours != 0).sum(axis=1)[:, None])
    share = beginning / np.maximum(1, sizes)
    return np.stack([beginning / NAME_BYTES, share, share == 1.0], axis=2).astype(np.float32)


def _below(above: sp.csr_matrix, more: sp.csr_matrix) -> sp.csr_matrix:
    more.data = round_to_half(more.data)  # as it is saved
    return more if not above.shape[0] else sp.vstack([above, more], format="csr")
