"""The label-frequency picture, as lines of text and as a matplotlib figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset
from umpteen.errors import UmpteenError
from umpteen.extras import require
from umpteen.files import atomic_file

KINDS = ("png", "svg")
WIDTH = 40


def draw_text(bins: Sequence[Mapping[str, int]], *, width: int = WIDTH) -> list[str]:
    """Return lines that show how many labels share each fifth of the training pairs.

    Example:
        >>> for line in draw_text([{"labels": 1, "pairs": 8, "fewest": 8, "most": 8}], width=3):
        ...     print(line)
        bin       labels  queries each
        1 head         1           8-8  ###
    """
    largest = max((each["labels"] for each in bins), default=0)
    lines = [f"{'bin':<7}  {'labels':>7}  {'queries each':>12}"]
    for number, each in enumerate(bins, 1):
        place = " head" if number == 1 else " tail" if number == len(bins) else ""
        length = round(width * each["labels"] / largest) if largest else 0
        bar = "#" * (max(length, 1) if each["labels"] else 0)
        queries = f"{each['fewest']}-{each['most']}"
        lines.append(f"{f'{number}{place}':<7}  {each['labels']:>7}  {queries:>12}  {bar}".rstrip())
    return lines


def draw_file(dataset: Dataset, bins: NDArray[np.int64], path: str | Path) -> None:
    """Write a picture of label frequencies and of positives per query.

    Args:
        dataset: The data; it needs a train split.
        bins: (L,) the frequency bin of each label, 0 the head.
        path: A file that ends in .png or .svg.

    Raises:
        UmpteenError: If the name ends otherwise.
        MissingExtra: If matplotlib is not installed.
    """
    kind = drawing_kind(path)
    figures = require("matplotlib.figure", extra="plot")
    counts = dataset.label_counts
    figure = figures.Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_ranks(left, counts, bins)
    _draw_positives(right, dataset)
    figure.suptitle(f"{dataset.name}: {len(counts)} labels")
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=150)


def drawing_kind(path: str | Path) -> str:
    """Return ``png`` or ``svg``, by the end of a file's name.

    Raises:
        UmpteenError: If it ends otherwise.
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in KINDS:
        raise UmpteenError(f"{path} must end in .png or .svg; other kinds are not drawn")
    return kind


def _draw_ranks(axes: Any, counts: NDArray[np.int64], bins: NDArray[np.int64]) -> None:
    ordered = np.sort(counts)[::-1]
    ranks = np.arange(1, len(ordered) + 1)
    seen = ordered > 0
    axes.plot(ranks[seen], ordered[seen], linewidth=1.5)
    # Bins go from frequent to rare as the ranks do, so their sizes say where they end.
    for border in np.cumsum(np.bincount(bins))[:-1]:
        axes.axvline(border + 0.5, color="0.7", linewidth=0.8, linestyle="--")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="label, most frequent first",
        ylabel="training queries",
        title="label frequency; dashed: five bins of equal volume",
    )


def _draw_positives(axes: Any, dataset: Dataset) -> None:
    for name, split in dataset.splits.items():
        per_query = split.targets.getnnz(axis=1)
        share = np.bincount(per_query) / len(split)
        axes.plot(np.arange(len(share)), share, label=name, linewidth=1.5)
    axes.set(xlabel="positives", ylabel="share of queries", title="positives per query")
    axes.set_xscale("symlog", linthresh=10)
    axes.legend()
