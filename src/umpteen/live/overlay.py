"""What a predictor answers by: the trained labels with the changes of its run laid over them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet, join_texts
from umpteen.index.base import LabelIndex
from umpteen.live.book import LabelBook
from umpteen.live.changes import LabelChanges, NewLabel
from umpteen.live.labels import grown
from umpteen.live.search import search_grown
from umpteen.types import TopK


@dataclass(frozen=True)
class LabelState:
    """The labels at one moment; never changed, so that a search sees one moment only."""

    labels: LabelSet
    allowed: NDArray[np.bool_] | None
    """(L + A,) False for retired labels; None while there are none."""
    vectors: torch.Tensor
    """(A, heads * dim) search vectors of the added labels."""
    generation: int
    """Of the book it was made from."""

    def search(
        self,
        index: LabelIndex,
        columns: slice,
        queries: torch.Tensor,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """The k best labels of now.

        Args:
            index: Over the trained labels.
            columns: Of the vectors that this index is about.
            queries: (B, D).
            k: How many.
            exclude: (M, 2) pairs that must not be returned.
            allowed: (L + A,) False for labels that must not be returned, besides retired ones.

        Returns:
            (B, k), none of them retired.
        """
        if self.allowed is not None:
            allowed = self.allowed if allowed is None else self.allowed & allowed
        added = self.vectors[:, columns]
        top = search_grown(index, added, queries, k, exclude=exclude, allowed=allowed)
        return TopK(top.rows, top.scores, self.labels)


class LiveLabels:
    """Labels that can be added, retired and restored while a predictor answers.

    An added label is encoded from its text; for the classifier vector it was never trained on
    stands the mean of its nearest labels' (``stand_in.py``). A label is in force in the next search
    of every predictor of this run, in whichever process. Threads may share it.

    Args:
        book: Where changes are kept.
        encode: From texts to (A, heads * dim) search vectors of labels.
        width: heads * dim.
        reads: ``title`` or ``all``, what the model reads of a label.
    """

    def __init__(
        self,
        book: LabelBook,
        encode: Callable[[Sequence[str]], torch.Tensor],
        *,
        width: int,
        reads: str,
    ) -> None:
        self.book = book
        self._width = width
        self._encode = encode
        self._reads = reads
        self._lock = threading.Lock()
        self._state: LabelState | None = None
        self._encoded: list[NewLabel] = []
        self._of: LabelChanges | None = None

    @property
    def labels(self) -> LabelSet:
        """The labels of now, retired ones among them; rows of the trained ones are as ever."""
        return self.refresh().labels

    def refresh(self) -> LabelState:
        """The labels of now; costs a look at one file where nothing has changed."""
        self.book.refresh()
        state = self._state
        if state is not None and state.generation == self.book.generation:
            return state
        return self._renew()

    def add(self, labels: Sequence[NewLabel]) -> int:
        """See ``LabelBook.add``; the labels are encoded before it returns."""
        count = self.book.add(labels)
        self._renew()
        return count

    def retire(self, ids: Sequence[str]) -> int:
        """See ``LabelBook.retire``."""
        count = self.book.retire(ids)
        self._renew()
        return count

    def restore(self, ids: Sequence[str]) -> int:
        """See ``LabelBook.restore``."""
        count = self.book.restore(ids)
        self._renew()
        return count

    def _renew(self) -> LabelState:
        with self._lock:
            with self.book.lock:
                changes, generation = self.book.changes, self.book.generation
                labels, added = grown(changes), list(changes.added)
                retired = [changes.row(i) for i in changes.retired if i in changes]
            vectors = self._vectors(added, anew=changes is not self._of)
            allowed = None
            if retired:
                allowed = np.ones(len(labels), np.bool_)
                allowed[retired] = False
            self._encoded, self._of = added, changes
            self._state = LabelState(labels, allowed, vectors, generation)
            return self._state

    def _vectors(self, added: Sequence[NewLabel], *, anew: bool) -> torch.Tensor:
        """(A, heads * dim) of all added labels; those known already are not encoded again."""
        known = len(self._encoded)
        if anew:  # the same labels as before, unless another file was put in the journal's place
            pairs = zip(self._encoded, added, strict=False)
            known = next((n for n, (old, new) in enumerate(pairs) if old != new), known)
            known = min(known, len(added))
        old = torch.empty(0, self._width) if self._state is None else self._state.vectors[:known]
        new = added[known:]
        if not new:
            return old
        contents = [label.content for label in new]
        texts = join_texts([label.text for label in new], contents, self._reads)
        vectors = self._encode(texts)
        return torch.cat([old, vectors]) if known else vectors
