"""Vectors and terms of labels and examples that were added after training, cached in the run."""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.data.labels import join_texts
from umpteen.extras import installed
from umpteen.index.base import LabelIndex
from umpteen.index.growing import APPROXIMATE_ROWS, index_of_block
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking.added_labels import added_label_vectors
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.added_labels import AddedTerms
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.store import ChangeStore, StoreState
from umpteen.store.vector_cache import Cached, Kind, VectorCache, content_digest, is_save_due

MIN_CACHED = 1024
"""Fewer labels or examples are encoded again at every start."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedLabels:
    """Added labels, encoded."""

    vectors: torch.Tensor
    """(A, heads * dim)."""
    index: LabelIndex | None = None
    """Of the first vectors, where one is cached."""
    terms: AddedTerms | None = None
    """Of the first labels, where they are cached."""


class EncodedChanges:
    """Encode what is added to a run; a restart reads most of it from ``RUN/cache``.

    Args:
        encoder: Of texts.
        label_vectors: Of the trained labels.
        vectorizer: Of the lexical scorers; None without them.
        cache: Where arrays are kept between starts; None to keep nothing.
        model: Identifies everything that the arrays depend on.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        label_vectors: LabelVectors,
        vectorizer: Vectorizer | None,
        *,
        cache: VectorCache | None = None,
        model: str = "",
    ) -> None:
        self.vectorizer = vectorizer
        self._encoder = encoder
        self._label_vectors = label_vectors
        self._cache = cache
        self._model = model
        self._cached: dict[Kind, int] = {"labels": 0, "examples": 0}

    def labels(self, state: StoreState, start: int) -> EncodedLabels:
        """Encode the added labels from a position on."""
        shapes = {"vectors": (self._label_vectors.width,)}
        stored = self._load(state, "labels", start, shapes)
        done = start if stored is None else stored.n
        added = state.added
        parts = [] if stored is None else [self._tensor(stored.arrays["vectors"])]
        if done < len(added):
            titles, contents = added.texts[done:], added.contents[done:]
            texts = join_texts(titles, contents, self._encoder.text_config.text)
            parts.append(added_label_vectors(self._encoder.vectors(texts), self._label_vectors))
        if stored is None:
            return EncodedLabels(_joined(parts))
        terms = None
        if self.vectorizer is not None and "columns" in stored.arrays:
            rows = from_padded(stored.arrays, self._n_terms + len(stored.words))
            terms = AddedTerms.restored(self.vectorizer, stored.words, rows)
        return EncodedLabels(_joined(parts), self._load_index(state, "labels", done), terms)

    def examples(
        self, store: ChangeStore, state: StoreState, start: int
    ) -> tuple[torch.Tensor, sp.csr_matrix, LabelIndex | None]:
        """Encode the stored examples from a position on.

        Returns:
            Vectors, tf-idf rows, and the index of the first vectors where one is cached.
        """
        width, n_terms = self._label_vectors.width, self._n_terms
        stored = self._load(state, "examples", start, {"vectors": (width,)})
        done = start if stored is None else stored.n
        vectors = [] if stored is None else [self._tensor(stored.arrays["vectors"])]
        terms = [] if stored is None else [from_padded(stored.arrays, n_terms)]
        if done < len(state.examples):
            texts = store.example_texts(state.examples.digests[done:])
            vectors.append(self._encoder.vectors(texts))
            terms.append(self._terms(texts))
        index = None if stored is None else self._load_index(state, "examples", done)
        rows = terms[0] if len(terms) == 1 else sp.vstack(terms, format="csr")
        return _joined(vectors), rows, index

    def save_later(
        self,
        state: StoreState,
        kind: Kind,
        arrays: Callable[[], Mapping[str, NDArray]],
        n: int,
        *,
        at_start: bool,
        words: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """Write arrays and their index in the background where enough is new.

        Args:
            state: What the arrays belong to.
            kind: ``labels`` or ``examples``.
            arrays: Returns them; called on the other thread.
            n: How many rows they have.
            at_start: Whether the run was just loaded: what had to be encoded then is saved.
            words: Returns the terms that the arrays refer to.
        """
        cache, known = self._cache, self._cached[kind]
        due = n - known >= MIN_CACHED if at_start else is_save_due(known, n)
        if cache is None or n < MIN_CACHED or not due:
            return
        self._cached[kind] = n
        # No daemon: one that is ended in the middle of faiss's code aborts the process.
        threading.Thread(target=lambda: self._save(cache, state, kind, arrays, n, words)).start()

    def _save(
        self,
        cache: VectorCache,
        state: StoreState,
        kind: Kind,
        arrays: Callable[[], Mapping[str, NDArray]],
        n: int,
        words: Callable[[], Sequence[str]],
    ) -> None:
        made = arrays()
        if not cache.save(state, kind, self._model, made, words()) or n < APPROXIMATE_ROWS:
            return
        place = self._index_folder(cache, state, kind, n)
        try:  # a cache: built again where it is missing
            index_of_block(torch.from_numpy(made["vectors"])).save(place)
            for other in cache.folder.glob(f"{kind}-*.index"):
                if other != place:
                    shutil.rmtree(other, ignore_errors=True)
        except Exception as error:
            logger.warning("The index of %s in %s cannot be written: %s", kind, place, error)

    def _load_index(self, state: StoreState, kind: Kind, n: int) -> LabelIndex | None:
        if self._cache is None or self._encoder.device.type != "cpu" or not installed("faiss"):
            return None
        place = self._index_folder(self._cache, state, kind, n)
        if not place.is_dir():
            if n >= APPROXIMATE_ROWS:
                self._cached[kind] = 0  # to be saved again, with its index
            return None
        from umpteen.index.faiss_index import FaissIndex

        try:  # damaged: built again
            found = FaissIndex.load(place)
        except Exception as error:
            logger.warning("The index in %s is built again: %s", place, error)
            self._cached[kind] = 0
            return None
        return found if (found.n_labels, found.dim) == (n, self._label_vectors.width) else None

    def _index_folder(self, cache: VectorCache, state: StoreState, kind: Kind, n: int) -> Path:
        content = f"{self._model} {content_digest(state, kind, n)}"
        name = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return cache.folder / f"{kind}-{name}.index"

    @property
    def _n_terms(self) -> int:
        return 0 if self.vectorizer is None else self.vectorizer.size

    def _terms(self, texts: Sequence[str]) -> sp.csr_matrix:
        if self.vectorizer is None:
            return sp.csr_matrix((len(texts), 0), dtype=np.float32)
        return self.vectorizer.transform(texts)

    def _load(
        self, state: StoreState, kind: Kind, start: int, shapes: Mapping[str, tuple[int, ...]]
    ) -> Cached | None:
        if start or self._cache is None:
            return None
        found = self._cache.load(state, kind, self._model)
        if found is None or any(found.arrays[n].shape[1:] != shapes[n] for n in shapes):
            return None
        self._cached[kind] = found.n
        return found

    def _tensor(self, vectors: NDArray) -> torch.Tensor:
        return torch.from_numpy(vectors).to(self._encoder.device)


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def padded(rows: Sequence[sp.csr_matrix]) -> dict[str, NDArray]:
    """Lay sparse rows out as rectangles: columns (N, T), -1 for none, and values (N, T)."""
    width = max(block.shape[1] for block in rows)
    wide = [sp.csr_matrix((b.data, b.indices, b.indptr), (b.shape[0], width)) for b in rows]
    matrix = sp.csr_matrix(sp.vstack(wide, format="csr"))
    counts = np.diff(matrix.indptr)
    width = int(counts.max(initial=0))
    filled = np.arange(width) < counts[:, None]
    columns = np.full(filled.shape, -1, np.int32)
    values = np.zeros(filled.shape, np.float32)
    columns[filled], values[filled] = matrix.indices, matrix.data
    return {"columns": columns, "values": values}


def from_padded(arrays: Mapping[str, NDArray], n_columns: int) -> sp.csr_matrix:
    """Return the sparse rows of ``padded``."""
    filled = arrays["columns"] >= 0
    offsets = np.concatenate([[0], np.cumsum(filled.sum(axis=1))])
    parts = (arrays["values"][filled], arrays["columns"][filled], offsets)
    return sp.csr_matrix(parts, shape=(len(filled), n_columns))
