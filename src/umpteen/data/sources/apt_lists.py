"""Reading apt's package lists: stanzas of ``Field: value`` lines, plain or compressed.

What the fields mean is the business of debian.py.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from umpteen.errors import DataError

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


def find_lists(folder: Path, kind: str) -> list[Path]:
    """Return the lists of one kind in a folder, by name.

    Args:
        folder: Where apt keeps them.
        kind: How the name ends before a compression suffix: ``Packages``, ``Translation-en``.

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
