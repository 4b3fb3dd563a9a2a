"""The snapshot of a run without changes, as training left it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.index.base import VectorSearch
from umpteen.index.growing import GrowingIndex
from umpteen.ranking.examples import Examples
from umpteen.ranking.growing_rows import GrowingRows
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.added_labels import AddedTerms
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.storage import StoredEnsemble, exact_examples
from umpteen.store.state import Examples as StoredExamples


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
