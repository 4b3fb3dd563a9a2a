"""Precision, recall, F1 and support of every label of an evaluation, and the table of them."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.files import atomic_file
from umpteen.metrics.per_label import LabelScores

COLUMNS = (
    "id", "text", "training_texts", "support", "predicted", "precision", "recall", "f1",
)  # fmt: skip
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class PerLabel:
    """Scores of single labels of one head."""

    head: str
    rule: str
    """Which labels of a text count as predicted, in words."""
    labels: LabelSet
    """The run's."""
    unknown: Sequence[tuple[str, str]]
    """Ids and texts of labels of the data that are not in the run; their rows follow."""
    label_counts: NDArray[np.int64]
    """(L,) training texts of each label."""
    scores: LabelScores

    def rows(self) -> Iterator[tuple[str, str, int, int, int, float, float, float]]:
        """Yield labels that occur or are predicted, the most frequent first.

        Yields:
            The values of ``COLUMNS``; precision, recall and F1 in percent, NaN where undefined.
        """
        found = self.scores
        precision, recall, f1 = (
            100.0 * values for values in (found.precision, found.recall, found.f1)
        )
        n, ids, texts = len(self.labels), self.labels.ids, self.labels.texts
        for row in found.seen().tolist():
            named = (ids[row], texts[row]) if row < n else self.unknown[row - n]
            yield (
                *named,
                int(self.label_counts[row]),
                int(found.support[row]),
                int(found.predicted[row]),
                float(precision[row]),
                float(recall[row]),
                float(f1[row]),
            )

    def write(self, path: str | Path) -> int:
        """Write a table with a line for each label, as CSV or TSV by the file's name.

        Returns:
            How many labels were written.

        Raises:
            DataError: If the file's name has another ending.
        """
        path = Path(path)
        separator = require_table_name(path)
        with (
            atomic_file(path) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as out,
        ):
            writer = csv.writer(out, delimiter=separator, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows([*row[:5], *map(_percent, row[5:])] for row in self.rows())
        return len(self.scores.seen())


def require_table_name(path: str | Path) -> str:
    """Return the separator of a table by the file's ending.

    Raises:
        DataError: If the ending is neither .csv nor .tsv.
    """
    path = Path(path)
    if path.suffix.lower() not in SEPARATORS:
        raise DataError(f"{path}: scores of labels are written as .csv or .tsv; name such a file")
    return SEPARATORS[path.suffix.lower()]


def _percent(value: float) -> str:
    """Return two decimals; nothing where the value is undefined."""
    return "" if np.isnan(value) else f"{value:.2f}"
