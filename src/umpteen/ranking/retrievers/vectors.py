"""Labels whose vectors are near the text's: the dual encoder and the classifier."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import torch

from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.snapshot import Snapshot


class VectorRetriever(Retriever):
    """Search the label vectors of one head; nothing to learn or to save."""

    head: ClassVar[str]

    def __init__(self, label_vectors: LabelVectors) -> None:
        self.label_vectors = label_vectors

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Return the retriever where the model has the head."""
        vectors = context.label_vectors
        return cls(vectors) if cls.head in vectors.columns else None

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Return the retriever where the model has the head."""
        vectors = context.label_vectors
        return cls(vectors) if cls.head in vectors.columns else None

    def save(self, folder: Path) -> None:
        """Write nothing: the vectors are in the model folder."""

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels with the highest score by this head."""
        top = self.label_vectors.search(
            self.head, queries.vectors, min(k, snapshot.n_labels), snapshot.added_vectors
        )
        return torch.from_numpy(top.rows).to(queries.vectors.device)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Inner products of text and label vectors."""
        added = snapshot.added_vectors
        return self.label_vectors.pair_scores(queries.vectors, rows, added, (self.head,))[self.head]


class Dual(VectorRetriever):
    """Labels whose text is near, by the dual encoder."""

    spec = RetrieverSpec("cosine", "dual", reads_label_text=True)
    head = "dual"


class Classifier(VectorRetriever):
    """Labels whose classifier vector is near."""

    spec = RetrieverSpec("cosine", "classifier", needs_training=True)
    head = "classifier"
