"""Read packages with their descriptions from apt's local lists, plain or compressed."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from umpteen.errors import DataError
from umpteen.types import Log

LISTS = Path("/var/lib/apt/lists")
_FIELDS = frozenset({"Package", "Description", "Description-en", "Description-md5"})
OPENERS: dict[str, Callable[..., Any]] = {
    "": open,
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".lzma": lzma.open,
    ".bz2": bz2.open,
}
# Container images keep their lists in formats the standard library cannot read; apt itself can.
APT_ONLY = (".lz4", ".zst")
APT_HELPER = "/usr/lib/apt/apt-helper"


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


def find_lists(folder: Path, kind: str) -> list[Path]:
    """Return the lists of one kind in a folder, by name.

    Returns:
        The files; of a list that is there both plain and compressed only the plain one.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        suffix = path.suffix if path.suffix in (*OPENERS, *APT_ONLY) else ""
        name = path.name.removesuffix(suffix)
        if path.is_file() and name.endswith(kind):
            found.setdefault(name, path)
    return list(found.values())


def read_stanzas(path: Path, fields: frozenset[str]) -> Iterator[dict[str, str]]:
    """Read the wanted fields of every stanza.

    Args:
        path: A list, compressed or not.
        fields: The fields to keep; the others are skipped.

    Yields:
        Field to value; the lines of a value are separated by newlines and have no indent.

    Raises:
        DataError: With the line that is neither a field nor goes on with one.
    """
    stanza: dict[str, str] = {}
    current = ""
    with _open(path) as lines:
        for number, line in enumerate(_decoded(lines, path), 1):
            line = line.rstrip("\r\n")
            if not line.strip():
                if stanza:
                    yield stanza
                stanza, current = {}, ""
            elif line[0] in " \t":
                if current in stanza:
                    stanza[current] += "\n" + line[1:]
            else:
                current, colon, value = line.partition(":")
                if not colon:
                    raise DataError(
                        f"{line[:40]!r} is not a line of a package list; expected 'Field: value'",
                        path=path,
                        line=number,
                    )
                if current in fields:
                    stanza[current] = value.strip()
    if stanza:
        yield stanza


def _decoded(lines: IO[bytes], path: Path) -> Iterator[str]:
    try:
        yield from io.TextIOWrapper(lines, encoding="utf-8", newline="\n")
    except UnicodeDecodeError as error:
        raise DataError(f"the list is not UTF-8 text ({error.reason})", path=path) from error
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"the list cannot be unpacked ({error})", path=path) from error


@contextlib.contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix not in APT_ONLY:
        with OPENERS.get(path.suffix, open)(path, "rb") as handle:
            yield handle
        return
    helper = shutil.which(APT_HELPER)
    if helper is None:
        raise DataError(
            f"{path.suffix} lists are read with {APT_HELPER}, which is not here; unpack the list "
            "or run apt-get update -o Acquire::GzipIndexes=false",
            path=path,
        )
    with subprocess.Popen(
        [helper, "cat-file", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield process.stdout
        problem = process.stderr.read().decode("utf-8", "replace").strip()
    if process.returncode:
        raise DataError(f"apt-helper cannot unpack the list ({problem})", path=path)
