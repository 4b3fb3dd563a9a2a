r"""The formats ``annif-tsv``, ``annif-csv`` and ``annif-jsonl``: corpora of short texts for Annif.

For data of libraries and archives. A folder has ``train.tsv`` (or ``documents.tsv``),
``validation.tsv``, ``test.tsv`` and a vocabulary (``vocabulary.ttl``, ``.rdf``, ``.tsv``,
``.csv``; see ``umpteen.data.vocabulary``); a single file is a train split. Labels that are not in
the vocabulary are left out and counted. Choose ``annif-folder`` for long documents, a file each.

- tsv: ``text<TAB><uri> <uri>`` per line, no header;
- csv: columns ``text``, ``subject_uris`` and, as you like, ``document_id``; others are ignored;
- jsonl: ``{"text", "document_id"?, "subjects": [{"uri"}, {"label"}]}`` per line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats import folder as shared
from umpteen.data.formats.annif_csv import (
    clean_uri,
    csv_header,
    csv_line,
    csv_rows,
    looks_like_uris,
    split_uris,
    written_uri,
)
from umpteen.data.formats.lines import (
    BYTE_ORDER_MARK,
    kind,
    read_lines,
    read_objects,
    shown,
    write_lines,
)
from umpteen.data.formats.records import Fields, LabelNames, as_id, read_queries
from umpteen.data.formats.targets import TargetRows, Unit
from umpteen.data.formats.texts import one_line
from umpteen.data.vocabulary import Vocabulary, VocabularyNames, find_vocabulary, read_vocabulary
from umpteen.data.vocabulary_tables import write_csv, write_tsv
from umpteen.errors import DataError

FIELDS = Fields(id="document_id")
Records = Iterator[tuple[int, dict[str, Any]]]
LONG = frozenset({"label ids", "query ids", "line breaks", "tabs", "filters", "validation"})


def as_dataset(
    path: Path,
    files: Mapping[str, Path],
    records: Mapping[str, Records],
    unit: Unit,
    vocabulary: Vocabulary | None,
) -> Dataset:
    """Return the data set of some records.

    Args:
        path: The folder or file.
        files: Where the records of each split are from, for messages.
        records: By split, numbered records with ``text``, ``labels`` and ``document_id``.
        unit: What the numbers count.
        vocabulary: The labels; those of the vocabulary in the folder, if any, for None.

    Returns:
        The data set.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    if vocabulary is None and path.is_dir() and (found := find_vocabulary(path)) is not None:
        vocabulary = read_vocabulary(found)
    names = LabelNames() if vocabulary is None else VocabularyNames(vocabulary)
    queries = {
        name: read_queries(rows, TargetRows(files[name], unit=unit), names, FIELDS)
        for name, rows in records.items()
    }
    labels = names.label_set()
    notes = () if isinstance(names, LabelNames) else names.notes()
    splits = {name: each.split(name, path, labels) for name, each in queries.items()}
    return replace(shared.finish(path, labels, splits), notes=notes)


@dataclass(frozen=True)
class Documents:
    """One format of this family; see the module for what it holds."""

    suffix: str
    read_records: Callable[[Path], Records]
    looks_right: Callable[[Path], bool]
    line: Callable[[str, list[str], str | None], str]
    header: Callable[[Split], str | None]
    HOLDS: frozenset[str]
    UNIT: Unit
    READS_VOCABULARY: ClassVar[bool] = True

    @property
    def NARROWS(self) -> str:  # noqa: N802 - a constant of the format
        """The format that this one is a special case of."""
        return self.suffix

    def sniff(self, path: Path) -> bool:
        """Return whether the first lines of a file, or of a folder's files, have URIs as labels."""
        if not path.is_dir():
            return self.looks_right(path)
        found = [file for names in self._names.values() for file in shared.find(path, names)]
        return any(map(self.looks_right, found[:1]))

    def read(self, path: Path, vocabulary: Vocabulary | None = None) -> Dataset:
        """Read a folder or a file.

        Args:
            path: What to read.
            vocabulary: The labels; those of the vocabulary in the folder, if any, for None.

        Returns:
            The data set. Without a vocabulary the labels are in order of first appearance.

        Raises:
            DataError: With file and line, if something is wrong.
        """
        records = {name: self.read_records(file) for name, file in self.files(path).items()}
        return as_dataset(path, self.files(path), records, self.UNIT, vocabulary)

    def write(self, dataset: Dataset, folder: Path) -> None:
        """Write every split, the labels, filters and dataset.json into a folder that exists."""
        uris = [written_uri(label_id) for label_id in dataset.labels.ids]
        for name, split in dataset.splits.items():
            write_lines(folder / self._names[name][0], self._lines(split, uris))
        write = write_tsv if self.suffix == "tsv" else write_csv
        write(folder / f"vocabulary.{'tsv' if self.suffix == 'tsv' else 'csv'}", dataset.labels)
        shared.write_shared(dataset, folder)

    def files(self, path: Path) -> dict[str, Path]:
        """Return the file of each split."""
        return shared.find_splits(path, self._names)

    @property
    def _names(self) -> dict[str, tuple[str, ...]]:
        stems = {**shared.STEMS, "train": ("train", "documents")}
        return shared.file_names(f".{self.suffix}", stems=stems)

    def _lines(self, split: Split, uris: list[str]) -> Iterator[str]:
        header = self.header(split)
        if header is not None:
            yield header
        bounds = split.targets.indptr.tolist()
        for row, text in enumerate(split.texts("all")):
            labels = split.targets.indices[bounds[row] : bounds[row + 1]].tolist()
            line = self.line(
                text,
                [uris[label] for label in labels],
                None if split.ids is None else split.ids[row],
            )
            # Readers drop one mark at the start of a file; this one belongs to the text.
            first = row == 0 and header is None and line.startswith(BYTE_ORDER_MARK)
            yield f"{BYTE_ORDER_MARK}{line}" if first else line


