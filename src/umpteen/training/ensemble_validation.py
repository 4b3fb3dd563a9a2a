"""Validation texts with their candidates: what the ensemble is fitted to and judged by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.predictor import Predictor
from umpteen.ranking.adjustments import similarity_floor
from umpteen.ranking.candidates import Candidates, concat
from umpteen.ranking.ensemble_model import EnsembleModel, KnnConfig
from umpteen.ranking.lexical.sparse_topk import top_k_of_rows
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import DEPTH, EnsembleRanker
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.retrievers.character_ranker import CharacterRanker
from umpteen.ranking.retrievers.knn import Knn, LexicalKnn
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.storage import StoredEnsemble, with_knn_configs
from umpteen.ranking.variants import VARIANT_METRICS
from umpteen.scoring import score
from umpteen.types import TopK

KNN_CONFIGS = tuple(KnnConfig(n, t) for n in (20, 50, 100) for t in (0.03, 0.05, 0.1, 0.2))
TEXTS_AT_ONCE = 512
MAX_TEXTS = 10_000
"""Validation texts that the ensemble is fitted to at most."""


@dataclass(frozen=True)
class Judge:
    """Labelled texts that no scorer was trained on, to measure predictions with."""

    split: Split
    label_counts: NDArray[np.int64]
    n_train: int
    propensity: Propensity
    cross_validated: bool = False
    """Whether these are training texts, each scored by a model of the others."""

    @property
    def described(self) -> str:
        """The number of texts, and what they are."""
        n = len(self.split)
        if self.cross_validated:
            return f"{n:,} training texts, cross-validated"
        return f"{n:,} validation texts, cross-fitted"

    @property
    def truth(self) -> sp.csr_matrix:
        """(N, L) positives without filter pairs."""
        return self.split.filtered_targets()

    def first(self, n: int) -> Judge:
        """Return the judge with the first n texts."""
        return replace(self, split=self.split.select(np.arange(min(n, len(self.split)))))

    def __call__(self, top: TopK, metrics: tuple[str, ...] = VARIANT_METRICS) -> dict[str, float]:
        """Compute metrics in percent."""
        report = score(
            top,
            self.split,
            label_counts=self.label_counts,
            n_train=self.n_train,
            propensity=self.propensity,
            metrics=metrics,
        )
        return dict(report.values)


@dataclass(frozen=True)
class Collected:
    """Candidates of validation texts, scored by every retriever."""

    model: EnsembleModel
    """With the voting settings that were chosen; its variants are the prior's."""
    names: tuple[str, ...]
    """The retrievers."""
    candidates: Candidates
    text_scores: dict[str, torch.Tensor]
    """Retriever to the scores that labels would get had they been added after training."""
    plain: TopK
    """The five best labels by the model's best head alone."""


def judge_of(dataset: Dataset, propensity: Propensity) -> Judge | None:
    """Return the data's validation split as a judge; None where no text of it has labels.

    Of more than ``MAX_TEXTS`` texts, so many are used, evenly spaced.
    """
    if "validation" not in dataset:
        return None
    split = dataset["validation"]
    if len(split) > MAX_TEXTS:
        split = split.select(np.linspace(0, len(split) - 1, MAX_TEXTS).astype(np.int64))
    judge = Judge(split, dataset.label_counts, len(dataset["train"]), propensity)
    return judge if judge.truth.nnz else None


def collect(
    predictor: Predictor,
    stored: StoredEnsemble,
    judge: Judge,
    encode: Callable[[list[str]], torch.Tensor] | None = None,
) -> Collected:
    """Retrieve and score the candidates of validation texts.

    ``encode`` encodes in place of the predictor.

    Returns:
        The candidates; voting settings are those whose votes alone have the best nDCG@5.
    """
    texts = list(judge.split.texts(predictor.text_config.text))
    snapshot = predictor.snapshot()
    queries = Queries(texts, (encode or predictor.vectors)(texts))
    model = _with_knn(stored, queries, judge, snapshot)
    retrievers = with_knn_configs(stored.retrievers, model)
    names = tuple(retrievers)
    ranker = EnsembleRanker(model, retrievers)
    blocks, filters = [], judge.split.filters
    for start in range(0, len(queries), TEXTS_AT_ONCE):
        stop = min(len(queries), start + TEXTS_AT_ONCE)
        kept = filters[(filters[:, 0] >= start) & (filters[:, 0] < stop)] - np.array([start, 0])
        some = queries.block(start, stop)
        blocks.append(ranker.candidates(some, snapshot, names, depth=DEPTH, exclude=kept))
    found = concat(blocks)
    head = predictor.vector_heads[-1]
    k = min(5, snapshot.n_labels)
    plain = predictor.rank(queries, snapshot, k, head=head, exclude=filters)
    texts_of_labels = text_scores_of(retrievers, queries, snapshot, found)
    return Collected(model, names, found, texts_of_labels, plain)


