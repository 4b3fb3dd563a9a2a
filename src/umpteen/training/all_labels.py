"""The loss of one batch over every label: label texts encoded in chunks, scores in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks, Shards
from umpteen.compute.grad_cache import Side, cached_vectors
from umpteen.compute.precision import at_least_float32, autocast
from umpteen.compute.streaming.label_blocks import streamed_loss, streamed_update
from umpteen.compute.streaming.label_products import ApplyBlock
from umpteen.data.pool import Pool
from umpteen.data.tokens import TokenStore
from umpteen.model.model import Model
from umpteen.training.batch import Batch
from umpteen.training.data_parallel import gathered_queries, some_texts, used_heads
from umpteen.training.step import Losses, dual_share
from umpteen.types import Positives, Ragged

MAX_TOKENS_KEPT = 1 << 25
"""Of all label texts, for their plans to be kept on the device: some 20 bytes each."""


@dataclass(frozen=True)
class AllLabelLoss:
    """lambda L_D + (1 - lambda) L_C of a batch, each over all labels; see ``step.batch_loss``.

    Neither the (B, L) scores nor more than one chunk's graph of the label encoder are ever held.
    On several ranks each encodes its share of the queries and of the labels; every rank has the
    loss of all, and gradients that add up over ranks to those of one.
    """

    losses: Losses
    labels: TokenStore
    precision: str
    chunk_tokens: int
    """Padded tokens of label texts in a chunk; queries with more in all are cut likewise."""
    memory_bytes: int | None
    """What a block of scores may take."""
    ranks: Ranks = ONE_RANK
    scores: str | None = None
    """What the factors of scores are rounded to, where that is not ``precision``."""
    label_updates: Callable[[], ApplyBlock] | None = None
    """Begins a step of the label vectors, which then change block by block while the loss is
    computed, and no gradient of their size is ever held; None leaves them a gradient."""
    chunks: list[np.ndarray] = field(init=False)
    """Rows of this rank's labels in each chunk, short texts with short ones."""
    place: np.ndarray = field(init=False)
    """(L,) where each label's vector is, every rank's chunks one after the other."""
    shards: Shards = field(init=False)
    kept: dict[int, Ragged] = field(default_factory=dict, init=False)
    """Tokens of the chunks with what the encoder plans for them, the same at every step."""

    def __post_init__(self) -> None:
        lengths = self.labels.lengths
        shards = Shards(self.ranks, self.ranks.bounds(len(lengths)))
        rows = np.concatenate(
            [
                start + np.argsort(lengths[start:stop], kind="stable")
                for start, stop in pairwise(self.ranks.bounds(len(lengths)))
            ]
        )
        own = rows[shards.own.start : shards.own.stop]
        object.__setattr__(self, "shards", shards)
        object.__setattr__(self, "chunks", cut_by_tokens(own, lengths, self.chunk_tokens))
        object.__setattr__(self, "place", np.argsort(rows, kind="stable"))

    def __call__(self, model: Model, batch: Batch, seed: int) -> Tensor:
        """Return the loss, a scalar; differentiable once."""
        device = next(model.parameters()).device
        share = dual_share(model, self.losses)
        n = len(batch.queries)
        part = self.ranks.shard(n)
        own = None
        if len(part):
            own = self._queries(model, some_texts(batch.tokens, part.start, part.stop), seed)
        heads = used_heads(model, share)
        queries = gathered_queries(own, heads, model, n, self.ranks)
        total = torch.zeros((), device=device)
        if model.dual in heads:
            total = total + share * self._dual(model, batch, queries[0], seed)
        if model.classifier in heads:
            total = total + self._classifier(model, batch, queries[-1], weight=1 - share)
        return total

    def _queries(self, model: Model, tokens: Ragged, seed: int) -> Tensor:
        """Encode this rank's queries. With a cached gradient where they are more than a chunk."""
        edges = even_chunks(tokens.offsets, self.chunk_tokens)
        if len(edges) <= 2:
            return encode_with(self.precision, model, tokens)
        side = Side(
            lambda part: encode_with(self.precision, model, some_texts(tokens, *part)),
            list(pairwise(edges)),
        )
        return cached_vectors(side, seed=seed, stream=self.ranks.world + self.ranks.rank)

    def _dual(self, model: Model, batch: Batch, queries: Tensor, seed: int) -> Tensor:
        side = Side(
            lambda chunk: model.dual(encode_with(self.precision, model, self._texts(model, chunk))),
            range(len(self.chunks)),
        )
        if self.chunks:
            # (labels of this rank, D) in the order of the chunks: the few pairs are renumbered
            # instead of the many vectors put in order.
            vectors = cached_vectors(side, seed=seed, stream=self.ranks.rank)
        else:  # more ranks than labels
            vectors = queries.new_zeros(0, model.dim)
        stream = self._stream(self._placed(batch.pool), queries, vectors, model.scale("dual"))
        losses = self.losses
        return stream(losses.dual, losses.reduction, losses.dual_forward)

    def _texts(self, model: Model, chunk: int) -> Ragged:
        """Return the label texts of a chunk, planned once where all of them may be kept."""
        if chunk in self.kept:
            return self.kept[chunk]
        texts = self.labels.take(self.chunks[chunk])
        layout = getattr(model.encoder, "layout", None)
        if layout is not None and self.labels.lengths.sum() <= MAX_TOKENS_KEPT:
            self.kept[chunk] = texts = replace(texts, layout=layout(texts))
        return texts

    def _classifier(self, model: Model, batch: Batch, queries: Tensor, *, weight: float) -> Tensor:
        assert model.label_vectors is not None
        losses, scale = self.losses, model.scale("classifier")
        if self.label_updates is not None and self._one_gradient(model):
            return streamed_update(
                losses.classifier,
                losses.classifier_reduction,
                queries,
                model.label_vectors,
                batch.pool.positives,
                self.label_updates(),
                weight=weight,
                forward=losses.classifier_forward,
                **self._options(batch.pool, scale),
            )
        vectors = model.label_dropout(model.label_vectors)
        stream = self._stream(batch.pool, queries, vectors, scale)
        loss = stream(losses.classifier, losses.classifier_reduction, losses.classifier_forward)
        if losses.bce:
            loss = loss + losses.bce * stream(losses.bce_objective, losses.bce_reduction, 1.0)
        return weight * loss

    def _one_gradient(self, model: Model) -> bool:
        """Return whether a block's gradient by the label vectors is all that they get in a step."""
        assert model.label_vectors is not None
        wanted = model.label_vectors.requires_grad and torch.is_grad_enabled()
        learning = model.training and wanted
        return learning and not self.losses.bce and not model.label_dropout.p

    def _placed(self, pool: Pool) -> Pool:
        """Return the same pairs with labels numbered by where their vectors are."""
        pairs = pool.positives
        ignored = np.column_stack([pool.ignored[:, 0], self.place[pool.ignored[:, 1]]])
        positives = Positives(pairs.rows, self.place[pairs.cols], pairs.targets)
        return Pool(pool.labels, pool.n_text, positives, ignored)

    def _stream(
        self, pool: Pool, queries: Tensor, vectors: Tensor, scale: Tensor
    ) -> Callable[..., Tensor]:
        def loss(objective: object, reduction: Callable[..., Tensor], forward: float) -> Tensor:
            options = self._options(pool, scale)
            given = queries, vectors, pool.positives
            return streamed_loss(objective, reduction, *given, forward=forward, **options)

        return loss

    def _options(self, pool: Pool, scale: Tensor) -> dict[str, Any]:
        return {
            "scale": scale,
            "ignored": pool.ignored,
            "memory_bytes": self.memory_bytes,
            "shards": self.shards,
            "precision": self.scores or self.precision,
        }


