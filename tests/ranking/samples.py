"""Random candidates for the tests of ranking."""

from dataclasses import replace

import numpy as np
import torch

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS

ALL = tuple(RETRIEVER_SPECS)
N_LABELS = 40
COUNTS = np.random.default_rng(3).integers(1, 9, N_LABELS)


def made(n=60, k=11, seed=0, counts=COUNTS, share=0.15, full=False):
    """Candidates of n queries, up to k each, some queries with none, and which are right.

    ``dual`` knows the right labels roughly, votes of examples better, the others nothing. Padding
    places hold NaN scores.
    """
    rng = np.random.default_rng(seed)
    sizes = np.full(n, k) if full else rng.integers(0, k + 1, n)
    rows = np.full((n, k), -1)
    for query, size in enumerate(sizes):
        rows[query, :size] = np.sort(rng.permutation(len(counts))[:size])
    positive = (rng.random((n, k)) < share) & (rows >= 0)
    scores = {name: rng.random((n, k)) for name in ALL}
    scores["dual"] = 0.3 * positive + 0.5 * scores["dual"]
    for name in ("knn", "lexical_knn"):
        voted = rng.random((n, k)) < np.where(positive, 0.9, 0.2)
        scores[name] = np.where(voted, 0.3 * scores[name] + 0.1, 0.0)
    linked = rng.random((n, k)) < 0.3
    scores["backlinks"] = np.where(linked, 0.5 * scores["backlinks"], 0.0)
    scores["lexical_ranker"] = np.where(rng.random((n, k)) < 0.2, 0, 9 * scores["lexical_ranker"])
    given = {
        name: torch.from_numpy(np.where(rows >= 0, values, np.nan).astype(np.float32))
        for name, values in scores.items()
    }
    own = torch.from_numpy(np.append(counts, 0)[rows])
    return Candidates(torch.from_numpy(rows), given, own), torch.from_numpy(positive)


def knowing(candidates, positive):
    """The candidates with a lexical ranker that knows the right labels roughly."""
    rough = candidates.scores["lexical_ranker"] / 2 + 4 * positive
    return replace(candidates, scores={**candidates.scores, "lexical_ranker": rough}), positive


def permuted(candidates, order):
    """The same candidates under other label rows; ``order`` maps old rows to new ones."""
    rows = torch.from_numpy(np.append(order, -1))[candidates.rows]
    keys = torch.where(rows >= 0, rows, 1 << 40)
    places = keys.argsort(dim=1, stable=True)
    return Candidates(
        rows.gather(1, places),
        {name: values.gather(1, places) for name, values in candidates.scores.items()},
        candidates.counts.gather(1, places),
    ), places
