"""Which queries a report shows: by a rule that is stated, not by taste."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umpteen.report.outcomes import Outcome

PER_GROUP = 4
_SEED = 11


def choose_queries(outcome: Outcome, most: int = PER_GROUP) -> dict[str, NDArray[np.int64]]:
    """Choose queries: some at random, some where heads differ, some where nothing is found.

    Only queries with positives are shown, and none twice. A fixed seed draws the random ones, so
    that the same run gives the same page.

    Args:
        outcome: The predictions.
        most: Queries of each group.

    Returns:
        What a group shows, and the rows of its queries; groups without any are left out.
    """
    order = np.random.default_rng(_SEED).permutation(len(outcome))
    order = order[np.diff(outcome.truth.indptr)[order] > 0]
    heads = list(outcome.heads)
    hits = np.column_stack([np.count_nonzero(outcome.heads[h].hits, axis=1) for h in heads])
    groups = {"Drawn at random": order[:most]}
    rest = order[most:]
    spread = hits.max(axis=1) - hits.min(axis=1)
    by_spread = rest[np.argsort(-spread[rest], kind="stable")]
    groups["Where the heads differ most"] = by_spread[spread[by_spread] > 0][:most]
    rest = rest[~np.isin(rest, groups["Where the heads differ most"])]
    groups["Where no head finds a true label"] = rest[hits[rest].max(axis=1) == 0][:most]
    if len(heads) == 1:
        nothing = groups.pop("Where no head finds a true label")
        groups["Where no true label is found"] = nothing
    return {title: rows for title, rows in groups.items() if len(rows)}
