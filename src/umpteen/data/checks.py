"""What can be trained on but is seldom meant: repeated texts, leaks, odd labels, long texts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Split
from umpteen.data.statistics import count_words

SHOWN = 5
COMMON_SHARE = 0.5
MIN_ROWS = 20
"""Fewer rows say nothing about how common a label is."""
JOINED_SHARE = 0.2
MAX_REUSE = 2.0
TOKENS_PER_WORD = 4 / 3
SEPARATORS = {";": "';'", "|": "'|'", ",": "commas", "/": "'/'", "\t": "tabs", "\n": "line breaks"}
_CUT = 40


@dataclass(frozen=True)
class TextGroups:
    """Texts of all splits, equal ones with the same number; case and blanks do not count."""

    of: Mapping[str, NDArray[np.int64]]
    """For each split, (N,) the number of each text; -1 for an empty one."""
    size: int

    @classmethod
    def of_dataset(cls, dataset: Dataset) -> TextGroups:
        """Number the texts of a data set, in order of first appearance.

        Texts are compared by 64-bit hashes: 8 bytes for each, where a table of texts has hundreds.
        """
        parts = [
            np.fromiter(map(_text_hash, split.texts()), np.int64, len(split))
            for split in dataset.splits.values()
        ]
        hashes = np.concatenate([np.empty(0, np.int64), *parts])
        values, first, numbers = np.unique(hashes, return_index=True, return_inverse=True)
        appearance = np.empty(len(values), np.int64)
        appearance[np.argsort(first)] = np.arange(len(values))
        numbers = np.where(hashes == _EMPTY, -1, appearance[numbers])
        cuts = np.cumsum([len(part) for part in parts])[:-1]
        return cls(dict(zip(dataset.splits, np.split(numbers, cuts), strict=True)), len(values))


def _text_hash(text: str) -> int:
    return hash(" ".join(text.split()).casefold())


_EMPTY = _text_hash("")


def find_warnings(
    dataset: Dataset, files: Mapping[str, str] | None = None, *, max_tokens: int | None = None
) -> list[str]:
    """Return what deserves a look before training, one sentence each.

    Args:
        dataset: The data.
        files: What to call each split; its own name otherwise.
        max_tokens: How much of a text an encoder reads; None leaves long texts out.

    Returns:
        Sentences on repeated texts, texts in train and test, labels that only test has, a label on
        most rows, labels that look like several, and texts that are too long to be read whole.
    """
    names = {split: (files or {}).get(split, split) for split in dataset.splits}
    groups = TextGroups.of_dataset(dataset)
    said: list[str] = []
    for name, split in dataset.splits.items():
        said += _repeated_texts(names[name], split, groups.of[name])
    said += _leaks(names, groups)
    said += _labels_only_in_test(dataset, names)
    for name, split in dataset.splits.items():
        said += _common_labels(names[name], split, dataset.labels.ids)
    said += _joined_labels(dataset)
    if max_tokens is not None:
        for name, split in dataset.splits.items():
            said += _long_texts(names[name], split, max_tokens)
    return said


def _repeated_texts(name: str, split: Split, groups: NDArray[np.int64]) -> list[str]:
    rows = np.flatnonzero(groups >= 0)
    order = rows[np.argsort(groups[rows], kind="stable")]
    again = np.flatnonzero(groups[order][1:] == groups[order][:-1]) + 1
    if not len(again):
        return []
    first, second = int(order[again[0] - 1]), int(order[again[0]])
    said = [
        f"{name}: {_counted(len(again), 'text')} repeat{'s' if len(again) == 1 else ''} another "
        f"(row {second + 1} is as row {first + 1}: {_shown(split.texts()[first])})"
    ]
    keys = _label_keys(split)
    differs = again[keys[order[again]] != keys[order[again - 1]]]
    if len(differs):
        one, other = int(order[differs[0] - 1]), int(order[differs[0]])
        n = len(np.unique(groups[order[differs]]))
        said.append(
            f"{name}: {_counted(n, 'text')} {'has' if n == 1 else 'have'} different labels in "
            f"different rows (first rows {one + 1} and {other + 1}); join the labels into one row"
        )
    return said


def _leaks(names: Mapping[str, str], groups: TextGroups) -> list[str]:
    said = []
    for name in ("test", "validation"):
        if name not in names or "train" not in names:
            continue
        in_train = np.zeros(groups.size + 1, bool)  # the last place is that of empty texts, -1
        in_train[groups.of["train"]] = True
        in_train[-1] = False
        rows = np.flatnonzero(in_train[groups.of[name]])
        if len(rows):
            said.append(
                f"{names[name]}: {len(rows):,} of {len(groups.of[name]):,} texts are also in train "
                f"(leakage; {_places(rows)}); metrics on them say nothing about new texts"
            )
    return said


def _labels_only_in_test(dataset: Dataset, names: Mapping[str, str]) -> list[str]:
    if "test" not in dataset or "train" not in dataset:
        return []
    seen = dataset.label_counts > 0
    counts = np.asarray(dataset["test"].targets.getnnz(axis=0))
    only = np.flatnonzero((counts > 0) & ~seen)
    if not len(only):
        return []
    shown = ", ".join(dataset.labels.ids[row] for row in only[:SHOWN])
    return [
        f"{names['test']}: {_counted(len(only), 'label')} without a training text ({shown}"
        f"{', ...' if len(only) > SHOWN else ''}), {_counted(int(counts[only].sum()), 'time')}; "
        "only the label's text can find them"
    ]


def _common_labels(name: str, split: Split, ids: Sequence[str]) -> list[str]:
    if len(split) < MIN_ROWS:
        return []
    shares = np.asarray(split.targets.getnnz(axis=0)) / len(split)
    return [
        f"{name}: label {ids[row]!r} is on {shares[row]:.0%} of the rows; every prediction will "
        "have it, and it raises the metrics"
        for row in np.flatnonzero(shares > COMMON_SHARE)[:SHOWN]
    ]


def _joined_labels(dataset: Dataset) -> list[str]:
    """Find labels that hold a separator: made of other labels, or hardly any is used twice."""
    ids = dataset.labels.ids
    if "train" not in dataset:
        return []
    used = [ids[row] for row in np.flatnonzero(dataset.label_counts).tolist()]
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
                f"{len(holding):,} of {_counted(len(used), 'label')} hold {word} (first: "
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
        f"{len(made):,} of {_counted(len(used), 'label')} are other labels with blanks between "
        f"them (first: {_shown(made[0])}); if they are several labels, use --separator space"
    ]


def _long_texts(name: str, split: Split, max_tokens: int) -> list[str]:
    words = int(max_tokens / TOKENS_PER_WORD)
    long = np.flatnonzero(count_words(split.texts()) > words)
    if not len(long):
        return []
    verb = "is" if len(long) == 1 else "are"
    return [
        f"{name}: {len(long):,} of {_counted(len(split), 'text')} {verb} "
        f"longer than {words} words (about {max_tokens} tokens; {_places(long)}); encoders read "
        "the beginning, the lexical scorer reads all"
    ]


def _label_keys(split: Split) -> NDArray[np.int64]:
    """Return (N,) a number for each row, equal where the labels are."""
    targets = split.targets
    # The sum of a random number for each label: equal sums by chance are out of reach.
    weights = np.random.default_rng(0).integers(1, 2**62, targets.shape[1], np.int64)
    ones = np.ones(targets.nnz, np.int64)
    pattern = sp.csr_matrix((ones, targets.indices, targets.indptr), shape=targets.shape)
    return np.asarray(pattern @ weights, np.int64)


def _places(rows: NDArray[np.int64]) -> str:
    named = ", ".join(str(row + 1) for row in rows[:SHOWN])
    return f"row{'s' if len(rows) > 1 else ''} {named}{', ...' if len(rows) > SHOWN else ''}"


def _shown(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= _CUT else f"{text[:_CUT]}...")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
