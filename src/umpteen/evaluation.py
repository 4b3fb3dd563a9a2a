"""A model against a split: search, then score. No metric is defined here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from umpteen.data.dataset import Dataset
from umpteen.data.tokens import TokenStore
from umpteen.metrics import parse_all
from umpteen.scoring import DEFAULT, Report, score

if TYPE_CHECKING:
    from umpteen.predictor import Predictor


@dataclass(frozen=True)
class Evaluation:
    """A report for each head."""

    heads: dict[str, Report]

    def __getitem__(self, head: str) -> Report:
        return self.heads[head]

    def as_json(self) -> dict[str, Any]:
        """The document of ``umpteen evaluate --json``; values in percent."""
        reports = list(self.heads.values())
        return {
            "heads": {head: dict(report.values) for head, report in self.heads.items()},
            "propensity": {"a": reports[0].propensity.a, "b": reports[0].propensity.b},
            "n": reports[0].n,
        }


def evaluate(
    model: Predictor,
    data: Dataset,
    *,
    split: str = "test",
    head: str = "all",
    metrics: Sequence[str] = DEFAULT,
    tokens: TokenStore | None = None,
) -> Evaluation:
    """Metrics of a model on a split.

    Filter pairs are excluded from the search itself and from the truth. Label frequencies come
    from the data's own train split, propensity constants from the data or, where the run was told
    them, from the run.

    Args:
        model: A predictor; labels changed after its training do not count.
        data: The data set; its labels must be the model's.
        split: Which part.
        head: ``de``, ``clf``, ``combined``, or ``all``.
        metrics: What to compute.
        tokens: The split's tokens, where they are known already.

    Returns:
        A report per head, in percent.

    Raises:
        LabelMismatch: If model and data have different labels.
        ConfigError: If the model has no such head, or a metric is not known.
    """
    part = data[split]
    model = model.as_trained()
    model.labels.require_same(data.labels, ours="the run", theirs="the data")
    depth = max(
        [metric.k for metric in parse_all(metrics) if hasattr(metric, "k") and metric.k] + [5]
    )
    if tokens is None:
        vectors = model.vectors(part.texts(model.reading.text))
    else:
        vectors = model.encode_tokens(tokens)
    counts = data.label_counts
    heads = model.heads if head == "all" else (head,)
    reports = {}
    for name in heads:
        top = model.search(vectors, min(depth, len(model.labels)), head=name, exclude=part.filters)
        reports[name] = score(
            top,
            part,
            label_counts=np.asarray(counts),
            n_train=len(data["train"]),
            propensity=model.propensity or data.propensity,
            metrics=metrics,
        )
    return Evaluation(reports)
