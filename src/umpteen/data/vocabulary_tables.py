r"""Vocabularies as Annif's TSV and CSV files.

TSV: ``<uri>\tname`` or ``<uri>\tname\tnotation``, one language. CSV: the columns ``uri``,
``notation`` and one ``label_LANGUAGE`` for each language. A label without a name is deprecated.
"""

from __future__ import annotations

from pathlib import Path

from umpteen.data.formats.annif_csv import csv_line, csv_rows
from umpteen.data.formats.annif_uris import clean_uri, written_uri
from umpteen.data.formats.lines import read_lines, write_lines
from umpteen.data.formats.texts import one_line
from umpteen.data.labels import LabelSet, join_texts
from umpteen.data.vocabulary import Concept
from umpteen.errors import DataError

PREFIX = "label_"
NO_LANGUAGE = "und"
"""What a column is called that is in no known language, as in BCP 47."""
HEADER = ("uri", "notation", f"{PREFIX}{NO_LANGUAGE}")


def read_tsv(path: Path) -> list[Concept]:
    """Read a vocabulary of one language.

    Raises:
        DataError: With file and line, if a line does not begin with an id or an id is there twice.
    """
    found: dict[str, Concept] = {}
    for number, line in read_lines(path):
        if not line.strip():
            continue
        fields = line.split("\t", 2)
        uri = clean_uri(fields[0])
        if not uri:
            raise DataError(
                "the line does not begin with an id; expected <uri>, a tab and a name",
                path=path,
                line=number,
            )
        _require_new(uri, found, path, number)
        name = fields[1] if len(fields) > 1 else ""
        found[uri] = Concept(
            uri,
            {"": name} if name else {},
            notation=fields[2].strip() if len(fields) > 2 else "",
            deprecated=not name,
        )
    return list(found.values())


def read_csv(path: Path) -> list[Concept]:
    """Read a vocabulary of one or several languages.

    Raises:
        DataError: With file and line, if a column is missing or an id is there twice.
    """
    found: dict[str, Concept] = {}
    languages: list[str] = []
    for number, row in csv_rows(path):
        languages = languages or [name for name in row if name.startswith(PREFIX)]
        if "uri" not in row or not languages:
            raise DataError(
                f"found the columns {', '.join(row)}; expected uri, label_en or other languages",
                path=path,
                line=1,
            )
        uri = clean_uri(row["uri"])
        if not uri:
            raise DataError("the row has no uri", path=path, line=number)
        _require_new(uri, found, path, number)
        names = {_language(each): row[each] for each in languages if row[each]}
        found[uri] = Concept(uri, names, notation=row.get("notation", ""), deprecated=not names)
    return list(found.values())


def write_tsv(path: Path, labels: LabelSet) -> None:
    """Write labels with their texts and notations; contents follow the titles."""
    lines = []
    for row, (label_id, text) in enumerate(zip(labels.ids, _texts(labels), strict=True)):
        notation = _notation(labels, row)
        line = f"{written_uri(label_id)}\t{one_line(text).replace(chr(9), ' ')}"
        lines.append(f"{line}\t{notation}" if notation else line)
    write_lines(path, lines)


def write_csv(path: Path, labels: LabelSet) -> None:
    """Write labels with their texts and notations, in no known language."""
    rows = (
        [written_uri(label_id), _notation(labels, row), text]
        for row, (label_id, text) in enumerate(zip(labels.ids, _texts(labels), strict=True))
    )
    write_lines(path, map(csv_line, ([*HEADER], *rows)))


def _texts(labels: LabelSet) -> list[str]:
    texts = join_texts(labels.titles, labels.contents, "all")
    return [text or label_id for text, label_id in zip(texts, labels.ids, strict=True)]


def _notation(labels: LabelSet, row: int) -> str:
    return "" if labels.metadata is None else str(labels.metadata[row].get("notation", ""))


def _language(column: str) -> str:
    code = column.removeprefix(PREFIX)
    return "" if code == NO_LANGUAGE else code


def _require_new(uri: str, found: dict[str, Concept], path: Path, number: int) -> None:
    if uri in found:
        raise DataError(
            f"label id {uri!r} is there already; every label needs an id of its own",
            path=path,
            line=number,
        )
