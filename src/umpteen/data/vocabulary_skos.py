"""Vocabularies in SKOS: Turtle, RDF/XML, N-Triples, JSON-LD; read with rdflib (extra ``skos``)."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from typing import Any

from umpteen.data.formats.lines import open_bytes
from umpteen.data.vocabulary import Concept
from umpteen.errors import DataError
from umpteen.extras import require

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
