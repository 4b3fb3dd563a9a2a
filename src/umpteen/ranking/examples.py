"""All stored examples at one moment: training texts and corrections, searched as one set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.index.base import LabelIndex, VectorSearch
from umpteen.index.growing import GrowingIndex, merged
from umpteen.ranking.growing_rows import GrowingRows
from umpteen.ranking.lexical.device_topk import DeviceMatrix, DeviceScores
from umpteen.ranking.lexical.matrices import CsrArrays, matrix_product, places_of_rows
from umpteen.ranking.lexical.sparse_topk import product, top_k_of_rows
from umpteen.ranking.trained_examples import TrainedExamples
from umpteen.store.state import StoredExamples
from umpteen.types import TopK

FEW_NEIGHBOURS = 256
"""Up to this many distinct corrections are read one by one for votes."""


@dataclass(frozen=True)
class Examples:
    """Stored texts with their labels, one moment's. Rows: training texts first, then corrections.

    Args:
        trained: What training stored; None where nothing was.
        index: Over the vectors of ``trained``.
        stored: The corrections: texts with their labels, added since training.
        vectors: Search vectors of the corrections.
        terms: tf-idf rows of the corrections.
        replaced: (M,) True for a training text that a correction replaces; None for none.
        normalize: Bring vectors to length one before comparing them, for models that do not.
    """

    trained: TrainedExamples | None
    index: VectorSearch | None
    stored: StoredExamples
    vectors: GrowingIndex
    terms: GrowingRows
    replaced: NDArray[np.bool_] | None = None
    normalize: bool = False

    @property
    def n_trained(self) -> int:
        """M."""
        return 0 if self.trained is None else len(self.trained)

    @property
    def n_corrections(self) -> int:
        """A."""
        return len(self.vectors)

    def __len__(self) -> int:
        return self.n_trained + self.n_corrections

    def extended(
        self,
        stored: StoredExamples,
        vectors: torch.Tensor,
        terms: sp.csr_matrix,
        *,
        prebuilt: LabelIndex | None = None,
    ) -> Examples:
        """Return the examples with more corrections, or with other labels for some of them.

        Args:
            stored: All corrections of the later moment.
            vectors: (A, heads * dim) of those that are new.
            terms: (A, V) their tf-idf rows.
            prebuilt: An index of the first of these vectors; only before any correction.

        Returns:
            A new version; this one stays as it is.
        """
        replaced = self.replaced
        if self.trained is not None and len(vectors):
            # The first eight bytes of the same digest.
            heads = b"".join(d[:8] for d in stored.digests[self.n_corrections :] if d)
            gone = np.isin(self.trained.digests, np.frombuffer(heads, np.uint64))
            if gone.any():
                replaced = gone if replaced is None else replaced | gone
        return Examples(
            self.trained,
            self.index,
            stored,
            self.vectors.extended(self.comparable(vectors), prebuilt=prebuilt),
            self.terms.extended(terms),
            replaced,
            self.normalize,
        )

    def nearest(self, vectors: torch.Tensor, k: int, corrections: TopK | None = None) -> TopK:
        """Return the k nearest examples by the sum of the heads' cosines.

        Args:
            vectors: (B, heads * dim).
            k: How many.
            corrections: The k nearest corrections, where they are known already.
        """
        asked, tops = self.comparable(vectors), []
        if self.index is not None and self.n_trained:
            active = None if self.replaced is None else ~self.replaced
            tops.append(self.index.search(asked, k, allowed=active))
        if self.n_corrections:
            late = self.nearest_corrections(vectors, k) if corrections is None else corrections
            tops.append(late)
        return merged(tops, len(asked), k)

    def nearest_corrections(self, vectors: torch.Tensor, k: int) -> TopK:
        """Return the k nearest corrections by the sum of the heads' cosines."""
        top = self.vectors.search(self.comparable(vectors), k, exact_scores=False)
        return TopK(np.where(top.rows < 0, -1, top.rows + self.n_trained), top.scores)

    def nearest_by_terms(
        self, terms: sp.csr_matrix, k: int, corrections: TopK | None = None
    ) -> TopK:
        """Return the k nearest examples by cosine of tf-idf rows.

        Examples without a common term are never found. ``corrections`` are the k nearest
        corrections, where they are known already.
        """
        tops: list[TopK] = []
        if self.trained is not None:
            scores = product(terms, self._inverted_terms)
            if self.replaced is not None:  # only positive scores are found
                if isinstance(scores, DeviceScores):
                    scores.values[:, torch.from_numpy(self.replaced)] = 0.0
                else:
                    scores.data[self.replaced[scores.indices]] = 0.0
            rows, values = top_k_of_rows(scores, k)
            tops.append(TopK(_on_host(rows), _on_host(values)))
        if self.n_corrections:
            late = corrections
            tops.append(self.nearest_corrections_by_terms(terms, k) if late is None else late)
        return merged(tops, terms.shape[0], k)

    def nearest_corrections_by_terms(self, terms: sp.csr_matrix, k: int) -> TopK:
        """Return the k nearest corrections by cosine of tf-idf rows."""
        tops: list[TopK] = []
        for block in self.terms.blocks:
            found, values = top_k_of_rows(product(terms, block.inverted), k)
            first = self.n_trained + block.start
            tops.append(TopK(np.where(found < 0, -1, found + first), values))
        return merged(tops, terms.shape[0], k)

    def votes(
        self,
        near: TopK,
        n_labels: int,
        *,
        neighbours: int,
        temperature: float,
        background: float | None = None,
    ) -> sp.csr_matrix | CsrArrays:
        """Sum the softmax weights of the neighbours that have each label.

        Args:
            near: Nearest first, at least ``neighbours`` of them where there are as many.
            n_labels: L + A.
            neighbours: How many vote.
            temperature: Similarities are divided by this.
            background: Similarity of one more neighbour, which has no labels.

        Returns:
            (B, L + A) values in [0, 1].
        """
        weights = vote_weights(near, neighbours, temperature, background)
        rows, n = near.rows[:, :neighbours], self.n_trained
        if len(rows) == 1:
            return self._votes_of_one(rows[0], weights[0], n_labels)
        total: sp.csr_matrix | None = None
        if self.trained is not None:
            targets = self.trained.targets
            parts = (targets.data, targets.indices, targets.indptr)
            wide = sp.csr_matrix(parts, shape=(n, n_labels))
            total = matrix_product(_weighted(rows, weights, (rows >= 0) & (rows < n), n), wide)
        late = rows >= n
        if late.any():
            positions, places = np.unique(rows[late] - n, return_inverse=True)
            columns = np.zeros(rows.shape, np.int64)
            columns[late] = places
            added = self._label_rows(positions, n_labels)
            more = _weighted(columns, weights, late, len(positions)) @ added
            total = more if total is None else total + more
        if total is None:
            return sp.csr_matrix((len(rows), n_labels), dtype=np.float32)
        return sp.csr_matrix(total)

    def votes_on(
        self,
        device: torch.device,
        near: TopK,
        n_labels: int,
        *,
        neighbours: int,
        temperature: float,
        background: float | None = None,
    ) -> DeviceScores:
        """Compute ``votes`` on a device, as a dense block."""
        if self.trained is None or (near.rows[:, :neighbours] >= self.n_trained).any():
            found = self.votes(
                near,
                n_labels,
                neighbours=neighbours,
                temperature=temperature,
                background=background,
            )
            return DeviceScores.of(found, device)
        weights = vote_weights(near, neighbours, temperature, background)
        rows = near.rows[:, :neighbours]
        weighted = _weighted(rows, weights, rows >= 0, self.n_trained)
        scores = self.trained.targets_on(device).product(weighted).values
        return DeviceScores(torch.nn.functional.pad(scores, (0, n_labels - scores.shape[1])))

    def _votes_of_one(
        self, rows: NDArray[np.int64], weights: NDArray[np.float32], n_labels: int
    ) -> CsrArrays:
        """Compute ``votes`` of a single text."""
        labels, each = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        early = (rows >= 0) & (rows < self.n_trained)
        if self.trained is not None and early.any():
            targets = self.trained.targets
            places, lengths = places_of_rows(targets.indptr, rows[early])
            labels.append(targets.indices[places])
            each.append(np.repeat(weights[early], lengths))
        late = rows >= self.n_trained
        own, lengths = self.stored.rows_of_some((rows[late] - self.n_trained).tolist())
        labels.append(own)
        each.append(np.repeat(weights[late], lengths))
        return CsrArrays.of_row(np.concatenate(labels), np.concatenate(each), n_labels)

    def votes_of_corrections(
        self,
        near: TopK,
        rows: NDArray[np.int64],
        *,
        neighbours: int,
        temperature: float,
        background: float | None = None,
    ) -> NDArray[np.float32]:
        """Compute the votes of corrections for the candidates of a single text.

        Args:
            near: Its nearest corrections.
            rows: (K,) labels, ascending.
            neighbours: How many vote.
            temperature: Similarities are divided by this.
            background: Similarity of one more neighbour, which has no labels.

        Returns:
            (K,).
        """
        weights = vote_weights(near, neighbours, temperature, background)[0]
        places = near.rows[0, :neighbours]
        there = places >= 0
        labels, lengths = self.stored.rows_of_some((places[there] - self.n_trained).tolist())
        at = np.minimum(np.searchsorted(rows, labels), len(rows) - 1)
        each = np.where(rows[at] == labels, np.repeat(weights[there], lengths), 0.0)
        return np.bincount(at, each, len(rows)).astype(np.float32)

    def corrected_labels(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """(B, width) label rows of the texts that are stored word for word as corrections; -1."""
        if not self.n_corrections:
            return np.full((len(texts), 0), -1, np.int64)
        places = [self.stored.find(text) for text in texts]
        found = [
            self.stored.rows_of(place)
            if place is not None and place < self.n_corrections
            else np.zeros(0, np.int64)
            for place in places
        ]
        rows = np.full((len(texts), max(map(len, found), default=0)), -1, np.int64)
        for place, labels in enumerate(found):
            rows[place, : len(labels)] = labels
        return rows

    def labels_of(self, row: int) -> NDArray[np.int64]:
        """Label rows of one example."""
        if row >= self.n_trained:
            return self.stored.rows_of(row - self.n_trained)
        assert self.trained is not None
        targets = self.trained.targets
        own: NDArray[np.int64] = targets.indices[targets.indptr[row] : targets.indptr[row + 1]]
        return own

    def comparable(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scale vectors to length one, for models that do not."""
        return torch.nn.functional.normalize(vectors, dim=1) if self.normalize else vectors

    @property
    def _inverted_terms(self) -> sp.csr_matrix | DeviceMatrix:
        """The inverted index of the training texts, where vectors are searched."""
        assert self.trained is not None
        device = torch.device(self.vectors.device)
        if device.type == "cpu":
            return self.trained.inverted_terms
        return self.trained.inverted_terms_on(device)

    @cached_property
    def _all_label_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.stored.label_rows(0, self.n_corrections)

    def _label_rows(self, positions: NDArray[np.int64], n_labels: int) -> sp.csr_matrix:
        """(P, L + A) ones: the labels of some corrections."""
        if len(positions) <= FEW_NEIGHBOURS:
            columns, lengths = self.stored.rows_of_some(positions.tolist())
            offsets = np.concatenate([[0], np.cumsum(lengths)])
        else:
            starts, values = self._all_label_rows
            whole = sp.csr_matrix(
                (np.ones(len(values), np.float32), values, starts),
                shape=(self.n_corrections, n_labels),
            )
            return whole[positions]
        ones = np.ones(len(columns), np.float32)
        return sp.csr_matrix((ones, columns, offsets), shape=(len(positions), n_labels))


def _on_host(values: Any) -> NDArray[Any]:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def vote_weights(
    near: TopK, neighbours: int, temperature: float, background: float | None = None
) -> NDArray[np.float32]:
    """(B, neighbours) softmax of similarity over the nearest; 0 where there is none.

    With a background similarity, one more neighbour takes part that is not returned.
    """
    rows, scores = near.rows[:, :neighbours], near.scores[:, :neighbours].astype(np.float64)
    there = rows >= 0
    best = np.where(there[:, :1], scores[:, :1], 0.0)
    powers = np.where(there, np.exp(np.where(there, scores - best, 0.0) / temperature), 0.0)
    total = powers.sum(axis=1, keepdims=True)
    if background is not None:
        total = total + np.exp(np.minimum((background - best) / temperature, 700.0))
    weights = powers / np.maximum(total, 1e-30)
    return weights.astype(np.float32)


def _weighted(
    columns: NDArray[np.int64],
    weights: NDArray[np.float32],
    chosen: NDArray[np.bool_],
    n_columns: int,
) -> sp.csr_matrix:
    """(B, n_columns) the weights of the chosen neighbours, one column an example."""
    offsets = np.concatenate([[0], np.cumsum(chosen.sum(axis=1))])
    return sp.csr_matrix((weights[chosen], columns[chosen], offsets), (len(columns), n_columns))
