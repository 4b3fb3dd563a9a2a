"""Retrieve labels whose names share character n-grams with a text: parts of words, other forms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.char_ngrams import CharNgrams
from umpteen.ranking.lexical.matrices import load_csr, round_to_half, row_numbers, save_csr
from umpteen.ranking.lexical.ranker_training import SCALE
from umpteen.ranking.lexical.sparse_topk import look_up, product, prune_postings, top_k_of_rows
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.added_names import AddedNames
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.snapshot import Snapshot

CHARACTERS = 2000
"""Characters of a text that are read, the first ones."""
SAMPLE = 2000
"""Texts whose n-grams are counted, beside those of the names."""
MAX_POSTINGS = 200
"""Names that an n-gram counts for: those with its largest values. An n-gram of more names says
little about any of them, and takes most of the time."""


class NameCharacters(Retriever):
    """Cosines of tf-idf vectors of character n-grams; no training text changes them.

    Args:
        ngrams: Turns texts into such vectors.
        weights: (C, L) those of the label names, times ``SCALE``, at most ``MAX_POSTINGS`` a row.
    """

    spec = RetrieverSpec("logit", "names", reads_label_text=True)

    def __init__(self, ngrams: CharNgrams, weights: sp.csr_matrix) -> None:
        self.ngrams = ngrams
        self.weights = weights
        nothing = sp.csr_matrix((0, ngrams.size), dtype=np.float32)
        self._added = AddedNames("title", nothing, self._extended)

    @classmethod
    def of_names(cls, names: Sequence[str], texts: Sequence[str] = ()) -> Self:
        """Build it from the names of all labels, and from texts that n-grams are counted in."""
        counted = [text[:CHARACTERS] for text in texts[:SAMPLE]]
        ngrams = CharNgrams.fit([*counted, *names], min_texts=1)
        return cls(ngrams, prune_postings(sp.csr_matrix(_rows(ngrams, names).T), MAX_POSTINGS))

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Return the retriever for a run that training started from label names."""
        if context.names is None:
            return None
        return cls.of_names(context.label_texts, context.texts)

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read n-grams and weights."""
        if not folder.is_dir():
            return None
        ngrams = CharNgrams.load(folder)
        return cls(ngrams, load_csr(folder, (ngrams.size, context.n_labels)))

    def save(self, folder: Path) -> None:
        """Write n-grams and weights."""
        self.ngrams.save(folder)
        save_csr(self.weights, folder)

    @cached_property
    def _least(self) -> NDArray[np.float32]:
        """(C,) the value from which on an n-gram counts for a further name."""
        counts = np.diff(self.weights.indptr)
        least = np.full(len(counts), np.inf, np.float32)
        np.minimum.at(least, row_numbers(self.weights), self.weights.data)
        return np.where(counts < MAX_POSTINGS, np.float32(0.0), least)

    def _extended(self, before: sp.csr_matrix, names: Sequence[str]) -> sp.csr_matrix:
        rows = _rows(self.ngrams, names)
        rows.data[rows.data < self._least[rows.indices]] = 0.0
        rows.eliminate_zeros()
        return sp.vstack([before, rows], format="csr")

    def _terms(self, queries: Queries) -> sp.csr_matrix:
        """(B, C) of the texts."""
        return queries.once(
            "character n-grams",
            lambda: self.ngrams.transform([text[:CHARACTERS] for text in queries.texts]),
        )

    def _scores(self, queries: Queries) -> Any:
        return queries.once("names", lambda: product(self._terms(queries), self.weights))

    def _added_scores(self, queries: Queries, snapshot: Snapshot) -> Any:
        """(B, A) scores of added labels; None where there are none."""
        names = self._added.of(snapshot)
        if not names.shape[0]:
            return None
        return queries.once(
            "added names",
            lambda: product(self._terms(queries), sp.csr_matrix(names.T)),
            snapshot=snapshot,
        )

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels whose names share most."""
        rows = torch.from_numpy(top_k_of_rows(self._scores(queries), k)[0])
        added = self._added_scores(queries, snapshot)
        if added is not None:
            late = torch.from_numpy(top_k_of_rows(added, k)[0])
            late = torch.where(late < 0, late, late + snapshot.n_trained)
            rows = torch.cat([rows, late], dim=1)
        return rows.to(queries.device)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Cosines, times ``SCALE``."""
        wanted, n = rows.cpu().numpy(), snapshot.n_trained
        found = look_up(self._scores(queries), np.where(wanted < n, wanted, -1))
        added = self._added_scores(queries, snapshot)
        if added is not None:
            late = look_up(added, np.maximum(wanted - n, -1))
            found = np.where(wanted >= n, late, found)
        return torch.from_numpy(np.asarray(found, np.float32)).to(rows.device)


def _rows(ngrams: CharNgrams, names: Sequence[str]) -> sp.csr_matrix:
    """(L, C) vectors of names times ``SCALE``, as they are stored."""
    rows = ngrams.transform([name[:CHARACTERS] for name in names]) * np.float32(SCALE)
    rows.data = round_to_half(rows.data)
    return rows
