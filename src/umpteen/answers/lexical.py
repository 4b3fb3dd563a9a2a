"""Labels by exact words: sparse linear scorers of labels. How they are learned lives elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.words import Words
from umpteen.errors import RunError
from umpteen.index.topk import KeyedTop, RunningTop
from umpteen.types import TopK

BLOCK_BYTES = 64 << 20
SCALE = 20.0
"""Length of a label's first weights; word vectors have length one."""
MARGIN_WORDS = 200
"""Features of a text that margins read, the heaviest."""


@dataclass(frozen=True)
class Lexical:
    """Scores of all labels from a text's words: ``words.vectors(texts) @ weights``.

    Sparse on both sides: a query costs as many additions as its words have labels.
    """

    words: Words
    weights: sp.csr_matrix
    """(V, L)."""
    margins: sp.csr_matrix | None = None
    """(V, L) what sets a label's queries apart from all others, where that was learned."""
    _added: dict[tuple[str, ...], tuple[Words, sp.csr_matrix]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Vocabulary and word vectors (V, A) of the added labels of the last search."""

    @property
    def n_labels(self) -> int:
        """L."""
        return int(self.weights.shape[1])

    def scores(self, vectors: sp.csr_matrix) -> NDArray[np.float32]:
        """(B, L) dense scores of a block of queries, from their ``words.vectors``."""
        return (vectors @ self.weights).toarray()

    def scores_of_added(
        self, texts: Sequence[str], vectors: sp.csr_matrix, added_texts: Sequence[str]
    ) -> NDArray[np.float32]:
        """(B, A) dense scores of labels that have no weights.

        They get what every label starts training with, the words of its text at the length
        ``SCALE``. Words that training has not seen count too: a new label is often a new word.

        Args:
            texts: The queries.
            vectors: (B, V) from ``words.vectors``.
            added_texts: The labels' texts.

        Returns:
            ``SCALE`` times the cosine of query and label.
        """
        if not added_texts:
            return np.zeros((vectors.shape[0], 0), np.float32)
        words, turned = self._words_of(tuple(added_texts))
        if words is not self.words:
            vectors = words.vectors(texts)
        return np.float32(SCALE) * (vectors @ turned).toarray()

    def margin_scores(self, weighted: sp.csr_matrix) -> NDArray[np.float32]:
        """(B, L) dense margins of a block of queries, from their ``words.weighted``.

        0 where no word speaks for a label, 2 where they do as they should for its own queries.
        """
        assert self.margins is not None
        return (self.words.cut(weighted, MARGIN_WORDS) @ self.margins).toarray()

    def _words_of(self, texts: tuple[str, ...]) -> tuple[Words, sp.csr_matrix]:
        found = self._added.get(texts)
        if found is None:
            words = self.words.grown(texts)
            found = words, words.vectors(texts).T.tocsr()
            self._added.clear()
            self._added[texts] = found
        return found

    def save(self, folder: Path) -> None:
        """Write into a folder that exists; weights in half precision."""
        self.words.save(folder)
        _write(self.weights, folder)
        if self.margins is not None:
            (folder / "margins").mkdir()
            _write(self.margins, folder / "margins")

    @classmethod
    def load(cls, folder: Path, n_labels: int) -> Lexical:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n_labels: How many labels there must be.

        Returns:
            The scorer.

        Raises:
            RunError: If something is missing or does not fit.
        """
        words = Words.load(folder)
        shape = (words.size, n_labels)
        margins = None
        if (folder / "margins").is_dir():
            margins = _read(folder / "margins", shape)
        return cls(words, _read(folder, shape), margins)


def _write(weights: sp.csr_matrix, folder: Path) -> None:
    np.save(folder / "weights.npy", weights.data.astype(np.float16), allow_pickle=False)
    for name in ("indices", "indptr"):
        np.save(folder / f"{name}.npy", getattr(weights, name), allow_pickle=False)


def _read(folder: Path, shape: tuple[int, int]) -> sp.csr_matrix:
    try:
        data, indices, indptr = (
            np.load(folder / f"{name}.npy", allow_pickle=False)
            for name in ("weights", "indices", "indptr")
        )
        weights = sp.csr_matrix((data.astype(np.float32), indices, indptr), shape=shape)
        weights.check_format(full_check=True)
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise RunError(f"{folder} is damaged: {error}; fit it again") from error
    return weights


def dense_blocks(
    left: sp.csr_matrix, right: sp.csr_matrix, *, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """``(left @ right).toarray()``, some rows at a time."""
    step = max(1, block_bytes // (4 * max(1, right.shape[1])))
    for start in range(0, left.shape[0], step):
        rows = slice(start, min(left.shape[0], start + step))
        yield rows, (left[rows] @ right).toarray()


def best_columns(scores: NDArray[np.float32], k: int) -> TopK:
    """The k best positive scores of each row; equal ones by the smaller column.

    Args:
        scores: (B, L) dense.
        k: How many.

    Returns:
        (B, k) columns and scores; -1 and -inf where fewer are above 0.
    """
    positive = torch.from_numpy(np.where(scores > 0, scores, np.float32(-np.inf)))
    keep = min(k, scores.shape[1])
    rows = np.full((len(scores), k), -1, np.int64)
    best = np.full((len(scores), k), -np.inf, np.float32)
    top = RunningTop(len(scores), keep, positive.device)
    top.add(positive, 0)
    rows[:, :keep], best[:, :keep] = top.rows.numpy(), top.scores.numpy()
    again = np.flatnonzero(top.unsure().numpy())
    if len(again):
        keyed = KeyedTop(len(again), keep, positive.device)
        keyed.add(positive[again], 0)
        rows[again, :keep], best[again, :keep] = keyed.rows.numpy(), keyed.scores.numpy()
    rows[np.isneginf(best)] = -1
    return TopK(rows, best)


def nearest_texts(vectors: sp.csr_matrix, turned: sp.csr_matrix, k: int) -> TopK:
    """For each row its k nearest other texts, by cosine of word vectors.

    Args:
        vectors: (B, V).
        turned: (V, M) word vectors of the others, one in each column.
        k: How many.

    Returns:
        Texts without a common word are not found.
    """
    tops = [best_columns(block, k) for _, block in dense_blocks(vectors, turned)]
    if not tops:
        return TopK(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32))
    return TopK(np.concatenate([t.rows for t in tops]), np.concatenate([t.scores for t in tops]))
