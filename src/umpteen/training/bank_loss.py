"""The dual loss over all labels: the batch's pool is encoded, the rest is in an embedding bank.

The bank has each label's vector as it was encoded last: in a step that had it in its pool,
or in the last refresh. Remembered vectors are constants; gradients go through the pool's alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import ONE_RANK, LabelShard, Ranks, Shards
from umpteen.compute.streaming.label_blocks import Fresh, streamed_loss
from umpteen.data.tokens import TokenStore
from umpteen.model.encoder import to_device
from umpteen.model.model import Model
from umpteen.model.vectors import encode_texts
from umpteen.training.all_labels import encode_with
from umpteen.training.batch import Batch, join
from umpteen.training.data_parallel import gathered_queries, some_texts, used_heads
from umpteen.training.embedding_bank import EmbeddingBank
from umpteen.training.pool_on_ranks import PoolLossOnRanks
from umpteen.training.step import Losses, classifier_loss, dual_share
from umpteen.types import Ragged


@dataclass(frozen=True)
class BankLoss:
    """lambda L_D + (1 - lambda) L_C of a batch: L_D over all labels, L_C over the batch's pool.

    With a bank that is up to date L_D is that of ``AllLabelLoss``, and so are its gradients by the
    queries and by the pool's labels. On several ranks each has the labels of its shard and
    encodes those of them that are in the pool, and an even share of the queries; every rank has
    the loss of all, and gradients that add up over ranks to those of one.
    """

    losses: Losses
    labels: TokenStore
    bank: EmbeddingBank
    precision: str
    memory_bytes: int | None
    """What a block of scores may take."""
    ranks: Ranks = ONE_RANK
    scores: str | None = None
    """What the factors of scores are rounded to, where that is not ``precision``."""

    def __call__(self, model: Model, batch: Batch, seed: int) -> Tensor:
        """Return the loss, a scalar; differentiable once, and before the next call."""
        if self.ranks.exchanges:
            return self._on_ranks(model, batch)
        share = dual_share(model, self.losses)
        total = torch.zeros((), device=next(model.parameters()).device)
        encoded = encode_with(self.precision, model, batch.tokens)
        queries, labels = encoded.tensor_split([len(batch.queries)])
        if share > 0:
            fresh = model.dual(labels)
            total = share * self._dual(model, batch, model.dual(queries), fresh)
        if "classifier" in model.heads and share < 1:
            total = total + (1 - share) * classifier_loss(model, batch, self.losses, queries)
        return total

    def _on_ranks(self, model: Model, batch: Batch) -> Tensor:
        share = dual_share(model, self.losses)
        heads = used_heads(model, share)
        n = len(batch.queries)
        part, own = self.ranks.shard(n), self._own(batch)
        tokens = some_texts(batch.tokens, part.start, part.stop)
        if model.dual in heads:
            tokens = join(tokens, some_texts(batch.tokens, n + own.start, n + own.stop))
        encoded = encode_with(self.precision, model, tokens) if len(tokens) else None
        queries = encoded[: len(part)] if encoded is not None and len(part) else None
        vectors = gathered_queries(queries, heads, model, n, self.ranks)
        total = torch.zeros((), device=next(model.parameters()).device)
        if model.dual in heads:
            fresh = vectors[0].new_zeros(0, model.dim)
            if encoded is not None and len(own):
                fresh = model.dual(encoded[len(part) :])
            total = total + share * self._dual(model, batch, vectors[0], fresh)
        if model.classifier in heads:
            pool = PoolLossOnRanks(self.losses, self.precision, self.ranks)
            total = total + (1 - share) * pool.classifier(model, batch.pool, vectors[-1])
        return total

    def _own(self, batch: Batch) -> LabelShard:
        """Return the pool's labels with text that belong to this rank.

        By their place in the pool.
        """
        assert batch.label_rows is not None
        bounds = np.searchsorted(batch.label_rows, self.ranks.bounds(len(self.labels)))
        return self.ranks.part(bounds)

    def _dual(self, model: Model, batch: Batch, queries: Tensor, fresh: Tensor) -> Tensor:
        assert batch.everything is not None
        assert batch.label_rows is not None
        shards = Shards(self.ranks, self.ranks.bounds(len(self.labels)))
        if self.bank.vectors is None:  # no refresh yet
            self.bank.fill(self._encode_labels(model, shards.own))
        own = self._own(batch)
        rows = batch.label_rows[own.start : own.stop] - shards.own.start
        labels = self.bank.update(to_device(rows, fresh.device), fresh)
        return streamed_loss(
            self.losses.dual,
            self.losses.reduction,
            queries,
            labels,
            batch.everything.positives,
            scale=model.scale("dual"),
            ignored=batch.everything.ignored,
            forward=self.losses.dual_forward,
            memory_bytes=self.memory_bytes,
            shards=shards,
            precision=self.scores or self.precision,
            fresh=Fresh(rows, fresh),
        )

    def _encode_labels(self, model: Model, own: LabelShard) -> Tensor:
        if not len(own):
            return torch.zeros(0, model.dim, device=next(model.parameters()).device)
        everyone = Ragged(self.labels.ids, self.labels.offsets)
        some = some_texts(everyone, own.start, own.stop)
        was_training = model.training
        model.eval()
        store = TokenStore(some.ids, some.offsets)
        vectors = encode_texts(model, store, model.dual, precision=self.precision)
        model.train(was_training)
        return vectors
