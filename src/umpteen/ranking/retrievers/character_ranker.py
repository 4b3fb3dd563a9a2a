"""Retrieve labels by parts of words: a lexical ranker over character n-grams."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.log_lines import Detail
from umpteen.ranking.lexical.char_ngrams import CharNgrams
from umpteen.ranking.lexical.growing_columns import GrowingColumns
from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.ranker_training import SCALE
from umpteen.ranking.lexical.sparse_topk import look_up, product, top_k_of_rows
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.added_names import AddedNames
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.retrievers.lexical import OneVsRestRetriever
from umpteen.ranking.snapshot import Snapshot

LENGTH = 4
"""Characters of an n-gram."""
MAX_TERMS = 100
"""N-grams of a text that count, those of largest tf-idf."""
CHARACTERS = 2000
"""Characters of a text that are read, the first ones."""
MAX_CHARACTERS = 64 << 20
"""Of all training texts together, up to which the ranker is fitted."""
MIN_TEXTS = 5000
"""Training texts from which on it is fitted, the fewest for which it was measured."""
MAX_POSTINGS = 1000
"""Added labels that an n-gram can find, those with its largest values."""


class CharacterRanker(Retriever):
    """Sparse linear ranking over character n-grams, for other forms and parts of words.

    Labels that were added later are matched by the n-grams of their names. Products stay on the
    host, and it is fitted on a CPU alone: a GPU would wait for it. It is left out where
    one-vs-rest classifiers read n-grams.

    Args:
        ranker: Over character n-grams.
    """

    spec = RetrieverSpec("logit", "lexical", reads_label_text=True)

    def __init__(self, ranker: LexicalRanker[CharNgrams]) -> None:
        self.ranker = ranker
        nothing = GrowingColumns(max_postings=MAX_POSTINGS)
        self._added = AddedNames("title", nothing, self._extended)

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Learn the weights of n-grams from enough texts that are not too long."""
        if not context.lexical:
            return None
        texts = [text[:CHARACTERS] for text in context.texts]
        required = context.requires("character_ranker")
        if not required and not _suits(texts, context):
            return None
        now = time.monotonic()
        seconds = min(context.seconds - context.ranker_seconds, context.until - now)
        if seconds < context.ranker_seconds and not required:
            context.log(Detail(f"Character n-grams: left out, {seconds:.0f} s are too few"))
            return None
        names = [name[:CHARACTERS] for name in context.label_texts]
        both = [*texts, *names]
        ngrams = CharNgrams.fit(both, min_n=LENGTH, max_n=LENGTH, max_terms=MAX_TERMS)
        ranker = LexicalRanker.fit_vectors(
            ngrams,
            ngrams.transform(texts),
            context.targets,
            ngrams.transform(names),
            now + seconds,
            filters=context.filters,
            held_out=context.held_out,
            seed=context.seed,
            log=lambda line: context.log(Detail(f"Character n-grams: {line}")),
        )
        return cls(ranker)

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read n-grams and weights."""
        if not folder.is_dir():
            return None
        return cls(LexicalRanker.load(folder, context.n_labels, CharNgrams))

    def save(self, folder: Path) -> None:
        """Write n-grams and weights."""
        self.ranker.save(folder)

    def rows(self, texts: Sequence[str]) -> sp.csr_matrix:
        """(B, C) tf-idf rows of texts or names, of length one."""
        return self.ranker.vectorizer.transform([text[:CHARACTERS] for text in texts])

    def terms(self, queries: Queries) -> sp.csr_matrix:
        """(B, C) of the texts."""
        return queries.once("n-grams", lambda: self.rows(queries.texts))

    def _extended(self, before: GrowingColumns, names: Sequence[str]) -> GrowingColumns:
        return before.extended(self.rows(names) * np.float32(SCALE))

    def _scores(self, queries: Queries) -> Any:
        weights = self.ranker.weights
        return queries.once("n-gram scores", lambda: product(self.terms(queries), weights))

    def _added_scores(self, queries: Queries, snapshot: Snapshot) -> Any:
        """(B, A) scores of added labels; None where there are none."""
        names = self._added.of(snapshot)
        if not len(names):
            return None
        return queries.once(
            "n-gram scores of added labels",
            lambda: names.product(self.terms(queries)),
            snapshot=snapshot,
        )

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels with the highest positive score, trained and added."""
        rows = torch.from_numpy(top_k_of_rows(self._scores(queries), k)[0])
        added = self._added_scores(queries, snapshot)
        if added is not None:
            late = torch.from_numpy(top_k_of_rows(added, k)[0])
            late = torch.where(late < 0, late, late + snapshot.n_trained)
            rows = torch.cat([rows, late], dim=1)
        return rows.to(queries.device)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Scores of n-grams; for an added label the scaled cosine with its name."""
        wanted, n = rows.cpu().numpy(), snapshot.n_trained
        found = self.ranker.look_up(self.terms(queries), self._scores(queries), wanted)
        added = self._added_scores(queries, snapshot)
        if added is not None:
            late = look_up(added, np.maximum(wanted - n, -1))
            found = np.where(wanted >= n, late, found)
        return torch.from_numpy(np.asarray(found, np.float32)).to(rows.device)

    def name_scores(
        self, queries: Queries, names: Sequence[str], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Score labels as if they had been added after training.

        Args:
            queries: B texts.
            names: Of some labels.
            places: (B, K) into the names.
        """
        cosines = product(self.terms(queries), sp.csr_matrix(self.rows(names).T))
        return np.float32(SCALE) * np.asarray(look_up(cosines, places), np.float32)


def _suits(texts: Sequence[str], context: FitContext) -> bool:
    """Return whether there are enough texts, not too long, on a CPU, and no n-grams so far."""
    if context.device.type != "cpu" or _read_already(context):
        return False
    return len(texts) >= MIN_TEXTS and sum(map(len, texts)) <= MAX_CHARACTERS


def _read_already(context: FitContext) -> bool:
    """Return whether one-vs-rest classifiers read character n-grams."""
    other = context.fitted.get("one_vs_rest")
    return isinstance(other, OneVsRestRetriever) and other.classifier.char_ngrams is not None
