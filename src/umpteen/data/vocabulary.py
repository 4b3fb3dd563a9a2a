"""Vocabularies: label lists that are kept apart from the texts, and putting one under a data set.

Reads SKOS (Turtle, RDF/XML, N-Triples, JSON-LD; extra ``skos``) and Annif's TSV and CSV files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Split
from umpteen.data.formats import folder as shared
from umpteen.data.labels import LabelSet
from umpteen.display import counted
from umpteen.errors import DataError

RDF = ("ttl", "rdf", "nt", "jsonld", "skos")
TABLES = ("tsv", "csv")
BETWEEN_NAMES = "; "
"""Separates the alternative names of a label in its content."""


@dataclass
class Concept:
    """A label of a vocabulary before a language is chosen."""

    id: str
    preferred: dict[str, str] = field(default_factory=dict)
    """From language to name; the language is empty where the vocabulary gives none."""
    others: dict[str, list[str]] = field(default_factory=dict)
    broader: list[str] = field(default_factory=list)
    notation: str = ""
    deprecated: bool = False


@dataclass(frozen=True)
class Vocabulary:
    """Labels in one language."""

    labels: LabelSet
    language: str
    languages: tuple[str, ...]
    """All languages of the preferred names, the most frequent first."""
    names: Mapping[str, int]
    """From a name in any language to its row; -1 for a name of several labels."""
    notes: tuple[str, ...] = ()
    """What was left out or replaced."""

    def row(self, label: str) -> int:
        """Return the row of an id or, where no label has that id, of a name; -1 if unknown."""
        return self.labels.rows.get(label, self.names.get(label, -1))

    def unknown(self, labels: Sequence[str]) -> DataError:
        """Return the error for data none of whose labels are known."""
        return DataError(
            f"none of the {counted(len(labels), 'label')} of the data is in the vocabulary; the "
            f"first is {labels[0]!r}, the vocabulary has ids such as {self.labels.ids[0]!r}"
        )


def find_vocabulary(folder: Path) -> Path | None:
    """Return the vocabulary file of a data folder: ``vocabulary.*``, ``subjects.*`` or an RDF file.

    Raises:
        DataError: If there are several.
    """
    names = [f"{stem}.{end}" for stem in ("vocabulary", "subjects") for end in (*RDF, *TABLES)]
    found = shared.find(folder, names) or sorted(
        path for end in RDF for path in (*folder.glob(f"*.{end}"), *folder.glob(f"*.{end}.gz"))
    )
    if len(found) > 1:
        listed = " and ".join(path.name for path in found[:3])
        raise DataError(
            f"{listed} are both vocabularies; keep one, or name one with --vocabulary", path=folder
        )
    return found[0] if found else None


def require_vocabulary(
    data: Path, vocabulary: str | Path | None, language: str | None
) -> Vocabulary:
    """Return the vocabulary that was named, or the one in a data folder.

    Raises:
        DataError: If none was named and the folder has none, or it cannot be read.
    """
    found = vocabulary
    if found is None and data.is_dir():
        found = find_vocabulary(data)
    if found is None:
        raise DataError(
            "a language is given, but no vocabulary is here; name one with --vocabulary", path=data
        )
    return read_vocabulary(found, language)


def read_vocabulary(path: str | Path, language: str | None = None) -> Vocabulary:
    """Read a vocabulary.

    Args:
        path: A SKOS file, or a TSV or CSV file as Annif reads it; plain or gzip.
        language: Of the label texts, such as ``fi``; a label without a name in it gets one in
            another language. The most frequent language if left out.

    Returns:
        The vocabulary. The first name of a label is its title, other names are its content;
        broader concepts and notations are in the metadata of the labels.

    Raises:
        DataError: If the file cannot be read, or has no labels in the language.
        MissingExtra: If rdflib is needed and not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError("this vocabulary does not exist; expected a file", path=path)
    suffix = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    if suffix in TABLES:
        from umpteen.data.vocabulary_tables import read_csv, read_tsv

        concepts = (read_csv if suffix == "csv" else read_tsv)(path)
    elif suffix in (*RDF, "xml", "n3", "json"):
        from umpteen.data.vocabulary_tables import read_skos

        concepts = read_skos(path)
    else:
        known = ", ".join(f".{each}" for each in (*RDF, *TABLES))
        raise DataError(f"a vocabulary is a file with one of the ends {known}", path=path)
    return choose_names(concepts, path, language)


def choose_names(concepts: Sequence[Concept], path: Path, language: str | None) -> Vocabulary:
    """Choose the names of each label in one language.

    Args:
        concepts: All of them.
        path: Their file, for messages.
        language: The language; the most frequent one for None.

    Returns:
        The vocabulary.

    Raises:
        DataError: If no label has a name in the language, or there are no labels.
    """
    kept = [each for each in concepts if not each.deprecated]
    if not kept:
        raise DataError("the vocabulary has no labels; at least one is needed", path=path)
    counts = Counter(code for each in kept for code in each.preferred if code)
    languages = tuple(sorted(counts, key=lambda code: (-counts[code], code)))
    chosen = (languages[0] if languages else "") if language is None else language
    if language is not None and languages and not _fitting(languages, language):
        raise DataError(
            f"no label has a name in {language!r}; there are names in {', '.join(languages)}",
            path=path,
        )
    order = [*_fitting(languages, chosen), "", *languages]
    titles = [_first(each, order) for each in kept]
    contents = [_other_names(each, order, title) for each, title in zip(kept, titles, strict=True)]
    metadata = [_metadata(each) for each in kept]
    notes = []
    if len(kept) < len(concepts):
        notes.append(f"{counted(len(concepts) - len(kept), 'deprecated concept')} left out")
    if languages and (elsewhere := sum(not _fitting(each.preferred, chosen) for each in kept)):
        notes.append(
            f"{counted(elsewhere, 'label')} without a name in {chosen!r}: another name is used"
        )
    if language is None and len(languages) > 1:
        notes.append(f"label texts in {chosen!r}; choose with --language {'|'.join(languages[:9])}")
    labels = LabelSet(
        [each.id for each in kept],
        titles,
        contents if any(contents) else None,
        metadata if any(metadata) else None,
    )
    names: dict[str, int] = {}
    for code in dict.fromkeys(order):
        _add_names(names, ((each.preferred.get(code, ""), row) for row, each in enumerate(kept)))
    return Vocabulary(labels, chosen, languages, names, tuple(notes))


