"""A write-ahead file: checked records that survive a kill and that other processes can follow.

Each line is a checksum, a space and a JSON object with its line number "n". The first line says
what the journal is about. What the records mean is not known here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import uuid
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from umpteen.errors import JournalDamaged, LabelMismatch, NotWritten
from umpteen.files import atomic_file

FORMAT = 1


@dataclass(frozen=True)
class Tail:
    """What a journal gained since it was last looked at."""

    records: list[dict[str, Any]] = field(default_factory=list)
    anew: bool = False
    """Whether the records are all there are, and what was known before is to be forgotten."""


class Journal:
    """One journal as one reader or writer sees it; share it between threads under a lock.

    A record is there once ``append`` has returned: written, synced, and seen by the next ``follow``
    of any process. A kill at any moment leaves a record whole or not there; what it left of a
    record at the end of the file is passed over and overwritten.

    Args:
        path: The file; its folder must exist. A lock lies beside it.
        kind: What the records are about, such as ``"labels"``.
        belongs_to: What they were made for, such as a label fingerprint.
        tolerant: Whether to pass over damaged lines and refuse changes, instead of raising.
        remedy: What to do about damage, for the message, as the end of a sentence.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        kind: str,
        belongs_to: str,
        tolerant: bool = False,
        remedy: str = "put the file back from a copy",
    ) -> None:
        self.path = Path(path)
        self.kind = kind
        self.belongs_to = belongs_to
        self.tolerant = tolerant
        self.remedy = remedy
        self.damage = ""
        """What is wrong with the file, as a sentence; empty while nothing is."""
        self._lock = self.path.with_name(f"{self.path.name}.lock")
        self._seen: tuple[int, int, int]
        self._forget()

    @property
    def revision(self) -> int:
        """How many records there ever were; writing them anew does not change it."""
        return self._before + self._lines - 1 if self._lines else 0

    @property
    def n_records(self) -> int:
        """How many records the file holds."""
        return max(0, self._lines - 1)

    def follow(self) -> Tail:
        """The records that were added since the last call, by whomever.

        Returns:
            New records; all of them where the file was written anew.

        Raises:
            JournalDamaged: If a line is damaged and this reader is not tolerant.
            LabelMismatch: If the journal belongs to something else.
        """
        if self._stat() == self._seen:
            return Tail()
        with self._locked(fcntl.LOCK_SH):
            return self._read()

    @contextlib.contextmanager
    def changing(self, *, despite_damage: bool = False) -> Iterator[Tail]:
        """Hold the journal alone while it is changed.

        Args:
            despite_damage: Whether it is all the same that records are lost.

        Yields:
            The records that others added since the last call.

        Raises:
            JournalDamaged: If the file is damaged.
            NotWritten: If the lock cannot be had.
        """
        with self._locked(fcntl.LOCK_EX):
            tail = self._read()
            if self.damage and not despite_damage:
                raise JournalDamaged(self.damage)
            yield tail

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; only inside ``changing``.

        Raises:
            NotWritten: If it could not be written and synced; the file is as it was.
        """
        if not self._lines:
            self.replace([])
        line = _line(record, self._lines)
        try:
            handle = os.open(self.path, os.O_RDWR)
        except OSError as error:
            raise self._not_written(error) from error
        try:
            os.ftruncate(handle, self._end)  # what a kill left of a record
            _write_all(handle, line, self._end)
            os.fsync(handle)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, self._end)
                os.fsync(handle)
            raise self._not_written(error) from error
        finally:
            os.close(handle)
        self._end += len(line)
        self._lines += 1
        self._seen = self._stat()

    def replace(self, records: Sequence[dict[str, Any]]) -> None:
        """Write the whole file anew, with records that come to the same; only inside ``changing``.

        Raises:
            NotWritten: If that failed; the file is as it was.
        """
        token = uuid.uuid4().hex
        before = self.revision - len(records)
        about = {"journal": self.kind, "format": FORMAT, "belongs_to": self.belongs_to}
        header = {**about, "before": before, "token": token}
        lines = [_line(record, number) for number, record in enumerate([header, *records])]
        try:
            with atomic_file(self.path) as temporary:
                temporary.write_bytes(b"".join(lines))
        except OSError as error:
            raise self._not_written(error) from error
        self._token, self._before = token, before
        self._end, self._lines = sum(map(len, lines)), len(lines)
        self._seen, self.damage = self._stat(), ""

    def _read(self) -> Tail:
        seen = self._stat()
        if not seen[1]:
            self._seen = seen
            if self._lines:  # what was retired must not come back because a file was lost
                self.damage = f"{self.path} is gone or empty since it was read; {self.remedy}"
            return Tail()
        with self.path.open("rb") as handle:
            header = handle.readline()
            # A file written anew may get the number of one that is gone; its token differs.
            same = self._lines > 0 and (_parse(header, 0) or {}).get("token", "") == self._token
            anew = not same or seen[1] < self._end or "is gone or empty" in self.damage
            if anew:
                known = self._lines > 0
                self._forget()
                self._begin(header)
            handle.seek(self._end)
            records = self._take(handle.read())
        self._seen = seen
        return Tail(records, anew and known) if anew else Tail(records)

    def _begin(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            return  # killed while making it
        header = _parse(line, 0)
        if header is None:
            self._damaged(1)
            header = {"before": 0, "belongs_to": self.belongs_to}
        elif (header.get("journal"), header.get("format")) != (self.kind, FORMAT):
            raise JournalDamaged(
                f"{self.path} is not a journal of {self.kind} in format {FORMAT}; "
                "it was written by another version or is another file"
            )
        if header["belongs_to"] != self.belongs_to:
            raise LabelMismatch(
                f"{self.path} was written for {header['belongs_to'][:12]}, this is "
                f"{self.belongs_to[:12]}; move the file away to go on without its changes"
            )
        self._token = header.get("token", "")
        self._before, self._end, self._lines = header["before"], len(line), 1

    def _take(self, content: bytes) -> list[dict[str, Any]]:
        """Records of whole lines; what follows the last line break is not there yet."""
        lines = content.split(b"\n")[:-1] if self._lines else []
        records = []
        for line in lines:
            record = _parse(line + b"\n", self._lines, later=bool(self.damage))
            self._end += len(line) + 1
            self._lines += 1
            if record is None:
                self._damaged(self._lines)
                continue
            self._lines = record.pop("n") + 1
            records.append(record)
        return records

    def _damaged(self, line: int) -> None:
        self.damage = self.damage or (
            f"{self.path}, line {line}: the record is damaged (its checksum does not fit), so "
            f"nothing can be changed; {self.remedy}"
        )
        if not self.tolerant:
            sentence = self.damage
            self._forget()  # whoever asks again is told again
            raise JournalDamaged(sentence)

    def _forget(self) -> None:
        self._token, self._before, self._lines, self._end = "", 0, 0, 0
        self._seen = (0, -1, 0)
        self.damage = ""

    def _stat(self) -> tuple[int, int, int]:
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            return (0, 0, 0)
        return (stat.st_ino, stat.st_size, stat.st_mtime_ns)

    @contextlib.contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        flags = os.O_RDWR | os.O_CREAT if how == fcntl.LOCK_EX else os.O_RDONLY
        try:
            handle = os.open(self._lock, flags, 0o644)
        except OSError as error:
            if how == fcntl.LOCK_EX:
                raise self._not_written(error) from error
            if error.errno not in (errno.ENOENT, errno.EACCES):
                raise
            yield  # nobody has ever changed it, or we may only look
            return
        try:
            fcntl.flock(handle, how)
            yield
        finally:
            os.close(handle)

    def _not_written(self, error: OSError) -> NotWritten:
        return NotWritten(
            f"{self.path} could not be written ({error.strerror}), so nothing was changed; "
            "make room or give write permission, and try again"
        )


def _line(record: dict[str, Any], number: int) -> bytes:
    # ASCII: no character of a text is a line break to anybody.
    payload = json.dumps({"n": number, **record}, separators=(",", ":")).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(payload), payload)


def _parse(line: bytes, number: int, *, later: bool = False) -> dict[str, Any] | None:
    """The record of a line, or None if it is damaged or not the one expected here."""
    checksum, _, payload = line[:-1].partition(b" ")
    if checksum != b"%08x" % zlib.crc32(payload):
        return None
    try:
        record = json.loads(payload)
        found = record["n"]
    except (ValueError, TypeError, KeyError):
        return None  # a checksum that fits what we did not write
    return record if found == number or (later and found > number) else None


def _write_all(handle: int, content: bytes, place: int) -> None:
    done = 0
    while done < len(content):
        done += os.pwrite(handle, content[done:], place + done)
