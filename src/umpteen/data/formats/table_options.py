"""What a user may say about a table: its columns, separators and header. Nothing is read here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from umpteen.errors import DataError

NO_SEPARATOR = "none"
"""As ``separator``: every cell is one label."""
_WORDS = {
    "tab": "\t",
    "\\t": "\t",
    "comma": ",",
    "semicolon": ";",
    "pipe": "|",
    "space": " ",
    "newline": "\n",
    "\\n": "\n",
}


@dataclass(frozen=True)
class TableOptions:
    """How to read a table; what is left out is found in the data.

    Example:
        >>> TableOptions(label_column="tags", separator="comma").separator
        ','
    """

    text_columns: Sequence[str] = ()
    """Columns with the text. Several are joined; ``title=NAME`` and ``content=NAME`` keep two
    fields apart."""
    label_column: str | None = None
    id_column: str | None = None
    separator: str | None = None
    """Stands between the labels of a cell; ``none``: a cell is one label."""
    delimiter: str | None = None
    """Stands between the fields of a csv or tsv file."""
    header: bool = True
    """Whether the first row of a csv or tsv file holds the names of the columns; without, columns
    are named 1, 2 and so on."""
    known_labels: frozenset[str] | None = None
    """Ids of labels, where the data belongs to a model that has them: they decide how cells are
    separated. Other labels may occur."""
    vocabulary: str | Path | None = None
    """A file with the labels and their texts (SKOS, or Annif's TSV or CSV), for any format."""
    language: str | None = None
    """Of the label texts, where the vocabulary has several."""
    label_columns: tuple[str, ...] = ()
    """Several columns instead of a label column: of 0 and 1, one for each label, or with a label
    in each cell."""

    def __post_init__(self) -> None:
        if isinstance(self.text_columns, str):
            object.__setattr__(self, "text_columns", (self.text_columns,))
        for name in ("separator", "delimiter"):
            value = getattr(self, name)
            if value is None:
                continue
            object.__setattr__(self, name, _WORDS.get(value, value))
            if not value:
                raise DataError(f"the {name} is empty; give a character such as ; or a word: tab")
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise DataError(
                f"the delimiter {self.delimiter!r} has {len(self.delimiter)} characters; "
                "expected one, or a word: comma, semicolon, tab, pipe"
            )

    def with_known(self, labels: Iterable[str]) -> TableOptions:
        """Return the same options for data whose labels are known."""
        return replace(self, known_labels=frozenset(labels))

    def given(self) -> list[str]:
        """Return the command line's names of the options that are set."""
        named = {
            "--text-column": bool(self.text_columns),
            "--label-column": self.label_column is not None or bool(self.label_columns),
            "--id-column": self.id_column is not None,
            "--separator": self.separator is not None,
            "--delimiter": self.delimiter is not None,
            "--no-header": not self.header,
        }
        return [name for name, is_set in named.items() if is_set]


def one_or_several(names: str | Sequence[str] | None) -> tuple[str | None, tuple[str, ...]]:
    """Return ``label_column`` and ``label_columns`` of one name, several or none.

    Example:
        >>> one_or_several("tags"), one_or_several(["tags"]), one_or_several(["red", "blue"])
        (('tags', ()), ('tags', ()), (None, ('red', 'blue')))
    """
    if names is None or isinstance(names, str):
        return names, ()
    given = tuple(names)
    return (None, given) if len(given) > 1 else (next(iter(given), None), ())
