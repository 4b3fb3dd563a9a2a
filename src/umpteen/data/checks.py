"""What can be trained on but is seldom meant: repeated texts, leaks, odd labels, long texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from umpteen.data.csr import column_counts
from umpteen.data.dataset import Dataset, Split
from umpteen.data.text_scan import SHOWN, Places, Repeats, SplitScan, scan_texts
from umpteen.display import counted

COMMON_SHARE = 0.5
MIN_ROWS = 20
"""Fewer rows say nothing about how common a label is."""
MAX_COMPARED = 1 << 20
"""Label ids that are compared with each other; of more, evenly spaced ones."""
JOINED_SHARE = 0.2
MAX_REUSE = 2.0
TOKENS_PER_WORD = 4 / 3
SEPARATORS = {";": "';'", "|": "'|'", ",": "commas", "/": "'/'", "\t": "tabs", "\n": "line breaks"}
_CUT = 40


def find_warnings(
    dataset: Dataset,
    files: Mapping[str, str] | None = None,
    *,
    max_tokens: int | None = None,
    scans: Mapping[str, SplitScan] | None = None,
) -> list[str]:
    """Return what deserves a look before training, one sentence each.

    Returns:
        Sentences on repeated texts, texts in train and test, labels that only test has, a label on
        most rows, labels that look like several, and texts that are too long to be read whole.
    """
    names = {split: (files or {}).get(split, split) for split in dataset.splits}
    scans = scan_texts(dataset, words_of(max_tokens)) if scans is None else scans
    said: list[str] = []
    for name, split in dataset.splits.items():
        said += _repeated_texts(names[name], split, scans[name].repeats)
    said += [_leak(names[name], scans[name]) for name in names if scans[name].in_train.count]
    said += _labels_only_in_test(dataset, names)
    for name, split in dataset.splits.items():
        said += _common_labels(names[name], split, dataset.labels.ids)
    said += _joined_labels(dataset)
    return said + [
        _long(names[name], scans[name], max_tokens) for name in names if scans[name].long.count
    ]


def words_of(max_tokens: int | None) -> int | None:
    """Return how many words an encoder reads, about, that reads so many tokens."""
    return None if max_tokens is None else int(max_tokens / TOKENS_PER_WORD)


def _repeated_texts(name: str, split: Split, found: Repeats) -> list[str]:
    if found.first is None:
        return []
    first, second = found.first
    said = [
        f"{name}: {counted(found.count, 'text')} repeat{'s' if found.count == 1 else ''} another "
        f"(row {second + 1} is as row {first + 1}: {_shown(split.texts()[first])})"
    ]
    if found.first_differing is not None:
        (one, other), n = found.first_differing, found.differing
        said.append(
            f"{name}: {counted(n, 'text')} {'has' if n == 1 else 'have'} different labels in "
            f"different rows (first rows {one + 1} and {other + 1}); join the labels into one row"
        )
    return said


def _leak(name: str, scan: SplitScan) -> str:
    return (
        f"{name}: {scan.in_train.count:,} of {scan.size:,} texts are also in train "
        f"(leakage; {_places(scan.in_train)}); metrics on them say nothing about new texts"
    )


def _labels_only_in_test(dataset: Dataset, names: Mapping[str, str]) -> list[str]:
    if "test" not in dataset or "train" not in dataset:
        return []
    seen = dataset.label_counts > 0
    counts = column_counts(dataset["test"].targets)
    only = np.flatnonzero((counts > 0) & ~seen)
    if not len(only):
        return []
    shown = ", ".join(dataset.labels.ids[row] for row in only[:SHOWN])
    return [
        f"{names['test']}: {counted(len(only), 'label')} without a training text ({shown}"
        f"{', ...' if len(only) > SHOWN else ''}), {counted(int(counts[only].sum()), 'time')}; "
        "only the label's text can find them"
    ]


def _common_labels(name: str, split: Split, ids: Sequence[str]) -> list[str]:
    if len(split) < MIN_ROWS:
        return []
    shares = column_counts(split.targets) / len(split)
    return [
        f"{name}: label {ids[row]!r} is on {shares[row]:.0%} of the rows; it is right for most "
        "texts and raises the metrics"
        for row in np.flatnonzero(shares > COMMON_SHARE)[:SHOWN]
    ]


def _joined_labels(dataset: Dataset) -> list[str]:
    """Find labels that hold a separator: made of other labels, or hardly any is used twice.

    Labels with texts of their own come from a table of labels, so none of them is several.
    """
    ids, titles = dataset.labels.ids, dataset.labels.titles
    if "train" not in dataset:
        return []
    rows = np.flatnonzero(dataset.label_counts)
    rows = rows[:: len(rows) // MAX_COMPARED + 1]
    if any(titles[row] not in ("", ids[row]) for row in rows.tolist()):
        return []
    used = [ids[row] for row in rows.tolist()]
    known, n = set(used), len(dataset["train"])
    reuse = dataset["train"].targets.nnz / max(1, len(used))
    # Of few rows, a slash alone is no sign: labels may be paths.
    marks = SEPARATORS if n >= MIN_ROWS else {mark: SEPARATORS[mark] for mark in ";|,"}
    for mark, word in marks.items():
        holding = [name for name in used if re.search(rf"\S\s*{re.escape(mark)}\s*\S", name)]
        seldom = len(holding) >= JOINED_SHARE * len(used) and len(used) > 1 and reuse < MAX_REUSE
        made = sum(all(part.strip() in known for part in name.split(mark)) for name in holding)
        if holding and (seldom or 2 * made >= len(holding)):
            return [
                f"{len(holding):,} of {counted(len(used), 'label')} hold {word} (first: "
                f"{_shown(holding[0])}) and a label has {reuse:.1f} texts on average; if they are "
                f"several labels, use --separator {'tab' if mark == chr(9) else repr(mark)}"
            ]
    return _joined_by_blanks(used)


def _joined_by_blanks(used: Sequence[str]) -> list[str]:
    """Find labels such as "red round" where "red" and "round" are labels, and words are few."""
    known = set(used)
    holding = [name for name in used if " " in name]
    made = [name for name in holding if all(word in known for word in name.split())]
    words = {word for name in used for word in name.split()}
    if not made or 2 * len(made) < len(holding) or 2 * len(words) > len(used):
        return []
    return [
        f"{len(made):,} of {counted(len(used), 'label')} are other labels with blanks between "
        f"them (first: {_shown(made[0])}); if they are several labels, use --separator space"
    ]


def _long(name: str, scan: SplitScan, max_tokens: int | None) -> str:
    verb = "is" if scan.long.count == 1 else "are"
    return (
        f"{name}: {scan.long.count:,} of {counted(scan.size, 'text')} {verb} longer than "
        f"{words_of(max_tokens)} words (about {max_tokens} tokens; {_places(scan.long)}); encoders "
        "read the beginning, the lexical scorer reads all"
    )


def _places(found: Places) -> str:
    named = ", ".join(str(row + 1) for row in found.rows)
    more = ", ..." if found.count > len(found.rows) else ""
    return f"row{'s' if found.count > 1 else ''} {named}{more}"


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= _CUT else f"{text[:_CUT]}...")
