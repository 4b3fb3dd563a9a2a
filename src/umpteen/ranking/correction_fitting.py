"""Fit what corrections add to scores, on the corrections themselves.

No scorer was trained on a correction, and its labels are known. Each of the newest ones is scored
as if it were not stored, and the weights are those that rank its labels best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.special import chdtri
from torch import Tensor

from umpteen.ranking.calibration import fit_calibration
from umpteen.ranking.candidates import Candidates, take, top_k
from umpteen.ranking.correction_features import VOTES, correction_votes
from umpteen.ranking.corrections import (
    FIRST_FIT,
    N_FEATURES,
    CorrectionWeights,
    correction_counts,
    count_features,
    fitted_rows,
)
from umpteen.ranking.ensemble_fitting import DECAY, ConditionalLogit
from umpteen.ranking.queries import Queries
from umpteen.ranking.ranker import CORRECTED_LABELS, EnsembleRanker
from umpteen.ranking.retriever_specs import FREQUENCY
from umpteen.ranking.retrievers.knn import Knn, LexicalKnn, VotingRetriever
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.solver import Solution, minimize_convex, prior_ridge
from umpteen.ranking.variant_fitting import positives_of
from umpteen.types import TopK

TEXTS_AT_ONCE = 128
"""Corrections that are compared with all others at once."""
MAX_P = 1e-3
"""Of the likelihood-ratio test against the ensemble's score with a single factor."""
MIN_SCALE = 0.05
"""Least scale of an input: one that is almost always 0 must not get a huge weight."""
BEST = 5
"""Best candidates of a text that are compared with it word for word."""


@dataclass(frozen=True)
class _LeftOut:
    """Corrections with their candidates, each scored as if it were not stored."""

    found: Candidates
    positive: Tensor
    """(B, K) which candidates are right."""
    inputs: Tensor
    """(B, K, S + F) float64, 0 at padding places: what each scorer adds to the score, the last of
    them with the tail boost, and the features of corrections."""


def fit_corrections(
    ranker: EnsembleRanker, snapshot: Snapshot, n: int, texts: Sequence[str], vectors: Tensor
) -> CorrectionWeights | None:
    """Fit the weights of corrections, and a factor of each scorer beside them.

    They are kept only where they make the corrections' own labels clearly more likely.

    Args:
        ranker: With an ensemble that reads examples.
        snapshot: With n corrections or more; later ones are not used.
        n: See ``fit_size``.
        texts: Those of ``fitted_rows(n)``.
        vectors: (B, heads * dim) of these texts.

    Returns:
        The weights; None where corrections add nothing.
    """
    counts = correction_counts(snapshot.examples.stored, n, snapshot.n_labels)
    variant = ranker.model.variants[0]
    scorers = (*variant.weights.scorers, FREQUENCY)
    data = _left_out(ranker, snapshot, n, Queries(texts, vectors), counts)
    right, wrong = data.positive & data.found.valid, ~data.positive & data.found.valid
    usable = (right.any(dim=1) & wrong.any(dim=1)).nonzero()[:, 0]
    if len(usable) < FIRST_FIT // 2:
        return None
    plain, own = torch.zeros_like(data.inputs[:, :, :1]), (right[usable], wrong[usable])
    plain += data.inputs[:, :, : len(scorers)].sum(dim=2, keepdim=True)
    one = _fit(plain[usable], *own, np.ones(1))
    each = _fit(data.inputs[usable], *own, np.append(np.ones(len(scorers)), np.zeros(N_FEATURES)))
    further = len(scorers) - 1 + N_FEATURES
    if 2 * len(usable) * (one.loss - each.loss) < chdtri(further, MAX_P):
        return None
    factors, weights = each.x[: len(scorers)], each.x[len(scorers) :]
    fitted = replace(
        variant,
        weights=variant.weights.scaled(dict(zip(scorers, factors.tolist(), strict=True))),
        tail_boost=variant.tail_boost * float(factors[-1]),
    )
    if variant.reranking is None:
        scores = data.inputs @ torch.from_numpy(each.x).to(data.inputs)
        masked = data.found.filled(scores, -torch.inf)
        calibration = fit_calibration(masked, data.found, data.positive, variant.calibration)
        fitted = replace(fitted, calibration=calibration)
    return CorrectionWeights(n, weights, np.append(counts, 0).astype(np.float32), fitted)


def _fit(inputs: Tensor, right: Tensor, wrong: Tensor, center: NDArray[np.float64]) -> Solution:
    """Return weights of 0 or more that rank right before wrong candidates, near a center."""
    scale = inputs[right | wrong].std(dim=0, correction=0).clamp_min(MIN_SCALE)
    size = scale.cpu().numpy()
    decay = DECAY + prior_ridge(len(inputs))
    loss = ConditionalLogit(inputs / scale, right, wrong, center * size, decay)
    lower = [0.0] * len(center)
    found = minimize_convex(loss, center * size, name="weights of corrections", lower=lower)
    return replace(found, x=found.x / size)


