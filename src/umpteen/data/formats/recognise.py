"""Which format a folder or file is in, and reading it. Knows no format by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from umpteen.data.dataset import Dataset
from umpteen.data.formats.first_bytes import find_table_format
from umpteen.data.formats.lines import STDIN
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.targets import Unit
from umpteen.data.formats.unreadable import describe_unreadable
from umpteen.errors import DataError
from umpteen.registry import resolve

ON_STDIN = ("csv", "tsv", "jsonl")


class Format(Protocol):
    """What a row of FORMATS leads to: a module or an object with these parts."""

    HOLDS: frozenset[str]
    """Which of ``features.ALL`` survive writing and reading."""
    UNIT: Unit
    """Whether row i of a split is line i + 1 of its file, or only row i + 1."""

    def sniff(self, path: Path) -> bool:
        """Return whether the path looks like this format.

        Looks at names and first bytes, never raises.
        """

    def read(self, path: Path) -> Dataset:
        """Read the data set."""

    def write(self, dataset: Dataset, folder: Path) -> None:
        """Write the data set into a folder that exists and is empty."""

    def files(self, path: Path) -> dict[str, Path]:
        """Return the file that holds each split's texts."""


def recognise(
    path: str | Path,
    name: str | None,
    table: Mapping[str, str],
    options: TableOptions | None = None,
) -> tuple[str, Format]:
    """Find the format of a path.

    Args:
        path: A folder, a file, or ``-``.
        name: The format, if it is known.
        table: Names to formats.
        options: What the user says about columns; a file with such options is a table.

    Returns:
        Name and format.

    Raises:
        DataError: If the path is missing, or no format or several formats fit.
        ConfigError: If the name is unknown.
    """
    path = Path(path)
    if path == STDIN:
        name = name or find_table_format(path, options or TableOptions())
        name = "jsonl" if name == "lines" else name
        if name not in ON_STDIN:
            raise DataError(
                f"standard input is read as {', '.join(ON_STDIN)}, not as {name}; name the file"
            )
    if path != STDIN and not path.exists():
        raise DataError(f"{path} does not exist; expected a folder or file with a data set")
    if name is not None:
        return name, resolve(table, name, kind="format")
    known = {each: resolve(table, each, kind="format") for each in table}
    fitting = [each for each, part in known.items() if part.sniff(path)]
    # A special case, such as annif-jsonl, goes before the format it narrows.
    wider = {getattr(known[each], "NARROWS", None) for each in fitting}
    fitting = [each for each in fitting if each not in wider]
    if len(fitting) > 1:
        raise DataError(
            f"{path} could be {' or '.join(fitting)}; choose one with the format name "
            "(--format on the command line)"
        )
    if not fitting and options is not None and options.given() and path.is_file():
        fitting = [find_table_format(path, options)]
    if not fitting:
        raise DataError(describe_unreadable(path, table))
    return fitting[0], known[fitting[0]]
