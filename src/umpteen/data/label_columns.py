"""A label list once more, as arrays that a service maps. The list itself stays the truth.

``labels.columns`` is a safetensors file: bytes and offsets of ids, titles and contents, training
counts, and ids sorted by their hash. Opening it costs the same for any number of labels. It holds
digests of the list and of its own arrays, and counts only beside that list. Digests of more than
16 MiB are of a sample.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from umpteen.data.labels import LabelSet
from umpteen.data.mapped_strings import MappedStrings, StringRows, sorted_hashes
from umpteen.files import LOAD_ERRORS, atomic_file, sampled_digest

MAPPED_LABELS = 200_000
"""From this many labels on texts stay in the file; fewer are read into lists, which are faster."""
FIELDS = ("ids", "titles", "contents")
_TYPES = {"U8": "u1", "U32": "<u4", "I64": "<i8", "U64": "<u8"}
Arrays = dict[str, NDArray]


def write_columns(file: Path, listed: Path, labels: LabelSet, counts: NDArray[np.int64]) -> None:
    """Write the columns of a label list that has just been written.

    Args:
        file: Where to.
        listed: The list.
        labels: What is in it.
        counts: (L,) training queries of each label.
    """
    arrays: Arrays = {"counts": np.asarray(counts, np.int64)}
    for name, fields in zip(FIELDS, (labels.ids, labels.titles, labels.contents), strict=True):
        if fields is not None:
            packed = MappedStrings.pack(fields)
            arrays |= {name: packed.raw, f"{name}.offsets": packed.offsets}
            if name == "ids":
                arrays["ids.hashes"], arrays["ids.rows"] = sorted_hashes(packed)
    about = {
        "list": sampled_digest(listed),
        "columns": _digest_all(arrays, labels.fingerprint),
        "fingerprint": labels.fingerprint,
    }
    with atomic_file(file) as temporary:
        save_file(arrays, temporary, metadata=about)


def read_columns(file: Path, listed: Path) -> tuple[LabelSet, NDArray[np.int64]] | None:
    """Open what ``write_columns`` wrote; None if it does not belong to the list.

    Args:
        file: Where from.
        listed: The list.

    Returns:
        Labels, their fingerprint known already, and counts (L,).
    """
    try:
        about, arrays = _map_arrays(file)
        known = about["fingerprint"]
        if about.get("columns") != _digest_all(arrays, known):
            return None
        if about["list"] != sampled_digest(listed):
            return None
        fields = {
            name: MappedStrings(arrays[name], arrays[f"{name}.offsets"])
            for name in FIELDS
            if name in arrays
        }
        # The digests say that these are the columns of a label set, so of one without doubles.
        rows = StringRows(fields["ids"], arrays["ids.hashes"], arrays["ids.rows"])
        counts = arrays["counts"]
        if not len(counts) == len(fields["ids"]) == len(fields["titles"]):
            return None
        ids, titles, contents = fields["ids"], fields["titles"], fields.get("contents")
        if len(counts) >= MAPPED_LABELS:
            return LabelSet.checked_before(ids, titles, contents, known, rows), counts
        listed_contents = None if contents is None else contents[:]
        return LabelSet.checked_before(ids[:], titles[:], listed_contents, known), np.array(counts)
    except LOAD_ERRORS:
        return None  # the list can be read instead


def _map_arrays(file: Path) -> tuple[dict[str, str], Arrays]:
    """Map the tensors of a safetensors file; its own reader copies them."""
    whole = np.memmap(file, np.uint8, "r")
    size = int(whole[:8].view("<u8")[0])
    header = json.loads(bytes(whole[8 : 8 + size]))
    about = header.pop("__metadata__")
    arrays = {}
    for name, each in header.items():
        start, stop = (8 + size + place for place in each["data_offsets"])
        (length,) = each["shape"]
        kind = np.dtype(_TYPES[each["dtype"]])
        if stop - start != length * kind.itemsize or stop > len(whole):
            raise ValueError(f"{name} has another size than its header says")
        arrays[name] = np.asarray(whole[start:stop]).view(kind)
    return about, arrays


def _digest_all(arrays: Arrays, fingerprint: str) -> str:
    parts = [arrays[name].view(np.uint8) for name in sorted(arrays)]
    parts.append(np.frombuffer(fingerprint.encode(), np.uint8))
    return " ".join(sampled_digest(memoryview(part)) for part in parts)
