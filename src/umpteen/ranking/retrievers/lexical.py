"""Retrieve labels by the exact words of a text: lexical ranker and one-vs-rest classifiers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.one_vs_rest import OneVsRest
from umpteen.ranking.lexical.one_vs_rest_training import OneVsRestConfig
from umpteen.ranking.lexical.ranker_training import SCALE
from umpteen.ranking.lexical.sparse_topk import DeviceMatrix, look_up, product, top_k_of_rows
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.snapshot import Snapshot

ONE_VS_REST_SHARE = 0.6
"""Of the time for lexical scorers, for one-vs-rest where it suits the data."""


def _on_device(weights: sp.csr_matrix, device: torch.device) -> sp.csr_matrix | DeviceMatrix:
    return weights if device.type == "cpu" else DeviceMatrix.of(weights, device)


def _tensor(found: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(np.asarray(found) if isinstance(found, np.ndarray) else found).to(
        like.device
    )


class LexicalRetriever(Retriever):
    """Sparse linear ranking over tf-idf terms; labels added later are matched by their text."""

    spec = RetrieverSpec("logit", "lexical", reads_label_text=True)

    def __init__(self, ranker: LexicalRanker[Vectorizer], device: torch.device) -> None:
        self.ranker = ranker
        self.device = device
        # On a device products are dense anyway, and nothing is pruned.
        on_host = device.type == "cpu"
        self._weights = ranker.weights if on_host else DeviceMatrix.of(ranker.all_weights(), device)

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Learn the weights of terms, where lexical scorers are wanted."""
        if not context.lexical:
            return None
        started = time.monotonic()
        vectorizer, raw = Vectorizer.fit_transform([*context.texts, *context.label_texts])
        context.raw_terms = raw[: len(context.texts)]
        suits = _config(context).suits(vectorizer.size, context.targets)
        share = 1.0 - ONE_VS_REST_SHARE if suits else 1.0
        ranker, context.terms = LexicalRanker.fit(
            context.texts,
            context.targets,
            context.label_texts,
            vectorizer=vectorizer,
            raw=context.raw_terms,
            filters=context.filters,
            held_out=context.held_out,
            seed=context.seed,
            device=context.device,
            seconds=context.time_for(share),
            log=context.log,
        )
        context.ranker_seconds = time.monotonic() - started
        return cls(ranker, context.device)

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read the weights."""
        if not folder.is_dir():
            return None
        return cls(LexicalRanker.load(folder, context.n_labels, Vectorizer), context.device)

    def save(self, folder: Path) -> None:
        """Write vocabulary and weights."""
        self.ranker.save(folder)

    def raw_terms(self, queries: Queries) -> sp.csr_matrix:
        """(B, V) tf-idf values, neither cut nor scaled."""
        if queries.terms is not None:
            return queries.terms
        vectorizer = self.ranker.vectorizer
        return queries.once("raw terms", lambda: vectorizer.transform_raw(queries.texts))

    def terms(self, queries: Queries) -> sp.csr_matrix:
        """(B, V) tf-idf rows of length one."""
        vectorizer = self.ranker.vectorizer
        return queries.once("terms", lambda: vectorizer.cut(self.raw_terms(queries)))

    def _scores(self, queries: Queries) -> Any:
        return queries.once("lexical scores", lambda: product(self.terms(queries), self._weights))

    def _added_scores(self, queries: Queries, snapshot: Snapshot) -> Any:
        added = snapshot.added_terms
        assert added is not None
        return queries.once(
            "scores of added labels",
            lambda: added.product(queries.texts, self.raw_terms(queries), self.terms(queries)),
            snapshot=snapshot,
        )

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels with the highest positive score, trained and added."""
        rows = _tensor(top_k_of_rows(self._scores(queries), k)[0], queries.vectors)
        if snapshot.added_terms is None or not len(snapshot.added_terms):
            return rows
        found = _tensor(top_k_of_rows(self._added_scores(queries, snapshot), k)[0], rows)
        late = torch.where(found < 0, found, found + snapshot.n_trained)
        return torch.cat([rows, late], dim=1)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Scores of terms; for an added label the scaled cosine with its text."""
        found = self._scores(queries)
        if isinstance(self._weights, DeviceMatrix):
            scores = _tensor(look_up(found, rows), rows)
        else:
            exact = self.ranker.look_up(self.terms(queries), found, rows.numpy())
            scores = torch.from_numpy(exact)
        if snapshot.added_terms is None or not len(snapshot.added_terms):
            return scores
        late = rows - snapshot.n_trained
        if not bool((late >= 0).any()):
            return scores
        own = look_up(self._added_scores(queries, snapshot), _rows(late.clamp_min(-1)))
        return torch.where(late >= 0, _tensor(own, rows), scores)

    def name_scores(
        self, queries: Queries, names: Sequence[str], places: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Score labels by their names, as if they had been added after training.

        Args:
            queries: B texts.
            names: Of some labels.
            places: (B, K) into the names.
        """
        vectorizer = self.ranker.vectorizer
        own = sp.csr_matrix(vectorizer.transform(names).T)
        cosines = product(vectorizer.transform(queries.texts), own)
        return np.float32(SCALE) * np.asarray(look_up(cosines, places), np.float32)


class OneVsRestRetriever(Retriever):
    """Linear one-vs-rest classifiers, for data with few labels and many texts each."""

    spec = RetrieverSpec("margin", "lexical", needs_training=True)

    def __init__(
        self, classifier: OneVsRest, device: torch.device, ranker: LexicalRetriever
    ) -> None:
        self.classifier = classifier
        self.ranker = ranker
        self._weights = _on_device(classifier.weights, device)

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Learn the classifiers where there are enough texts for each label."""
        ranker = context.fitted.get("lexical_ranker")
        if not isinstance(ranker, LexicalRetriever):
            return None
        classifier = OneVsRest.fit(
            context.texts,
            context.targets,
            context.label_texts,
            vectorizer=ranker.ranker.vectorizer,
            raw=context.raw_terms,
            filters=context.filters,
            config=_config(context),
            seed=context.seed,
            device=context.device,
            seconds=context.time_for(ONE_VS_REST_SHARE),
            log=context.log,
        )
        return None if classifier is None else cls(classifier, context.device, ranker)

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read the classifiers, where there are any."""
        ranker = context.loaded.get("lexical_ranker")
        if not folder.is_dir() or not isinstance(ranker, LexicalRetriever):
            return None
        shared = ranker.ranker.vectorizer
        classifier = OneVsRest.load(folder, context.n_labels, vectorizer=shared)
        return cls(classifier, context.device, ranker)

    def save(self, folder: Path) -> None:
        """Write vocabulary and weights."""
        self.classifier.save(folder)

    def _scores(self, queries: Queries) -> Any:
        return queries.once(
            "one-vs-rest scores",
            lambda: product(
                self.classifier.transform(queries.texts, self.ranker.raw_terms(queries)),
                self._weights,
            ),
        )

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels with the highest positive score."""
        return _tensor(top_k_of_rows(self._scores(queries), k)[0], queries.vectors)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Decision values; 0 for labels added after training."""
        return _tensor(look_up(self._scores(queries), _rows(rows)), rows)


def _config(context: FitContext) -> OneVsRestConfig:
    """Return the settings of one-vs-rest classifiers, which a fold fits with fewer texts too."""
    config = OneVsRestConfig()
    return replace(config, min_texts=0) if context.requires("one_vs_rest") else config


def _rows(rows: torch.Tensor) -> Any:
    return rows.numpy() if rows.device.type == "cpu" else rows
