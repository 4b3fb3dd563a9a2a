"""The folder ``index/`` of a run: search indexes of its heads, built, measured and loaded."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from umpteen.errors import ConfigError, LabelMismatch, RunError
from umpteen.files import (
    atomic_folder,
    clear_leftovers,
    disk_errors,
    read_json,
    write_json,
)
from umpteen.index import INDEXES
from umpteen.index.base import LabelIndex
from umpteen.index.exact import ExactIndex
from umpteen.index.ivfpq import DEFAULT_MEMORY, IVFPQ_LABELS, IvfPqIndex
from umpteen.index.mapped_rows import MappedRows
from umpteen.index.recall import share_found
from umpteen.locks import exclusive_folder
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.registry import resolve, resolve_saved
from umpteen.run_folder import RunFolder


def load_label_indexes(folder: RunFolder, model: str, label_vectors: LabelVectors) -> None:
    """Search heads with the indexes that were built for them.

    Args:
        folder: The run.
        model: The name of the model folder in use.
        label_vectors: Gets the indexes.

    Raises:
        RunError: If an index is damaged or of an unknown kind.
        LabelMismatch: If it was built for another model, or from other vectors.
    """
    for head in label_vectors.heads:
        place = folder.index / head
        if not place.is_dir():
            continue
        again = f"build it again with: umpteen index {folder.path}"
        if not (place / "about.json").is_file():
            raise RunError(f"{place / 'about.json'} is missing; {again}")
        about = read_json(place / "about.json", error=RunError)
        if not isinstance(about, dict) or not {"model", "kind"} <= set(about):
            raise RunError(f"{place / 'about.json'} is damaged; {again}")
        if about["model"] != model:
            raise LabelMismatch(
                f"{place} was built for the model {about['model']}, the run now uses {model}; "
                f"{again}"
            )
        kind = resolve_saved(INDEXES, about["kind"], kind="index", source=place / "about.json")
        vectors = label_vectors.numpy(head)
        index = kind.load(place / "index", **({"vectors": vectors} if _rescores(kind) else {}))
        own = MappedRows(vectors).fingerprint()
        if (index.n_labels, index.dim) != vectors.shape or about.get("vectors", own) != own:
            raise LabelMismatch(f"{place} was built from other label vectors; {again}")
        label_vectors.use_index(head, index)


def build_label_indexes(
    folder: RunFolder,
    label_vectors: LabelVectors,
    queries: torch.Tensor,
    *,
    kind: str | None = None,
    factory: str | None = None,
    heads: tuple[str, ...] = (),
    k: int = 10,
    max_memory: int | None = None,
) -> list[dict[str, Any]]:
    """Build and save the indexes of a run, and compare them with exact search.

    Args:
        folder: The run.
        label_vectors: Of its best model, on the CPU.
        queries: (N, heads * dim) encoded texts to measure with.
        kind: A name in the table of indexes; None for ``ivfpq`` from 5 million labels on and where
            the vectors of a head take more than ``max_memory``, and ``exact`` otherwise.
        factory: What ``FaissIndex.build`` makes.
        heads: The heads to index; all of them by default.
        k: Labels per query of the recall.
        max_memory: Bytes that a build of ``ivfpq`` may use; 2 GiB by default.

    Returns:
        For each head the recall in percent and the milliseconds per query of both.

    Raises:
        ConfigError: If an option does not belong to the kind.
        NotWritten: If the disk is full.
        RunError: If another process builds an index of the run.
    """
    names = heads or label_vectors.heads
    given, kind = kind, kind or default_kind(label_vectors, names, max_memory)
    builder = resolve(INDEXES, kind, kind="index")
    if factory and kind != "faiss":
        raise ConfigError("--factory is for --kind faiss")
    if max_memory is not None and given and not _rescores(builder):
        raise ConfigError(f"--max-memory is for --kind ivfpq, not {kind}; leave it out")
    options: dict[str, Any] = {"factory": factory} if factory else {}
    again = disk_errors(folder.index, advice="build the index again")
    with again, _workspace(folder) as workspace:
        if _rescores(builder):
            memory = DEFAULT_MEMORY if max_memory is None else max_memory
            options = {"max_memory": memory, "workspace": workspace}
        built = {name: builder.build(label_vectors.numpy(name), **options) for name in names}
        rows = [_measure(label_vectors, name, each, queries, k) for name, each in built.items()]
        if kind == "exact":
            shutil.rmtree(folder.index, ignore_errors=True)
        else:
            _save(folder, kind, built, label_vectors)
    return rows


@contextlib.contextmanager
def _workspace(folder: RunFolder) -> Iterator[Path]:
    """Yield an empty folder for the files of one build; remove what a killed build left."""
    place = folder.path / ".index-build"
    busy = RunError(f"another process builds an index of {folder.path}; wait until it ends")
    with exclusive_folder(place, busy=busy):
        clear_leftovers(folder.path, of=folder.index.name)
        for left in place.iterdir():
            shutil.rmtree(left, ignore_errors=True)
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)


def default_kind(
    label_vectors: LabelVectors, heads: tuple[str, ...], max_memory: int | None
) -> str:
    """Return the kind of index for a number of labels and a limit of memory."""
    width = max(len(range(label_vectors.width)[label_vectors.columns[head]]) for head in heads)
    exceeds = max_memory is not None and 4 * len(label_vectors) * width > max_memory
    return "ivfpq" if exceeds or len(label_vectors) >= IVFPQ_LABELS else "exact"


def _save(
    folder: RunFolder, kind: str, built: dict[str, LabelIndex], label_vectors: LabelVectors
) -> None:
    # All at once, and only now: what was there before serves until the new one is whole.
    with atomic_folder(folder.index, replace=True) as temporary:
        for head, each in built.items():
            (temporary / head).mkdir()
            place: Path = temporary / head / "index"
            if isinstance(each, IvfPqIndex):
                each.save(place, with_vectors=False)  # those of the model are used
            else:
                each.save(place)
            vectors = MappedRows(label_vectors.numpy(head)).fingerprint()
            about = {"kind": kind, "model": folder.model("best").name, "vectors": vectors}
            write_json(temporary / head / "about.json", about)


def _measure(
    label_vectors: LabelVectors, head: str, built: LabelIndex, queries: torch.Tensor, k: int
) -> dict[str, Any]:
    """Return recall of the exact top k and the time per query of both."""
    own, k = queries[:, label_vectors.columns[head]], min(k, built.n_labels)
    if isinstance(built, IvfPqIndex):
        exact = built.scan  # the vectors may not fit in memory
    else:
        exact = ExactIndex.build(label_vectors.numpy(head)).search
    results, times = {}, {}
    for name, search in (("ms", built.search), ("exact_ms", exact)):
        search(own[:1], k)
        start = time.perf_counter()
        results[name] = search(own, k)
        times[name] = 1000 * (time.perf_counter() - start) / len(own)
    description = built.describe()
    found, wanted = results["ms"].rows, results["exact_ms"].rows
    return {
        "head": head,
        "index": str(description.get("factory", description.get("kind", "exact"))),
        "recall": 100 * share_found(found, wanted, built.n_labels),
        **times,
    }


def _rescores(kind: Any) -> bool:
    """Return whether an index of this kind scores candidates again from the label vectors."""
    return isinstance(kind, type) and issubclass(kind, IvfPqIndex)
