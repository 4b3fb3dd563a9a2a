"""The memory of a run as it is now: what training left, and what was added since in a journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.lexical import nearest_texts
from umpteen.answers.memory import Memory, digest_texts, nearest_vectors
from umpteen.answers.texts import shorten
from umpteen.answers.words import Words
from umpteen.data.dataset import targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, RunError
from umpteen.index.exact import ExactIndex
from umpteen.journal import Journal
from umpteen.types import TopK

PAIRS_PER_RECORD = 256


@dataclass(frozen=True)
class Additions:
    """Texts added since training; never changed, so that a search sees one moment only."""

    texts: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    """Ids of each text's labels."""
    vectors: torch.Tensor | None = None
    words: sp.csr_matrix | None = None
    hidden: NDArray[np.int64] | None = None
    """Rows of the memory whose text was added again: the newer word counts."""


class Remembered:
    """Near training queries and their labels; pairs can be added, and count from then on.

    A pair is on the disk when ``add`` returns, and is seen by every process at its next search. A
    text that is added again replaces what was remembered of it. Threads may share it.

    Args:
        memory: What training left.
        words: The vocabulary of its word vectors.
        labels: Called for the labels of now.
        encode: From texts to (A, heads * dim) search vectors.
        journal: Where additions are kept; None to have none.
        device: Where vectors are searched.
        normalize: Whether vectors must be brought to length one before they are compared, because
            the model leaves theirs to them: a long one would be near to everything.
    """

    def __init__(
        self,
        memory: Memory,
        words: Words | None,
        labels: Callable[[], LabelSet],
        encode: Callable[[Sequence[str]], torch.Tensor],
        *,
        journal: Journal | None = None,
        device: torch.device | str = "cpu",
        normalize: bool = False,
    ) -> None:
        self.memory = memory
        self.normalize = normalize
        self.words = words
        self._labels = labels
        self._encode = encode
        self._journal = journal
        self._device = device
        self._index: ExactIndex | None = None
        self._turned: tuple[Additions, sp.csr_matrix] | None = None
        self._grown: tuple[list[list[int]], sp.csr_matrix] | None = None
        self._lock = threading.RLock()
        self._now = Additions()
        self.refresh()

    def __len__(self) -> int:
        return len(self.memory) + len(self._now.texts)

    def refresh(self) -> Additions:
        """The additions of now; costs a look at one file where nothing has changed."""
        if self._journal is None:
            return self._now
        with self._lock:
            tail = self._journal.follow()
            if tail.anew:
                self._now = Additions()
            self._take_in(tail.records)
            return self._now

    def check(self, texts: Sequence[str], labels: Sequence[Sequence[str]]) -> None:
        """Raise as ``add`` would, and change nothing."""
        _checked(texts, labels, self._labels().rows)

    def add(self, texts: Sequence[str], labels: Sequence[Sequence[str]]) -> int:
        """Remember texts with their labels.

        Args:
            texts: The texts.
            labels: Ids of each one's labels, at least one.

        Returns:
            How many pairs were written.

        Raises:
            DataError: If a text is empty, has no label, or a label is not known; nothing is added.
            RunError: If this memory cannot be added to.
            NotWritten: If it could not be put on the disk.
        """
        if self._journal is None:
            raise RunError("only the memory of a run folder can be added to; load the run")
        pairs = _checked(texts, labels, self._labels().rows)
        with self._lock, self._journal.changing() as tail:
            if tail.anew:
                self._now = Additions()
            self._take_in(tail.records)
            for start in range(0, len(pairs), PAIRS_PER_RECORD):
                record = {"pairs": pairs[start : start + PAIRS_PER_RECORD]}
                self._journal.append(record)
                self._take_in([record])
        return len(pairs)

    def targets(self, rows: dict[str, int], n_labels: int, now: Additions) -> sp.csr_matrix:
        """(M + A, L) labels of all that is remembered.

        Args:
            rows: Label id to row, of the labels of now.
            n_labels: How many there are.
            now: The additions.

        Returns:
            Ones.
        """
        trained = self.memory.targets
        trained = sp.csr_matrix(
            (trained.data, trained.indices, trained.indptr), shape=(len(self.memory), n_labels)
        )
        if not now.texts:
            return trained
        own = [[rows[label] for label in ids if label in rows] for ids in now.labels]
        grown = self._grown
        if grown is None or grown[0] != own or grown[1].shape[1] != n_labels:
            added = targets_from_rows(own, n_labels)
            grown = self._grown = (own, sp.vstack([trained, added], format="csr"))
        return grown[1]

    def nearest(self, vectors: torch.Tensor, k: int, now: Additions) -> TopK:
        """The k nearest of all that is remembered, by the sum of the heads' cosines."""
        if self._index is None:
            stored = torch.from_numpy(self.memory.vectors).to(self._device)
            self._index = ExactIndex(self._comparable(stored))
        indexes = [self._index]
        if now.vectors is not None:
            indexes.append(ExactIndex(self._comparable(now.vectors.to(self._device))))
        return nearest_vectors(indexes, self._comparable(vectors), k, now.hidden)

    def _comparable(self, vectors: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    def nearest_by_words(self, vectors: sp.csr_matrix, k: int, now: Additions) -> TopK:
        """The k nearest of all that is remembered, by cosine of word vectors."""
        turned = self._turned
        if turned is None or turned[0] is not now:
            turned = (now, self._words_now(now).T.tocsr())
            self._turned = turned
        return nearest_texts(vectors, turned[1], k)

    def text(self, row: int, now: Additions) -> str | None:
        """The beginning of a remembered text; None where training texts are not kept."""
        n = len(self.memory)
        if row >= n:
            return shorten(now.texts[row - n])
        return None if self.memory.texts is None else self.memory.texts[row]

    def _words_now(self, now: Additions) -> sp.csr_matrix:
        stored = self.memory.words
        if now.hidden is not None and len(now.hidden):
            kept = np.ones(len(self.memory), np.float32)
            kept[now.hidden] = 0.0
            stored = sp.csr_matrix(sp.diags(kept) @ stored)
        return stored if now.words is None else sp.vstack([stored, now.words], format="csr")

    def said_of(self, texts: Sequence[str], now: Additions) -> tuple[Any, Any]:
        """Which of the texts were added word for word: their positions, and their labels' ids."""
        if not now.texts:
            return [], []
        newest = dict(zip(now.texts, now.labels, strict=True))
        places = [place for place, text in enumerate(texts) if text in newest]
        return places, [newest[texts[place]] for place in places]

    def _take_in(self, records: Sequence[dict[str, Any]]) -> None:
        pairs = {}
        for record in records:
            pairs.update({pair["text"]: tuple(pair["labels"]) for pair in record["pairs"]})
        if not pairs:
            return
        now = self._now
        texts = tuple(pairs)
        kept = [place for place, text in enumerate(now.texts) if text not in pairs]
        vectors = self._encode(texts)
        if now.vectors is not None:
            vectors = torch.cat([now.vectors[kept], vectors])
        words = None
        if self.words is not None:
            words = self.words.vectors(texts)
            if now.words is not None:
                words = sp.vstack([now.words[kept], words], format="csr")
        all_texts = (*(now.texts[place] for place in kept), *texts)
        hidden = np.flatnonzero(np.isin(self.memory.digests, digest_texts(all_texts)))
        labels = (*(now.labels[place] for place in kept), *pairs.values())
        self._now = Additions(all_texts, labels, vectors, words, hidden)


def _checked(
    texts: Sequence[str], labels: Sequence[Sequence[str]], known: Any
) -> list[dict[str, Any]]:
    if len(texts) != len(labels):
        raise DataError(f"{len(texts)} texts but labels for {len(labels)}; there must be as many")
    pairs = []
    for place, (text, own) in enumerate(zip(texts, labels, strict=True), 1):
        ids = [str(label) for label in own] if not isinstance(own, str) else []
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"pair {place} has no text; give a text with its labels")
        if not ids:
            raise DataError(f"pair {place} has no list of labels; give at least one label id")
        unknown = [label for label in ids if label not in known]
        if unknown:
            raise DataError(
                f"pair {place}: no label has the id {unknown[0]!r}; add it first with "
                "umpteen labels add"
            )
        pairs.append({"text": text, "labels": list(dict.fromkeys(ids))})
    return pairs
