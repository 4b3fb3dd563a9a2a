"""One step's input: queries, their pool of labels and the tokens of both, made ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from umpteen.data.pool import AllLabels, Pool, PoolSource
from umpteen.data.samplers import step_seed
from umpteen.data.tokens import TokenStore
from umpteen.training.mixup import Mix, Mixing
from umpteen.types import Ragged, RowIndices

THREAD_NAME = "umpteen-batches"
Made = TypeVar("Made")


@dataclass(frozen=True)
class Batch:
    """What one step sees."""

    queries: RowIndices
    """(B,) rows of the training queries."""
    tokens: Ragged
    """The queries' tokens, then those of the pool's first ``n_text`` labels."""
    pool: Pool
    ready: Any = None
    """The CUDA event after which tensors made on another stream are there; None for none."""
    label_rows: RowIndices | None = None
    """(n_text,) rows of the labels whose tokens are here, ascending, on the host; None for none."""
    everything: Pool | None = None
    """Every pair of these queries among all labels, on the host, where the loss needs it."""
    mix: Mix | None = None
    """What the queries' vectors are mixed with; the pool's positives are mixed already."""
    near: RowIndices | None = None
    """(C, M) the place of each label's neighbours among the encoded label texts, with a graph."""


class BatchMaker:
    """Makes the batch of a step; a pure function of its arguments and the run's seed.

    Args:
        queries: Tokens of the training queries.
        labels: Tokens of the labels.
        pools: Draws the pools.
        seed: The run's seed.
        encode_labels: Whether the batch carries the tokens of its pool's labels.
        everything: Finds the pairs among all labels, where a loss needs them beside the pool.
        mixing: Mixes queries, where that is wanted.
        graph: (L, M) neighbours of each label, whose texts are encoded too.
    """

    def __init__(
        self,
        queries: TokenStore,
        labels: TokenStore,
        pools: PoolSource,
        *,
        seed: int,
        encode_labels: bool,
        everything: AllLabels | None = None,
        mixing: Mixing | None = None,
        graph: NDArray[np.int64] | None = None,
    ) -> None:
        self._queries = queries
        self._labels = labels
        self._pools = pools
        self._seed = seed
        self._encode_labels = encode_labels
        self._everything = everything
        self._mixing = mixing
        self._graph = graph
        self.negatives: NDArray[Any] | None = None
        """(N, H) mined hard negatives of each query, -1 where there is none."""

    def make(self, queries: RowIndices, step: int) -> Batch:
        """Return the batch of these queries at this step."""
        rng = np.random.default_rng(step_seed(self._seed, step))
        negatives = None if self.negatives is None else self.negatives[queries]
        pool = self._pools.build(queries, rng, negatives)
        tokens = self._queries.take(queries)
        label_rows = mix = near = None
        if self._encode_labels:
            label_rows = encoded = pool.labels[: pool.n_text]
            if self._graph is not None:
                encoded, near = with_neighbours(label_rows, self._graph)
            tokens = join(tokens, self._labels.take(encoded))
        if self._mixing is not None:
            pool, mix = self._mixing(pool, len(queries), rng)
        everything = None if self._everything is None else self._everything.pairs(queries)
        return Batch(queries, tokens, pool, None, label_rows, everything, mix, near)

    def make_ahead(
        self, batch_rows: Sequence[RowIndices], *, start: int, first_step: int
    ) -> Iterator[Batch]:
        """Yield the batches of an epoch from position ``start``; a thread keeps two ready."""
        return made_ahead(self.make, batch_rows, start=start, first_step=first_step)


def with_neighbours(
    rows: RowIndices, graph: NDArray[np.int64]
) -> tuple[RowIndices, NDArray[np.int64]]:
    """Return label rows followed by neighbours that are not among them, and where each one is.

    Args:
        rows: (C,) ascending.
        graph: (L, M) neighbours of each label.

    Returns:
        (C + E,) rows, and (C, M) places of the neighbours in them.
    """
    near = graph[rows]
    every = np.concatenate([rows, np.setdiff1d(near, rows)])
    order = np.argsort(every, kind="stable")
    return every, order[np.searchsorted(every[order], near)]


def made_ahead(
    make: Callable[[RowIndices, int], Made],
    batch_rows: Sequence[RowIndices],
    *,
    start: int,
    first_step: int,
) -> Generator[Made, None, None]:
    """Call ``make`` for the batches from ``start`` on; a thread keeps two ready."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix=THREAD_NAME) as worker:
        waiting: list[Future[Made]] = []
        for ahead in range(start, min(start + 2, len(batch_rows))):
            waiting.append(worker.submit(make, batch_rows[ahead], first_step + ahead - start))
        for position in range(start, len(batch_rows)):
            following = position + 2
            batch = waiting.pop(0).result()
            if following < len(batch_rows):
                waiting.append(
                    worker.submit(make, batch_rows[following], first_step + following - start)
                )
            yield batch


def join(first: Ragged, second: Ragged) -> Ragged:
    """Return the texts of both, one after the other."""
    return Ragged(
        np.concatenate([first.ids, second.ids]),
        np.concatenate([first.offsets, second.offsets[1:] + first.offsets[-1]]),
    )
