"""The table of single labels: precision, recall, F1 and support, the most frequent first."""

from __future__ import annotations

import math
from itertools import islice

from markupsafe import Markup

from umpteen.per_label import PerLabel
from umpteen.report.elements import Child, join, table, tag, user_text
from umpteen.report.outcomes import HEAD_TITLES

SHOWN, MORE = 10, 190
HEADERS = ("label", "training texts", "support", "predicted", "precision", "recall", "F1")


def label_table(per_label: PerLabel, where: str) -> list[Child]:
    """Render the scores of the most frequent labels.

    Args:
        per_label: The scores.
        where: On which texts they were counted, in words.

    Returns:
        A heading, a sentence and the table.
    """
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
