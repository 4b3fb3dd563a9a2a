"""Labels of near examples: by search vectors, and by tf-idf terms."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import scipy.sparse as sp
import torch

from umpteen.ranking.ensemble_model import KnnConfig
from umpteen.ranking.lexical.device_topk import DeviceScores
from umpteen.ranking.lexical.matrices import CsrArrays
from umpteen.ranking.lexical.sparse_topk import look_up, top_k_of_rows
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.snapshot import Snapshot
from umpteen.types import TopK


class VotingRetriever(Retriever):
    """Sum the votes of near examples."""

    name: str

    def __init__(self, config: KnnConfig = KnnConfig()) -> None:  # noqa: B008 - frozen
        self.config = config

    def save(self, folder: Path) -> None:
        """Write nothing: examples are stored once, and the settings with the ensemble."""

    @abstractmethod
    def nearest(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK:
        """Find the k nearest examples of each text."""

    @abstractmethod
    def nearest_corrections(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK:
        """Find the k nearest corrections of each text."""

    def corrections_once(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK | None:
        """Find the nearest corrections, once for a request; None where there are none."""
        if not snapshot.examples.n_corrections:
            return None
        return queries.once(
            ("corrections", self.name, k),
            lambda: self.nearest_corrections(queries, snapshot, k),
            snapshot=snapshot,
        )

    def correction_votes(
        self, queries: Queries, snapshot: Snapshot, rows: torch.Tensor, config: KnnConfig
    ) -> torch.Tensor:
        """Return the (B, K) votes of the nearest corrections alone.

        Args:
            queries: B texts.
            snapshot: Of the request.
            rows: (B, K) labels, ascending; -1 for padding behind them.
            config: How they vote; with no more neighbours than the retriever has.
        """
        near = self.corrections_once(queries, snapshot, self.config.neighbours)
        if near is None:
            return torch.zeros(rows.shape, device=rows.device)
        examples, labels = snapshot.examples, rows.cpu().numpy()
        if len(labels) == 1 and labels[0, -1] >= 0:
            found = examples.votes_of_corrections(near, labels[0], **vars(config))[None]
        else:
            found = look_up(examples.votes(near, snapshot.n_labels, **vars(config)), labels)
        return torch.from_numpy(found).to(rows.device)

    def nearest_once(self, queries: Queries, snapshot: Snapshot) -> TopK:
        """Find the neighbours that vote; computed once for a request."""
        k = self.config.neighbours
        return queries.once(
            ("neighbours", self.name, k),
            lambda: self.nearest(queries, snapshot, k),
            snapshot=snapshot,
        )

    def votes(
        self, queries: Queries, snapshot: Snapshot
    ) -> sp.csr_matrix | CsrArrays | DeviceScores:
        """(B, L) what the neighbours' labels add up to; computed once for a request."""
        near, config = self.nearest_once(queries, snapshot), self.config
        device = queries.vectors.device

        settings: dict[str, Any] = vars(config)

        def compute() -> sp.csr_matrix | CsrArrays | DeviceScores:
            examples, n = snapshot.examples, snapshot.n_labels
            if device.type == "cpu":
                return examples.votes(near, n, **settings)
            return examples.votes_on(device, near, n, **settings)

        return queries.once(("votes", self.name, config), compute, snapshot=snapshot)

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the k labels with the most votes."""
        found = top_k_of_rows(self.votes(queries, snapshot), k)[0]
        return torch.as_tensor(found, device=queries.vectors.device)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Votes of each label, in [0, 1]."""
        votes = self.votes(queries, snapshot)
        wanted = rows if isinstance(votes, DeviceScores) else rows.numpy()
        return torch.as_tensor(look_up(votes, wanted), device=rows.device)  # type: ignore[arg-type]


class Knn(VotingRetriever):
    """Labels of the examples with the nearest search vectors."""

    spec = RetrieverSpec("votes", "knn")
    name = "knn"

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Return the retriever where examples are stored."""
        return cls() if context.stores_examples else None

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Return the retriever where examples are stored."""
        return cls() if context.stores_examples else None

    def nearest(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK:
        """Find the k nearest examples by search vectors."""
        late = self.corrections_once(queries, snapshot, k)
        return snapshot.examples.nearest(queries.vectors, k, late)

    def nearest_corrections(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK:
        """Find the k nearest corrections by search vectors."""
        return snapshot.examples.nearest_corrections(queries.vectors, k)


class LexicalKnn(VotingRetriever):
    """Labels of the examples with the most similar terms."""

    spec = RetrieverSpec("votes", "lexical", also_needs=("knn",))
    name = "lexical_knn"

    def __init__(self, lexical: LexicalRetriever, config: KnnConfig = KnnConfig()) -> None:  # noqa: B008
        super().__init__(config)
        self.lexical = lexical

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Return the retriever where examples are stored and a lexical ranker was fitted."""
        ranker = context.fitted.get("lexical_ranker")
        if not context.stores_examples or not isinstance(ranker, LexicalRetriever):
            return None
        return cls(ranker)

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Return the retriever where examples are stored and a lexical ranker was fitted."""
        ranker = context.loaded.get("lexical_ranker")
        if not context.stores_examples or not isinstance(ranker, LexicalRetriever):
            return None
        return cls(ranker)

    def nearest(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK:
        """Find the k nearest examples by the cosine of tf-idf rows."""
        late = self.corrections_once(queries, snapshot, k)
        return snapshot.examples.nearest_by_terms(self.lexical.terms(queries), k, late)

    def nearest_corrections(self, queries: Queries, snapshot: Snapshot, k: int) -> TopK:
        """Find the k nearest corrections by the cosine of tf-idf rows."""
        terms = self.lexical.terms(queries)
        return snapshot.examples.nearest_corrections_by_terms(terms, k)
