"""Read packages with their descriptions from apt's local lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.sources.apt_lists import find_lists, read_stanzas
from umpteen.errors import DataError
from umpteen.types import Log

LISTS = Path("/var/lib/apt/lists")
_FIELDS = frozenset({"Package", "Description", "Description-en", "Description-md5"})


@dataclass(frozen=True)
class Package:
    """One package of the lists."""

    name: str
    summary: str
    """The short description."""
    description: str
    """The long description as one line; empty where the lists have none."""
    fields: Mapping[str, str]
    """The other fields that were requested."""

    @property
    def text(self) -> str:
        """Name and short description."""
        return f"{self.name}: {self.summary}"


def read_packages(
    folder: str | Path | None, fields: frozenset[str], *, source: str, log: Log
) -> dict[str, Package]:
    """Read every package once, with its English long description where there is one.

    Args:
        folder: The folder with the lists; apt's own if None.
        fields: Fields to keep besides the descriptions.
        source: The name of the data set, for lines of progress.
        log: Takes lines of progress.

    Returns:
        Packages by name, sorted by name. A package in several lists is taken from the first by
        file name.

    Raises:
        DataError: If there are no lists, or one is damaged.
    """
    folder = LISTS if folder is None else Path(folder)
    files = find_lists(folder, "Packages")
    if not files:
        raise DataError(
            f"{folder} has no package lists (files named *_Packages); run apt-get update, "
            "or name a folder that has some with --lists"
        )
    long: dict[str, str] = {}
    for path in find_lists(folder, "Translation-en"):
        log(f"{source}: reading {path.name}")
        for stanza in read_stanzas(path, _FIELDS):
            long.setdefault(stanza.get("Description-md5", ""), long_description(stanza))
    packages: dict[str, Package] = {}
    for path in files:
        log(f"{source}: reading {path.name}")
        for stanza in read_stanzas(path, _FIELDS | fields):
            name = stanza.get("Package", "")
            if not name:
                raise DataError("a stanza has no Package field", path=path)
            if name not in packages:
                packages[name] = _package(name, stanza, long, fields)
    # Sorted, because the split depends on the order of the packages.
    return dict(sorted(packages.items()))


def long_description(stanza: Mapping[str, str]) -> str:
    """Return the description without its first line, as one line; a lone dot is an empty line."""
    described = stanza.get("Description") or stanza.get("Description-en", "")
    lines = (line.strip() for line in described.split("\n")[1:])
    return " ".join(" ".join(line for line in lines if line != ".").split())


def _package(
    name: str, stanza: Mapping[str, str], long: Mapping[str, str], fields: frozenset[str]
) -> Package:
    described = stanza.get("Description") or stanza.get("Description-en", "")
    description = long_description(stanza) or long.get(stanza.get("Description-md5", ""), "")
    kept = {field: value for field, value in stanza.items() if field in fields}
    return Package(name, described.split("\n")[0], description, kept)
