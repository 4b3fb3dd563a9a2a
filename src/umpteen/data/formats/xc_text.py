"""The ``xc-text`` format: texts one per line, labels as sparse rows of ``label:relevance``.

The plain-text layout of the extreme classification repository: ``trn_X.txt`` and ``tst_X.txt`` hold
texts, ``Y.txt`` label texts, ``trn_X_Y.txt`` and ``tst_X_Y.txt`` a first line "N L" and then a row
of pairs for each query. Labels are known by their row, and a text is one line. Choose ``lf-json``
to keep ids and contents.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats import folder as shared
from umpteen.data.formats import texts
from umpteen.data.formats.lines import read_lines, write_lines
from umpteen.data.formats.targets import TargetRows, Unit
from umpteen.data.formats.writing import relevances
from umpteen.errors import DataError

HOLDS = texts.HOLDS
UNIT: Unit = "line"
FILES = {"train": ("trn_X.txt",), "validation": ("val_X.txt", "dev_X.txt"), "test": ("tst_X.txt",)}
LABELS = ("Y.txt",)


def sniff(path: Path) -> bool:
    """Return whether the folder itself (not its ``raw``) has the texts."""
    return shared.has_any(path, {**FILES, "labels": LABELS})


def read(path: Path) -> Dataset:
    """Read a folder.

    Args:
        path: The folder.

    Returns:
        The data set; label ids are the rows of Y.txt, counted from 0.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    found = files(path)
    labels = texts.read_label_texts(shared.require_one(path, LABELS, "the label texts"))
    splits, notes = {}, []
    for name, text_file in found.items():
        stem = text_file.name.partition("_X.txt")[0]
        label_file = shared.require_one(path, (f"{stem}_X_Y.txt",), "the labels of the queries")
        titles = texts.read_texts(text_file)
        targets = _read_targets(label_file, len(labels))
        texts.require_same_length(titles, text_file, len(targets), label_file)
        matrix = targets.matrix(len(labels))
        filters = shared.read_filters(path, name, matrix.shape)
        splits[name] = Split(titles, matrix, filters=filters)
        notes += targets.notes()
    return shared.finish(path, labels, splits, notes)


def write(dataset: Dataset, folder: Path) -> None:
    """Write texts, label texts and rows of pairs, with filters and dataset.json."""
    for name, split in dataset.splits.items():
        file = FILES[name][0]
        texts.write_query_texts(folder / file, split)
        write_lines(folder / file.replace("_X.txt", "_X_Y.txt"), _target_lines(split))
    texts.write_label_texts(folder / LABELS[0], dataset.labels)
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the text file of each split; row i of a split is line i + 1 of its file."""
    if not path.is_dir():
        raise DataError("expected a folder with trn_X.txt, trn_X_Y.txt and Y.txt", path=path)
    return shared.find_splits(path, FILES)


def _read_targets(path: Path, n_labels: int) -> TargetRows:
    targets = TargetRows(path)
    expected = None
    for number, line in read_lines(path):
        pairs = line.split()
        if number == 1 and len(pairs) == 2 and all(map(shared.is_count, pairs)):
            expected, declared = int(pairs[0]), int(pairs[1])
            if declared != n_labels:
                raise targets.error(
                    f"the first line declares {declared} labels, but Y.txt has {n_labels}", number
                )
            continue
        labels: list[int] = []
        relevance: list[float] = []
        for pair in pairs:
            label, _, value = pair.partition(":")
            try:
                if not shared.is_count(label):
                    raise ValueError
                labels.append(int(label))
                relevance.append(float(value))
            except ValueError:
                raise targets.error(
                    f"{pair[:40]!r} is not a pair label:relevance such as 17:1.0", number
                ) from None
        targets.add(labels, relevance, number)
    if expected is not None and expected != len(targets):
        raise targets.error(
            f"the first line declares {expected} rows, but {len(targets)} follow; the file is cut "
            "or was joined with another",
            1,
        )
    return targets


def _target_lines(split: Split) -> Iterator[str]:
    matrix = split.targets
    yield f"{matrix.shape[0]} {matrix.shape[1]}"
    bounds = matrix.indptr.tolist()
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        labels = matrix.indices[start:stop].tolist()
        values = relevances(split, start, stop)
        yield " ".join(f"{label}:{value}" for label, value in zip(labels, values, strict=True))
