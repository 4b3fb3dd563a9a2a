"""Approximate search over more label vectors than fit in memory (extra ``faiss``): IVF-PQ."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ConfigError, NotFinite, RunError
from umpteen.extras import require
from umpteen.index import base, ivfpq_files
from umpteen.index.mapped_rows import MappedRows
from umpteen.sorted_unique import sorted_unique
from umpteen.types import TopK

FILE = "labels.faiss"
IVFPQ_LABELS = 5_000_000
"""From this many labels on ``umpteen index`` builds this kind by default."""
DEFAULT_MEMORY = 2 << 30
CANDIDATES = 128
"""Labels per query that are scored again from their vectors, at least."""
COARSE_CANDIDATES = 256
"""The same where a byte of a code stands for more than two dimensions."""
SHARE_OF_LISTS = 48
"""A search reads one of so many lists."""
CANDIDATES_PER_K = 8
MAX_WIDTH = 1 << 14
"""A search that needs more candidates than this scores all allowed labels instead."""
SCANNED_ROWS = 1 << 15
"""Up to this many allowed labels are all scored: faster than a search that drops most others."""
RESCORE_BYTES = 64 << 20


class IvfPqIndex:
    """Inverted lists of product-quantized vectors in a mapped file, re-scored from the vectors.

    Choose it where ``FaissIndex`` does not fit in memory: the lists take 40 bytes a label at 64
    dimensions and 72 at 256, and stay on the disk until a search reads them. The best candidates
    by code are scored again from the label vectors, which stay in their file too, so that scores
    are exact. Build and search use a bounded amount of memory.

    Excluded and retired labels are dropped from the candidates. A query that lacks labels then, and
    a filter that leaves few labels, score all allowed labels from their vectors.

    Args:
        index: A faiss IVF-PQ index with the inner-product metric.
        rows: The vectors it was built from.
        file: The file of the index.
        nprobe: The lists that a search reads.
        candidates: Labels per query to score again, at least.
    """

    score_error = 1e-5

    def __init__(
        self, index: Any, rows: MappedRows, file: Path, *, nprobe: int, candidates: int
    ) -> None:
        self.index = index
        self.rows = rows
        self.nprobe = nprobe
        self.candidates = candidates
        self._file = file
        self._owner: Any = None

    @classmethod
    def build(
        cls,
        vectors: Any,
        *,
        n_lists: int | None = None,
        code_bytes: int | None = None,
        nprobe: int | None = None,
        candidates: int | None = None,
        max_memory: int = DEFAULT_MEMORY,
        workspace: str | Path | None = None,
        seed: int = 0,
    ) -> Self:
        """Train and fill an index in a temporary folder.

        Args:
            vectors: (L, D), a NumPy array, memory-mapped or not, or a torch tensor.
            n_lists: Inverted lists; None for about four times the square root of the labels.
            code_bytes: Bytes of a code, a divisor of D; None for up to D / 2 and 64.
            nprobe: The lists that a search reads; None for a 48th, at least 16.
            candidates: Labels per query to score again, at least; None for 128, or 256 where a byte
                of a code stands for more than two dimensions.
            max_memory: Bytes that the build may use beside the vectors.
            workspace: Where the temporary folder is made; None for the system's place.
            seed: Chooses the training sample.

        Raises:
            ConfigError: If an option does not fit the vectors.
            UmpteenError: If the shape is wrong or a value is not finite.
            MissingExtra: If faiss is not installed.
        """
        rows = MappedRows(vectors)
        shape = ivfpq_files.Shape.of(rows.n_rows, rows.dim, n_lists, code_bytes)
        lists = max(16, shape.n_lists // SHARE_OF_LISTS)
        probes = min(shape.n_lists, _positive("nprobe", nprobe or lists))
        if candidates is None:
            candidates = CANDIDATES if rows.dim <= 2 * shape.code_bytes else COARSE_CANDIDATES
        _positive("candidates", candidates)
        owner = tempfile.TemporaryDirectory(prefix="umpteen-index-", dir=workspace)
        file = Path(owner.name) / FILE
        ivfpq_files.build_file(file, rows, shape, max_memory=max_memory, seed=seed)
        sizes = {"n_labels": rows.n_rows, "dim": rows.dim, "code_bytes": shape.code_bytes}
        index = ivfpq_files.open_file(
            file, sizes | ivfpq_files.checks(file, rows.n_rows, shape.code_bytes)
        )
        built = cls(index, rows, file, nprobe=probes, candidates=candidates)
        built._owner = owner  # the folder lives as long as the index
        return built

    @property
    def n_labels(self) -> int:
        """L."""
        return int(self.index.ntotal)

    @property
    def dim(self) -> int:
        """D."""
        return int(self.index.d)

    def search(
        self,
        queries: Any,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """Return the k best labels of each query, as far as the lists that are read hold them.

        Args:
            queries: (B, D), a NumPy array or a torch tensor.
            k: How many labels to return.
            exclude: (M, 2) pairs (query position, label row) that must not be returned.
            allowed: (L,) False for labels that no query may get.

        Returns:
            (B, k) rows and exact scores; -1 and -inf where no label is left.

        Raises:
            ConfigError: If k is less than 1.
            UmpteenError: If the queries do not fit the vectors.
            ValueError: If a query is not finite, or exclude or allowed is out of bounds.
        """
        given = base.check_search(self, queries, k).float().cpu().contiguous().numpy()
        if not np.isfinite(given).all():
            raise NotFinite(
                "queries hold NaN or infinity; if these are vectors of a run, its files are damaged"
            )
        n = self.n_labels
        pairs = base.check_exclude(exclude, len(given), n)
        n_allowed = n if allowed is None else _count_allowed(allowed, n)
        banned = sorted_unique(pairs[:, 0] * n + pairs[:, 1])
        n_banned = np.bincount(banned // n, minlength=len(given))
        most = int(n_banned.max(initial=0))
        # So many that enough remain after the drop.
        wanted = max(self.candidates, CANDIDATES_PER_K * k) + most
        width = min(n, -(-wanted * n // max(1, n_allowed)))
        few = n_allowed < n and n_allowed <= SCANNED_ROWS
        if few or width > max(MAX_WIDTH, wanted) or k >= n:
            return TopK(*self._scan(given, k, np.arange(len(given)), banned, allowed))
        probes = min(self.index.nlist, -(-self.nprobe * n // n_allowed))
        found = self._probe(given, width, probes)
        rows, scores = self._best(given, found, k, np.arange(len(given)), banned, allowed)
        # Banned labels may have been dropped already: then the scan changes nothing.
        short = np.flatnonzero((rows >= 0).sum(axis=1) < np.minimum(k, n_allowed - n_banned))
        if len(short):
            rows[short], scores[short] = self._scan(given[short], k, short, banned, allowed)
        return TopK(rows, scores)

    def scan(self, queries: Any, k: int) -> TopK:
        """Return the exact k best labels: score all of them, block by block."""
        given = base.check_search(self, queries, k).float().cpu().contiguous().numpy()
        numbers, none = np.arange(len(given)), np.empty(0, np.int64)
        return TopK(*self._scan(given, k, numbers, none, None))

    def save(self, folder: str | Path, *, with_vectors: bool = True) -> None:
        """Write to a folder.

        Args:
            folder: The folder.
            with_vectors: Whether to write the vectors too; otherwise ``load`` must get them.
        """

        def write(temporary: Path) -> None:
            _link_or_copy(self._file, temporary / FILE)
            if with_vectors:
                shape = (self.n_labels, self.dim)
                header = {"descr": "<f4", "fortran_order": False, "shape": shape}
                # Not mapped: a disk that is full would end the process.
                with (temporary / "vectors.npy").open("wb") as out:
                    np.lib.format.write_array_header_1_0(out, header)
                    for _, block in self.rows.blocks():
                        out.write(block.astype("<f4", copy=False).data)

        about = {**self.describe(), "vectors": self.rows.fingerprint()}
        found = ivfpq_files.checks(self._file, self.n_labels, self.index.code_size)
        base.save_index(folder, about | found, write)

    @classmethod
    def load(cls, folder: str | Path, *, vectors: Any = None, nprobe: int | None = None) -> Self:
        """Open what ``save`` wrote; lists and vectors stay in their files.

        Args:
            folder: The folder.
            vectors: (L, D) the vectors it was built from; None where they were saved with it.
            nprobe: The lists that a search reads; None as it was saved.

        Raises:
            MissingExtra: If faiss is not installed.
            RunError: If the folder holds no such index, is damaged, or the vectors are others.
        """
        about, place = base.read_about(folder, "ivfpq"), Path(folder)
        index = ivfpq_files.open_file(place / FILE, about)
        if vectors is None:
            try:
                vectors = np.load(place / "vectors.npy", mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as cause:
                raise RunError(f"{place} holds no vectors to score with ({cause})") from cause
        rows = MappedRows(vectors)
        if rows.fingerprint() != about.get("vectors"):
            raise RunError(f"{place} was built from other vectors; build the index again")
        probes, candidates = nprobe or about.get("nprobe"), about.get("candidates")
        if not isinstance(probes, int) or not isinstance(candidates, int):
            raise RunError(f"{place / 'index.json'} is damaged; build the index again")
        probes = min(probes, index.nlist)
        return cls(index, rows, place / FILE, nprobe=probes, candidates=candidates)

    def describe(self) -> dict[str, Any]:
        """Return its description as JSON values."""
        factory = f"IVF{self.index.nlist},PQ{self.index.code_size}"
        about = {"kind": "ivfpq", "n_labels": self.n_labels, "dim": self.dim, "factory": factory}
        return about | {
            "code_bytes": self.index.code_size,
            "nprobe": self.nprobe,
            "candidates": self.candidates,
        }

    def _probe(self, queries: NDArray[np.float32], width: int, probes: int) -> NDArray[np.int64]:
        """Return (B, width) rows by code, -1 behind the last."""
        faiss = require("faiss", extra="faiss")
        if not len(queries):
            return np.empty((0, width), np.int64)
        # Effort travels with the call, not in the index: searches may run side by side.
        found: NDArray[np.int64] = self.index.search(
            queries, width, params=faiss.SearchParametersIVF(nprobe=probes)
        )[1]
        return found

    def _best(
        self,
        queries: NDArray[np.float32],
        found: NDArray[np.int64],
        k: int,
        numbers: NDArray[np.int64],
        banned: NDArray[np.int64],
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Score candidates from their vectors and return the first k that may be returned."""
        rows = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        step = max(1, RESCORE_BYTES // (4 * self.dim * found.shape[1]))
        for start in range(0, len(queries), step):
            here = slice(start, start + step)
            some = np.sort(found[here], axis=1)  # in the order of the file
            own = np.einsum("bd,bcd->bc", queries[here], self.rows.take(np.maximum(some, 0)))
            drop = some < 0
            if allowed is not None:
                drop |= ~allowed[some]
            if len(banned):
                drop |= np.isin(numbers[here, None] * self.n_labels + some, banned)
            own[drop] = -np.inf
            _take_best(some, own, k, rows[here], scores[here])
        return rows, scores

    def _scan(
        self,
        queries: NDArray[np.float32],
        k: int,
        numbers: NDArray[np.int64],
        banned: NDArray[np.int64],
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Score all allowed labels from their vectors, block by block."""
        rows = np.full((len(queries), k), -1, np.int64)
        scores = np.full((len(queries), k), -np.inf, np.float32)
        places = None if allowed is None else np.flatnonzero(allowed)
        total = self.n_labels if places is None else len(places)
        step = max(1, min(1 << 16, RESCORE_BYTES // (4 * max(self.dim, len(queries)))))
        for start in range(0, total, step):
            stop = min(start + step, total)
            if places is None:
                some, own = np.arange(start, stop), self.rows.block(start, stop)
            else:
                some = places[start:stop]
                own = self.rows.take(some)
            block = queries @ own.T
            if len(banned):
                block[np.isin(numbers[:, None] * self.n_labels + some, banned)] = -np.inf
            both = np.broadcast_to(some, block.shape)
            both, block = np.hstack([rows, both]), np.hstack([scores, block])
            _take_best(both, block, k, rows, scores)
        return rows, scores


def _take_best(
    found: NDArray[np.int64],
    scored: NDArray[np.float32],
    k: int,
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
) -> None:
    """Write the first k by falling score, then rising row, to ``rows`` and ``scores``."""
    if scored.shape[1] > 4 * k:
        # Ties at the k-th place stay in: the order is made among all that reach it.
        limit = -np.partition(-scored, k - 1, axis=1)[:, k - 1 : k]
        width = int((scored >= limit).sum(axis=1).max(initial=0))
        part = np.argpartition(-scored, width - 1, axis=1)[:, :width]
        found, scored = np.take_along_axis(found, part, 1), np.take_along_axis(scored, part, 1)
    order = np.lexsort((found, -scored), axis=1)[:, :k]
    top = np.take_along_axis(scored, order, 1)
    width = top.shape[1]
    scores[:, :width] = top
    rows[:, :width] = np.where(np.isneginf(top), -1, np.take_along_axis(found, order, 1))


def _count_allowed(allowed: Any, n_labels: int) -> int:
    mask = np.asarray(allowed)
    if mask.shape != (n_labels,) or mask.dtype != np.bool_:
        raise ValueError(f"allowed must be ({n_labels},) bool, got {mask.dtype} {mask.shape}")
    return int(np.count_nonzero(mask))


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name} is {value}; give at least 1")
    return value


def _link_or_copy(source: Path, target: Path) -> None:
    with contextlib.suppress(OSError):
        os.link(source, target)
        return
    shutil.copyfile(source, target)
