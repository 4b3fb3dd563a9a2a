"""Build and open the file of an IVF-PQ index with bounded memory. No search lives here.

The file holds coarse centroids, codebooks and the sizes of the lists, and then the lists: codes and
rows of labels. An open index maps the lists.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ConfigError, RunError
from umpteen.extras import require
from umpteen.files import LOAD_ERRORS, sampled_digest
from umpteen.index import faiss_kinds
from umpteen.index.mapped_rows import MappedRows, checked

ROW_BYTES = 8
TRAINING_PER_LIST = 32
MIN_SAMPLE = 1 << 15
CODEBOOK = 256
MAX_CODE_BYTES = 64
ITERATIONS = 5
GRAPH_LISTS = 2048
"""With more lists a graph over the centroids finds the list of a vector, a few times as fast."""
MIN_MEMORY = 64 << 20


@dataclass(frozen=True)
class Shape:
    """Sizes of an IVF-PQ index."""

    n_lists: int
    code_bytes: int

    @classmethod
    def of(cls, n_labels: int, dim: int, n_lists: int | None, code_bytes: int | None) -> Shape:
        """Return the sizes for a number of labels; None chooses.

        Raises:
            ConfigError: If a size does not fit the vectors.
        """
        lists = n_lists if n_lists is not None else default_lists(n_labels)
        codes = code_bytes if code_bytes is not None else default_code_bytes(dim)
        if not 1 <= lists <= n_labels:
            raise ConfigError(f"n_lists is {lists}; give 1 to {n_labels}, the number of labels")
        if codes < 1 or dim % codes:
            raise ConfigError(f"code_bytes is {codes}; give a divisor of {dim}, the dimensions")
        return cls(lists, codes)

    @property
    def row_bytes(self) -> int:
        """Bytes of one label in the lists: its code and its row."""
        return self.code_bytes + ROW_BYTES


def default_lists(n_labels: int) -> int:
    """Return the power of two nearest to four times the square root of the number of labels.

    Example:
        >>> default_lists(1), default_lists(1_000_000), default_lists(20_000_000)
        (1, 4096, 16384)
    """
    return int(min(2 ** round(np.log2(4 * np.sqrt(n_labels))), n_labels))


def default_code_bytes(dim: int) -> int:
    """Return the largest divisor of the dimensions up to half of them and up to 64.

    Example:
        >>> default_code_bytes(64), default_code_bytes(256), default_code_bytes(7)
        (32, 64, 1)
    """
    most = min(MAX_CODE_BYTES, max(1, dim // 2))
    return max(size for size in range(1, most + 1) if dim % size == 0)


def build_file(file: Path, rows: MappedRows, shape: Shape, *, max_memory: int, seed: int) -> None:
    """Train an index and write its file.

    Vectors are read twice: a sample, then all of them in blocks. Codes are collected in memory up
    to a third of ``max_memory``, put aside in files, and merged into the lists in the end.

    Args:
        file: The file; its folder gets temporary files too.
        rows: The label vectors.
        shape: The sizes.
        max_memory: Bytes that the build may use.
        seed: Chooses the training sample.

    Raises:
        ConfigError: If ``max_memory`` is too small.
        UmpteenError: If a vector holds NaN or infinity.
    """
    if max_memory < MIN_MEMORY:
        raise ConfigError(f"max_memory is {max_memory} bytes; give at least {MIN_MEMORY} (64 MiB)")
    faiss = require("faiss", extra="faiss")
    trained = _trained(faiss, rows, shape, max_memory, seed)
    per_block = max(1024, min(1 << 16, max_memory // (16 * 4 * rows.dim)))
    # Lists double when they grow, so they take up to twice what they hold.
    per_shard = max(per_block, max_memory // (6 * shape.row_bytes))
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".shards") as aside:
        shards: list[Any] = []
        index, centroids = faiss.clone_index(trained), _search_of_lists(faiss, trained)
        for start, block in rows.blocks(per_block):
            ids = np.arange(start, start + len(block), dtype=np.int64)
            _add(faiss, index, centroids, checked(block), ids)
            if index.ntotal + per_block > per_shard and start + len(block) < rows.n_rows:
                shards.append(_put_aside(faiss, index, Path(aside) / f"{len(shards)}.faiss"))
                index = faiss.clone_index(trained)
        shards.append(index)
        _merge(faiss, trained, shards, file, rows.n_rows)


def _trained(faiss: Any, rows: MappedRows, shape: Shape, max_memory: int, seed: int) -> Any:
    dim, metric = rows.dim, faiss.METRIC_INNER_PRODUCT
    quantizer = faiss.IndexFlatIP(dim)
    index = faiss.IndexIVFPQ(quantizer, dim, shape.n_lists, shape.code_bytes, 8, metric)
    quantizer.this.disown()
    index.own_fields = True
    index.cp.niter = index.pq.cp.niter = ITERATIONS
    # faiss prints a warning where there are few vectors for a centroid.
    index.cp.min_points_per_centroid = index.pq.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = TRAINING_PER_LIST
    wanted = min(max(MIN_SAMPLE, TRAINING_PER_LIST * shape.n_lists), rows.n_rows)
    wanted = max(min(wanted, max_memory // (4 * 4 * dim)), min(rows.n_rows, shape.n_lists))
    chosen = np.random.default_rng(seed).choice(rows.n_rows, wanted, replace=False, shuffle=False)
    sample = checked(_gathered(rows, np.sort(chosen)))
    if len(sample) < CODEBOOK:
        sample = np.resize(sample, (CODEBOOK, dim))
    index.train(sample)
    return index


def _search_of_lists(faiss: Any, trained: Any) -> Any:
    """Return what finds the list of a vector: the exact quantizer, or a graph for many lists."""
    if trained.nlist <= GRAPH_LISTS:
        return trained.quantizer
    graph = faiss.IndexHNSWFlat(trained.d, 24, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efConstruction, graph.hnsw.efSearch = 80, 32
    with faiss_kinds.threads(faiss, 1):  # its shape depends on who comes first
        graph.add(trained.quantizer.reconstruct_n(0, trained.nlist))
    return graph


def _add(
    faiss: Any, index: Any, centroids: Any, block: NDArray[np.float32], ids: NDArray[np.int64]
) -> None:
    lists = np.ascontiguousarray(centroids.search(block, 1)[1][:, 0])
    pointers = (faiss.swig_ptr(array) for array in (block, ids, lists))
    index.add_core(len(block), *pointers)


def _gathered(rows: MappedRows, chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    out = np.empty((len(chosen), rows.dim), np.float32)
    for start in range(0, len(chosen), 1 << 14):
        out[start : start + (1 << 14)] = rows.take(chosen[start : start + (1 << 14)])
    return out


def _put_aside(faiss: Any, index: Any, file: Path) -> Any:
    faiss.write_index(index, str(file))
    return faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)


def _merge(faiss: Any, trained: Any, shards: list[Any], file: Path, n_rows: int) -> None:
    """Write one index with the lists of all shards, in the format of ``faiss.write_index``.

    faiss merges lists on a disk too, but prints to stdout while it does.
    """
    trained.ntotal = n_rows
    n_lists, code_bytes = int(trained.nlist), int(trained.code_size)
    whole = faiss.serialize_index(trained).tobytes()
    start = b"ilar" + struct.pack("<QQ", n_lists, code_bytes)
    empty = start + b"sprs" + struct.pack("<Q", 0)
    if not whole.endswith(empty):
        raise ConfigError(
            f"faiss {faiss.__version__} writes indexes in another format; install 1.15, or choose "
            "the index kind faiss"
        )
    lists = [shard.invlists for shard in shards]
    sizes = np.array([[each.list_size(n) for each in lists] for n in range(n_lists)], "<u8")
    with file.open("wb") as out:
        out.write(whole.removesuffix(empty) + start + b"full" + struct.pack("<Q", n_lists))
        out.write(sizes.sum(axis=1, dtype="<u8").tobytes())
        for number, held in enumerate(sizes.tolist()):
            parts = [(each, size) for each, size in zip(lists, held, strict=True) if size]
            for each, size in parts:
                codes = faiss.rev_swig_ptr(each.get_codes(number), size * code_bytes)
                out.write(codes.tobytes())
            for each, size in parts:
                out.write(faiss.rev_swig_ptr(each.get_ids(number), size).tobytes())


def checks(file: Path, n_labels: int, code_bytes: int) -> dict[str, Any]:
    """Return what ``open_file`` compares: all that is before the lists, and a sample of them."""
    size = file.stat().st_size
    with file.open("rb") as read:
        structure = hashlib.sha256(read.read(max(0, size - n_labels * (code_bytes + ROW_BYTES))))
    return {"bytes": size, "structure": structure.hexdigest(), "lists": sampled_digest(file)}


def open_file(file: Path, about: dict[str, Any]) -> Any:
    """Open an index; its lists stay in the file.

    Args:
        file: The file.
        about: ``n_labels``, ``dim``, ``code_bytes`` and what ``checks`` returned.

    Returns:
        The faiss index.

    Raises:
        RunError: If the file is missing or damaged.
    """
    faiss = require("faiss", extra="faiss")
    again = "build the index again"
    try:
        # faiss trusts sizes in the file: a damaged one must not reach it.
        found = checks(file, int(about["n_labels"]), int(about["code_bytes"]))
        if found != {key: about.get(key) for key in found}:
            raise RunError(f"{file} is damaged: its checksum is another one; {again}")
        index = faiss.read_index(str(file), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        # faiss starts 32 threads for each search that read the lists which the search reads too.
        faiss.downcast_InvertedLists(index.invlists).prefetch_nthread = 0
    except (RuntimeError, *LOAD_ERRORS) as cause:
        raise RunError(f"{file} cannot be read by faiss ({cause}); {again}") from cause
    sizes = (index.ntotal, index.d, getattr(index, "code_size", 0))
    if sizes != (about["n_labels"], about["dim"], about["code_bytes"]):
        raise RunError(f"{file} does not match index.json; {again}")
    return index