def _read_tsv(path: Path) -> Records:
    for number, line in read_lines(path):
        text, tab, uris = line.partition("\t")
        if not tab:
            raise DataError(
                "the line has no tab; expected a text, a tab and <uri> <uri>",
                path=shown(path),
                line=number,
            )
        yield number, {"text": text, "labels": split_uris(uris)}


def _looks_like_tsv(path: Path) -> bool:
    try:
        lines = (line for _, line in read_lines(path))
        cells = [line.partition("\t")[2] for line, _ in zip(lines, range(20), strict=False)]
    except DataError:
        return False
    return looks_like_uris(" ".join(cells))


def _tsv_line(text: str, uris: list[str], document_id: str | None) -> str:
    return f"{one_line(text).replace(chr(9), ' ')}\t{' '.join(uris)}"


def _read_csv(path: Path) -> Records:
    for number, row in csv_rows(path):
        missing = next((name for name in ("text", "subject_uris") if name not in row), None)
        if missing is not None:
            raise DataError(
                f"no column {missing!r} (found: {', '.join(row)}); expected text and subject_uris",
                path=shown(path),
            )
        record = {"text": row["text"], "labels": split_uris(row["subject_uris"])}
        yield number, record | {key: row[key] for key in (FIELDS.id,) if key in row}


def _looks_like_csv(path: Path) -> bool:
    return {"text", "subject_uris"} <= set(csv_header(path))


def _csv_line(text: str, uris: list[str], document_id: str | None) -> str:
    return csv_line([*([] if document_id is None else [document_id]), text, " ".join(uris)])


def _csv_header(split: Split) -> str:
    return csv_line([*([] if split.ids is None else ["document_id"]), "text", "subject_uris"])


def _read_jsonl(path: Path) -> Records:
    for number, value in read_objects(path):
        record: dict[str, Any] = {"text": value.get("text"), "labels": []}
        if FIELDS.id in value:
            record[FIELDS.id] = value[FIELDS.id]
        try:
            record["labels"] = list(dict.fromkeys(_subjects(value.get("subjects", []))))
        except DataError as error:
            raise DataError(str(error), path=shown(path), line=number) from error
        yield number, record


def _subjects(values: Any) -> Iterable[str]:
    if not isinstance(values, list):
        raise DataError(f"'subjects' is {kind(values)}; expected a list")
    for value in values:
        value = value if isinstance(value, dict) else {}
        uri, name = as_id(value.get("uri")), as_id(value.get("label"))
        label = clean_uri(uri) if uri else name
        if not label:
            raise DataError("a subject has no 'uri' and no 'label'; expected one of them")
        yield label


def _looks_like_jsonl(path: Path) -> bool:
    try:
        first = next((line for _, line in read_lines(path)), "")
        value = json.loads(first)
    except (DataError, ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "subjects" in value and "labels" not in value


def _jsonl_line(text: str, uris: list[str], document_id: str | None) -> str:
    record: dict[str, Any] = {} if document_id is None else {"document_id": document_id}
    return json.dumps(
        record | {"text": text, "subjects": [{"uri": uri} for uri in uris]}, ensure_ascii=False
    )


TSV = Documents(
    "tsv", _read_tsv, _looks_like_tsv, _tsv_line, lambda split: None,
    frozenset({"label ids", "filters", "validation"}), "line",
)  # fmt: skip
CSV = Documents("csv", _read_csv, _looks_like_csv, _csv_line, _csv_header, LONG, "row")
JSONL = Documents(
    "jsonl", _read_jsonl, _looks_like_jsonl, _jsonl_line, lambda split: None, LONG, "line"
)
