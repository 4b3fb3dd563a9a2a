"""Metrics within groups of labels by their training texts, as EURLEX57K's authors define them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from umpteen.data.dataset import Dataset
from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.scoring import score
from umpteen.types import TopK

METRICS = ("RP@5", "nDCG@5")
DEPTH = 5


def group_metrics(
    model: Predictor,
    data: Dataset,
    groups: Mapping[str, Sequence[int]],
    *,
    head: str | None = None,
    metrics: Sequence[str] = METRICS,
) -> dict[str, dict[str, float]]:
    """Rank the labels of each group alone and compare them with the positives of the group.

    Texts without a positive in a group do not count there.

    Args:
        model: A predictor; changes made after its training do not count.
        data: With the splits train and test.
        groups: Name to the least and most training texts of a label of the group.
        head: Which; by default the best.
        metrics: What to compute, of at most ``DEPTH`` places.

    Returns:
        Group to its metrics in percent, the number of its labels and of the texts that count.
    """
    model = model.as_trained()
    split, counts = data["test"], np.asarray(data.label_counts)
    texts = list(split.texts(model.text_config.text))
    queries, snapshot = Queries(texts, model.vectors(texts)), model.snapshot()
    found: dict[str, dict[str, float]] = {}
    for name, (least, most) in groups.items():
        own = (counts >= least) & (counts <= most)
        targets = sp.csr_matrix(split.targets @ sp.diags(own.astype(np.float32)))
        targets.eliminate_zeros()
        chosen = np.flatnonzero(np.diff(targets.indptr))
        found[name] = {"labels": int(own.sum()), "texts": len(chosen)}
        if not len(chosen):
            continue
        top = model.rank(queries, snapshot, DEPTH, head=head, allowed=own, exclude=split.filters)
        part = replace(split, targets=targets).select(chosen)
        report = score(
            TopK(top.rows[chosen], top.scores[chosen]),
            part,
            label_counts=counts,
            n_train=len(data["train"]),
            propensity=data.propensity,
            metrics=metrics,
        )
        found[name] |= report.values
    return found
