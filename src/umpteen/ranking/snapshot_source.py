"""Keep one snapshot up to date with the store of changes, from the one that training left."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.errors import LabelMismatch
from umpteen.index.base import VectorSearch
from umpteen.index.growing import GrowingIndex
from umpteen.ranking.correction_cache import CorrectionCache
from umpteen.ranking.corrections import CorrectionWeights, fit_size, fitted_rows
from umpteen.ranking.encoded_changes import EncodedChanges, padded
from umpteen.ranking.examples import Examples
from umpteen.ranking.growing_rows import GrowingRows
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.added_labels import AddedTerms
from umpteen.ranking.ranker import EnsembleRanker
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.storage import StoredEnsemble, exact_examples
from umpteen.store import ChangeStore, StoreState
from umpteen.store.state import StoredExamples

logger = logging.getLogger(__name__)


FitCorrections = Callable[[Snapshot, int, list[str]], CorrectionWeights | None]
"""From a snapshot, a number of corrections and the texts to fit on, to the weights."""


class SnapshotSource:
    """The current snapshot of a run.

    Args:
        trained: Without changes.
        encoded: Encodes what is new.
        store: Of the changes; None for a run without.
        fit: Fits what corrections add to scores, when there are enough new ones.
    """

    def __init__(
        self,
        trained: Snapshot,
        encoded: EncodedChanges,
        *,
        store: ChangeStore | None = None,
        fit: FitCorrections | None = None,
    ) -> None:
        self.trained = trained
        self.store = store
        self._fit = fit
        self._fitted = 0
        self._encoded = encoded
        self._lock = threading.Lock()
        self._latest: tuple[StoreState | None, Snapshot] = (None, trained)

    def current(self, *, wait: bool = True) -> Snapshot:
        """Return the snapshot of now; costs microseconds where nothing has changed."""
        if self.store is None:
            return self.trained
        try:
            state = self.store.state()
        except LabelMismatch as error:
            if self._latest[0] is None:
                raise
            # Another run was put in its place; until it is loaded this one goes on as it was.
            logger.warning("%s; predicting with the changes read before", error)
            return self._latest[1]
        seen, snapshot = self._latest
        if state is seen:
            return snapshot
        if not wait and self._lock.locked():
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
        return SnapshotSource(self.trained, self._encoded)

    def _with(self, state: StoreState, seen: StoreState | None, before: Snapshot) -> Snapshot:
        """Extend the last snapshot by what is new; start over where the history is another."""
        if seen is None or seen.store_id != state.store_id or seen.revision > state.revision:
            before, self._fitted = self.trained, 0
        before = self._with_labels(before, state)
        examples = self._examples(before, state)
        snapshot = replace(
            before,
            labels=state.labels,
            allowed=state.allowed,
            examples=examples,
            revision=state.revision,
        )
        return self._with_weights(snapshot)

    def _with_weights(self, snapshot: Snapshot) -> Snapshot:
        """Fit the weights of corrections again where there are enough new ones."""
        n = fit_size(snapshot.examples.n_corrections)
        if self._fit is None or n <= self._fitted:
            return snapshot
        assert self.store is not None
        self._fitted = n
        digests = snapshot.examples.stored.digests
        texts = self.store.example_texts([digests[place] for place in fitted_rows(n).tolist()])
        return replace(snapshot, corrections=self._fit(snapshot, n, list(texts)))

    def _with_labels(self, before: Snapshot, state: StoreState) -> Snapshot:
        known = len(before.added_vectors)
        added = state.added
        if len(added) == known:
            return before
        encoded = self._encoded.labels(state, known)
        vectors = before.added_vectors.extended(encoded.vectors, prebuilt=encoded.index)
        terms = before.added_terms
        if terms is not None:
            terms = terms if encoded.terms is None else encoded.terms
            terms = terms.extended(added.texts[len(terms) :])

        def arrays() -> dict[str, NDArray]:
            own = {"vectors": vectors.vectors.cpu().numpy()}
            return own if terms is None else own | padded(terms.rows)

        self._encoded.save_later(
            state,
            "labels",
            arrays,
            len(added),
            at_start=not known,
            words=lambda: [] if terms is None else terms.words,
        )
        none = np.zeros(len(added), np.int64)
        return replace(
            before,
            added_vectors=vectors,
            added_terms=terms,
            label_counts=np.concatenate([self.trained.label_counts, none]),
        )

    def _examples(self, before: Snapshot, state: StoreState) -> Examples:
        examples = before.examples
        known, total = examples.n_corrections, len(state.examples)
        if known == total:
            return replace(examples, stored=state.examples)
        assert self.store is not None
        vectors, terms, prebuilt = self._encoded.examples(self.store, state, known)
        extended = examples.extended(state.examples, vectors, terms, prebuilt=prebuilt)

        def arrays() -> dict[str, NDArray]:
            own = {"vectors": extended.vectors.vectors.cpu().numpy()}
            return own | padded([block.rows for block in extended.terms.blocks])

        self._encoded.save_later(state, "examples", arrays, total, at_start=not known)
        return extended


def fit_with(
    ranker: EnsembleRanker,
    encode: Callable[[list[str]], torch.Tensor] | None,
    place: tuple[Path, str] | None = None,
) -> FitCorrections | None:
    """Return what fits the weights of corrections; None for an ensemble without votes.

    Args:
        ranker: Of the ensemble.
        encode: From texts to search vectors; None where the stored vectors are these.
        place: Where weights are kept between starts, and what identifies the model.
    """
    variant = ranker.model.variants[0]
    if "knn" not in variant.retrievers:
        return None
    cache = None if place is None else CorrectionCache(*place, variant)

    def fit(snapshot: Snapshot, n: int, texts: list[str]) -> CorrectionWeights | None:
        kept = None if cache is None else cache.load(snapshot, n)
        if kept is not None:
            return kept[0]
        # Solvers are imported when there are enough corrections.
        from umpteen.ranking.correction_fitting import fit_corrections

        stored = snapshot.examples.vectors.vectors[fitted_rows(n)[0] : n]
        vectors = stored if encode is None else encode(texts)
        found = fit_corrections(ranker, snapshot, n, texts, vectors)
        if cache is not None:
            cache.save(snapshot, n, found)
        return found

    return fit


def initial_snapshot(
    labels: LabelSet,
    label_counts: NDArray[np.int64],
    label_vectors: LabelVectors,
    stored: StoredEnsemble | None,
    *,
    normalize: bool,
) -> Snapshot:
    """Make the snapshot that changes are added to.

    Args:
        labels: The trained labels.
        label_counts: (L,) training texts of each label.
        label_vectors: Of the trained labels, on their device.
        stored: The ensemble with its examples, where one was fitted.
        normalize: Whether vectors must be scaled to length one before they are compared.

    Returns:
        Without added labels and corrections.
    """
    device, width = label_vectors.device, label_vectors.width
    vectorizer = None if stored is None else stored.vectorizer
    trained = None if stored is None else stored.examples
    index: VectorSearch | None = None if stored is None else stored.example_index
    if trained is not None and index is None:
        index = exact_examples(trained.vectors, device, normalize=normalize)
    examples = Examples(
        trained,
        index,
        StoredExamples.empty(),
        GrowingIndex(width, device),
        GrowingRows(0 if vectorizer is None else vectorizer.size),
        normalize=normalize,
    )
    return Snapshot(
        labels,
        len(labels),
        label_counts,
        None,
        GrowingIndex(width, device),
        None if vectorizer is None else AddedTerms(vectorizer),
        examples,
    )
