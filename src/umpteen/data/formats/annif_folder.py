r"""The ``annif-folder`` format: one text file per document, its labels beside it, for Annif.

For full texts. ``a.txt`` has its labels in ``a.tsv`` (``<uri><TAB>name`` per line) or ``a.key``
(one name per line). The folder itself is a train split, or it has the folders ``train``,
``validation`` and ``test``, each with such files. The vocabulary is beside them, as in
``annif-tsv``. Documents without a file of labels are left out and counted, as Annif does. Choose
``annif-tsv`` for short texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.data.formats import folder as shared
from umpteen.data.formats.annif_csv import clean_uri, written_uri
from umpteen.data.formats.annif_documents import FIELDS, as_dataset
from umpteen.data.formats.lines import BYTE_ORDER_MARK, open_bytes, read_lines, write_lines
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.texts import one_line
from umpteen.data.vocabulary import Vocabulary
from umpteen.data.vocabulary_tables import write_csv
from umpteen.display import counted
from umpteen.errors import DataError

HOLDS = frozenset({"label ids", "line breaks", "tabs", "filters", "validation"})
UNIT: Unit = "row"
READS_VOCABULARY = True
LABEL_ENDS = (".tsv", ".key", ".tsv.gz", ".key.gz")
WRITTEN = re.compile(r"text-\d+")
"""Names of documents that ``write`` made, which are no ids."""


def sniff(path: Path) -> bool:
    """Return whether a folder, or its folder of a split, has a text with its labels beside it."""
    if not path.is_dir():
        return False
    return any(
        _labels_of(text) is not None
        for folder in _split_folders(path).values()
        for text in _texts(folder)[:100]
    )


def read(path: Path, vocabulary: Vocabulary | None = None) -> Dataset:
    """Read a folder.

    Args:
        path: The folder.
        vocabulary: The labels; those of the vocabulary in the folder, if any, for None.

    Returns:
        The data set. The ids of texts are the names of their files, without the end.

    Raises:
        DataError: With the file, if something is wrong.
    """
    folders = _split_folders(path)
    texts = {name: _texts(folder) for name, folder in folders.items()}
    labelled = {
        name: [text for text in each if _labels_of(text) is not None]
        for name, each in texts.items()
    }
    if not any(labelled.values()):
        raise DataError("no .txt file has its labels beside it in a .tsv or .key file", path=path)
    labelled = {name: each for name, each in labelled.items() if each}
    records = {name: _records(each) for name, each in labelled.items()}
    found = as_dataset(path, folders, records, UNIT, vocabulary)
    left_out = sum(map(len, texts.values())) - sum(map(len, labelled.values()))
    note = f"{counted(left_out, 'text file')} without labels left out"
    return replace(found, notes=(*found.notes, note)) if left_out else found


def write(dataset: Dataset, folder: Path) -> None:
    """Write every text and its labels, the vocabulary, filters and dataset.json."""
    labels = dataset.labels
    lines = [
        f"{written_uri(label_id)}\t{one_line(text).replace(chr(9), ' ')}"
        for label_id, text in zip(labels.ids, labels.texts, strict=True)
    ]
    for name, split in dataset.splits.items():
        (folder / name).mkdir()
        bounds = split.targets.indptr.tolist()
        width = max(7, len(str(len(split))))
        for row, text in enumerate(split.texts("all")):
            file = folder / name / f"text-{row:0{width}}.txt"
            mark = BYTE_ORDER_MARK if text.startswith(BYTE_ORDER_MARK) else ""
            file.write_bytes(f"{mark}{text}".encode())
            own = split.targets.indices[bounds[row] : bounds[row + 1]].tolist()
            write_lines(file.with_suffix(".tsv"), [lines[label] for label in own])
    write_csv(folder / "vocabulary.csv", labels)
    shared.write_shared(dataset, folder)


def files(path: Path) -> dict[str, Path]:
    """Return the folder of each split."""
    return _split_folders(path)


def _split_folders(path: Path) -> dict[str, Path]:
    found = {
        split: path / name
        for split, names in shared.STEMS.items()
        for name in names
        if (path / name).is_dir() and _texts(path / name)
    }
    return found or {"train": path}


def _texts(folder: Path) -> list[Path]:
    names = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.gz")], key=lambda file: file.name)
    return [file for file in names if not file.name.startswith("filter_labels_")]


def _stem(text: Path) -> str:
    return text.name.removesuffix(".gz").removesuffix(".txt")


def _labels_of(text: Path) -> Path | None:
    candidates = (text.with_name(_stem(text) + end) for end in LABEL_ENDS)
    return next((file for file in candidates if file.is_file()), None)


def _records(texts: list[Path]) -> Iterator[tuple[int, dict[str, Any]]]:
    named = not all(WRITTEN.fullmatch(_stem(text)) for text in texts)
    for number, text in enumerate(texts, 1):
        listed = _labels_of(text)
        assert listed is not None
        labels = (_label(line) for _, line in read_lines(listed))
        record: dict[str, Any] = {"text": _whole(text)}
        record["labels"] = list(dict.fromkeys(filter(None, labels)))
        yield number, record | ({FIELDS.id: _stem(text)} if named else {})


def _label(line: str) -> str:
    """Return the URI of a line where it has one, otherwise the name."""
    fields = [field.strip() for field in line.split("\t")]
    uri = next((field for field in fields if field.startswith("<") and field.endswith(">")), None)
    return clean_uri(uri) if uri is not None else next(filter(None, fields), "")


def _whole(path: Path) -> str:
    with open_bytes(path) as stream:
        try:
            return stream.read().decode("utf-8").removeprefix(BYTE_ORDER_MARK)
        except UnicodeDecodeError as error:
            raise DataError(
                f"byte {error.start + 1} of the file is not UTF-8; save the file as UTF-8",
                path=path,
            ) from error
