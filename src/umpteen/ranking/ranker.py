"""The ensemble: retrieve candidates, score them, combine and calibrate. One way, no state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.head_names import COMBINED, HEADS
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking.adjustments import apply_base_rates, apply_corrections, missing_evidence
from umpteen.ranking.candidates import Candidates, rows_of_pairs, take, top_k, union
from umpteen.ranking.correction_features import added_by_corrections
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.explanations import Explanations, joined
from umpteen.ranking.queries import Queries, QueryStream, started
from umpteen.ranking.reranking.cost import measure_cost
from umpteen.ranking.reranking.reranker import Reranker
from umpteen.ranking.reranking.spec import RERANKER
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.retrievers.knn import Knn
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.retrievers.vectors import VectorRetriever
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.variants import Variant
from umpteen.types import TopK

DEPTH = 40
"""Labels that each retriever proposes; k, where more are asked for."""
TEXTS_AT_ONCE = {"cpu": 512, "cuda": 4096}
"""Texts of a block, which bounds the memory of a request."""
MANY_TEXTS = 1024
"""From this many on a GPU ranks some while others are tokenized."""
CORRECTED_LABELS = "corrected labels"
"""Name of the labels of stored texts among what is computed once for a request."""
SCRATCH_BYTES = 2 << 30
"""Of a GPU, for the dense scores of a lexical product."""


class EnsembleRanker:
    """Rank labels with a fitted ensemble."""

    def __init__(
        self,
        model: EnsembleModel,
        retrievers: dict[str, Retriever],
        reranker: Reranker | None = None,
    ) -> None:
        self.model = model
        self.retrievers = retrievers
        self.reranker = reranker
        self.max_reranked: int | None = None
        """Candidates of a text to re-rank at most, below what was fitted; None for no limit."""

    def queries(self, texts: Sequence[str], encoder: TextEncoder) -> Queries | QueryStream:
        """Encode texts; on a GPU, many texts are encoded while others are ranked."""
        lexical = self.retrievers.get("lexical_ranker")
        on_gpu = isinstance(lexical, LexicalRetriever) and lexical.device.type != "cpu"
        if not isinstance(lexical, LexicalRetriever) or not on_gpu or len(texts) < MANY_TEXTS:
            return Queries(texts, encoder.vectors(texts))
        count_terms = lexical.ranker.vectorizer.transform_raw
        tokenize, encode = encoder.tokens, encoder.token_vectors
        return QueryStream(texts, encoder.device, tokenize, count_terms, encode)

    def rank(
        self,
        queries: Queries | QueryStream,
        snapshot: Snapshot,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
        without: Iterable[str] = (),
        explain: bool = False,
    ) -> TopK:
        """Return the k most probable labels of each text.

        Args:
            queries: B texts with their vectors.
            snapshot: The labels and examples of this request.
            k: How many labels.
            exclude: (M, 2) pairs (text, label row) that must not be returned.
            allowed: (labels,) False for labels that must not be returned.
            without: Scorers to leave out.
            explain: Whether to return what each scorer contributes.

        Returns:
            (B, k); scores are probabilities.
        """
        variant = self.model.variant(without)
        mask = snapshot.allowed_with(allowed)
        blocks, start = [], 0
        for some in queries.blocks(self._texts_at_once(queries.device, snapshot)):
            pairs = _pairs_within(exclude, start, start + len(some))
            blocks.append(self._rank(some, snapshot, k, variant, pairs, mask, explain))
            start += len(some)
        return _joined(blocks, k, snapshot)

    def _rank(
        self,
        queries: Queries,
        snapshot: Snapshot,
        k: int,
        variant: Variant,
        exclude: NDArray[np.int64] | None,
        allowed: NDArray[np.bool_] | None,
        explain: bool,
    ) -> TopK:
        found = self.candidates(
            queries,
            snapshot,
            variant.retrievers,
            depth=max(DEPTH, k),
            exclude=exclude,
            allowed=allowed,
        )
        learned = snapshot.corrections if variant is self.model.variants[0] else None
        variant = variant if learned is None else learned.variant
        scores, by_corrections = variant.scores(found, self.model.propensity), None
        if learned is not None:
            by_corrections = added_by_corrections(
                queries, snapshot, found, self.retrievers, learned
            )
            scores = scores + by_corrections
        added = self._reranked(queries, snapshot, variant, found, scores)
        if added is not None:
            scores = scores + added
        probabilities = variant.probabilities(scores, found)
        notes = self._missing_evidence(queries, snapshot)
        lowest = variant.calibration.lowest_threshold
        if any(notes):
            silent = torch.tensor([note is not None for note in notes], device=scores.device)
            probabilities, scores = apply_base_rates(
                probabilities,
                scores,
                found.counts,
                silent,
                n_train=self.model.n_train,
                threshold=lowest,
            )
        corrected = _in_rows(_corrected_labels(queries, snapshot), found)
        if corrected is not None:
            probabilities, scores = apply_corrections(
                probabilities, scores, corrected, threshold=lowest
            )
        places = top_k(scores, found.rows, k)
        return TopK(
            take(found.rows, places, -1).cpu().numpy(),
            take(probabilities, places, -np.inf).float().cpu().numpy(),
            snapshot.labels,
            notes=notes,
            explanations=_explain(variant, found, places, added, by_corrections)
            if explain
            else None,
        )

    def _reranked(
        self,
        queries: Queries,
        snapshot: Snapshot,
        variant: Variant,
        found: Candidates,
        scores: torch.Tensor,
    ) -> torch.Tensor | None:
        """Return the (B, K) values that re-ranking adds; None for a variant without it."""
        if variant.reranking is None or self.reranker is None:
            return None
        base = scores
        if variant.tail_boost:
            rarity = self.model.propensity.log_inverse(found.counts.to(scores.dtype))
            base = scores - variant.tail_boost * rarity
        return self.reranker.added(
            queries.texts, snapshot.labels, found, scores, base, variant.reranking,
            self.max_reranked,
        )  # fmt: skip

    def limit_reranking(self, queries: Queries, snapshot: Snapshot, budget_ms: float) -> int:
        """Choose how many candidates are re-ranked from the measured cost of some texts.

        Returns:
            Candidates of a text; 0 for none.
        """
        variant = self.model.variants[0]
        assert self.reranker is not None
        assert variant.reranking is not None
        most, labels = variant.reranking.candidates, snapshot.labels
        found = self.candidates(queries, snapshot, variant.retrievers, allowed=snapshot.allowed)
        cost = measure_cost(self.reranker, labels, queries.texts, found, variant, most)
        self.max_reranked = cost.affordable(budget_ms, most)
        return self.max_reranked

    def candidates(
        self,
        queries: Queries,
        snapshot: Snapshot,
        names: Sequence[str],
        *,
        depth: int = DEPTH,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Candidates:
        """Collect the labels that any retriever proposes, scored by all of them.

        Args:
            queries: B texts with their vectors.
            snapshot: The labels and examples of this request.
            names: Which retrievers to use.
            depth: Labels that each proposes.
            exclude: (M, 2) pairs (text, label row) to leave out.
            allowed: (labels,) False for labels to leave out; retired ones are left out anyway.

        Returns:
            The candidates.
        """
        device = queries.vectors.device

        def search() -> torch.Tensor | None:
            """Search the vectors of labels and of examples."""
            found = _vector_proposals(self.retrievers, names, queries, snapshot, depth, allowed)
            for name in names:
                if isinstance(knn := self.retrievers[name], Knn):
                    knn.nearest_once(queries, snapshot)
            return found

        others = [r for n in names if not isinstance(r := self.retrievers[n], VectorRetriever)]
        searched = started(search) if device.type == "cpu" else search
        texts = [r.retrieve(queries, snapshot, depth) for r in others if not isinstance(r, Knn)]
        proposed = [*texts, searched()]
        proposed += [r.retrieve(queries, snapshot, depth) for r in others if isinstance(r, Knn)]
        corrected = _corrected_labels(queries, snapshot)
        proposed.append(torch.from_numpy(corrected).to(device))
        lists = [rows for rows in proposed if rows is not None]
        if allowed is not None:
            may = torch.from_numpy(np.append(allowed, False)).to(device)
            lists = [torch.where(may[rows], rows, -1) for rows in lists]
        banned = None
        if exclude is not None and len(exclude):
            banned = rows_of_pairs(torch.from_numpy(exclude).to(device), len(queries))
        rows = union(lists, banned)
        scores = _scores(self.retrievers, names, queries, rows, snapshot)
        return Candidates(rows, scores, counts_of(rows, snapshot))

    def _missing_evidence(self, queries: Queries, snapshot: Snapshot) -> list[str | None]:
        lexical, knn = self.retrievers.get("lexical_ranker"), self.retrievers.get("knn")
        n_terms = similarity = None
        if isinstance(lexical, LexicalRetriever) and self.model.n_train:
            n_terms = np.diff(lexical.raw_terms(queries).indptr)
            if not (n_terms == 0).any():
                return [None] * len(queries)
        if isinstance(knn, Knn) and len(snapshot.examples):
            similarity = knn.nearest_once(queries, snapshot).scores[:, 0]
        return missing_evidence(queries.texts, n_terms, similarity, self.model.similarity_floor)

    def _texts_at_once(self, device: torch.device, snapshot: Snapshot) -> int:
        kind = "cuda" if device.type == "cuda" else "cpu"
        if kind == "cpu":
            return TEXTS_AT_ONCE[kind]
        columns = max(1, snapshot.n_labels, len(snapshot.examples))
        return max(1, min(TEXTS_AT_ONCE[kind], SCRATCH_BYTES // (4 * columns)))


def _corrected_labels(queries: Queries, snapshot: Snapshot) -> NDArray[np.int64]:
    """(B, width) labels of texts that are stored as corrections; looked up once for a request."""
    return queries.once(
        CORRECTED_LABELS,
        lambda: snapshot.examples.corrected_labels(queries.texts),
        snapshot=snapshot,
    )


def counts_of(rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
    """(B, K) training texts of each label; 0 for padding."""
    return snapshot.padded_counts.to(rows.device)[rows]


def _vector_proposals(
    retrievers: dict[str, Retriever],
    names: Sequence[str],
    queries: Queries,
    snapshot: Snapshot,
    depth: int,
    allowed: NDArray[np.bool_] | None,
) -> torch.Tensor | None:
    """Search label vectors once, by the sum of both heads where both are used."""
    own = [retrievers[name] for name in names if isinstance(retrievers[name], VectorRetriever)]
    if not own:
        return None
    first = own[0]
    assert isinstance(first, VectorRetriever)
    heads = tuple(each.head for each in own if isinstance(each, VectorRetriever))
    head = COMBINED if heads == HEADS else first.head
    top = first.label_vectors.search(
        head,
        queries.vectors,
        min(depth, snapshot.n_labels),
        snapshot.added_vectors,
        allowed=allowed,
        candidates=True,
    )
    return torch.from_numpy(top.rows).to(queries.vectors.device)


def _scores(
    retrievers: dict[str, Retriever],
    names: Sequence[str],
    queries: Queries,
    rows: torch.Tensor,
    snapshot: Snapshot,
) -> dict[str, torch.Tensor]:
    """Score candidates by every retriever; label vectors are gathered once for all heads."""
    own = {n: r for n in names if isinstance(r := retrievers[n], VectorRetriever)}
    scores: dict[str, torch.Tensor] = {}
    if own:
        vectors = next(iter(own.values())).label_vectors
        heads = tuple(retriever.head for retriever in own.values())
        by_head = vectors.pair_scores(queries.vectors, rows, snapshot.added_vectors, heads)
        scores = {name: by_head[retriever.head] for name, retriever in own.items()}
    for name in names:
        if name not in own:
            scores[name] = retrievers[name].score(queries, rows, snapshot)
    return scores


def _in_rows(wanted: NDArray[np.int64], found: Candidates) -> torch.Tensor | None:
    """(B, K) which candidates are among the (B, W) wanted rows; None where nothing is wanted."""
    if not wanted.shape[1]:
        return None
    rows = torch.from_numpy(wanted).to(found.rows.device)
    return ((found.rows[:, :, None] == rows[:, None, :]) & (rows >= 0)[:, None, :]).any(dim=2)


def _explain(
    variant: Variant,
    found: Candidates,
    places: torch.Tensor,
    added: torch.Tensor | None,
    by_corrections: torch.Tensor | None,
) -> Explanations:
    """Take the score of every retriever and the contribution of every scorer."""
    tables = {
        "scores": {name: found.scores[name] for name in variant.retrievers},
        "contributions": variant.weights.contributions(found),
    }
    sizes = found.valid.sum(dim=1, keepdim=True).clamp_min(1)
    if added is not None:
        tables["scores"][RERANKER] = added
        tables["contributions"][RERANKER] = added - added.sum(dim=1, keepdim=True) / sizes
    if by_corrections is not None:  # examples, as the other votes are
        mean = by_corrections.sum(dim=1, keepdim=True) / sizes
        own = tables["contributions"]
        own["knn"] = own["knn"] + torch.where(found.valid, by_corrections - mean, 0.0)
    taken = {
        part: {name: take(values, places, 0.0).cpu().numpy() for name, values in table.items()}
        for part, table in tables.items()
    }
    return Explanations(taken, (places >= 0).sum(dim=1).cpu().numpy())


def _pairs_within(
    pairs: NDArray[np.int64] | None, start: int, stop: int
) -> NDArray[np.int64] | None:
    if pairs is None or not len(pairs):
        return None
    kept = pairs[(pairs[:, 0] >= start) & (pairs[:, 0] < stop)]
    return kept - np.array([start, 0])


def _joined(blocks: list[TopK], k: int, snapshot: Snapshot) -> TopK:
    if not blocks:
        return TopK(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32), snapshot.labels)
    if len(blocks) == 1:
        return blocks[0]
    explanations = [block.explanations for block in blocks]
    explained = [each for each in explanations if isinstance(each, Explanations)]
    return TopK(
        np.concatenate([block.rows for block in blocks]),
        np.concatenate([block.scores for block in blocks]),
        snapshot.labels,
        notes=[note for block in blocks for note in block.notes or ()],
        explanations=joined(explained) if explained else None,
    )
