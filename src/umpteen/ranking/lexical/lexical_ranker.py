"""Sparse linear ranker of labels over tf-idf vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.char_ngrams import CharNgrams
from umpteen.ranking.lexical.frequent_terms import FrequentTerms
from umpteen.ranking.lexical.held_out import HeldOutTexts, LabelledTexts
from umpteen.ranking.lexical.matrices import load_csr, round_to_half, save_csr
from umpteen.ranking.lexical.ranker_training import LexicalConfig, train_weights
from umpteen.ranking.lexical.sparse_topk import look_up, prune_postings
from umpteen.ranking.lexical.sparsity import initial_weights
from umpteen.ranking.lexical.vectorizer import Vectorizer

Terms = TypeVar("Terms", Vectorizer, CharNgrams)


@dataclass(frozen=True)
class LexicalRanker(Generic[Terms]):
    """Scores of all labels from the terms of a text: ``vectorizer.transform(texts) @ weights``.

    Terms are words and word pairs, or character n-grams. With many labels, ``weights`` holds the
    largest weights of each term only. They retrieve candidates; ``look_up`` gives the exact scores
    of candidates.
    """

    vectorizer: Terms
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
        seconds: float = 120.0,
        **options: Any,
    ) -> tuple[LexicalRanker[Vectorizer], sp.csr_matrix]:
        """Fit the vectorizer of words and pairs, and the weights.

        Args:
            texts: N training texts.
            targets: (N, L) positives.
            label_texts: L texts.
            vectorizer: A fitted vectorizer; None fits one on texts and label texts.
            raw: ``vectorizer.transform_raw(texts)``, where it is at hand.
            seconds: Training time; it ends after the step that passes this limit.
            **options: See ``fit_vectors``.

        Returns:
            The ranker, and the tf-idf vectors (N, V) of the training texts.
        """
        until = time.monotonic() + seconds
        if vectorizer is None:
            vectorizer = Vectorizer.fit([*texts, *label_texts])
        queries = vectorizer.cut(vectorizer.transform_raw(texts) if raw is None else raw)
        labels = vectorizer.transform(label_texts)
        made = LexicalRanker.fit_vectors(vectorizer, queries, targets, labels, until, **options)
        return made, queries

    @classmethod
    def fit_vectors(
        cls,
        vectorizer: Terms,
        queries: sp.csr_matrix,
        targets: sp.csr_matrix,
        labels: sp.csr_matrix,
        until: float,
        *,
        filters: NDArray[np.int64] | None = None,
        held_out: LabelledTexts | None = None,
        config: LexicalConfig = LexicalConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        device: torch.device | str = "cpu",
        log: Callable[[str], None] = lambda line: None,
    ) -> LexicalRanker[Terms]:
        """Fit the weights.

        The initial weights of a label are the sum of the tf-idf vectors of its training texts and
        of its own text (see ``initial_weights``). Each round mines the best-scored labels of every
        text, lets those labels weigh the text's terms, and minimizes the logistic loss of positives
        and mined labels.

        Args:
            vectorizer: Made the vectors.
            queries: (N, V) vectors of training texts, of length one.
            targets: (N, L) positives.
            labels: (L, V) vectors of label texts, of length one.
            until: In ``time.monotonic``; training ends after the step that passes it.
            filters: (M, 2) pairs (text, label) that are neither positive nor negative.
            held_out: Labelled texts that are not among the N. Where they show by more than chance
                that weights go too far from the initial ones, these pull more.
            config: Hyperparameters.
            seed: Seed of the order in which hard negatives are mined.
            device: Where to mine and to train.
            log: Called with progress lines.
        """
        n_labels = labels.shape[0]
        first = initial_weights(queries, targets, labels, config.weights_limit(n_labels))
        judge = None
        if held_out is not None:
            judge = HeldOutTexts(vectorizer.transform(held_out.texts), held_out)
        weights = train_weights(
            queries, targets, first, filters, config, seed, device, until, log, judge
        )
        kept = np.abs(weights.data) >= config.min_weight
        weights.data = round_to_half(np.where(kept, weights.data, 0.0))
        weights.eliminate_zeros()
        return cls.of_weights(vectorizer, weights, config.postings_limit(n_labels))

    @classmethod
    def of_weights(
        cls, vectorizer: Terms, weights: sp.csr_matrix, limit: int | None
    ) -> LexicalRanker[Terms]:
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
    def load(cls, folder: Path, n_labels: int, kind: type[Terms]) -> LexicalRanker[Terms]:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n_labels: Expected number of labels.
            kind: Class of its vectorizer.

        Returns:
            The ranker.

        Raises:
            RunError: If a file is missing or the sizes do not match.
        """
        vectorizer = kind.load(folder)
        shape = (vectorizer.size, n_labels)
        residual = None
        if (folder / "residual").is_dir():
            residual = load_csr(folder / "residual", shape)
        return cls(vectorizer, load_csr(folder, shape), residual)
