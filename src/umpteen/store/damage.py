"""Kinds of damage to a store, as values that code can compare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class DamageKind(StrEnum):
    """What is wrong with a store."""

    MISSING = "missing"
    """The file is gone or empty, although changes were granted."""
    ROLLED_BACK = "rolled_back"
    """The file lacks changes that were granted: it was cut or is an older copy."""
    REPLACED = "replaced"
    """The file belongs to another history of changes than the revision file."""
    UNREADABLE = "unreadable"
    """SQLite cannot read the file, or its tables are not those of a store."""
    BAD_ROWS = "bad_rows"
    """Some rows are missing, or their checksums do not match."""


@dataclass(frozen=True)
class Damage:
    """What is wrong with the store of a run."""

    kind: DamageKind
    path: Path
    detail: str

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.detail}; put the file back from a backup, or keep what can be "
            f"read with: umpteen repair {self.path.parent}"
        )
