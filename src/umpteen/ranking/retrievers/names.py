"""Retrieve labels by their names, with the vectors of the run that training started from.

Training on few texts makes the vectors of labels without texts worse. A run that starts from label
names (``umpteen start``) has vectors that no text has changed. A run that is trained from it keeps
them as one more scorer.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.data.tokens import prepare
from umpteen.index.growing import GrowingIndex
from umpteen.model.model import place_model
from umpteen.model.storage import load_model, load_vectors, save_model
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.added_names import AddedNames
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.snapshot import Snapshot

HEAD = "dual"
MODEL = "model"
"""Its folder among the files of the retriever."""


class Names(Retriever):
    """Search the vectors of label names that were there before training.

    Args:
        encoder: Of the run that training started from.
        vectors: (L, D) of the trained labels.
    """

    spec = RetrieverSpec("cosine", "names", reads_label_text=True)

    def __init__(self, encoder: TextEncoder, vectors: NDArray[np.float32]) -> None:
        self.encoder = encoder
        width = slice(0, vectors.shape[1])
        self.label_vectors = LabelVectors(vectors, {HEAD: width}, encoder.device)
        nothing = GrowingIndex(vectors.shape[1], encoder.device)
        which = encoder.text_config.text
        self._added = AddedNames(
            which, nothing, lambda index, names: index.extended(encoder.vectors(names))
        )

    @classmethod
    def of_model(
        cls, place: Path, labels: LabelSet, known: NDArray[np.int64], device: torch.device
    ) -> Self:
        """Build it from the model of a run that was not trained.

        Args:
            place: The model folder.
            labels: Of the run that is trained.
            known: (L,) row of each of these labels in the model, -1 for others, which are encoded.
            device: Where to encode and search.
        """
        encoder, stored = _read(place, device)
        vectors = np.zeros((len(labels), stored.shape[1]), np.float32)
        vectors[known >= 0] = stored[known[known >= 0]]
        new = np.flatnonzero(known < 0)
        if len(new):
            texts = labels.encoder_texts(encoder.text_config.text)
            own = encoder.vectors([texts[row] for row in new.tolist()])
            vectors[new] = own.cpu().numpy()
        return cls(encoder, vectors)

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Return the retriever of the run that training started from, where there is one."""
        return context.names if isinstance(context.names, cls) else None

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read encoder and vectors."""
        if not folder.is_dir():
            return None
        return cls(*_read(folder / MODEL, context.device))

    def save(self, folder: Path) -> None:
        """Write encoder and vectors."""
        own = self.encoder
        own.model.n_labels = len(self.label_vectors)  # the labels may be others by now
        vectors = self.label_vectors.numpy()
        save_model(folder / MODEL, own.model, own.tokenizer, own.text_config, vectors=vectors)

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels with the nearest names."""
        top = self.label_vectors.search(
            HEAD, self._vectors(queries), min(k, snapshot.n_labels), self._added.of(snapshot)
        )
        return torch.from_numpy(top.rows).to(queries.device)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Cosines of texts and names."""
        found = self.label_vectors.pair_scores(
            self._vectors(queries), rows, self._added.of(snapshot), (HEAD,)
        )
        return found[HEAD].to(queries.device)

    def _vectors(self, queries: Queries) -> torch.Tensor:
        """(B, D) of the texts."""
        return queries.once("vectors before training", lambda: self.encoder.vectors(queries.texts))


def _read(place: Path, device: torch.device) -> tuple[TextEncoder, NDArray[np.float32]]:
    model, tokenizer, config = load_model(place, mapped=True)
    vectors = np.asarray(load_vectors(place, model))
    tokenizer = prepare(tokenizer, config.max_tokens, owned=True)
    return TextEncoder(place_model(model, device, labels_on_host=True), tokenizer, config), vectors
