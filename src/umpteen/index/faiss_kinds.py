"""What sets faiss's kinds of index apart: size, effort and search parameters. No search here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from umpteen.errors import ConfigError
from umpteen.extras import require

FEW_LABELS = 20_000  # below this a plain scan is as fast as anything
GRAPH_LABELS = 200_000  # up to this a graph, which finds most in least time, is built in a minute
MANY_LABELS = 5_000_000  # above this vectors are kept as bytes


def default_factory(n_labels: int) -> str:
    """Return the factory string for a number of labels.

    Example:
        >>> default_factory(1_000), default_factory(50_000), default_factory(300_000)
        ('Flat', 'HNSW32_SQ8,RFlat', 'IVF2048,Flat')
    """
    if n_labels < FEW_LABELS:
        return "Flat"
    if n_labels < GRAPH_LABELS:
        return "HNSW32_SQ8,RFlat"
    n_lists = 2 ** round(np.log2(4 * np.sqrt(n_labels)))
    return f"IVF{n_lists},{'Flat' if n_labels < MANY_LABELS else 'SQ8'}"


def inner(index: Any) -> Any:
    """Return the index inside a rotation or a refinement; any other index as it is."""
    faiss = require("faiss", extra="faiss")
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        return inner(index.index)
    return inner(index.base_index) if isinstance(index, faiss.IndexRefine) else index


def n_lists_of(index: Any) -> int:
    """Return how many lists an IVF index has; 0 for other kinds."""
    faiss = require("faiss", extra="faiss")
    core = inner(index)
    return int(core.nlist) if isinstance(core, faiss.IndexIVF) else 0


def is_graph(index: Any) -> bool:
    """Return whether labels are found by walking a graph (HNSW)."""
    faiss = require("faiss", extra="faiss")
    return isinstance(inner(index), faiss.IndexHNSW)


def check_shape(index: Any, factory: str) -> None:
    """Raise for sizes that faiss accepts and then ends the process on, or fails to search.

    Raises:
        ConfigError: If the index has no inverted list, or a graph has less than 2 neighbours.
    """
    faiss = require("faiss", extra="faiss")
    core = inner(index)
    if isinstance(core, faiss.IndexIVF) and core.nlist < 1:
        raise ConfigError(f"{factory!r} has no inverted list; give at least 1, as in IVF64,Flat")
    if isinstance(core, faiss.IndexHNSW):
        # The lowest layer has twice the neighbours; of one neighbour there is no layer at all.
        graph = core.hnsw
        if graph.cum_nneighbor_per_level.size() < 2 or graph.nb_neighbors(0) < 4:
            raise ConfigError(
                f"{factory!r} has less than 2 neighbours for a label; give more, as in HNSW32"
            )


def scan_of(index: Any) -> Any:
    """Return what holds a graph's vectors, to be searched whole; None for other kinds."""
    faiss = require("faiss", extra="faiss")
    index = faiss.downcast_index(index)
    if not is_graph(index):
        return None
    if isinstance(index, faiss.IndexRefine):
        return index.refine_index
    return getattr(index, "storage", None)


def widen_refinement_(index: Any) -> None:
    """Let a refinement choose among twice as many as are asked for; among k it could only sort."""
    faiss = require("faiss", extra="faiss")
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexRefine):
        index.k_factor = 2


def first_effort(index: Any, nprobe: int | None, ef_search: int | None) -> int:
    """Return how hard to search, from the option that belongs to the index.

    0 where there is none.
    """
    n_lists, graph = n_lists_of(index), is_graph(index)
    if nprobe is not None and not (n_lists and nprobe >= 1):
        raise ConfigError(f"nprobe is {nprobe}; it is for IVF indexes alone, and at least 1")
    if ef_search is not None and not (graph and ef_search >= 1):
        raise ConfigError(f"ef_search is {ef_search}; it is for HNSW indexes alone, and at least 1")
    if n_lists:
        return min(nprobe or max(16, n_lists // 16), n_lists)
    return (ef_search or 128) if graph else 0


def parameters(index: Any, effort: int) -> Any:
    """Search parameters for one call, wrapped as the index is."""
    faiss = require("faiss", extra="faiss")
    index = faiss.downcast_index(index)
    if isinstance(index, faiss.IndexPreTransform):
        inside = parameters(index.index, effort)
        return faiss.SearchParametersPreTransform(index_params=inside) if inside else None
    if isinstance(index, faiss.IndexRefine):
        inside = parameters(index.base_index, effort)
        return faiss.IndexRefineSearchParameters(k_factor=index.k_factor, base_index_params=inside)
    if isinstance(index, faiss.IndexIVF):
        return faiss.SearchParametersIVF(nprobe=effort)
    return faiss.SearchParametersHNSW(efSearch=effort) if is_graph(index) else None


@contextlib.contextmanager
def threads(faiss: Any, count: int | None) -> Iterator[None]:
    """Let faiss use so many threads for a while; None leaves it as it is."""
    before = faiss.omp_get_max_threads()
    if count is not None:
        faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
