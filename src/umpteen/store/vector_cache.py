"""Cached vectors of added labels and examples, so that a restart does not encode them again.

A cache file is valid for a model and for exactly the texts it was made from: it carries a digest of
them, and a checksum of its arrays. Any mismatch, or any error, means that there is no cache.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from umpteen.files import atomic_file, leftovers
from umpteen.store.state import StoreState

FOLDER = "cache"
FORMAT = "2"
GROWTH = 0.25
LEFTOVER_SECONDS = 3600
Kind = Literal["labels", "examples"]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cached:
    """What a cache file holds of the first n added labels or examples."""

    n: int
    arrays: dict[str, NDArray]
    """By name, each with n rows."""
    words: list[str]
    """Terms that the arrays refer to."""


class VectorCache:
    """Cached arrays of a run; best effort, so nothing here raises."""

    def __init__(self, run: str | Path) -> None:
        self.folder = Path(run) / FOLDER

    def load(self, state: StoreState, kind: Kind, model: str) -> Cached | None:
        """Load the arrays of the first n added labels or examples of a state."""
        try:
            from safetensors import safe_open

            with safe_open(self._file(kind, model), framework="numpy") as file:
                about = file.metadata() or {}
                n = int(about["n"])
                if (about["format"], about["model"]) != (FORMAT, model) or n > _size(state, kind):
                    return None
                if about["content"] != content_digest(state, kind, n):
                    return None
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            words = [str(word) for word in json.loads(about["words"])]
            return Cached(n, arrays, words) if about["arrays"] == _checksum(arrays, words) else None
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged cache is no cache, whatever its reader raises
            logger.warning("The cache of %s in %s is ignored: %s", kind, self.folder, error)
            return None

    def save(
        self,
        state: StoreState,
        kind: Kind,
        model: str,
        arrays: Mapping[str, NDArray],
        words: Sequence[str] = (),
    ) -> bool:
        """Save arrays of the first n added labels or examples, n being their number of rows."""
        try:
            from safetensors.numpy import save_file

            sizes = {len(array) for array in arrays.values()}
            if len(sizes) != 1 or max(sizes) > _size(state, kind):
                return False
            (n,) = sizes
            whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
            about = {
                "format": FORMAT,
                "model": model,
                "n": str(n),
                "content": content_digest(state, kind, n),
                "words": json.dumps(list(words)),
                "arrays": _checksum(whole, words),
            }
            self.folder.mkdir(exist_ok=True)
            file = self._file(kind, model)
            with atomic_file(file) as temporary:
                save_file(whole, temporary, metadata=about)
            self._tidy(kind, file)
            return True
        except Exception as error:  # a full disk, say; vectors are encoded again after a restart
            logger.warning("The cache of %s in %s cannot be written: %s", kind, self.folder, error)
            return False

    def _tidy(self, kind: Kind, file: Path) -> None:
        """Remove files of earlier models, and what a killed process left long ago."""
        for other in self.folder.glob(f"{kind}-*.safetensors"):
            if other != file:
                other.unlink(missing_ok=True)
        for other in leftovers(self.folder):
            if time.time() - other.stat().st_mtime > LEFTOVER_SECONDS:
                other.unlink(missing_ok=True)

    def _file(self, kind: Kind, model: str) -> Path:
        name = hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return self.folder / f"{kind}-{name}.safetensors"


def is_save_due(n_cached: int, n_now: int) -> bool:
    """Return whether enough is new to write a cache again; total work stays linear that way."""
    return n_now > n_cached * (1 + GROWTH)


def content_digest(state: StoreState, kind: Kind, n: int) -> str:
    """Return a digest of the first n added labels or examples: everything that is encoded."""
    digest = hashlib.sha256()
    if kind == "examples":
        digest.update(b"".join(state.examples.digests[:n]))
    else:
        added = state.added
        fields = [added.ids[:n], added.texts[:n], added.contents[:n]]
        digest.update(json.dumps(fields).encode("ascii"))
    return digest.hexdigest()


def _size(state: StoreState, kind: Kind) -> int:
    return len(state.examples) if kind == "examples" else len(state.added)


def _checksum(arrays: Mapping[str, NDArray], words: Sequence[str]) -> str:
    """Return a CRC of arrays and words; hashing hundreds of megabytes would delay every start."""
    value = zlib.crc32(json.dumps(list(words)).encode("ascii"))
    for name in sorted(arrays):
        array = arrays[name]
        value = zlib.crc32(f"{name}{array.dtype.str}{array.shape}".encode(), value)
        if array.size:
            value = zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data, value)
    return f"{value:08x}"