class VocabularyNames:
    """Turn the labels of records into rows of a vocabulary; unknown ones are only counted."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._known: set[str] = set()
        self._unknown: dict[str, None] = {}

    def __call__(self, values: Sequence[Any]) -> list[int]:
        """Return the rows of the known labels, each once."""
        rows = []
        for value in map(str, values):
            row = self._vocabulary.row(value)
            if row < 0:
                self._unknown[value] = None
            else:
                self._known.add(value)
                rows.append(row)
        return list(dict.fromkeys(rows))

    def label_set(self) -> LabelSet:
        """Return the labels of the vocabulary.

        Raises:
            DataError: If it had none of the labels that were looked up.
        """
        if self._unknown and not self._known:
            raise self._vocabulary.unknown(list(self._unknown))
        return self._vocabulary.labels

    def notes(self) -> tuple[str, ...]:
        """Return what was left out, the notes of the vocabulary first."""
        return (*self._vocabulary.notes, *_unknown_notes(list(self._unknown)))


def with_vocabulary(dataset: Dataset, vocabulary: Vocabulary) -> Dataset:
    """Return a data set whose labels are all labels of a vocabulary.

    Args:
        dataset: The data; its labels are found in the vocabulary by id, then by name.
        vocabulary: The labels.

    Returns:
        The data set. Labels that the vocabulary does not have are left out and counted in its
        notes; so are filter pairs with them.

    Raises:
        DataError: If the vocabulary has none of the labels.
    """
    ids = dataset.labels.ids
    column = np.array([vocabulary.row(label) for label in ids], np.int64)
    if (column < 0).all():
        raise vocabulary.unknown(ids)
    splits = {
        name: _moved(split, column, len(vocabulary.labels))
        for name, split in dataset.splits.items()
    }
    unknown = [ids[row] for row in np.flatnonzero(column < 0).tolist()]
    notes = (*dataset.notes, *vocabulary.notes, *_unknown_notes(unknown))
    return replace(dataset, labels=vocabulary.labels, splits=splits, notes=notes)


def _moved(split: Split, column: NDArray[np.int64], n_labels: int) -> Split:
    targets = split.targets.tocoo()
    known = column[targets.col] >= 0
    entries = targets.data[known], (targets.row[known], column[targets.col[known]])
    moved = sp.csr_matrix(entries, shape=(len(split), n_labels), dtype=np.float32)
    moved.sum_duplicates()  # two names of one label
    np.minimum(moved.data, 1, out=moved.data)
    filters = split.filters[column[split.filters[:, 1]] >= 0]
    filters = np.column_stack([filters[:, 0], column[filters[:, 1]]]).astype(np.int64)
    return replace(split, targets=moved, filters=filters)


def _fitting(languages: Iterable[str], wanted: str) -> list[str]:
    """Return the languages that are the wanted one or a variety of it, such as en-GB for en."""
    wanted = wanted.lower()
    exact = [code for code in languages if code.lower() == wanted]
    return exact + [code for code in languages if code.lower().startswith(f"{wanted}-")]


def _first(concept: Concept, order: Sequence[str]) -> str:
    for names in (concept.preferred, {code: each[0] for code, each in concept.others.items()}):
        found = next((names[code] for code in order if names.get(code)), "")
        if found or (found := next(filter(None, names.values()), "")):
            return found
    return concept.id.rstrip("/#").rpartition("#")[2].rpartition("/")[2] or concept.id


def _other_names(concept: Concept, order: Sequence[str], title: str) -> str:
    languages = _fitting(concept.others, order[0]) if order[0] else []
    others = [name for code in (*languages, "") for name in concept.others.get(code, ())]
    return BETWEEN_NAMES.join(name for name in dict.fromkeys(others) if name != title)


def _metadata(concept: Concept) -> dict[str, object]:
    found: dict[str, object] = {}
    if concept.notation:
        found["notation"] = concept.notation
    if concept.broader:
        found["broader"] = concept.broader
    return found


def _add_names(names: dict[str, int], found: Iterable[tuple[str, int]]) -> None:
    """Add the names of one language; those of languages before it take precedence."""
    own: dict[str, int] = {}
    for name, row in found:
        if name and name not in names:
            own[name] = row if own.get(name, row) == row else -1
    names.update(own)


def _unknown_notes(unknown: Sequence[str]) -> tuple[str, ...]:
    if not unknown:
        return ()
    what = counted(len(unknown), "label")
    return (f"{what} not in the vocabulary left out, such as {unknown[0]}",)
