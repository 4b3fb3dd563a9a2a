"""The exact index: a blocked matrix product in bounded memory, the reference of all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.errors import ConfigError, NotFinite, RunError
from umpteen.files import LOAD_ERRORS
from umpteen.index import base
from umpteen.index.pairs import by_cell, pairs_of, retired_columns
from umpteen.index.topk import KeyedTop, RunningTop
from umpteen.index.two_pass import TwoPass
from umpteen.types import TopK

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Measured: a CPU is slower with more, as scores leave its caches; a GPU is slower with fewer.
LABELS_PER_BLOCK = {"cpu": 16_384, "cuda": 262_144}
MEMORY_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}
FEW_QUERIES = 8
"""Up to which a CPU multiplies labels by queries, not queries by labels: measured to take a third
to two thirds of the time, and one query counted twice half of what it takes alone."""
QUERIES_AT_ONCE = 2048
"""Of which a GPU holds the scores at most: with few labels more queries would not be faster."""


class ExactIndex:
    """Exact search: every query against every label.

    Choose it unless it is too slow: it needs no training, misses nothing, and on a GPU serves
    millions of labels. Time is 2 * L * D operations per query; memory is the vectors plus
    ``memory_bytes``. Products are summed in float32 whatever the vectors' dtype. Equal scores come
    in the order of rows, always. (Equal as computed: two labels with the same vector may differ in
    the last bit where a matrix library sums the edge of a block in another order.)

    With ``first_pass``, labels are scored in few bits first, and in full only where that leaves
    them a chance (``two_pass.py``): several times faster on a GPU, for a copy of the vectors in
    half ("bfloat16") or a quarter ("float8") of float32's memory. The answers stay exact with
    "bfloat16": a query that might not be is searched again, wider and at last in full.

    Args:
        vectors: (L, D) float32 or bfloat16, already where they are to be searched.
        memory_bytes: What a search may take for scores; None for 64 MiB on a CPU, and on a GPU
            2 GiB or what 2,048 queries take, if that is less.
        first_pass: "bfloat16", "float8" or None, for none.
        recheck: Whether to search again where the first pass may have missed a near tie.
        device: Where to multiply, if not where the vectors are: blocks of them visit it, all of
            them for each 2,048 queries. For vectors that do not fit a GPU; without a first pass.
    """

    def __init__(
        self,
        vectors: torch.Tensor,
        *,
        memory_bytes: int | None = None,
        first_pass: str | None = None,
        recheck: bool = True,
        device: torch.device | None = None,
    ) -> None:
        if memory_bytes is not None and memory_bytes < 1:
            raise ConfigError(f"memory_bytes is {memory_bytes}; give at least 1")
        self.vectors = vectors
        self.device = vectors.device if device is None else device
        if first_pass is not None and self.device != vectors.device:
            raise ConfigError(f"first_pass {first_pass!r} needs the vectors on {self.device}")
        kind = "cuda" if self.device.type == "cuda" else "cpu"
        self.memory_bytes = memory_bytes or MEMORY_BYTES[kind]
        if memory_bytes is None and kind == "cuda":
            enough = max(64 << 20, 4 * QUERIES_AT_ONCE * len(vectors))
            self.memory_bytes = min(self.memory_bytes, enough)
        self._block = LABELS_PER_BLOCK[kind]
        self.recheck = recheck
        self.two_pass: TwoPass | None = None
        if first_pass is not None:
            self.two_pass = TwoPass(vectors, first_pass, memory_bytes=self.memory_bytes)

    @classmethod
    def build(
        cls,
        vectors: Any,
        *,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        memory_bytes: int | None = None,
        first_pass: str | None = None,
        recheck: bool = True,
    ) -> Self:
        """Index label vectors; float32 ones that are already in place are shared, not copied.

        Args:
            vectors: (L, D), a NumPy array or a torch tensor.
            device: Where to search; None for where the vectors are.
            dtype: ``"float32"``, or ``"bfloat16"`` for half the memory and, on a GPU, more speed.
            memory_bytes: What a search may take for scores.
            first_pass: "bfloat16" or "float8": score in few bits first; None for not.
            recheck: Whether to search again where the first pass may have missed a near tie.

        Raises:
            ConfigError: If the dtype or the first pass is not known.
            UmpteenError: If the vectors are not a finite matrix.
        """
        if dtype not in DTYPES:
            raise ConfigError(f"dtype {dtype!r} is not known. Known: {', '.join(DTYPES)}.")
        tensor = base.check_vectors(vectors).to(device=device, dtype=DTYPES[dtype])
        return cls(
            tensor.contiguous(), memory_bytes=memory_bytes, first_pass=first_pass, recheck=recheck
        )

    @property
    def n_labels(self) -> int:
        """L."""
        return int(self.vectors.shape[0])

    @property
    def dim(self) -> int:
        """D."""
        return int(self.vectors.shape[1])

    @torch.no_grad()
    def search(
        self,
        queries: Any,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """Return the k best labels of each query; the device is waited for once, at the end.

        Args:
            queries: (B, D), a NumPy array or a torch tensor, on any device.
            k: How many labels to return.
            exclude: (M, 2) pairs (query position, label row) that must not be returned.
            allowed: (L,) False for labels that no query may get.

        Returns:
            (B, k) rows and scores; -1 and -inf where no label is left.

        Raises:
            ConfigError: If k is less than 1.
            UmpteenError: If the queries do not fit the vectors.
            ValueError: If a query is not finite, or exclude or allowed is out of bounds.
        """
        given = base.check_search(self, queries, k)
        given = given.to(device=self.device, dtype=self.vectors.dtype)
        pairs = base.check_exclude(exclude, len(given), self.n_labels)
        retired = base.check_allowed(allowed, self.n_labels)
        keep = min(k, self.n_labels)
        if not len(given):
            return TopK(np.zeros((0, k), np.int64), np.zeros((0, k), np.float32))
        first, *others = self._attempts()
        (rows, scores), unsure = first(given, keep, pairs, retired)
        left = np.flatnonzero(unsure)  # queries without a sure answer
        for attempt in others:
            if not len(left):
                break
            some = given[torch.from_numpy(left).to(given.device)]
            tops, unsure = attempt(some, keep, pairs_of(pairs, left), retired)
            rows[left], scores[left] = tops
            left = left[unsure]
        # A sum that is a number has no summand that is none: quicker than to look at each.
        if np.isnan(scores.sum()) and np.isnan(scores).any():
            raise NotFinite(
                "queries hold NaN or infinity; if these are vectors of a run, its files are damaged"
            )
        if np.isneginf(scores[:, -1:]).any():  # the last of a row is its lowest
            rows[np.isneginf(scores)] = -1
        if keep < k:
            more = ((0, 0), (0, k - keep))
            rows = np.pad(rows, more, constant_values=-1)
            scores = np.pad(scores, more, constant_values=-np.inf)
        return TopK(rows, scores)

    def save(self, folder: str | Path) -> None:
        """Write to a folder; bfloat16 is kept as its 16 bits."""

        def write(temporary: Path) -> None:
            host = self.vectors.cpu()
            array = host if host.dtype == torch.float32 else host.view(torch.uint16)
            np.save(temporary / "vectors.npy", array.numpy(), allow_pickle=False)

        base.save_index(folder, self.describe(), write)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str | torch.device = "cpu",
        memory_bytes: int | None = None,
        first_pass: str | None = None,
    ) -> Self:
        """Read what ``save`` wrote; on the CPU the vectors are memory-mapped.

        Args:
            folder: The folder.
            device: Where to search.
            memory_bytes: What a search may take for scores.
            first_pass: "bfloat16" or "float8": score in few bits first; None for not.

        Raises:
            RunError: If the folder holds no such index or is damaged.
        """
        about = base.read_about(folder, "exact")
        path = Path(folder) / "vectors.npy"
        try:
            # "c": torch wants writable memory; what it would write never reaches the file.
            array = np.load(path, mmap_mode="c", allow_pickle=False)
            vectors = torch.from_numpy(array)
        except LOAD_ERRORS as cause:
            raise RunError(f"{path} cannot be read: {cause}; build the index again") from cause
        if array.dtype == np.uint16:
            vectors = vectors.view(torch.bfloat16)
        dtype = str(vectors.dtype).removeprefix("torch.")
        wanted = ([about.get("n_labels"), about.get("dim")], about.get("dtype"))
        if (list(vectors.shape), dtype) != wanted:
            raise RunError(f"{path} does not match index.json; build the index again")
        return cls(vectors.to(device), memory_bytes=memory_bytes, first_pass=first_pass)

    def describe(self) -> dict[str, Any]:
        """Return its description as JSON values."""
        dtype = str(self.vectors.dtype).removeprefix("torch.")
        return {"kind": "exact", "n_labels": self.n_labels, "dim": self.dim, "dtype": dtype}

    def _attempts(self) -> list[Callable[..., Any]]:
        """Return ways to search, each slower and more often sure than the one before."""
        plain: list[Callable[..., Any]]
        plain = [partial(self._search, kind=RunningTop), partial(self._search, kind=KeyedTop)]
        if self.two_pass is None:
            return plain
        if not self.recheck:
            return [self.two_pass.search]
        return [self.two_pass.search, partial(self.two_pass.search, widen=8), *plain]

    def _search(
        self,
        queries: torch.Tensor,
        k: int,
        pairs: NDArray[np.int64],
        retired: NDArray[np.int64],
        kind: type[RunningTop] | type[KeyedTop],
    ) -> tuple[tuple[NDArray[np.int64], NDArray[np.float32]], NDArray[np.bool_]]:
        """Return rows and scores of every query on the host, and which of them are unsure."""
        # Bytes per score: float32, and for KeyedTop int64 keys with their temporaries.
        few = not queries.is_cuda and len(queries) <= FEW_QUERIES
        most = self._block * (4 if few else 1)  # the scores of few still fit a cache
        n_labels = min(self.n_labels, most, max(1, self.memory_bytes // 4))
        per_query = n_labels * (4 if kind is RunningTop else 32)
        n_queries = min(len(queries), max(1, self.memory_bytes // per_query))
        out = queries.new_empty(n_queries * n_labels, dtype=torch.float32)
        pairs, cells = by_cell(pairs, len(queries), n_queries, self.n_labels, n_labels)
        columns = retired_columns(retired, self.n_labels, n_labels, queries.device)
        tops = []
        for number, start in enumerate(range(0, len(queries), n_queries)):
            block = queries[start : start + n_queries]
            top = kind(len(block), k, queries.device)
            bounds = cells[number]
            held = torch.from_numpy(pairs[bounds[0] : bounds[-1]]).to(queries.device)
            for cell, (first, scores) in enumerate(self._blocks(block, n_labels, out)):
                here = held[bounds[cell] - bounds[0] : bounds[cell + 1] - bounds[0]]
                if len(here):
                    scores[here[:, 0] - start, here[:, 1] - first] = -torch.inf
                if len(columns[cell]):
                    scores.index_fill_(1, columns[cell], -torch.inf)
                top.add(scores, first)
            tops.append(top)
        found = torch.cat([top.rows for top in tops]).cpu().numpy()
        theirs = torch.cat([top.scores for top in tops]).cpu().numpy()
        return (found, theirs), torch.cat([top.unsure() for top in tops]).cpu().numpy()

    def _blocks(
        self, queries: torch.Tensor, n_labels: int, out: torch.Tensor
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield (first row, (B, C) float32 scores) of each label block.

        In memory that is used again.
        """
        few = not queries.is_cuda and len(queries) <= FEW_QUERIES
        tall = queries.repeat(2, 1).T if len(queries) == 1 else queries.T  # (D, B or 2)
        for first in range(0, self.n_labels, n_labels):
            vectors = self.vectors[first : first + n_labels].to(queries.device)
            scores = out[: len(queries) * len(vectors)].view(len(queries), len(vectors))
            if vectors.dtype == torch.float32 and few:
                scores.copy_(torch.mm(vectors, tall).T[: len(queries)])
            elif vectors.dtype == torch.float32:
                torch.mm(queries, vectors.T, out=scores)
            elif vectors.is_cuda:
                torch.mm(queries, vectors.T, out_dtype=torch.float32, out=scores)
            else:
                torch.mm(queries.float(), vectors.float().T, out=scores)
            yield first, scores
