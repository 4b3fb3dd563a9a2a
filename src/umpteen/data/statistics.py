"""Counts that describe a data set, and what looks odd in one. No reading, no printing, no plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.csr import row_sizes
from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats.lines import shown
from umpteen.data.formats.recognise import Format
from umpteen.data.label_links import count_links
from umpteen.data.text_scan import Places, SplitScan, scan_texts

BINS = 5
FEW_QUERIES = 5


def describe(dataset: Dataset, bins: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Return the numbers of a data set, ready for JSON.

    Args:
        dataset: The data.
        bins: (L,) the frequency bin of each label, to be described too.

    Returns:
        Name, propensity constants, a part for each split, one for the labels and, if there is a
        train split, one for label frequencies.
    """
    labels = dataset.labels
    found: dict[str, Any] = {
        "name": dataset.name,
        "propensity": {"a": dataset.propensity.a, "b": dataset.propensity.b},
        "splits": {name: _describe_split(split) for name, split in dataset.splits.items()},
        "labels": {
            "count": len(labels),
            "words": spread(count_words(labels.encoder_texts())),
            "fingerprint": labels.fingerprint,
        },
    }
    if "train" in dataset:
        counts = dataset.label_counts
        found["labels"] |= {
            "without_training_query": int((counts == 0).sum()),
            "share_with_few_queries": float((counts < FEW_QUERIES).mean()),
            "few_queries": FEW_QUERIES,
            "queries_per_label": spread(counts),
            "as_texts": count_links(labels, dataset["train"]),
        }
        if bins is not None:
            found["labels"]["bins"] = describe_bins(counts, bins)
    return found


def spread(values: NDArray[np.int64]) -> dict[str, float]:
    """Return mean, smallest, median, 90th percentile and largest.

    Example:
        >>> spread(np.array([1, 2, 6]))
        {'mean': 3.0, 'min': 1, 'median': 2.0, 'p90': 5.2, 'max': 6}
    """
    if not len(values):
        return {"mean": 0.0, "min": 0, "median": 0.0, "p90": 0.0, "max": 0}
    median, p90 = np.quantile(values, [0.5, 0.9]).tolist()
    return {
        "mean": float(values.mean()),
        "min": int(values.min()),
        "median": median,
        "p90": round(p90, 6),
        "max": int(values.max()),
    }


def count_words(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return words of each text, as separated by blanks."""
    return np.fromiter((len(text.split()) for text in texts), np.int64, len(texts))


def describe_bins(
    counts: NDArray[np.int64], bins: NDArray[np.int64], n_bins: int = BINS
) -> list[dict[str, int]]:
    """Return labels, pairs, and fewest and most queries of a label, for each bin from head to tail.

    Args:
        counts: (L,) training queries of each label.
        bins: (L,) the bin of each label, 0 the head.
        n_bins: How many bins there are; one may be empty.

    Example:
        >>> describe_bins(np.array([4, 1]), np.array([0, 1]), 2)[1]
        {'labels': 1, 'pairs': 1, 'fewest': 1, 'most': 1}
    """
    described = []
    for each in range(n_bins):
        inside = counts[bins == each]
        described.append(
            {
                "labels": len(inside),
                "pairs": int(inside.sum()),
                "fewest": int(inside.min()) if len(inside) else 0,
                "most": int(inside.max()) if len(inside) else 0,
            }
        )
    return described


def find_oddities(
    dataset: Dataset,
    files: Mapping[str, str] | None = None,
    *,
    unit: str = "row",
    scans: Mapping[str, SplitScan] | None = None,
) -> list[str]:
    """Return what can be trained on but is seldom meant: empty texts, rows without labels.

    Returns:
        One sentence for each kind of oddity in each split, with its places.
    """
    files, scans = files or {}, scan_texts(dataset) if scans is None else scans
    said = []
    for name, split in dataset.splits.items():
        for places, what in (
            (scans[name].empty, "empty text"),
            (_unlabelled(split), "no labels"),
        ):
            if places.count:
                rows = ", ".join(str(row + 1) for row in places.rows)
                more = places.count - len(places.rows)
                rows += f" and {more} more" if more else ""
                plural = "s" if places.count > 1 else ""
                said.append(f"{files.get(name, name)}, {unit}{plural} {rows}: {what}")
    labels = dataset.labels
    texts = labels.titles if labels.contents is None else labels.encoder_texts()
    blank_labels = [row for row, text in enumerate(texts) if not text]
    if blank_labels:
        first = labels.ids[blank_labels[0]]
        said.append(f"{len(blank_labels)} labels have an empty text, first {first!r}")
    return said


def unlabelled_notes(dataset: Dataset) -> list[str]:
    """Return how many rows of each split have no labels, and what becomes of them."""
    said = []
    for name, split in dataset.splits.items():
        found = _unlabelled(split)
        if found.count:
            rule = "kept as texts that no label fits" if found.count > 1 else "kept"
            plural = "s" if found.count > 1 else ""
            first = f"first row {found.rows[0] + 1}"
            said.append(f"{name}: {found.count:,} row{plural} without labels, {rule} ({first})")
    return said


def _unlabelled(split: Split) -> Places:
    found, start = Places(), 0
    for sizes in row_sizes(split.targets):
        found.add(start + np.flatnonzero(sizes == 0))
        start += len(sizes)
    return found


def check(
    dataset: Dataset, part: Format, path: Any, scans: Mapping[str, SplitScan] | None = None
) -> list[str]:
    """Return the oddities of a data set just read, with the names of its files."""
    found = part.files(path)
    files = {name: shown(file) for name, file in found.items()}
    unit_of = getattr(part, "unit_of", lambda file: part.UNIT)
    unit = "line" if all(unit_of(file) == "line" for file in found.values()) else "row"
    return find_oddities(dataset, files, unit=unit, scans=scans)


def _describe_split(split: Split) -> dict[str, Any]:
    per_query = split.targets.getnnz(axis=1).astype(np.int64)
    return {
        "queries": len(split),
        "positives": int(split.targets.nnz),
        "positives_per_query": spread(per_query),
        "words": spread(count_words(split.texts())),
        "title_words": spread(count_words(split.titles)),
        "without_labels": int((per_query == 0).sum()),
        "filter_pairs": len(split.filters),
    }
