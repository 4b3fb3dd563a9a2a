r"""Vocabularies as files: Annif's TSV and CSV, and SKOS (read with rdflib, extra ``skos``).

TSV: ``<uri>\tname`` or ``<uri>\tname\tnotation``, one language. CSV: the columns ``uri``,
``notation`` and one ``label_LANGUAGE`` for each language. A label without a name is deprecated.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

from umpteen.data.formats.annif_csv import clean_uri, csv_line, csv_rows, written_uri
from umpteen.data.formats.lines import open_bytes, read_lines, write_lines
from umpteen.data.formats.texts import one_line
from umpteen.data.labels import LabelSet, join_texts
from umpteen.data.vocabulary import Concept
from umpteen.errors import DataError
from umpteen.extras import require

PREFIX = "label_"
NO_LANGUAGE = "und"
"""What a column is called that is in no known language, as in BCP 47."""
HEADER = ("uri", "notation", f"{PREFIX}{NO_LANGUAGE}")
SYNTAXES = {
    "ttl": "turtle",
    "skos": "xml",
    "rdf": "xml",
    "xml": "xml",
    "nt": "nt",
    "n3": "n3",
    "jsonld": "json-ld",
    "json": "json-ld",
}
TRUE = ("true", "1")


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


def read_skos(path: Path) -> list[Concept]:
    """Read all concepts of a SKOS file.

    Args:
        path: The file; its end gives the syntax.

    Returns:
        The concepts, by id. ``prefLabel`` (else ``rdfs:label``) gives the name, ``altLabel`` the
        other names, ``broader`` and ``notation`` are kept, ``owl:deprecated`` marks what was.

    Raises:
        DataError: If the file cannot be parsed or has no concepts.
        MissingExtra: If rdflib is not installed.
    """
    rdflib = require("rdflib", extra="skos")
    suffix = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    graph = rdflib.Graph()
    # rdflib warns about dates and numbers that are of no interest here.
    logging.getLogger("rdflib.term").setLevel(logging.ERROR)
    try:
        with open_bytes(path) as stream:
            graph.parse(data=stream.read(), format=SYNTAXES[suffix])
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError("the file is not UTF-8; save the file as UTF-8", path=path) from error
    except Exception as error:  # each parser of rdflib raises errors of its own
        reason = " ".join(str(error).split())[:200]
        raise DataError(
            f"the file is not valid {SYNTAXES[suffix]} ({reason}); its end must name its syntax",
            path=path,
        ) from error
    found = _concepts(graph, rdflib.namespace)
    if not found:
        raise DataError("the file has no skos:Concept; at least one is needed", path=path)
    return [found[uri] for uri in sorted(found)]


def _concepts(graph: Any, known: Any) -> dict[str, Concept]:
    skos, rdf, rdfs, owl = known.SKOS, known.RDF, known.RDFS, known.OWL
    found = {str(uri): Concept(str(uri)) for uri in graph.subjects(rdf.type, skos.Concept)}
    for predicate in (rdfs.label, skos.prefLabel):  # the second replaces the first
        for uri, names in _names(graph, predicate, found).items():
            first = {code: sorted(each)[0] for code, each in names.items()}
            found[uri].preferred.update(first)
    for uri, names in _names(graph, skos.altLabel, found).items():
        found[uri].others = {code: sorted(each) for code, each in names.items()}
    for uri, value in _values(graph, skos.broader, found):
        found[uri].broader.append(value)
    for uri, value in _values(graph, skos.notation, found):
        found[uri].notation = min(filter(None, (found[uri].notation, value)))
    for uri, value in _values(graph, owl.deprecated, found):
        found[uri].deprecated |= value.lower() in TRUE
    for concept in found.values():
        concept.broader.sort()
    return found


def _values(graph: Any, predicate: Any, found: dict[str, Concept]) -> list[tuple[str, str]]:
    pairs = ((str(uri), str(value)) for uri, value in graph.subject_objects(predicate))
    return [pair for pair in pairs if pair[0] in found]


def _names(
    graph: Any, predicate: Any, found: dict[str, Concept]
) -> dict[str, dict[str, list[str]]]:
    names: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for uri, value in graph.subject_objects(predicate):
        text = " ".join(str(value).split())
        if str(uri) in found and text:
            names[str(uri)][getattr(value, "language", None) or ""].append(text)
    return names