def joined(parts: list[Collected]) -> Collected:
    """Join the candidates of several sets of texts, as from cross-validation.

    Returns:
        All texts in order, with the voting settings of the first part.
    """
    names = tuple(name for name in parts[0].names if all(name in p.names for p in parts))
    blocks = [
        replace(p.candidates, scores={name: p.candidates.scores[name] for name in names})
        for p in parts
    ]
    found = concat(blocks)
    width = found.rows.shape[1]
    shared = [name for name in parts[0].text_scores if all(name in p.text_scores for p in parts)]
    texts = {
        name: torch.cat(
            [
                torch.nn.functional.pad(
                    p.text_scores[name], (0, width - p.text_scores[name].shape[1])
                )
                for p in parts
            ]
        )
        for name in shared
    }
    plain = TopK(
        np.concatenate([p.plain.rows for p in parts]),
        np.concatenate([p.plain.scores for p in parts]),
    )
    return Collected(parts[0].model, names, found, texts, plain)


def join_splits(splits: Sequence[Split]) -> Split:
    """Join texts, with their labels and filters, in order."""
    starts = np.cumsum([0, *(len(split) for split in splits)])
    filters = [
        split.filters + np.array([start, 0])
        for start, split in zip(starts[:-1], splits, strict=True)
    ]
    contents = [split.contents for split in splits]
    return Split(
        [text for split in splits for text in split.titles],
        sp.vstack([split.targets for split in splits], format="csr"),
        None
        if any(own is None for own in contents)
        else [text for own in contents if own is not None for text in own],
        filters=np.concatenate(filters),
    )


def _with_knn(
    stored: StoredEnsemble, queries: Queries, judge: Judge, snapshot: Snapshot
) -> EnsembleModel:
    model, k = stored.model, max(config.neighbours for config in KNN_CONFIGS)
    knn, lexical = stored.retrievers.get("knn"), stored.retrievers.get("lexical_knn")
    if isinstance(knn, Knn):
        near = knn.nearest(queries, snapshot, k)
        config = _best_config(near, judge, snapshot)
        model = replace(model, knn=config, similarity_floor=similarity_floor(near))
    if isinstance(lexical, LexicalKnn):
        near = lexical.nearest(queries, snapshot, k)
        model = replace(model, lexical_knn=_best_config(near, judge, snapshot))
    return model


def _best_config(near: TopK, judge: Judge, snapshot: Snapshot) -> KnnConfig:
    values = []
    for config in KNN_CONFIGS:
        votes = snapshot.examples.votes(
            near, snapshot.n_labels, neighbours=config.neighbours, temperature=config.temperature
        )
        top = TopK(*top_k_of_rows(votes, 10))
        values.append(judge(top, ("nDCG@5",))["nDCG@5"])
    return KNN_CONFIGS[int(np.argmax(values))]


def text_scores_of(
    retrievers: dict[str, Retriever], queries: Queries, snapshot: Snapshot, found: Candidates
) -> dict[str, torch.Tensor]:
    """Score candidates as if their labels had been added after training, by their text."""
    readers = {
        name: retriever
        for name, retriever in retrievers.items()
        if isinstance(retriever, LexicalRetriever | CharacterRanker)
    }
    if not readers:
        return {}
    rows = found.rows.cpu().numpy()
    used, places = np.unique(np.maximum(rows, 0), return_inverse=True)
    names = [snapshot.labels.titles[row] for row in used.tolist()]
    return {
        name: torch.from_numpy(
            retriever.name_scores(queries, names, places.reshape(rows.shape))
        ).to(found.rows.device)
        for name, retriever in readers.items()
    }
