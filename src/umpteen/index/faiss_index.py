"""Approximate search by faiss (extra ``faiss``): inverted lists, graphs and compressed vectors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from umpteen.errors import ConfigError, NotFinite, RunError
from umpteen.extras import require
from umpteen.files import digest
from umpteen.index import base, faiss_kinds
from umpteen.sorted_unique import sorted_unique
from umpteen.types import TopK

TRAINING_PER_LIST = 64
ADD_BLOCK = 1 << 16


class FaissIndex:
    """Approximate search with faiss: most of the best labels in a fraction of the time.

    Choose it when ``ExactIndex`` is too slow and no GPU is at hand; measure what it costs with
    ``umpteen.index.recall``. Memory is that of the vectors (a quarter with "SQ8", less with "PQ").

    Scores fall along a row, and equal ones are ordered by row among those that faiss returns; which
    of several equal scores it returns at the k-th place is its own choice. Excluded and retired
    labels are dropped after the search; queries that lack labels then are searched again, wider,
    until they have k or everything was searched. The same vectors give the same index: clusters are
    seeded, and a graph, whose shape depends on who comes first, is built by one thread.

    Args:
        index: A trained and filled faiss index with the inner-product metric.
        factory: The string it was made from.
        effort: How hard to search: lists probed (IVF) or candidates held (HNSW).
    """

    def __init__(self, index: Any, *, factory: str, effort: int) -> None:
        self.index = index
        self.factory = factory
        self.effort = effort
        self._parameters: dict[int, Any] = {}
        self._owner: Any = None

    @classmethod
    def build(
        cls,
        vectors: Any,
        *,
        factory: str | None = None,
        nprobe: int | None = None,
        ef_search: int | None = None,
        training_sample: int | None = None,
        iterations: int | None = None,
        seed: int = 0,
    ) -> Self:
        """Train and fill an index.

        Args:
            vectors: (L, D), a NumPy array or a torch tensor.
            factory: A faiss factory string, such as "Flat", "IVF1024,Flat", "IVF1024,PQ32" or
                "HNSW32_SQ8,RFlat"; None chooses by the number of labels.
            nprobe: For IVF, the lists to look into; None for a sixteenth, at least 16.
            ef_search: For HNSW, the candidates to hold; None for 128.
            training_sample: The vectors to train on; None for 64 per list, at least 65,536.
            iterations: Of k-means, for IVF; None for as many as faiss takes.
            seed: Chooses them.

        Raises:
            ConfigError: If faiss rejects the factory string or cannot train it, or an option
                does not belong to it.
            MissingExtra: If faiss is not installed.
        """
        faiss = require("faiss", extra="faiss")
        tensor = base.check_vectors(vectors)
        n_labels, dim = tensor.shape
        factory = factory or faiss_kinds.default_factory(n_labels)
        try:
            index = faiss.index_factory(dim, factory, faiss.METRIC_INNER_PRODUCT)
        except RuntimeError as cause:
            raise ConfigError(
                f"faiss cannot make {factory!r} of {dim} dimensions; see its factory strings, or "
                "leave the option out"
            ) from cause
        faiss_kinds.widen_refinement_(index)
        if iterations is not None and faiss_kinds.n_lists_of(index):
            faiss_kinds.inner(index).cp.niter = iterations
        effort = faiss_kinds.first_effort(index, nprobe, ef_search)
        n_lists = faiss_kinds.n_lists_of(index)
        faiss_kinds.check_shape(index, factory)
        if n_lists > n_labels:
            raise ConfigError(f"{factory!r} needs {n_lists} lists, but there are {n_labels} labels")
        sample = training_sample or max(1 << 16, TRAINING_PER_LIST * n_lists)
        chosen = np.random.default_rng(seed).permutation(n_labels)[:sample]
        with faiss_kinds.threads(faiss, 1 if faiss_kinds.is_graph(index) else None):
            if not index.is_trained:
                _train(index, _to_numpy(tensor[np.sort(chosen)]), factory)
            for block in tensor.split(ADD_BLOCK):
                _add(index, _to_numpy(block), factory)
        return cls(index, factory=factory, effort=effort)

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
        """Return the k best labels of each query, as far as faiss finds them.

        Args:
            queries: (B, D), a NumPy array or a torch tensor.
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
        given = _to_numpy(base.check_search(self, queries, k))
        if not np.isfinite(given).all():
            raise NotFinite(
                "queries hold NaN or infinity; if these are vectors of a run, its files are damaged"
            )
        pairs = base.check_exclude(exclude, len(given), self.n_labels)
        if not len(pairs) and allowed is None and len(given) and k <= self.n_labels:
            # Nothing to drop: what faiss returns is the answer, unless it found too little.
            rows, scores = self._ask(given, k, self.effort)
            if rows.min() >= 0:
                return TopK(*_in_order(rows, scores))
        fit = np.ones(self.n_labels, np.bool_)
        fit[base.check_allowed(allowed, self.n_labels)] = False
        banned = sorted_unique(pairs[:, 0] * self.n_labels + pairs[:, 1])
        banned = banned[fit[banned % self.n_labels]]
        n_banned = np.bincount(banned // self.n_labels, minlength=len(given))
        goal = np.minimum(k, fit.sum() - n_banned)
        # Asking for this many should leave k; more rounds are for queries it does not suffice for.
        fetch = np.minimum(-(-k * self.n_labels // max(1, fit.sum())) + n_banned, self.n_labels)
        rows = np.full((len(given), k), -1, np.int64)
        scores = np.full((len(given), k), -np.inf, np.float32)
        effort, most = self.effort, max(self.effort, faiss_kinds.n_lists_of(self.index))
        todo = np.arange(len(given))
        while len(todo):
            for width, part in _by_width(todo, fetch[todo]):
                found = self._ask(given[part], min(width, self.n_labels), effort)
                rows[part], scores[part] = _best_fit(*found, part, k, banned, fit)
            lacking = (rows[todo] >= 0).sum(axis=1) < goal[todo]
            todo = todo[lacking & ((fetch[todo] < self.n_labels) | (effort < most))]
            fetch[todo] = np.minimum(2 * fetch[todo], self.n_labels)
            effort = min(2 * effort, most)
        return TopK(rows, scores)

    @cached_property
    def rough(self) -> FaissIndex:
        """The same index for candidates that are scored again.

        A graph is walked with half the effort, and its scores are not refined: more than twice as
        fast. Other kinds are searched as they are.
        """
        faiss = require("faiss", extra="faiss")
        core = faiss.downcast_index(self.index)
        if not faiss_kinds.is_graph(core):
            return self
        if isinstance(core, faiss.IndexRefine):
            core = faiss.downcast_index(core.base_index)
        found = FaissIndex(core, factory=self.factory, effort=max(1, self.effort // 2))
        found._owner = self.index  # which has the memory
        return found

    def save(self, folder: str | Path) -> None:
        """Write to a folder, in faiss's own format."""
        faiss = require("faiss", extra="faiss")
        about = self.describe()

        def write(temporary: Path) -> None:
            faiss.write_index(self.index, str(temporary / "labels.faiss"))
            about["digest"] = digest(temporary / "labels.faiss")

        base.save_index(folder, about, write)

    @classmethod
    def load(
        cls, folder: str | Path, *, nprobe: int | None = None, ef_search: int | None = None
    ) -> Self:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            nprobe: For IVF, the lists to look into; None as it was saved.
            ef_search: For HNSW, the candidates to hold; None as it was saved.

        Raises:
            ConfigError: If an option does not belong to this index.
            MissingExtra: If faiss is not installed.
            RunError: If the folder holds no such index or is damaged.
        """
        faiss = require("faiss", extra="faiss")
        about = base.read_about(folder, "faiss")
        path = Path(folder) / "labels.faiss"
        try:
            # faiss trusts sizes in the file: a damaged one must not reach it.
            if digest(path) != about.get("digest"):
                raise RunError(f"{path} is damaged: its checksum is another one; build it again")
            # Memory-mapped, so that processes that load the same run share it.
            index = faiss.read_index(str(path), getattr(faiss, "IO_FLAG_MMAP_IFC", 0))
        except (RuntimeError, OSError) as cause:
            raise RunError(f"{path} cannot be read by faiss; build the index again") from cause
        if (index.ntotal, index.d) != (about.get("n_labels"), about.get("dim")):
            raise RunError(f"{path} does not match index.json; build the index again")
        effort = about.get("effort")
        if nprobe or ef_search or not isinstance(effort, int):
            effort = faiss_kinds.first_effort(index, nprobe, ef_search)
        return cls(index, factory=str(about.get("factory")), effort=effort)

    def describe(self) -> dict[str, Any]:
        """Return its description as JSON values."""
        about = {"kind": "faiss", "n_labels": self.n_labels, "dim": self.dim}
        return about | {"factory": self.factory, "effort": self.effort}

    def _ask(
        self, queries: NDArray[np.float32], width: int, effort: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        scan = faiss_kinds.scan_of(self.index) if width >= self.n_labels else None
        if scan is not None:
            # A graph may have labels that no walk reaches; a search for all of them scans.
            scores, rows = scan.search(queries, width)
            return rows, scores
        # Effort travels with the call, not in the index: searches may run side by side.
        if effort not in self._parameters:
            self._parameters[effort] = faiss_kinds.parameters(self.index, effort)
        scores, rows = self.index.search(queries, width, params=self._parameters[effort])
        return rows, scores


def _by_width(
    queries: NDArray[np.int64], widths: NDArray[np.int64]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield queries that ask for about as much, together.

    The least exactly, others a power of two.
    """
    rounded = 2 ** np.ceil(np.log2(widths)).astype(np.int64)
    rounded[widths == widths.min()] = widths.min()
    for width in np.unique(rounded):
        yield int(width), queries[rounded == width]


def _in_order(
    rows: NDArray[np.int64], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Sort by falling score, then rising row; sorted input is returned unchanged."""
    if (scores[:, 1:] < scores[:, :-1]).all():
        return rows, scores
    order = np.lexsort((rows, -scores), axis=1)
    return np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)


def _best_fit(
    rows: NDArray[np.int64],
    scores: NDArray[np.float32],
    queries: NDArray[np.int64],
    k: int,
    banned: NDArray[np.int64],
    fit: NDArray[np.bool_],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the first k that may be returned, by falling score, then rising row.

    -1 and -inf behind.
    """
    n_labels = len(fit)
    drop = (rows < 0) | ~fit[rows]
    if len(banned):
        drop |= np.isin(queries[:, None] * n_labels + rows, banned)
    rows = np.where(drop, n_labels, rows)
    scores = np.where(drop, -np.inf, scores)
    rows, scores = _in_order(rows, scores)
    rows, scores = rows[:, :k], scores[:, :k]
    rows = np.where(rows == n_labels, -1, rows)
    lack = ((0, 0), (0, k - rows.shape[1]))
    return np.pad(rows, lack, constant_values=-1), np.pad(scores, lack, constant_values=-np.inf)


def _train(index: Any, vectors: NDArray[np.float32], factory: str) -> None:
    try:
        index.train(vectors)
    except RuntimeError as cause:
        raise ConfigError(
            f"faiss cannot train {factory!r} on {len(vectors)} vectors; choose fewer lists or "
            "smaller codes"
        ) from cause


def _add(index: Any, vectors: NDArray[np.float32], factory: str) -> None:
    try:
        index.add(vectors)
    except RuntimeError as cause:
        raise ConfigError(
            f"faiss cannot add {len(vectors)} vectors to {factory!r}; choose another factory "
            "string, or leave the option out"
        ) from cause


def _to_numpy(tensor: Any) -> NDArray[np.float32]:
    array: NDArray[np.float32] = tensor.float().cpu().contiguous().numpy()
    return array
