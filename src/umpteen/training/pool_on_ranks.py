"""The loss of one batch and its pool on several ranks; on one rank, ``step.batch_loss``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks, Shards
from umpteen.compute.precision import at_least_float32, autocast
from umpteen.compute.streaming.label_blocks import streamed_loss
from umpteen.data.pool import Pool
from umpteen.model.encoder import to_device
from umpteen.model.model import Model
from umpteen.training.batch import Batch, join
from umpteen.training.data_parallel import gathered_queries, some_texts, used_heads
from umpteen.training.step import Losses, dual_share
from umpteen.types import Positives


@dataclass(frozen=True)
class PoolLossOnRanks:
    """lambda L_D + (1 - lambda) L_C of a batch on its pool; see ``step.batch_loss``.

    Each rank encodes an even share of the queries and of the pool's label texts. In the
    classifier's loss it stands for the pool's labels that it has the vectors of. Every rank has the
    loss of all, and gradients that add up over ranks to those of one.
    """

    losses: Losses
    precision: str
    ranks: Ranks

    def __call__(self, model: Model, batch: Batch, seed: int) -> Tensor:
        """Return the loss, a scalar; differentiable once. The seed is not needed."""
        share = dual_share(model, self.losses)
        heads = used_heads(model, share)
        queries, labels = self._encode(model, batch)
        vectors = gathered_queries(queries, heads, model, len(batch.queries), self.ranks)
        total = torch.zeros((), device=next(model.parameters()).device)
        if model.dual in heads:
            total = total + share * self._dual(model, batch.pool, vectors[0], labels)
        if model.classifier in heads:
            total = total + (1 - share) * self.classifier(model, batch.pool, vectors[-1])
        return total

    def _encode(self, model: Model, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Return this rank's queries and label texts, encoded in one go; None for none."""
        n = len(batch.queries)
        part = self.ranks.shard(n)
        tokens = some_texts(batch.tokens, part.start, part.stop)
        if len(batch.tokens) > n:  # with a dual head the pool's texts follow
            texts = self.ranks.shard(batch.pool.n_text)
            tokens = join(tokens, some_texts(batch.tokens, n + texts.start, n + texts.stop))
        if not len(tokens):
            return None, None
        with autocast(self.precision, next(model.parameters()).device):
            encoded = model.encode(tokens)
        encoded = at_least_float32(encoded)
        queries, labels = encoded[: len(part)], encoded[len(part) :]
        return queries if len(queries) else None, labels if len(labels) else None

    def _dual(self, model: Model, pool: Pool, queries: Tensor, labels: Tensor | None) -> Tensor:
        pool = pool.with_text
        vectors = queries.new_zeros(0, model.dim) if labels is None else model.dual(labels)
        shards = Shards(self.ranks, self.ranks.bounds(pool.n_text))
        scale = model.scale("dual")
        stream = _stream(queries, vectors, pool.positives, pool.ignored, scale, shards)
        losses = self.losses
        return stream(losses.dual, losses.reduction, losses.dual_forward)

    def classifier(self, model: Model, pool: Pool, queries: Tensor) -> Tensor:
        """Return L_C of the whole batch's queries, (B, D).

        Each rank has its own labels of the pool.
        """
        # By label row, so that the labels of a rank are together, in the order of the ranks.
        order = np.argsort(pool.labels, kind="stable")
        place = np.argsort(order, kind="stable")
        given = pool.positives
        positives = Positives(given.rows, place[given.cols], given.targets)
        ignored = np.column_stack([pool.ignored[:, 0], place[pool.ignored[:, 1]]])
        labels = pool.labels[order]
        held = self.ranks.bounds(model.n_labels)
        shards = Shards(self.ranks, np.searchsorted(labels, held))
        own = labels[shards.own.start : shards.own.stop] - held[self.ranks.rank]
        vectors = model.label_rows(to_device(own, queries.device))
        stream = _stream(queries, vectors, positives, ignored, model.scale("classifier"), shards)
        losses = self.losses
        loss = stream(losses.classifier, losses.classifier_reduction, losses.classifier_forward)
        if losses.bce:
            loss = loss + losses.bce * stream(losses.bce_objective, losses.bce_reduction, 1.0)
        return loss


def _stream(
    queries: Tensor,
    vectors: Tensor,
    positives: Positives,
    ignored: np.ndarray,
    scale: Tensor,
    shards: Shards,
) -> Callable[..., Tensor]:
    def loss(objective: object, reduction: Callable[..., Tensor], forward: float) -> Tensor:
        return streamed_loss(
            objective,
            reduction,
            queries,
            vectors,
            positives,
            scale=scale,
            ignored=ignored,
            forward=forward,
            shards=shards,
        )

    return loss
