"""The time of a refresh, from one of some queries and labels; each stage has its growth law.

| stage | grows with |
|---|---|
| encode queries, encode labels | N, L |
| cluster queries | N log N |
| cluster labels (search within clusters) | L sqrt(L) |
| mine, exact | N L |
| mine within clusters | N sqrt(L) |
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from umpteen.data.tokens import TokenStore
from umpteen.index.cluster_search import products_per_query
from umpteen.model.model import Model
from umpteen.training.mining import LABEL_CLUSTERS, MINING, is_clustered
from umpteen.training.refresh import CLUSTERS, LABELS, QUERIES, Refreshed, Refresher
from umpteen.training.stage_log import StageLog

LABEL_SAMPLE = 1 << 14
REPEATS = 3
"""Refreshes of the sample. The shortest time of each stage counts."""


@dataclass(frozen=True)
class SampledRefresh:
    """A refresh of some queries against some labels, and what all of them would take."""

    refreshed: Refreshed
    """Negatives are rows of the whole label set."""
    seconds: float
    label_seconds: float
    """Of encoding all labels, which a validation does as well."""


def sampled_refresh(refresher: Refresher, model: Model, *, n_queries: int) -> SampledRefresh:
    """Refresh the refresher's queries against a sample of its labels.

    Args:
        refresher: With a sample of the queries.
        model: The model; one without a dual head has vectors of all labels, and no sample.
        n_queries: Of the whole data.
    """
    n_labels, n = len(refresher.labels), len(refresher.queries)
    cuda = model.log_scales.is_cuda
    clustered = is_clustered(refresher.search, n_queries, n_labels, cuda=cuda)
    rows = np.arange(n_labels)
    if model.dual_head is not None and n_labels > LABEL_SAMPLE:
        rows = np.unique(np.linspace(0, n_labels - 1, LABEL_SAMPLE).astype(np.int64))
    search = "clusters" if clustered else refresher.search
    if search == "auto" and not cuda:
        search = "exact"
    small = replace(refresher, search=search)
    if len(rows) < n_labels:
        tokens = refresher.labels.take(rows)
        small = replace(
            small,
            labels=TokenStore(tokens.ids, tokens.offsets, f"{refresher.labels.key} sample"),
            targets=refresher.targets[:, rows],
            filters=refresher.filters[:0],
        )
    small(model, 0)  # what the first one loads and compiles would be multiplied
    logs = [StageLog() for _ in range(REPEATS)]
    for log in logs:
        found = replace(small, log=log)(model, 0)
    negatives = np.where(found.negatives < 0, -1, rows[found.negatives]).astype(np.int32)
    # Tenths of a second are scaled up by hundreds: whatever else runs meanwhile must not count.
    kinds = QUERIES, LABELS, CLUSTERS, LABEL_CLUSTERS, MINING
    seconds = {kind: min(log.seconds.get(kind, 0.0) for log in logs) for kind in kinds}
    many, more = n_queries / n, n_labels / len(rows)
    mining = many * more
    if clustered:
        mining = many * products_per_query(n_labels) / products_per_query(len(rows))
    label_seconds = seconds[LABELS] * more
    whole = (
        seconds[QUERIES] * many
        + label_seconds
        + seconds[CLUSTERS] * many * _logs(n_queries, n)
        + seconds[LABEL_CLUSTERS] * more**1.5
        + seconds[MINING] * mining
    )
    return SampledRefresh(replace(found, negatives=negatives), whole, label_seconds)


def _logs(whole: int, part: int) -> float:
    return math.log2(max(2, whole)) / math.log2(max(2, part))
