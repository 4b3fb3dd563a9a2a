"""Which format a folder or file is in, and reading it. Knows no format by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from umpteen.data.dataset import Dataset
from umpteen.data.formats.lines import STDIN
from umpteen.data.formats.targets import Unit
from umpteen.errors import DataError
from umpteen.registry import resolve


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
    path: str | Path, name: str | None, table: Mapping[str, str], looked_for: Mapping[str, str]
) -> tuple[str, Format]:
    """Find the format of a path.

    Args:
        path: A folder, a file, or ``-``.
        name: The format, if it is known.
        table: Names to formats.
        looked_for: What the files of each format are called, for the message.

    Returns:
        Name and format.

    Raises:
        DataError: If the path is missing, or no format or several formats fit.
        ConfigError: If the name is unknown.
    """
    path = Path(path)
    if path == STDIN and name not in (None, "jsonl"):
        raise DataError(f"standard input is read as jsonl only, not as {name!r}")
    if path != STDIN and not path.exists():
        raise DataError(f"{path} does not exist; expected a folder or file with a data set")
    if path == STDIN:
        name = "jsonl"
    if name is not None:
        return name, resolve(table, name, kind="format")
    known = {each: resolve(table, each, kind="format") for each in table}
    fitting = [each for each, part in known.items() if part.sniff(path)]
    if len(fitting) > 1:
        raise DataError(
            f"{path} could be {' or '.join(fitting)}; choose one with the format name "
            "(--format on the command line)"
        )
    if not fitting:
        listed = "; ".join(f"{each}: {files}" for each, files in looked_for.items())
        what = "folder" if path.is_dir() else "file"
        raise DataError(
            f"{path} is a {what} in none of the known formats. Looked for {listed} "
            "(each plain or gzip)"
        )
    return fitting[0], known[fitting[0]]
