"""Label lists on their own: files and folders with the names of labels, and no texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from umpteen.data.formats import folder as shared
from umpteen.data.formats import load_dataset
from umpteen.data.formats.lines import STDIN, read_lines
from umpteen.data.formats.records import Fields, read_labels
from umpteen.data.formats.row_batches import RowReader, open_rows
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.labels import LabelSet
from umpteen.data.vocabulary import RDF, find_vocabulary, read_vocabulary
from umpteen.errors import DataError

NAMES = (
    "labels.jsonl", "labels.json", "labels.csv", "labels.tsv", "labels.parquet", "labels.txt",
    "lbl.json", "Y.txt", "raw/Y.txt",
)  # fmt: skip
"""Files of a data folder that list labels."""
TEXT_COLUMNS = ("text", "title", "name", "label", "prefLabel")
CONTENT_COLUMNS = ("content", "description", "definition", "altLabel")
ID_COLUMNS = ("id", "uid", "uri", "code", "notation")


def as_labels(
    given: Any, *, options: TableOptions | None = None, language: str | None = None
) -> LabelSet:
    """Return labels in any form as a label set.

    Args:
        given: A ``LabelSet``; a mapping from id to text; a list of names; or the path of a file or
            folder.
        options: Columns of a table; found by name if left out.
        language: Of the names, where a vocabulary has several.

    Returns:
        At least one label.

    Raises:
        DataError: If there are no labels, an id is there twice, or the file cannot be read.
    """
    if isinstance(given, LabelSet):
        labels = given
    elif isinstance(given, Mapping):
        labels = LabelSet([str(i) for i in given], [str(text) for text in given.values()])
    elif isinstance(given, str | os.PathLike):
        labels = read_label_file(Path(given), options or TableOptions(), language)
    else:
        names = [str(name) for name in given]
        labels = LabelSet(names, names)
    if not len(labels):
        raise DataError("there are no labels; at least one is needed")
    return labels


def read_label_file(path: Path, options: TableOptions, language: str | None = None) -> LabelSet:
    """Read labels from a file or a data folder.

    Args:
        path: A vocabulary (SKOS, or Annif's TSV or CSV); a csv, tsv, parquet or JSON lines file
            with a column of names and, as you like, ids and descriptions; plain lines, one name
            each; or a folder that holds one of these or a data set.
        options: Columns of a table; found by name if left out.
        language: Of the names, where a vocabulary has several.

    Returns:
        The labels, in the order of the file. A label without an id has its name as id.

    Raises:
        DataError: With file and line, if something is wrong.
    """
    if path.is_dir():
        return _of_folder(path, options, language)
    if _is_vocabulary(path):
        return read_vocabulary(path, language).labels
    if language is not None:
        raise DataError(f"a language is given, but {path} is no vocabulary; leave --language out")
    reader = open_rows(path, options)
    names = _columns(reader, options)
    rows = (
        (number, {ours: record[theirs] for ours, theirs in names if record.get(theirs)})
        for number, record in reader.table.rows()
    )
    if reader.format == "lines":
        rows = ((number, record) for number, record in rows if record.get("text", "").strip())
    return read_labels(rows, path, Fields(), unit=reader.table.unit)


def _of_folder(folder: Path, options: TableOptions, language: str | None) -> LabelSet:
    listed = shared.find_one(folder, NAMES)
    if listed is not None:
        return read_label_file(listed, options, language)
    vocabulary = find_vocabulary(folder)
    if vocabulary is not None:
        return read_vocabulary(vocabulary, language).labels
    return load_dataset(str(folder)).labels


def _is_vocabulary(path: Path) -> bool:
    """Return whether a file is SKOS, or a table with the columns of Annif's."""
    name = path.name.lower().removesuffix(".gz")
    if name.rpartition(".")[2] in (*RDF, "xml", "n3"):
        return True
    if path == STDIN or not name.endswith((".csv", ".tsv")) or not path.is_file():
        return False
    first = next((line for _, line in read_lines(path)), "")
    if name.endswith(".tsv"):
        return first.startswith("<") and "\t" in first
    return {"uri"} <= set(first.split(",")) and "label_" in first


def _columns(reader: RowReader, options: TableOptions) -> list[tuple[str, str]]:
    """Return our and the table's names of the columns of names, descriptions and ids."""
    chosen = reader.columns
    lower = {name.lower(): name for name in reader.table.columns}

    def first(wanted: Sequence[str]) -> str | None:
        return next((lower[name.lower()] for name in wanted if name.lower() in lower), None)

    named = bool(options.text_columns)
    title = None if named else first(TEXT_COLUMNS)
    content = next(iter(chosen.content), None) if named else first(CONTENT_COLUMNS)
    found = {
        "text": title or chosen.title[0],
        "content": content,
        "id": options.id_column or first(ID_COLUMNS),
        "metadata": first(("metadata",)),
    }
    return [(ours, theirs) for ours, theirs in found.items() if theirs is not None]
