"""Lines of UTF-8 text, plain or gzip, read with their numbers and written; limits on their size."""

from __future__ import annotations

import codecs
import contextlib
import datetime
import gzip
import io
import json
import os
import sys
import zlib
from collections.abc import Iterable, Iterator
from numbers import Number
from pathlib import Path
from typing import IO, Any

from umpteen.errors import DataError

MAX_RATIO = 200
"""Of a text's size to that of its gzip data; natural text reaches 3 to 20, a bomb 1,000."""
UNCHECKED_BYTES = 128 << 20
"""Any file may have this many bytes."""
STDIN = Path("-")
GZIP_MAGIC = b"\x1f\x8b"
BYTE_ORDER_MARK = "\ufeff"
UTF16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NOT_UTF16 = "the file is UTF-16 text; save it as UTF-8"
_BUFFER_BYTES = 1 << 20


class Unzipped(gzip.GzipFile):
    """The content of gzip data, refused once it is far larger than the data."""

    def __init__(self, stream: IO[bytes], path: object) -> None:
        super().__init__(fileobj=stream, mode="rb")
        self._path = path
        self._read_bytes = 0
        self._limit = max(UNCHECKED_BYTES, MAX_RATIO * _size(stream))

    def read(self, size: int | None = -1) -> bytes:
        """Read up to that many bytes.

        Raises:
            DataError: If there are far more than the compressed size explains.
        """
        # All at once would be too late to look.
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        content = super().read(size)
        self._read_bytes += len(content)
        if self._read_bytes > self._limit:
            raise DataError(
                f"the gzip data decompresses to more than {MAX_RATIO} times its size and more than "
                f"{UNCHECKED_BYTES >> 20} MiB; if that is right, decompress the file first",
                path=str(self._path),
            )
        return content


def check_fits(path: Path, n_bytes: int) -> None:
    """Raise if a file would need more memory than the machine has.

    Args:
        path: The file.
        n_bytes: What it says that its content takes.

    Raises:
        DataError: If that is too much.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if n_bytes > memory:
        raise DataError(
            f"the content takes {n_bytes / 2**30:,.1f} GiB, more than the {memory / 2**30:,.1f} "
            "GiB of this machine; split the file, or check where it is from",
            path=path,
        )


def _size(stream: IO[bytes]) -> int:
    """Return the bytes of a file; of a pipe, as many as need no limit."""
    try:
        stat = os.fstat(stream.fileno())
    except OSError:
        return 1 << 50
    return stat.st_size or 1 << 50


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Open a file (``-``: standard input) for reading; gzip is recognised by its first bytes.

    Args:
        path: The file.

    Yields:
        The uncompressed bytes as a stream.

    Raises:
        DataError: If it cannot be opened, or its gzip data turns out to be broken.
    """
    try:
        with contextlib.ExitStack() as stack:
            buffered: Any
            if path == STDIN:
                buffered = io.BufferedReader(sys.stdin.buffer, _BUFFER_BYTES)
                # Detached at the end: closing the wrapper would close standard input itself.
                stack.callback(buffered.detach)
            else:
                buffered = stack.enter_context(open(path, "rb", buffering=_BUFFER_BYTES))
            if buffered.peek(2)[:2] != GZIP_MAGIC:
                yield buffered
                return
            unzipped = stack.enter_context(Unzipped(buffered, shown(path)))
            # GzipFile finds lines in Python; the wrapper finds them in C, several times faster.
            yield io.BufferedReader(unzipped, _BUFFER_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"the gzip data is broken or cut off ({error}); fetch or compress the file again",
            path=shown(path),
        ) from error
    except OSError as error:
        raise DataError(
            f"the file cannot be read ({error.strerror or error})", path=shown(path)
        ) from error


def read_lines(
    path: Path, *, keep_ends: bool = False, stream: IO[bytes] | None = None
) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a file with their numbers from 1, without their ends unless asked.

    Lines end at ``\n`` or ``\r\n`` only: other Unicode line separators are part of the text.

    Args:
        path: The file, plain or gzip, or ``-``.
        keep_ends: Whether the line ends stay.
        stream: The file, if it is open already; the path then serves for messages alone.

    Yields:
        Number and text of each line.

    Raises:
        DataError: If the file is unreadable, its gzip data broken, or a line not UTF-8.
    """
    with open_bytes(path) if stream is None else contextlib.nullcontext(stream) as opened:
        for number, raw in enumerate(opened, 1):
            try:
                line = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                if number == 1 and raw.startswith(UTF16_MARKS):
                    raise DataError(NOT_UTF16, path=shown(path)) from error
                raise DataError(
                    f"byte 0x{raw[error.start]:02x} at position {error.start + 1} of the line is "
                    "not UTF-8; save the file as UTF-8",
                    path=shown(path),
                    line=number,
                ) from error
            if number == 1:
                line = line.removeprefix(BYTE_ORDER_MARK)
            yield number, line if keep_ends else line.removesuffix("\n").removesuffix("\r")


def read_objects(
    path: Path, stream: IO[bytes] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON objects of a file with one per line; empty lines may stand only at the end.

    Args:
        path: The file.
        stream: The file, if it is open already.

    Yields:
        Line number and object.

    Raises:
        DataError: If a line is not one JSON object.
    """
    empty = 0
    for number, line in read_lines(path, stream=stream):
        if not line.strip():
            empty = empty or number
            continue
        if empty:
            raise DataError(
                "the line is empty; every line but the last holds one JSON object",
                path=shown(path),
                line=empty,
            )
        try:
            value = json.loads(line)
            if "\\u" in line:
                # Escapes can spell half a character, which no tokenizer and no file can take.
                json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                "a \\u escape gives half of a surrogate pair, which is no character",
                path=shown(path),
                line=number,
            ) from error
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"the line is not JSON ({error}); expected one object per line",
                path=shown(path),
                line=number,
            ) from error
        if not isinstance(value, dict):
            raise DataError(
                f"the line holds {kind(value)}; expected a JSON object",
                path=shown(path),
                line=number,
            )
        yield number, value


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines; compressed if the name ends in ``.gz``. The same lines give the same bytes.

    Raises:
        DataError: If a text holds what UTF-8 cannot (half of a surrogate pair).
    """
    with contextlib.ExitStack() as stack:
        stream: Any = stack.enter_context(open(path, "wb"))
        if path.suffix == ".gz":
            stream = stack.enter_context(
                gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0, compresslevel=6)
            )
        writer = stack.enter_context(io.BufferedWriter(stream, _BUFFER_BYTES))
        for number, line in enumerate(lines, 1):
            try:
                writer.write(f"{line}\n".encode())
            except UnicodeEncodeError as error:
                raise DataError(
                    f"the text of row {number} holds half of a surrogate pair, which cannot be "
                    "written as UTF-8"
                ) from error


def shown(path: Path) -> str:
    """Return what to call a file in a message."""
    return "standard input" if path == STDIN else str(path)


def kind(value: Any) -> str:
    """Name the kind of a JSON value, or of a value of an Arrow column.

    Example:
        >>> kind([1]), kind(None), kind(True), kind(0.5), kind(datetime.date(2026, 1, 31))
        ('a list', 'null', 'true or false', 'a number', 'a date or a time')
    """
    if value is None:
        return "null"
    names = {bool: "true or false", str: "a string", list: "a list", dict: "an object"}
    names |= {bytes: "bytes", tuple: "a pair"}  # pairs are the entries of a map
    if type(value) in names:
        return names[type(value)]
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return "a date or a time"
    return "a number" if isinstance(value, Number) else f"a value of type {type(value).__name__}"
