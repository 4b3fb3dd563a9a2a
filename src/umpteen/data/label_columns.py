"""A label list once more, by columns: what a service starts from. The list itself stays the truth.

Parsing a million lines takes longer than all else of a start; splitting a few long strings does
not. The columns hold the digest of the list they were made of, and count only beside that list.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from umpteen.data.labels import LabelSet
from umpteen.files import LOAD_ERRORS, atomic_file

BETWEEN = "\0"
"""Stands between fields; where a field has one itself, there are no columns."""


def write_columns(file: Path, listed: Path, labels: LabelSet, counts: NDArray[np.int64]) -> None:
    """Write the columns of a label list that has just been written.

    Args:
        file: Where to.
        listed: The list.
        labels: What is in it.
        counts: (L,) training queries of each label.
    """
    columns = {"ids": labels.ids, "titles": labels.titles}
    if labels.contents is not None:
        columns["contents"] = labels.contents
    if any(BETWEEN in field for fields in columns.values() for field in fields):
        file.unlink(missing_ok=True)
        return
    arrays: dict[str, NDArray[np.generic]] = {name: _joined(each) for name, each in columns.items()}
    arrays["counts"] = np.asarray(counts, np.int64)
    about = {
        "list": _digest(listed.read_bytes()),
        "columns": _digest_all(arrays),
        "fingerprint": labels.fingerprint,
    }
    with atomic_file(file) as temporary:
        save_file(arrays, temporary, metadata=about)


def read_columns(file: Path, listed: bytes) -> tuple[LabelSet, NDArray[np.int64]] | None:
    """Read what ``write_columns`` wrote; None if it does not belong to the list.

    Args:
        file: Where from.
        listed: The bytes of the list.

    Returns:
        Labels, their fingerprint known already, and counts (L,).
    """
    try:
        with safe_open(file, framework="numpy") as found:
            about = found.metadata() or {}
            if about.get("list") != _digest(listed) or "fingerprint" not in about:
                return None
            arrays = {name: found.get_tensor(name) for name in found.keys()}  # noqa: SIM118
        if about.get("columns") != _digest_all(arrays):
            return None
        counts = arrays.pop("counts")
        n = len(counts)
        columns = {name: _split(array, n) for name, array in arrays.items()}
        # The digests say that these are the columns of a label set, so of one without doubles.
        texts = columns["ids"], columns["titles"], columns.get("contents")
        return LabelSet.checked_before(*texts, about["fingerprint"]), counts
    except (*LOAD_ERRORS, SafetensorError):
        return None  # the list can be read instead


def _joined(fields: Sequence[str]) -> NDArray[np.uint8]:
    return np.frombuffer(BETWEEN.join(fields).encode("utf-8"), np.uint8)


def _split(array: NDArray[np.uint8], n: int) -> list[str]:
    fields = array.tobytes().decode("utf-8").split(BETWEEN) if n else []
    if len(fields) != n:
        raise ValueError(f"{len(fields)} fields for {n} labels")
    return fields


def _digest(listed: bytes) -> str:
    return hashlib.sha256(listed).hexdigest()


def _digest_all(arrays: dict[str, NDArray[np.generic]]) -> str:
    return " ".join(_digest(arrays[name].tobytes()) for name in sorted(arrays))