def even_chunks(offsets: np.ndarray, most: int) -> list[int]:
    """Return cuts of texts, in their order.

    So that each part has about as many tokens as the others.

    No part has more than ``most``, but for what its last text has beyond it.

    Example:
        >>> even_chunks(np.array([0, 3, 5, 9, 10, 12]), 5)
        [0, 2, 3, 5]
    """
    total = int(offsets[-1])
    n = max(1, -(-total // most))
    inner = np.searchsorted(offsets, total * np.arange(1, n) / n)
    return np.unique(np.concatenate([[0], inner, [len(offsets) - 1]])).tolist()


def cut_by_tokens(rows: np.ndarray, lengths: np.ndarray, most: int) -> list[np.ndarray]:
    """Cut rows, ascending by length, into chunks of at most ``most`` padded tokens.

    Example:
        >>> [c.tolist() for c in cut_by_tokens(np.array([2, 0, 1]), np.array([3, 4, 1]), 6)]
        [[2, 0], [1]]
    """
    chunks = []
    stop = len(rows)
    while stop > 0:
        size = max(1, most // max(1, int(lengths[rows[stop - 1]])))
        start = max(0, stop - size)
        chunks.append(rows[start:stop])
        stop = start
    return chunks[::-1]


def encode_with(precision: str, model: Model, tokens: Ragged) -> Tensor:
    """Encode texts in the precision of a run; the vectors are float32 or wider."""
    with autocast(precision, next(model.parameters()).device):
        encoded = model.encode(tokens)
    return at_least_float32(encoded)
