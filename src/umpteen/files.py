"""Files written whole or not at all (temporary name, fsync, rename); JSON read with a sentence."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import mmap
import os
import re
import shutil
import tokenize
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from umpteen.errors import NotWritten, UmpteenError

LOAD_ERRORS = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    EOFError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    tokenize.TokenError,
    zipfile.BadZipFile,
)
"""What readers of arrays and JSON raise for a damaged file, depending on where the damage is."""
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}(?P<old>\.old)?\.tmp")


def require_writable(path: Path) -> None:
    """Raise if there is no place for a file of this name.

    Raises:
        UmpteenError: If it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise UmpteenError(f"{path} is a folder; name a file")
    if not path.parent.is_dir():
        raise UmpteenError(f"{path}: there is no folder {path.parent}; make it first")


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it into place when the block ends well.

    After an error or a kill the old file, if there was one, is untouched.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: str | Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary folder; rename it to ``path`` when the block ends well.

    Args:
        path: The folder to make.
        replace: Whether an existing folder is put aside and removed afterwards.

    Raises:
        UmpteenError: If the folder exists with something in it and ``replace`` is False.
    """
    path = Path(path)
    if not replace and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UmpteenError(f"{path} exists already; remove it or name another place")
    path.parent.mkdir(parents=True, exist_ok=True)
    token = uuid.uuid4().hex[:8]
    temporary = path.with_name(f".{path.name}.{token}.tmp")
    old = path.with_name(f".{path.name}.{token}.old.tmp")
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                sync(file)
        if path.exists():
            if not replace and any(path.iterdir()):  # another process was faster
                raise UmpteenError(f"{path} exists already; remove it or name another place")
            os.replace(path, old)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        if old.exists() and not path.exists():
            os.replace(old, path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextlib.contextmanager
def disk_errors(place: str | Path, *, advice: str) -> Iterator[None]:
    """Turn errors of a disk that is full or broken into a sentence, whoever raises them.

    Args:
        place: What is being written.
        advice: What to do once there is room.

    Yields:
        Nothing.

    Raises:
        NotWritten: If the disk refused.
    """
    try:
        yield
    except UmpteenError:
        raise
    except Exception as error:
        found = disk_error(place, error, advice=advice)
        if found is None:
            raise
        raise found from error


def disk_error(place: str | Path, error: Exception, *, advice: str) -> NotWritten | None:
    """Return the sentence for an error of a disk; None for any other error."""
    # Libraries that write by themselves have errors of their own, with the system's words.
    codes = [error.errno] if isinstance(error, OSError) else []
    codes += [code for code in _DISK_ERRORS if os.strerror(code) in str(error)]
    found = [os.strerror(code) for code in codes if code in _DISK_ERRORS]
    if not found:
        return None
    return NotWritten(f"{place} could not be written ({found[0]}); make room, then {advice}")


_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def leftovers(folder: str | Path) -> list[Path]:
    """Return temporary files that a killed process left directly in a folder."""
    folder = Path(folder)
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(place for place in found if _LEFTOVER.fullmatch(place.name))


def clear_leftovers(folder: str | Path, *, of: str | None = None) -> None:
    """Remove leftovers; a folder that was put aside for one that never came gets its name back.

    Only for a folder that no other process writes to, or a name that no other process writes.

    Args:
        folder: Where they lie.
        of: The name of the file or folder whose leftovers are removed; None for all.
    """
    for place in leftovers(folder):
        match = _LEFTOVER.fullmatch(place.name)
        assert match is not None
        if of not in (None, match["name"]):
            continue
        rightful = place.with_name(match["name"])
        if match["old"] and not rightful.exists():
            os.replace(place, rightful)
        elif place.is_dir():
            shutil.rmtree(place, ignore_errors=True)
        else:
            place.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Ask the system to put a file or folder on the disk before we go on."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: str | Path, value: Any) -> None:
    """Write JSON atomically."""
    with atomic_file(path) as temporary:
        temporary.write_text(
            json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8"
        )


def read_json(path: str | Path, *, error: type[UmpteenError] = UmpteenError) -> Any:
    """Read JSON.

    Args:
        path: The file.
        error: The class to raise.

    Returns:
        The value.

    Raises:
        UmpteenError: (of the given class) if the file is missing or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise error(f"{path} is missing") from None
    except (ValueError, OSError, RecursionError) as cause:
        raise error(f"{path} cannot be read as JSON: {cause}") from cause


def digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def sampled_digest(content: str | Path | memoryview) -> str:
    """Return the SHA-256 of a size and a content; of a large one, of a sample of it.

    Of more than 16 MiB it reads 256 blocks of 64 KiB at equal distances, the first and the last
    among them, so that the cost is bounded.
    """
    if isinstance(content, memoryview):
        return _sampled_digest(content)
    with open(content, "rb") as handle:
        if not os.fstat(handle.fileno()).st_size:
            return _sampled_digest(memoryview(b""))
        with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            return _sampled_digest(mapped)


def _sampled_digest(content: memoryview | mmap.mmap) -> str:
    blocks, width, size = 256, 1 << 16, len(content)
    known = hashlib.sha256(str(size).encode())
    for number in range(blocks if size > blocks * width else 0):
        start = (size - width) * number // (blocks - 1)
        known.update(content[start : start + width])
    if size <= blocks * width:
        known.update(content)
    return known.hexdigest()
