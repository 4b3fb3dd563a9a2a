"""Training queries a run remembers, with their labels, and how near ones vote. Encodes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.texts import Beginnings
from umpteen.errors import RunError
from umpteen.index.exact import ExactIndex
from umpteen.types import TopK

_TARGETS = ("targets_indices", "targets_indptr")
_WORDS = ("words_data", "words_indices", "words_indptr")


@dataclass(frozen=True)
class Memory:
    """M queries: their search vectors, their words, their labels."""

    vectors: NDArray[np.float32]
    """(M, heads * dim), memory-mapped where it was loaded."""
    targets: sp.csr_matrix
    """(M, L) ones."""
    digests: NDArray[np.uint64]
    """(M,) of their texts, to find a text again."""
    words: sp.csr_matrix
    """(M, V) word vectors; V is 0 where there is no lexical view."""
    texts: Beginnings | None = None
    """To be shown beside answers; None where they are not kept."""

    def __len__(self) -> int:
        return len(self.digests)

    @property
    def n_bytes(self) -> int:
        """What it takes on disk and, once searched, in memory."""
        sparse = [m.data.nbytes + m.indices.nbytes + m.indptr.nbytes for m in (self.words,)]
        own = self.targets.indices.nbytes + self.targets.indptr.nbytes
        shown = self.texts.n_bytes if self.texts is not None else 0
        return int(self.vectors.nbytes + self.digests.nbytes + own + sum(sparse) + shown)

    def save(self, folder: Path) -> None:
        """Write into a folder that exists."""
        arrays = {
            "vectors": np.asarray(self.vectors, np.float32),
            "digests": self.digests,
            "targets_indices": self.targets.indices,
            "targets_indptr": self.targets.indptr,
            "words_data": self.words.data.astype(np.float16),
            "words_indices": self.words.indices,
            "words_indptr": self.words.indptr,
        }
        for name, array in arrays.items():
            np.save(folder / f"{name}.npy", array, allow_pickle=False)
        if self.texts is not None:
            self.texts.save(folder)

    @classmethod
    def load(cls, folder: Path, *, n_labels: int, n_words: int, width: int) -> Memory:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n_labels: L.
            n_words: V.
            width: heads * dim.

        Returns:
            The memory; vectors stay on the disk until they are searched.

        Raises:
            RunError: If something is missing or does not fit.
        """

        def read(name: str) -> Any:
            return np.load(folder / f"{name}.npy", allow_pickle=False)

        try:
            # "c": torch wants writable memory; what it would write never reaches the file.
            vectors = np.load(folder / "vectors.npy", mmap_mode="c", allow_pickle=False)
            digests = read("digests")
            columns, offsets = (read(name) for name in _TARGETS)
            values, word_columns, word_offsets = (read(name) for name in _WORDS)
            n = len(digests)
            ones = np.ones(len(columns), np.float32)
            targets = sp.csr_matrix((ones, columns, offsets), shape=(n, n_labels))
            words = sp.csr_matrix(
                (values.astype(np.float32), word_columns, word_offsets), shape=(n, n_words)
            )
            targets.check_format(full_check=True)
            words.check_format(full_check=True)
        except (OSError, ValueError, TypeError, EOFError) as error:
            raise RunError(f"{folder} is damaged: {error}; fit it again") from error
        if vectors.shape != (n, width) or vectors.dtype != np.float32:
            raise RunError(
                f"{folder / 'vectors.npy'} has the shape {vectors.shape}, expected {(n, width)}; "
                "fit it again"
            )
        return cls(vectors, targets, digests, words, Beginnings.load(folder, n))


def digest_texts(texts: Sequence[str]) -> NDArray[np.uint64]:
    """(N,) eight bytes of each text's SHA-256."""
    sums = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8] for text in texts]
    return np.frombuffer(b"".join(sums), np.uint64).copy()


def ones_like(targets: sp.csr_matrix) -> sp.csr_matrix:
    """The same positives, all of relevance one."""
    return sp.csr_matrix(
        (np.ones(targets.nnz, np.float32), targets.indices, targets.indptr), shape=targets.shape
    )


def nearest_vectors(
    indexes: Sequence[ExactIndex],
    queries: torch.Tensor,
    k: int,
    hidden: NDArray[np.int64] | None = None,
) -> TopK:
    """The k nearest over several indexes whose rows follow one another.

    Args:
        indexes: The first one's rows come first.
        queries: (B, D).
        k: How many.
        hidden: Rows of the first index that must not be found.

    Returns:
        (B, k) rows and cosines; -1 and -inf where there are fewer.
    """
    rows, scores, start = [], [], 0
    for number, index in enumerate(indexes):
        allowed = None
        if number == 0 and hidden is not None and len(hidden):
            allowed = np.ones(index.n_labels, np.bool_)
            allowed[hidden] = False
        top = index.search(queries, k, allowed=allowed)
        rows.append(np.where(top.rows < 0, -1, top.rows + start))
        scores.append(top.scores)
        start += index.n_labels
    return _best_of(np.concatenate(rows, axis=1), np.concatenate(scores, axis=1), k)


def _best_of(rows: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> TopK:
    # Stable, and each part is in order: equal scores stay in the order of rows.
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return TopK(np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1))


def votes(
    near: TopK, targets: sp.csr_matrix, *, neighbours: int, temperature: float
) -> sp.csr_matrix:
    """(B, L) what near queries say: softmax of similarity over the nearest, times their labels.

    Args:
        near: Nearest first, at least ``neighbours`` of them where there are as many.
        targets: (M, L) labels of the remembered queries, ones.
        neighbours: How many vote.
        temperature: Similarities are divided by this.

    Returns:
        A label's sum of the shares of the neighbours that have it, in [0, 1].
    """
    rows, scores = near.rows[:, :neighbours], near.scores[:, :neighbours].astype(np.float64)
    there = rows >= 0
    best = np.where(there[:, :1], scores[:, :1], 0.0)
    powers = np.where(there, np.exp(np.where(there, scores - best, 0.0) / temperature), 0.0)
    shares = powers / np.maximum(powers.sum(axis=1, keepdims=True), 1e-30)
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    matrix = sp.csr_matrix(
        (shares[there].astype(np.float32), rows[there], offsets),
        shape=(len(rows), targets.shape[0]),
    )
    said = sp.csr_matrix(matrix @ targets)
    said.sort_indices()
    return said
