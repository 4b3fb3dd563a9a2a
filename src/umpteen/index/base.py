"""What every label index promises, and the checks all of them share. No search lives here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.errors import ConfigError, RunError, UmpteenError
from umpteen.files import atomic_folder, read_json, write_json
from umpteen.types import TopK

INDEX_FORMAT = 1


class VectorSearch(Protocol):
    """What can be searched: an index, or something that wraps one."""

    @property
    def n_labels(self) -> int:
        """L."""

    @property
    def dim(self) -> int:
        """D."""

    def search(
        self,
        queries: Any,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """Return the k best rows of each query; see ``LabelIndex``."""

    def describe(self) -> dict[str, Any]:
        """Return JSON values."""


@runtime_checkable
class LabelIndex(Protocol):
    """Vectors in, nearest rows out, by inner product.

    Laws, checked for every row of ``INDEXES``: scores fall along a row; an excluded pair or a label
    that is not allowed is never returned; where fewer than k labels remain, row -1 and score -inf
    fill the end; saving and loading changes no result; the same call gives the same answer; queries
    with NaN raise ``ValueError("queries hold NaN or infinity")``; ``describe()["kind"]`` is the
    name in the table.

    Scores may be approximate. For unit vectors they are within ``score_error`` of the inner
    product, an attribute of the class that is 0.02 where it is missing.
    """

    @property
    def n_labels(self) -> int:
        """L."""

    @property
    def dim(self) -> int:
        """D."""

    @classmethod
    def build(cls, vectors: Any) -> Self:
        """Index (L, D) label vectors, a NumPy array or a torch tensor; options are keywords."""

    def search(
        self,
        queries: Any,
        k: int,
        *,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> TopK:
        """Return the k best labels of each query.

        Args:
            queries: (B, D), a NumPy array or a torch tensor.
            k: How many labels to return.
            exclude: (M, 2) pairs (query position, label row) that must not be returned.
            allowed: (L,) False for labels that no query may get.

        Returns:
            (B, k) rows and scores.
        """

    def save(self, folder: str | Path) -> None:
        """Write to a folder; an index that is there already is replaced."""

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what ``save`` wrote; options are keywords."""

    def describe(self) -> dict[str, Any]:
        """Return its description as JSON values."""


def check_vectors(vectors: Any) -> torch.Tensor:
    """Label vectors as a detached floating tensor, sharing memory where that can be.

    Args:
        vectors: (L, D), a NumPy array or a torch tensor.

    Returns:
        (L, D) float32, or bfloat16 if that is what came in.

    Raises:
        UmpteenError: If the shape is wrong or a value is not finite.
    """
    tensor = as_tensor(vectors)
    if tensor.ndim != 2 or not len(tensor) or not tensor.shape[1]:
        raise UmpteenError(
            f"label vectors have the shape {tuple(tensor.shape)}; expected (labels, dimensions), "
            "at least one of each"
        )
    if tensor.dtype != torch.bfloat16:
        tensor = tensor.float()
    # A block at a time: isfinite makes temporaries of the input's size.
    for block in tensor.split(1 << 16):
        bad = ~torch.isfinite(block).all(dim=1)
        if bool(bad.any()):
            raise UmpteenError(
                f"{int(bad.sum())} label vectors hold NaN or infinity; the model that made them "
                "has diverged; train it again or load an earlier checkpoint"
            )
    return tensor


def check_search(index: LabelIndex, queries: Any, k: int) -> torch.Tensor:
    """Return queries as a detached tensor of the right width.

    Args:
        index: What is to be searched.
        queries: (B, D), a NumPy array or a torch tensor.
        k: How many labels are wanted.

    Returns:
        (B, D), in the dtype and on the device it came.

    Raises:
        ConfigError: If k is less than 1.
        UmpteenError: If the shape does not fit the index.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; request at least 1 label")
    tensor = as_tensor(queries)
    if tensor.ndim != 2 or tensor.shape[1] != index.dim:
        raise UmpteenError(
            f"queries have the shape {tuple(tensor.shape)}, the index holds vectors of "
            f"{index.dim} dimensions; build the index from the model that encodes the queries"
        )
    return tensor


def check_exclude(exclude: Any, n_queries: int, n_labels: int) -> NDArray[np.int64]:
    """Return pairs to leave out as (M, 2) int64, each within bounds.

    Args:
        exclude: (M, 2) pairs (query position, label row), or None.
        n_queries: B.
        n_labels: L.

    Returns:
        The pairs; (0, 2) for None.

    Raises:
        ValueError: If the shape is wrong or a pair is out of bounds.
    """
    if exclude is None:
        return np.empty((0, 2), np.int64)
    pairs = np.asarray(exclude)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise ValueError(f"exclude must be (M, 2) integers, got {pairs.dtype} {pairs.shape}")
    pairs = pairs.astype(np.int64, copy=False)
    if len(pairs) and (pairs.min() < 0 or (pairs.max(axis=0) >= (n_queries, n_labels)).any()):
        raise ValueError(f"exclude holds a pair outside {n_queries} queries x {n_labels} labels")
    return pairs


def check_allowed(allowed: Any, n_labels: int) -> NDArray[np.int64]:
    """Return the rows that no query may get, ascending.

    Args:
        allowed: (L,) bool, or None where every label may be returned.
        n_labels: L.

    Returns:
        Rows where ``allowed`` is False.

    Raises:
        ValueError: If it is not a bool array of L values.
    """
    if allowed is None:
        return np.empty(0, np.int64)
    mask = np.asarray(allowed)
    if mask.shape != (n_labels,) or mask.dtype != np.bool_:
        raise ValueError(f"allowed must be ({n_labels},) bool, got {mask.dtype} {mask.shape}")
    return np.flatnonzero(~mask)


def as_tensor(values: Any) -> torch.Tensor:
    """Return a detached tensor; NumPy arrays are shared, not copied, if they may be written to."""
    if isinstance(values, torch.Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype != np.float32:
        array = array.astype(np.float32)
    # torch warns about read-only memory that is never written.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def save_index(folder: str | Path, about: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Write an index folder: what ``write`` puts there and an ``index.json``.

    An existing folder is replaced only if it holds an index, so a wrong path destroys nothing.
    """
    folder = Path(folder)
    with atomic_folder(folder, replace=(folder / "index.json").is_file()) as temporary:
        write(temporary)
        write_json(temporary / "index.json", {"format": INDEX_FORMAT, **about})


def read_about(folder: str | Path, kind: str) -> dict[str, Any]:
    """Read an index folder's ``index.json``.

    Args:
        folder: The folder ``save`` wrote.
        kind: The kind of index that is expected there.

    Returns:
        Its fields.

    Raises:
        RunError: If it is missing, or of another kind or version.
    """
    path = Path(folder) / "index.json"
    about = read_json(path, error=RunError)
    found = (about.get("kind"), about.get("format")) if isinstance(about, dict) else about
    if found != (kind, INDEX_FORMAT):
        raise RunError(
            f"{path} is of {found}; expected {(kind, INDEX_FORMAT)}: build the index again"
        )
    return dict(about)
