"""Keep one snapshot up to date with the store of changes. The only place that reads the store."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from umpteen.data.labels import join_texts
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking.added_labels import added_label_vectors
from umpteen.ranking.examples import Examples
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.snapshot import Snapshot
from umpteen.store import ChangeStore, StoreState


class SnapshotSource:
    """The current snapshot of a run.

    Args:
        trained: The snapshot without changes.
        encoder: Encodes added labels and corrections.
        label_vectors: Of the trained labels.
        vectorizer: Of the lexical scorers; None without them.
        store: The run's changes; None for a model without a run folder.
    """

    def __init__(
        self,
        trained: Snapshot,
        encoder: TextEncoder,
        label_vectors: LabelVectors,
        *,
        vectorizer: Vectorizer | None = None,
        store: ChangeStore | None = None,
    ) -> None:
        self.trained = trained
        self.store = store
        self._encoder = encoder
        self._label_vectors = label_vectors
        self._vectorizer = vectorizer
        self._lock = threading.Lock()
        self._latest: tuple[StoreState | None, Snapshot] = (None, trained)

    def current(self) -> Snapshot:
        """Return the snapshot of now; costs microseconds where nothing has changed."""
        if self.store is None:
            return self.trained
        state = self.store.state()
        seen, snapshot = self._latest
        if state is seen:
            return snapshot
        with self._lock:
            # Another thread may have come first, and the store may have changed again.
            state = self.store.state()
            seen, snapshot = self._latest
            if state is not seen:
                snapshot = self._with(state, seen, snapshot)
                self._latest = (state, snapshot)  # both at once: readers take no lock
            return snapshot

    def without_changes(self) -> SnapshotSource:
        """Return a source that always has the snapshot of the training."""
        return SnapshotSource(
            self.trained, self._encoder, self._label_vectors, vectorizer=self._vectorizer
        )

    def _with(self, state: StoreState, seen: StoreState | None, before: Snapshot) -> Snapshot:
        """Extend the last snapshot by what is new; start over where the history is another."""
        if seen is None or seen.store_id != state.store_id or seen.revision > state.revision:
            before = self.trained
        before = self._with_labels(before, state)
        examples = self._examples(before, state)
        return replace(
            before,
            labels=state.labels,
            allowed=state.allowed,
            examples=examples,
            revision=state.revision,
        )

    def _with_labels(self, before: Snapshot, state: StoreState) -> Snapshot:
        known = len(before.added_vectors)
        added = state.added
        if len(added) == known:
            return before
        titles, contents = added.texts[known:], added.contents[known:]
        texts = join_texts(titles, contents, self._encoder.reading.text)
        vectors = added_label_vectors(self._encoder.vectors(texts), self._label_vectors)
        terms = before.added_terms
        none = np.zeros(len(added), np.int64)
        return replace(
            before,
            added_vectors=before.added_vectors.extended(vectors),
            added_terms=None if terms is None else terms.extended(titles),
            label_counts=np.concatenate([self.trained.label_counts, none]),
        )

    def _examples(self, before: Snapshot, state: StoreState) -> Examples:
        examples = before.examples
        known, total = examples.n_corrections, len(state.examples)
        if known == total:
            return replace(examples, stored=state.examples)
        assert self.store is not None
        texts = self.store.example_texts(state.examples.digests[known:total])
        vectors, terms = self._encoder.vectors(texts), self._terms(texts)
        return examples.extended(state.examples, vectors, terms)

    def _terms(self, texts: Sequence[str]) -> sp.csr_matrix:
        if self._vectorizer is None:
            return sp.csr_matrix((len(texts), 0), dtype=np.float32)
        return self._vectorizer.transform(texts)
