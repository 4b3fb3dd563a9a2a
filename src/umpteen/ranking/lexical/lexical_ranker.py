"""Sparse linear ranker of labels over tf-idf vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.held_out import HeldOutTexts, LabelledTexts
from umpteen.ranking.lexical.matrices import load_csr, round_to_half, row_numbers, save_csr
from umpteen.ranking.lexical.ranker_training import LexicalConfig, train_weights
from umpteen.ranking.lexical.sparse_topk import look_up, prune_postings
from umpteen.ranking.lexical.sparsity import initial_weights
from umpteen.ranking.lexical.vectorizer import Vectorizer

MAX_VALUES = 64 << 20
"""Values of the dense table; beyond it, the terms with the smallest weights are left out."""
GATHERED_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class FrequentTerms:
    """The pruned weights of frequent terms as a dense table.

    ``look_up(queries, rows)`` is what pruning took from the scores of candidates: a few gathered
    values per text, where a sparse product would visit most labels.
    """

    terms: NDArray[np.int64]
    """(F,) sorted."""
    table: NDArray[np.float32]
    """(F, L)."""

    @classmethod
    def of(cls, residual: sp.csr_matrix) -> FrequentTerms:
        """Build the table from pruned weights (V, L)."""
        terms = np.flatnonzero(np.diff(residual.indptr))
        room = MAX_VALUES // max(1, residual.shape[1])
        if len(terms) > room:
            sizes = np.asarray(abs(residual[terms]).sum(axis=1)).ravel()
            terms = np.sort(terms[np.argsort(-sizes, kind="stable")[:room]])
        return cls(terms, residual[terms].toarray())

    @cached_property
    def _ended_terms(self) -> NDArray[np.int64]:
        """(F + 1,) the terms and -1, which a search past the last term finds."""
        return np.append(self.terms, -1)

    def look_up(self, queries: sp.csr_matrix, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return (B, K) the scores of labels ``rows``, 0 for padding (-1) and for rows beyond L.

        Args:
            queries: (B, V) with rows in order.
            rows: (B, K).

        Returns:
            Float32.
        """
        found = np.zeros(rows.shape, np.float32)
        places = np.searchsorted(self.terms, queries.indices)
        hits = self._ended_terms[places] == queries.indices
        if not hits.any() or not rows.size:
            return found
        there = (rows >= 0) & (rows < self.table.shape[1])
        columns = np.where(there, rows, 0)
        texts = row_numbers(queries)[hits]
        lines, values = places[hits], queries.data[hits]
        step = max(1, GATHERED_AT_ONCE // rows.shape[1])
        starts = np.flatnonzero(np.append(True, texts[1:] != texts[:-1]))
        first = 0
        while first < len(starts):  # some texts at a time
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + step)))
            begin = starts[first]
            end = starts[last] if last < len(starts) else len(texts)
            own = columns[texts[begin:end]]
            gathered = self.table[lines[begin:end, None], own] * values[begin:end, None]
            marks = starts[first:last] - begin
            found[texts[starts[first:last]]] = np.add.reduceat(gathered, marks, axis=0)
            first = last
        found[~there] = 0.0
        return found


