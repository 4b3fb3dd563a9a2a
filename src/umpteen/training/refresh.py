"""Clusters of queries and hard negatives, refreshed every few epochs from the current model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.compute.distributed import SHARDED_BYTES
from umpteen.compute.distributed.sharding import ONE_RANK, Ranks, Shards
from umpteen.compute.precision import at_least_float32
from umpteen.compute.threads import cpu_threads
from umpteen.data.samplers import cluster_levels, step_seed
from umpteen.data.tokens import TokenStore
from umpteen.errors import RunError
from umpteen.files import atomic_folder, digest
from umpteen.model.model import Model
from umpteen.model.vectors import classifier_label_vectors, encode_texts
from umpteen.training.clusters_on_ranks import clusters_on_ranks
from umpteen.training.encode_on_ranks import TokenPart, encoded_on_ranks
from umpteen.training.mining import is_clustered, mine
from umpteen.training.stage_log import QUIET, StageLog

FILES = ("order.npy", "bounds.npy", "negatives.npy")
QUERIES, LABELS, CLUSTERS = "training texts", "label texts", "clusters"
"""Kinds of stages."""
ROUNDED_BYTES = 8 << 30
"""Label vectors that would take more in float32 are mined in bfloat16 on a GPU."""


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
    search: str = "auto"
    """How hard negatives are searched: the setting ``batches.search``."""
    threads: int = 0
    """CPU threads of a refresh, which has long products, where steps may have fewer; 0 for those
    that are set when it begins."""
    log: StageLog = QUIET
    ranks: Ranks = ONE_RANK
    """Who takes part: texts are encoded, clustered and searched in even shares."""

    def __call__(self, model: Model, epoch: int) -> Refreshed:
        """Encode everything, cluster the queries, search each query's nearest wrong labels."""
        with cpu_threads(self.threads or torch.get_num_threads()):
            return self._refresh(model, epoch)

    def _refresh(self, model: Model, epoch: int) -> Refreshed:
        was_training = model.training
        model.eval()
        head = _query_head(model)
        queries = self._encode(model, self.queries, head, QUERIES)
        generator = torch.Generator().manual_seed(step_seed(self.seed, epoch, (3,)))
        # Clusters of one are random batches, made without a refresh; later epochs may join pairs.
        size = max(2, self.cluster_size(epoch))
        levels = cluster_levels(len(self.queries), size)
        # Clusters are of directions, also where scores are not: a long vector belongs nowhere else.
        alike = queries if model.normalize else torch.nn.functional.normalize(queries, dim=1)
        what = f"Clustering {len(alike):,} training texts"
        with self.log.stage(what, kind=CLUSTERS, announced=False):
            order, bounds = clusters_on_ranks(alike, levels, generator=generator, ranks=self.ranks)
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
            dtype = self._label_dtype(model)
            if self._keeps_shards(model, len(queries)):
                return self._mine_shards(model, queries, dtype)
            labels = self._encode(model, self.labels, model.dual, LABELS, dtype)
        else:
            labels = self._classifier_labels(model, generator)
        found = self._mine_share(queries, labels)
        if self.tell_labels is not None:
            self.tell_labels(labels)
        return found

    def _encode(
        self,
        model: Model,
        tokens: TokenStore | TokenPart,
        head: Callable[[torch.Tensor], torch.Tensor],
        what: str,
        dtype: torch.dtype = torch.float32,
        *,
        alone: bool = False,
    ) -> torch.Tensor:
        said = f"Encoding {len(tokens):,} {what}"
        with self.log.stage(said, kind=what, announced=False) as progress:
            encode = partial(
                encode_texts,
                model,
                head=head,
                precision=self.precision,
                progress=progress,
                dtype=dtype,
            )
            return encoded_on_ranks(encode, tokens, ONE_RANK if alone else self.ranks)

    def _keeps_shards(self, model: Model, n_queries: int) -> bool:
        """Return whether each rank searches the labels that it encodes, and no vector travels."""
        n_labels, cuda = len(self.labels), model.log_scales.is_cuda
        exact = not is_clustered(self.search, n_queries, n_labels, cuda=cuda)
        large = 4 * n_labels * model.dim > SHARDED_BYTES
        return self.ranks.exchanges and large and exact and self.tell_labels is None

    def _mine_shards(
        self, model: Model, queries: torch.Tensor, dtype: torch.dtype
    ) -> NDArray[np.int32]:
        """Encode this rank's share of the labels, search all queries there, merge."""
        assert model.dual_head is not None
        shards = Shards(self.ranks, self.ranks.bounds(len(self.labels)))
        own = TokenPart(self.labels, shards.own.start, shards.own.stop)
        labels = queries.new_empty(0, queries.shape[1])
        if len(own):
            labels = self._encode(model, own, model.dual, LABELS, dtype, alone=True)
        return mine(
            queries,
            labels,
            self.targets,
            self.filters,
            self.negatives_kept,
            search="exact" if self.search == "auto" and not labels.is_cuda else self.search,
            log=self.log,
            shards=shards,
        )

    def _label_dtype(self, model: Model) -> torch.dtype:
        """Return float32, or bfloat16 where label vectors alone are to be searched on a GPU."""
        large = 4 * len(self.labels) * model.dim > ROUNDED_BYTES
        rounded = large and model.log_scales.is_cuda and self.tell_labels is None
        return torch.bfloat16 if rounded else torch.float32

    def _classifier_labels(self, model: Model, generator: torch.Generator) -> torch.Tensor:
        """Return the first rank's vectors, which alone has the whole label table and the draws."""
        if not self.ranks.first:
            assert model.label_vectors is not None
            like = at_least_float32(model.label_vectors.detach()[:0].to(model.log_scales.device))
            return self.ranks.from_first(like.new_empty(len(self.labels), model.dim))
        own = classifier_label_vectors(model, self.labels, precision=self.precision)
        labels = torch.nn.functional.normalize(_without_zeros(own, generator), dim=1)
        return self.ranks.from_first(labels)

    def _mine_share(self, queries: torch.Tensor, labels: torch.Tensor) -> NDArray[np.int32]:
        """Search the nearest labels of this rank's queries; return those of all queries."""
        targets, filters, search = self.targets, self.filters, self.search
        # All queries decide, not the share of a rank: the answer is the same on any number.
        if is_clustered(search, len(queries), len(labels), cuda=labels.is_cuda):
            search = "clusters"
        elif search == "auto" and not labels.is_cuda:
            search = "exact"
        bounds = self.ranks.bounds(len(queries))
        own = self.ranks.part(bounds)
        if self.ranks.exchanges:
            queries, targets = queries[own.start : own.stop], targets[own.start : own.stop]
            filters = filters[(filters[:, 0] >= own.start) & (filters[:, 0] < own.stop)]
            filters = filters - np.array([own.start, 0])
        found = mine(
            queries,
            labels,
            targets,
            filters,
            self.negatives_kept,
            search=search,
            seed=self.seed,
            log=self.log,
            ranks=self.ranks,
        )
        return self.ranks.concatenate(torch.from_numpy(found), bounds).numpy()


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
