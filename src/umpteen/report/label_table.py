"""Single labels: precision, recall, F1 and support, and which labels a head finds or misses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from umpteen.per_label import PerLabel
from umpteen.report.elements import Child, join, table, tag, user_text
from umpteen.report.outcomes import HEAD_TITLES, Outcome

SHOWN, MORE = 10, 190
HEADERS = ("label", "training texts", "support", "predicted", "precision", "recall", "F1")


def label_table(per_label: PerLabel, where: str) -> list[Child]:
    """Render the scores of the most frequent labels."""
    lines = [
        [
            named_label(text, label_id),
            f"{training:,}",
            f"{support:,}",
            f"{predicted:,}",
            *map(_percent, scores),
        ]
        for label_id, text, training, support, predicted, *scores in islice(
            per_label.rows(), SHOWN + MORE
        )
    ]
    head = HEAD_TITLES.get(per_label.head, per_label.head)
    parts: list[Child] = [
        tag("h3", "Precision, recall and F1"),
        tag("p", f"{head}; predicted are {per_label.rule}. Counted {where}"),
    ]
    if not lines:
        return [*parts, tag("p", "No label is true or predicted.", class_="soft")]
    caption = "In percent, the most frequent labels first"
    parts.append(table(HEADERS, lines[:SHOWN], caption=caption))
    if len(lines) > SHOWN:
        rest = table(HEADERS, lines[SHOWN:], caption=f"{caption}, continued")
        parts.append(tag("details", tag("summary", f"{len(lines) - SHOWN} more"), rest))
    n, command = len(per_label.scores.seen()), "umpteen evaluate RUN DATA --per-label labels.csv"
    parts.append(tag("p", f"All {n:,} labels as a file: ", tag("code", command), class_="soft"))
    return parts


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def named_label(text: str, label_id: str) -> Markup:
    """Render a label's text, with its id where the two differ."""
    shown = user_text(text, longest=140)
    if text == label_id:
        return shown
    return join([shown, " ", tag("span", user_text(label_id, longest=80), class_="id")])


@dataclass(frozen=True)
class LabelCounts:
    """How often each label was right and found; every array is (L,)."""

    positives: NDArray[np.int64]
    """Queries that have the label."""
    found: dict[str, NDArray[np.int64]]
    """Of these, queries for which a head has it among its first five."""


def count_labels(outcome: Outcome) -> LabelCounts:
    """Count, for every label, its queries and those each head finds it for."""
    n_labels = outcome.truth.shape[1]
    return LabelCounts(
        positives=np.bincount(outcome.truth.indices, minlength=n_labels),
        found={
            name: np.bincount(head.rows[head.hits], minlength=n_labels)
            for name, head in outcome.heads.items()
        },
    )


def most_gained(counts: LabelCounts, better: str, base: str, most: int) -> NDArray[np.int64]:
    """Return rows of the labels that one head finds more often than another, largest gain first.

    Returns:
        Label rows; equal gains by the larger share of the label's queries, then by row.
    """
    gain = counts.found[better] - counts.found[base]
    return _first(gain, gain / np.maximum(1, counts.positives), most)


def most_missed(counts: LabelCounts, head: str, most: int) -> NDArray[np.int64]:
    """Return rows of the labels a head misses for the most queries.

    Equal ones by the larger share.
    """
    missed = counts.positives - counts.found[head]
    return _first(missed, missed / np.maximum(1, counts.positives), most)


def _first(amounts: NDArray[np.int64], shares: NDArray[np.float64], most: int) -> NDArray[np.int64]:
    candidates = np.flatnonzero(amounts > 0)
    order = np.lexsort((candidates, -shares[candidates], -amounts[candidates]))
    return candidates[order[:most]]
