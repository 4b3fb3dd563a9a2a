"""Lexical scores of labels that were added after training, from the terms of their texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.ranking.lexical.growing_columns import GrowingColumns
from umpteen.ranking.lexical.matrices import CsrArrays, count_terms
from umpteen.ranking.lexical.ranker_training import SCALE
from umpteen.ranking.lexical.sparse_topk import look_up
from umpteen.ranking.lexical.vectorizer import END, Vectorizer, token_blocks

MAX_POSTINGS = 1000
"""Added labels per term that can be found by it, those with the largest tf-idf."""


@dataclass(frozen=True)
class AddedTerms:
    """Tf-idf columns of added labels; an immutable value that ``extended`` builds on.

    Words that the vectorizer lacks become terms after its own, with its largest idf: an added label
    is often a new word. Word pairs are not added.
    """

    vectorizer: Vectorizer
    n_words: int = 0
    """Words that the vectorizer lacks."""
    columns: GrowingColumns = GrowingColumns(max_postings=MAX_POSTINGS)
    _ids: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    """Word to number. Later values append to the same dictionary; numbers from ``n_words`` on are
    theirs."""

    @classmethod
    def restored(
        cls, vectorizer: Vectorizer, words: Sequence[str], rows: sp.csr_matrix
    ) -> AddedTerms:
        """Build a value from the ``words`` and ``rows`` of another one."""
        ids = {word: number for number, word in enumerate(words)}
        columns = GrowingColumns(max_postings=MAX_POSTINGS).extended(rows)
        return cls(vectorizer, len(ids), columns, ids)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def words(self) -> list[str]:
        """Words that the vectorizer lacks, in the order of their numbers."""
        return [word for word, number in self._ids.items() if number < self.n_words]

    @property
    def rows(self) -> list[sp.csr_matrix]:
        """Tf-idf rows of the added labels, in blocks; later blocks may have more columns."""
        return [segment.by_row for segment in self.columns.segments]

    def extended(self, texts: Sequence[str]) -> AddedTerms:
        """Return a value with more labels at the end.

        Returns:
            The new value; this one does not change. One writer at a time.
        """
        if not texts:
            return self
        ids = self._ids
        if len(ids) != self.n_words:  # another value was built on this one
            ids = {word: number for word, number in ids.items() if number < self.n_words}
        known = self.vectorizer.ids
        for tokens in token_blocks(texts):
            for word in tokens:
                if word not in known and word not in ids:
                    ids[word] = len(ids)
        grown = AddedTerms(self.vectorizer, len(ids), self.columns, ids)
        rows = grown.transform(texts)
        return AddedTerms(self.vectorizer, len(ids), self.columns.extended(rows), ids)

    def transform(
        self,
        texts: Sequence[str],
        raw: sp.csr_matrix | None = None,
        known: sp.csr_matrix | None = None,
    ) -> sp.csr_matrix:
        """Return (B, V + n_words) tf-idf rows of length one in the grown vocabulary.

        Returns:
            The vectorizer's own vectors where no new word occurs, then perhaps of V columns.
        """
        raw = self.vectorizer.transform_raw(texts) if raw is None else raw
        new = self._new_words(texts)
        if new is None and known is not None:
            return known
        wide = sp.csr_matrix(
            (raw.data, raw.indices, raw.indptr), shape=(raw.shape[0], raw.shape[1] + self.n_words)
        )
        return self.vectorizer.cut(wide if new is None else wide + new)

    def product(
        self,
        texts: Sequence[str],
        raw: sp.csr_matrix | None = None,
        known: sp.csr_matrix | None = None,
    ) -> sp.csr_matrix | CsrArrays:
        """Return (B, A) ``SCALE`` times the cosine of text and added label."""
        if not len(self.columns):
            return sp.csr_matrix((len(texts), 0), dtype=np.float32)
        scores = self.columns.product(self.transform(texts, raw, known))
        np.multiply(scores.data, np.float32(SCALE), out=scores.data)
        return scores

    def look_up(
        self, texts: Sequence[str], rows: NDArray[np.int64], raw: sp.csr_matrix | None = None
    ) -> NDArray[np.float32]:
        """Return (B, K) the scores of added labels ``rows``, -1 for padding."""
        return look_up(self.product(texts, raw), rows)

    def _new_words(self, texts: Sequence[str]) -> sp.csr_matrix | None:
        """Return (B, V + n_words) the values of new words, None where none occurs."""
        if not self.n_words:
            return None
        flat = np.array(
            [
                -2 if word == END else self._ids.get(word, -1)
                for tokens in token_blocks(texts)
                for word in tokens
            ],
            np.int64,
        )
        rows = np.cumsum(flat == -2)
        there = (flat >= 0) & (flat < self.n_words)
        if not there.any():
            return None
        size = self.vectorizer.size
        shape = (len(texts), size + self.n_words)
        matrix = count_terms(rows[there], size + flat[there], shape)
        matrix.data = (1 + np.log(matrix.data)) * self.vectorizer.idf.max(initial=np.float32(1))
        return matrix
