"""Every error umpteen raises on purpose, as one small family.

The command line prints the message as one sentence and exits with 1; a service maps the same
classes to HTTP codes. Nothing here imports the rest of the package.
"""

from __future__ import annotations

from pathlib import Path


class UmpteenError(Exception):
    """Base of all errors; the message states what was found, where, and what to do."""


class ConfigError(UmpteenError):
    """A setting is unknown, of the wrong type, or contradicts another."""


class DataError(UmpteenError):
    """Input data is damaged, inconsistent or not in the stated format.

    Args:
        message: What was found and what was expected.
        path: The file it was found in.
        line: The line, counted from 1.
        row: The row of a table whose file has no lines, counted from 1.
        column: The column's name, for tables.

    Example:
        >>> str(DataError("expected a list of labels", path="a.jsonl", line=3))
        'a.jsonl, line 3: expected a list of labels'
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        place = [str(path)] if path is not None else []
        if line is not None:
            place.append(f"line {line}")
        if row is not None:
            place.append(f"row {row}")
        if column is not None:
            place.append(f"column {column!r}")
        super().__init__(f"{', '.join(place)}: {message}" if place else message)
        self.path = path
        self.line = line
        self.row = row
        self.column = column


class LabelMismatch(UmpteenError):
    """Two parts that must have the same labels differ."""


class RunError(UmpteenError):
    """A run folder is missing, incomplete or damaged."""


class StoreDamaged(RunError):
    """The store of changes is damaged, missing or older than it was; changes are refused.

    Args:
        message: What is wrong and what to do.
        damage: The same as a value (``umpteen.store.Damage``), for code.
    """

    def __init__(self, message: str, damage: object = None) -> None:
        super().__init__(message)
        self.damage = damage


class NotFinite(UmpteenError, ValueError):
    """Vectors hold NaN or infinity."""


class NotWritten(UmpteenError):
    """A change could not be put on the disk, and therefore was not made."""


class TrainingStopped(UmpteenError):
    """Training stopped, for example at a loss that is not finite."""


class RankLost(UmpteenError):
    """Another rank of this job has ended or no longer responds."""


class MissingExtra(UmpteenError):
    """An optional package is needed and not installed; the message has the pip line."""


def first_line(error: Exception) -> str:
    """Return the first line of another library's message, to be quoted in a sentence."""
    return str(error).strip().split("\n")[0].rstrip(".")