@dataclass(frozen=True)
class LexicalRanker:
    """Scores of all labels from the terms of a text: ``vectorizer.transform(texts) @ weights``.

    With many labels, ``weights`` holds the largest weights of each term only. They retrieve
    candidates; ``look_up`` gives the exact scores of candidates.
    """

    vectorizer: Vectorizer
    weights: sp.csr_matrix
    """(V, L)."""
    residual: sp.csr_matrix | None = None
    """(V, L) the weights of frequent terms that ``weights`` lacks; None where it lacks none."""

    @property
    def n_labels(self) -> int:
        """Number of labels, L."""
        return int(self.weights.shape[1])

    @cached_property
    def frequent_terms(self) -> FrequentTerms | None:
        """The residual weights as a dense table."""
        return None if self.residual is None else FrequentTerms.of(self.residual)

    def all_weights(self) -> sp.csr_matrix:
        """Return all weights (V, L), for a device on which products are dense anyway."""
        return self.weights if self.residual is None else self.weights + self.residual

    def look_up(
        self, queries: sp.csr_matrix, scores: sp.csr_matrix, rows: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Return the exact scores (B, K) of candidates.

        Args:
            queries: (B, V) from ``vectorizer.transform``.
            scores: ``product(queries, weights)``.
            rows: (B, K) labels, -1 for padding.

        Returns:
            Float32; 0 where no term has a weight.
        """
        found = look_up(scores, rows)
        if self.frequent_terms is not None:
            found += self.frequent_terms.look_up(queries, rows)
        return found

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        targets: sp.csr_matrix,
        label_texts: Sequence[str],
        *,
        vectorizer: Vectorizer | None = None,
        raw: sp.csr_matrix | None = None,
        filters: NDArray[np.int64] | None = None,
        held_out: LabelledTexts | None = None,
        config: LexicalConfig = LexicalConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        device: torch.device | str = "cpu",
        seconds: float = 120.0,
        log: Callable[[str], None] = lambda line: None,
    ) -> tuple[LexicalRanker, sp.csr_matrix]:
        """Fit the vectorizer and the weights.

        The initial weights of a label are the sum of the tf-idf vectors of its training texts and
        of its own text. Each round mines the best-scored labels of every text, lets those labels
        weigh the text's terms, and minimizes the logistic loss of positives and mined labels.

        Args:
            texts: N training texts.
            targets: (N, L) positives.
            label_texts: L texts.
            vectorizer: A fitted vectorizer; None fits one on texts and label texts.
            raw: ``vectorizer.transform_raw(texts)``, where it is at hand.
            filters: (M, 2) pairs (text, label) that are neither positive nor negative.
            held_out: Labelled texts that are not among the N. Where they show by more than chance
                that weights go too far from the initial ones, these pull more.
            config: Hyperparameters.
            seed: Seed of the order in which hard negatives are mined.
            device: Where to mine and to train.
            seconds: Training time; it ends after the step that passes this limit.
            log: Called with progress lines.

        Returns:
            The ranker, and the tf-idf vectors (N, V) of the training texts.
        """
        until = time.monotonic() + seconds
        if vectorizer is None:
            vectorizer = Vectorizer.fit([*texts, *label_texts])
        queries = vectorizer.cut(vectorizer.transform_raw(texts) if raw is None else raw)
        labels = vectorizer.transform(label_texts)
        room = config.weights_limit(len(label_texts))
        first = initial_weights(queries, targets, labels, room)
        judge = None
        if held_out is not None:
            judge = HeldOutTexts(vectorizer.transform(held_out.texts), held_out)
        weights = train_weights(
            queries, targets, first, filters, config, seed, device, until, log, judge
        )
        kept = np.abs(weights.data) >= config.min_weight
        weights.data = round_to_half(np.where(kept, weights.data, 0.0))
        weights.eliminate_zeros()
        limit = config.postings_limit(len(label_texts))
        return cls.of_weights(vectorizer, weights, limit), queries

    @classmethod
    def of_weights(
        cls, vectorizer: Vectorizer, weights: sp.csr_matrix, limit: int | None
    ) -> LexicalRanker:
        """Make a ranker of the weights (L, V) of labels."""
        by_term = sp.csr_matrix(weights.T)
        pruned = prune_postings(by_term, limit)
        residual = None
        if pruned.nnz < by_term.nnz:
            residual = by_term - pruned
            residual.eliminate_zeros()
        return cls(vectorizer, pruned, residual)

    def save(self, folder: Path) -> None:
        """Write vectorizer and weights into an existing folder."""
        self.vectorizer.save(folder)
        save_csr(self.weights, folder)
        if self.residual is not None:
            (folder / "residual").mkdir(exist_ok=True)
            save_csr(self.residual, folder / "residual")

    @classmethod
    def load(cls, folder: Path, n_labels: int) -> LexicalRanker:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n_labels: Expected number of labels.

        Returns:
            The ranker.

        Raises:
            RunError: If a file is missing or the sizes do not match.
        """
        vectorizer = Vectorizer.load(folder)
        shape = (vectorizer.size, n_labels)
        residual = None
        if (folder / "residual").is_dir():
            residual = load_csr(folder / "residual", shape)
        return cls(vectorizer, load_csr(folder, shape), residual)
