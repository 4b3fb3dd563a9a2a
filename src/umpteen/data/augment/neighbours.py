"""The strongest correlations of one label, as numbers, as lines of text and as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from umpteen.data.augment.graph import Counts, GraphOptions
from umpteen.data.dataset import Dataset
from umpteen.data.frequency_plot import drawing_kind
from umpteen.extras import require
from umpteen.files import atomic_file

WIDTH = 30
LINE = 30
"""Characters in a line of a picture."""


def neighbours(dataset: Dataset, label_id: str, *, most: int = 10) -> dict[str, Any]:
    """Return the labels that come most often with a label in the training data, ready for JSON.

    Args:
        dataset: The data; it needs a train split. Its filter pairs do not count.
        label_id: The user's id of the label.
        most: How many neighbours, heaviest first; equal ones by row.

    Returns:
        The label's id, text and number of queries, and for each neighbour its id and text,
        ``queries`` with both, ``weight`` (share of the label's queries with the neighbour, which
        ``gandalf`` takes as target) and ``back`` (share of the neighbour's queries with the label).

    Raises:
        DataError: If no label has this id, or there is no train split.
    """
    labels = dataset.labels
    row = labels.row(label_id)
    counts = Counts(dataset["train"].filtered_targets(), GraphOptions(0.0, 0, 0))
    _, block, _ = next(counts.blocks(np.array([row])))
    others = block.indices != row
    rows, both = block.indices[others].astype(np.int64), block.data[others].astype(np.int64)
    order = np.lexsort((rows, -both))[:most]
    own = int(counts.frequencies[row])
    found = [
        {
            "id": labels.ids[other],
            "text": labels.texts[other],
            "queries": n,
            "weight": n / own,
            "back": n / int(counts.frequencies[other]),
        }
        for other, n in zip(rows[order].tolist(), both[order].tolist(), strict=True)
    ]
    return {"id": label_id, "text": labels.texts[row], "queries": own, "neighbours": found}


def draw_neighbours(found: dict[str, Any], *, width: int = WIDTH) -> list[str]:
    """Return lines that show a label and its neighbours with their weights.

    Example:
        >>> near = {"text": "pear", "weight": 0.5, "back": 1.0}
        >>> found = {"text": "apple", "queries": 4, "neighbours": [near]}
        >>> for line in draw_neighbours(found, width=4):
        ...     print(line)
        apple (4 training queries)
        0.50 ##    pear (back 1.00)
    """
    lines = [f"{found['text']} ({found['queries']} training queries)"]
    if not found["neighbours"]:
        return [*lines, "comes with no other label"]
    for each in found["neighbours"]:
        bar = "#" * max(1, round(width * each["weight"]))
        lines.append(
            f"{each['weight']:.2f} {bar:<{width}}  {each['text']} (back {each['back']:.2f})"
        )
    return lines


def draw_neighbours_file(found: dict[str, Any], path: str | Path) -> None:
    """Write a picture: neighbours on both sides of the label, heavier ones with thicker lines.

    Args:
        found: From ``neighbours``; the heaviest is drawn at the top of the right side, the next one
            at the top of the left side, and so on.
        path: A file that ends in .png or .svg.

    Raises:
        UmpteenError: If the name ends otherwise.
        MissingExtra: If matplotlib is not installed.
    """
    kind = drawing_kind(path)
    figure = neighbours_figure(found)
    with atomic_file(Path(path)) as temporary:
        figure.savefig(temporary, format=kind, dpi=150)


def neighbours_figure(found: dict[str, Any]) -> Any:
    """Return the picture as a figure of matplotlib."""
    figures = require("matplotlib.figure", extra="plot")
    near: Sequence[dict[str, Any]] = found["neighbours"]
    rows = max(3, (len(near) + 1) // 2)
    figure = figures.Figure(figsize=(10, 1 + 0.8 * rows), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-1.45, 1.45), ylim=(-rows + 0.5, 0.5))
    middle = (1 - rows) / 2
    for place, each in enumerate(near):
        n_side = (len(near) + 1 - place % 2) // 2
        x, y = 1 - 2 * (place % 2), middle + (n_side - 1) / 2 - place // 2
        axes.plot([0, x], [middle, y], color="0.6", linewidth=0.5 + 5 * each["weight"], zorder=1)
        axes.text(x, y, f"{_in_lines(each['text'])}\n{each['weight']:.2f}", ha="center",
                  va="center", zorder=2, fontsize=9,
                  bbox={"boxstyle": "round", "fc": "white", "ec": "0.5"})  # fmt: skip
    own = {"boxstyle": "round", "fc": "#ffe9b3", "ec": "black"}
    axes.text(0, middle, _in_lines(found["text"]), ha="center", va="center", zorder=3,
              weight="bold", bbox=own)  # fmt: skip
    axes.axis("off")
    axes.set_title(f"{found['queries']} training queries; share of them with each neighbour")
    return figure


def _in_lines(text: str) -> str:
    """Return at most two lines of a width that leaves room beside them.

    A dollar sign is no formula.
    """
    lines = textwrap.wrap(text, LINE, max_lines=2, placeholder=" ...")
    return "\n".join(lines).replace("$", r"\$")
