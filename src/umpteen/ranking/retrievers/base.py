"""The interface of retrievers: propose labels for texts, and score chosen pairs."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.held_out import LabelledTexts
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.snapshot import Snapshot


@dataclass
class FitContext:
    """What a retriever may learn from: the training texts, without those held out."""

    texts: Sequence[str]
    targets: sp.csr_matrix
    """(N, L) ones."""
    label_texts: Sequence[str]
    filters: NDArray[np.int64] | None
    """(M, 2) pairs (text, label) that count neither way."""
    label_vectors: LabelVectors
    device: torch.device
    seconds: float
    """How long all retrievers together may take to learn."""
    seed: int
    log: Callable[[str], None]
    stores_examples: bool = True
    """Whether training texts are stored, so that near ones can vote."""
    lexical: bool = True
    """Whether lexical scorers are wanted."""
    terms: sp.csr_matrix | None = None
    """(N, V) tf-idf rows of the texts, set by the retriever that makes them."""
    raw_terms: sp.csr_matrix | None = None
    """The same, neither cut nor scaled to length one."""
    ranker_seconds: float = 0.0
    """How long the lexical ranker took to learn."""
    fitted: dict[str, Retriever] = field(default_factory=dict)
    """The retrievers before this one in ``RETRIEVERS``, by name."""
    names: Retriever | None = None
    """Scores label names as the run did that training started from; None without such a run."""
    held_out: LabelledTexts | None = None
    """Texts that nothing is learned from, on which retrievers may choose how they learn."""
    until: float = math.inf
    """When they must be done, in ``time.monotonic``."""
    wanted: frozenset[str] | None = None
    """The retrievers of a run, for the model of one of its folds: these and no others, although a
    fold has fewer texts. None where each retriever decides."""

    def requires(self, name: str) -> bool:
        """Return whether a retriever is fitted whether it suits the texts or not."""
        return self.wanted is not None and name in self.wanted

    def time_for(self, share: float) -> float:
        """Return the seconds that a part with this share of the time may take."""
        return max(0.0, min(share * self.seconds, self.until - time.monotonic()))


@dataclass
class LoadContext:
    """What a retriever needs beside its own files."""

    label_vectors: LabelVectors
    n_labels: int
    device: torch.device
    stores_examples: bool
    loaded: dict[str, Retriever] = field(default_factory=dict)
    """The retrievers before this one in ``RETRIEVERS``, by name."""


class Retriever(ABC):
    """Proposes labels for texts and scores chosen pairs of text and label.

    Everything that can change (labels, examples) is read from the snapshot that is passed in.
    Laws, checked for every row of ``RETRIEVERS``: rows are below ``snapshot.n_labels`` or -1; a
    batch gives the same as its texts one by one; the order of candidates does not matter; a
    proposed label has the score that ``score`` returns for it.
    """

    spec: ClassVar[RetrieverSpec]
    """How its scores enter the ensemble."""

    @classmethod
    @abstractmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Learn from training texts; None where this retriever does not suit the data."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read what ``save`` wrote; None where the retriever was not fitted."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write into an existing empty folder."""

    @abstractmethod
    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose labels.

        Args:
            queries: B texts.
            snapshot: Labels and examples of this request.
            k: How many labels to propose for each text.

        Returns:
            (B, k) int64 label rows, -1 for none. Retired labels may be among them: the caller
            removes what the request does not allow.
        """

    @abstractmethod
    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Score chosen labels.

        Args:
            queries: B texts.
            rows: (B, K) label rows, -1 for padding.
            snapshot: As in ``retrieve``.

        Returns:
            (B, K) float32; values at padding places are ignored.
        """
