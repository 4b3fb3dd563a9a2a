"""A model against a split: search, then score. No metric is defined here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from umpteen.answers.calibration import PLACES, judge_sets
from umpteen.data.dataset import Dataset
from umpteen.data.tokens import TokenStore
from umpteen.head_names import ENSEMBLE
from umpteen.metrics import parse_all
from umpteen.scoring import DEFAULT, Report, score
from umpteen.types import TopK

if TYPE_CHECKING:
    from umpteen.predictor import Predictor


@dataclass(frozen=True)
class Evaluation:
    """A report for each head."""

    heads: dict[str, Report]
    sets: dict[str, Any] | None = None
    """Of the ensemble head, which gives probabilities: how well they are calibrated, and the sets
    of labels above its thresholds."""

    def __getitem__(self, head: str) -> Report:
        return self.heads[head]

    def as_json(self) -> dict[str, Any]:
        """The document of ``umpteen evaluate --json``; values in percent."""
        reports = list(self.heads.values())
        document = {
            "heads": {head: dict(report.values) for head, report in self.heads.items()},
            "propensity": {"a": reports[0].propensity.a, "b": reports[0].propensity.b},
            "n": reports[0].n,
        }
        return document if self.sets is None else {**document, "sets": self.sets}


def evaluate(
    model: Predictor,
    data: Dataset,
    *,
    split: str = "test",
    head: str = "all",
    metrics: Sequence[str] = DEFAULT,
    tokens: TokenStore | None = None,
    without: Iterable[str] = (),
) -> Evaluation:
    """Metrics of a model on a split.

    Filter pairs are excluded from the search itself and from the truth. Label frequencies come
    from the data's own train split, propensity constants from the data or, where the run was told
    them, from the run.

    Args:
        model: A predictor; labels changed after its training do not count.
        data: The data set; its labels must be the model's.
        split: Which part.
        head: ``dual``, ``classifier``, ``combined``, ``ensemble``, or ``all``.
        metrics: What to compute.
        tokens: The split's tokens, where they are known already.
        without: Parts that the ensemble head leaves out.

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
    texts = part.texts(model.reading.text)
    vectors = model.vectors(texts) if tokens is None else model.encode_tokens(tokens)
    counts = data.label_counts
    heads = model.heads if head == "all" else (head,)
    reports = {}
    sets = None
    left_out = tuple(without)
    for name in heads:
        places = min(depth if name != ENSEMBLE else max(depth, PLACES), len(model.labels))
        own = left_out if name == ENSEMBLE or ENSEMBLE not in heads else ()

        def answers(k: int, name: str = name, own: tuple[str, ...] = own) -> TopK:
            return model.search(
                vectors, k, head=name, texts=texts, exclude=part.filters, without=own
            )

        top = answers(places)
        if name == ENSEMBLE and model.ensemble is not None:
            # Deeper answers weigh more candidates, which moves probabilities: sets are judged as
            # users get them.
            shown = top if places <= PLACES else answers(PLACES)
            way = model.ensemble.recipe.way(left_out)
            counts_of_parts = model.ensemble.label_counts
            sets = judge_sets(shown, part.filtered_targets(), way.calibration, counts_of_parts)
        reports[name] = score(
            top,
            part,
            label_counts=np.asarray(counts),
            n_train=len(data["train"]),
            propensity=model.propensity or data.propensity,
            metrics=metrics,
        )
    return Evaluation(reports, sets)