def _left_out(
    ranker: EnsembleRanker,
    snapshot: Snapshot,
    n: int,
    queries: Queries,
    counts: NDArray[np.int64],
) -> _LeftOut:
    """Retrieve and score candidates of corrections as if each were not stored."""
    variant, examples = ranker.model.variants[0], snapshot.examples
    positions = fitted_rows(n)
    rows, sizes = examples.stored.rows_of_some(positions.tolist())
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ones = np.ones(len(rows), np.float32)
    truth = sp.csr_matrix((ones, rows, starts), (len(positions), snapshot.n_labels))
    for retriever in ranker.retrievers.values():
        if isinstance(retriever, VotingRetriever):
            near = _nearest_others(retriever, queries, snapshot, positions, n)
            key = ("corrections", retriever.name, retriever.config.neighbours)
            queries.once(key, partial(_itself, near), snapshot=snapshot)
    nothing = np.full((len(positions), 0), -1, np.int64)
    queries.once(CORRECTED_LABELS, lambda: nothing, snapshot=snapshot)
    # Labels that were added later must not compete: other processes may not have them.
    allowed = (np.arange(snapshot.n_labels) < snapshot.n_trained) | (counts > 0)
    names = variant.retrievers
    found = ranker.candidates(queries, snapshot, names, allowed=allowed)
    scores = variant.scores(found, ranker.model.propensity, torch.float64)
    named = _named_like_text(queries, snapshot, found, scores, truth)
    if len(named):
        found = ranker.candidates(queries, snapshot, names, allowed=allowed, exclude=named)
        scores = variant.scores(found, ranker.model.propensity, torch.float64)
    positive = positives_of(found, truth)
    others = np.append(counts, 0)[found.rows.cpu().numpy()] - positive.cpu().numpy()
    unseen = (found.counts == 0).cpu().numpy()
    counted = torch.from_numpy(count_features(np.maximum(others, 0), unseen)).to(found.rows.device)
    votes = [
        correction_votes(queries, snapshot, found.rows, ranker.retrievers, name) for name in VOTES
    ]
    boost = variant.tail_boost * ranker.model.propensity.log_inverse(found.counts.double())
    parts = variant.weights.parts(found, torch.float64)
    parts[FREQUENCY] = parts[FREQUENCY] + boost
    ordered = [parts[name] for name in (*variant.weights.scorers, FREQUENCY)]
    inputs = [torch.where(found.valid, part.double(), 0.0) for part in (*ordered, *votes)]
    counted = torch.where(found.valid[:, :, None], counted, 0.0)
    return _LeftOut(found, positive, torch.cat([torch.stack(inputs, dim=2), counted], dim=2))


def _itself(near: TopK) -> TopK:
    return near


def _named_like_text(
    queries: Queries, snapshot: Snapshot, found: Candidates, scores: Tensor, truth: sp.csr_matrix
) -> NDArray[np.int64]:
    """(M, 2) pairs of a text and a wrong label among its best whose name is the text.

    Where texts are the names of labels, a text is not among its own labels, and is first by name.
    Such a label says nothing about the others.
    """
    titles = snapshot.labels.titles
    best = take(found.rows, top_k(scores.float(), found.rows, BEST), -1).cpu().numpy()
    pairs = [
        (place, row)
        for place, (text, rows) in enumerate(zip(queries.texts, best.tolist(), strict=True))
        for row in rows
        if row >= 0 and titles[row].casefold() == text.casefold()
    ]
    made = np.array(pairs, np.int64).reshape(-1, 2)
    if not len(made):
        return made
    right = np.asarray(truth[made[:, 0], made[:, 1]]).ravel() > 0
    return made[~right]


def _nearest_others(
    retriever: VotingRetriever,
    queries: Queries,
    snapshot: Snapshot,
    positions: NDArray[np.int64],
    n: int,
) -> TopK:
    """Find the nearest of the first n corrections, compared exactly; none is its own neighbour."""
    examples, k = snapshot.examples, retriever.config.neighbours
    rows = np.full((len(positions), k), -1, np.int64)
    best = np.full((len(positions), k), -np.inf, np.float32)
    if isinstance(retriever, LexicalKnn):
        terms = retriever.lexical.terms(queries)
        stored = sp.csr_matrix(sp.vstack([block.rows for block in examples.terms.blocks])[:n].T)
    for start in range(0, len(positions), TEXTS_AT_ONCE):
        stop = min(len(positions), start + TEXTS_AT_ONCE)
        if isinstance(retriever, LexicalKnn):
            scores = torch.from_numpy((terms[start:stop] @ stored).toarray())
            scores = torch.where(scores > 0, scores, -torch.inf)
        else:
            assert isinstance(retriever, Knn)
            asked = examples.comparable(queries.vectors[start:stop])
            scores = (asked @ examples.vectors.vectors[:n].to(asked).T).cpu()
        scores[torch.arange(stop - start), torch.from_numpy(positions[start:stop])] = -torch.inf
        top = scores.topk(min(k, n), dim=1)
        width, values = top.indices.shape[1], top.values.numpy()
        places = np.where(np.isfinite(values), top.indices.numpy() + examples.n_trained, -1)
        rows[start:stop, :width], best[start:stop, :width] = places, values
    return TopK(rows, best)
