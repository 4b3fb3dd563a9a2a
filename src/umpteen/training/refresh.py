"""Clusters of queries and hard negatives, refreshed every few epochs from the current model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.threads import cpu_threads
from umpteen.data.clusters import balanced_clusters
from umpteen.data.samplers import cluster_levels, step_seed
from umpteen.data.tokens import TokenStore
from umpteen.errors import RunError
from umpteen.files import atomic_folder, digest
from umpteen.model.model import Model
from umpteen.model.vectors import classifier_label_vectors, encode_texts
from umpteen.training.mining import mine

FILES = ("order.npy", "bounds.npy", "negatives.npy")


@dataclass(frozen=True)
class Refreshed:
    """What a refresh leaves for the next epochs."""

    order: NDArray[np.int64]
    """(N,) query rows sorted by cluster."""
    bounds: NDArray[np.int64]
    """Where each cluster starts in it, and N."""
    negatives: NDArray[Any]
    """(N, H) int32 label rows near each query that are not its own; -1 where there is none."""

    def save(self, folder: Path) -> dict[str, str]:
        """Write to a folder; returns the files' digests."""
        with atomic_folder(folder, replace=True) as temporary:
            for name, array in zip(FILES, (self.order, self.bounds, self.negatives), strict=True):
                np.save(temporary / name, array, allow_pickle=False)
        return {name: digest(folder / name) for name in FILES}

    @classmethod
    def load(cls, folder: Path, digests: dict[str, str]) -> Refreshed:
        """Read from a folder.

        Raises:
            RunError: If a file is missing or not the one that was written.
        """
        arrays = []
        for name in FILES:
            file = folder / name
            if not file.is_file() or digest(file) != digests.get(name):
                raise RunError(f"{file} is missing or damaged")
            arrays.append(np.load(file, allow_pickle=False, mmap_mode="r"))
        return cls(np.array(arrays[0]), np.array(arrays[1]), arrays[2])


@dataclass(frozen=True)
class Refresher:
    """Makes a refresh from the training data and the model."""

    queries: TokenStore
    labels: TokenStore
    targets: sp.csr_matrix
    """Training targets without filter pairs."""
    filters: NDArray[np.int64]
    cluster_size: Callable[[int], int]
    """Queries per cluster by epoch."""
    negatives_kept: int
    """Hard negatives kept per query (``pool.shortlist_size``)."""
    seed: int
    precision: str
    tell_labels: Callable[[torch.Tensor], None] | None = None
    """Told the dual head's vectors of all labels, (L, D), which are its own from then on."""
    first_pass: str | None = None
    """Of the search for hard negatives; see ``mining.mine``."""
    threads: int = 0
    """CPU threads of a refresh, which has long products, where steps may have fewer; 0 for those
    that are set when it begins."""

    def __call__(self, model: Model, epoch: int) -> Refreshed:
        """Encode everything, cluster the queries, search each query's nearest wrong labels."""
        with cpu_threads(self.threads or torch.get_num_threads()):
            return self._refresh(model, epoch)

    def _refresh(self, model: Model, epoch: int) -> Refreshed:
        was_training = model.training
        model.eval()
        head = _query_head(model)
        queries = encode_texts(model, self.queries, head, precision=self.precision)
        generator = torch.Generator().manual_seed(step_seed(self.seed, epoch, (3,)))
        # Clusters of one are random batches, made without a refresh; later epochs may join pairs.
        size = max(2, self.cluster_size(epoch))
        levels = cluster_levels(len(self.queries), size)
        # Clusters are of directions, also where scores are not: a long vector belongs nowhere else.
        alike = queries if model.normalize else torch.nn.functional.normalize(queries, dim=1)
        order, bounds = balanced_clusters(alike, levels, generator=generator)
        del alike
        negatives = self._mine(model, queries, generator)
        model.train(was_training)
        return Refreshed(order.cpu().numpy(), bounds.cpu().numpy(), negatives)

    def _mine(
        self, model: Model, queries: torch.Tensor, generator: torch.Generator
    ) -> NDArray[np.int32]:
        if not self.negatives_kept and self.tell_labels is None:
            return np.zeros((len(self.queries), 0), np.int32)
        if model.dual_head is not None:
            labels = encode_texts(model, self.labels, model.dual, precision=self.precision)
        else:
            own = classifier_label_vectors(model, self.labels, precision=self.precision)
            labels = torch.nn.functional.normalize(_without_zeros(own, generator), dim=1)
        found = mine(
            queries,
            labels,
            self.targets,
            self.filters,
            self.negatives_kept,
            first_pass=self.first_pass,
        )
        if self.tell_labels is not None:
            self.tell_labels(labels)
        return found


def _without_zeros(vectors: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return random vectors where there are none yet.

    Label vectors that start from zeros are equally near to every query. Ties go to the smaller
    row, so all queries would get the same few negatives; like this they get random ones.
    """
    empty = ~vectors.any(dim=1)
    count = int(empty.sum())
    if not count:
        return vectors
    drawn = torch.randn(count, vectors.shape[1], generator=generator)
    return vectors.index_put((empty,), drawn.to(vectors))


def _query_head(model: Model) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the head whose vectors are clustered and searched with."""
    if model.dual_head is not None:
        return model.dual
    return lambda encoded: torch.nn.functional.normalize(model.classifier(encoded), dim=1)
