"""A stage that leaves encoder and dual head as they are: the classifier's loss on the pool."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.data.tokens import TokenStore
from umpteen.model.encoder import to_device
from umpteen.model.model import Model
from umpteen.model.vectors import encode_texts
from umpteen.training.batch import Batch
from umpteen.training.data_parallel import gathered_queries
from umpteen.training.encode_on_ranks import encoded_on_ranks
from umpteen.training.pool_on_ranks import PoolLossOnRanks
from umpteen.training.step import Losses, classifier_loss


def freeze_(model: Model) -> None:
    """Take encoder and dual head out of training; temperatures and the classifier stay in."""
    model.encoder.requires_grad_(False)
    if model.dual_head is not None:
        model.dual_head.requires_grad_(False)


@dataclass
class FrozenLoss:
    """L_C of a batch, from query vectors that are encoded once, without dropout of the encoder.

    The (N, encoder.dim) vectors of all training queries stay on the model's device. On several
    ranks each encodes an even share of them and has all; its part of the loss is that of the labels
    it holds.
    """

    losses: Losses
    queries: TokenStore
    precision: str
    ranks: Ranks = ONE_RANK
    encoded: Tensor | None = field(default=None, init=False)

    def __call__(self, model: Model, batch: Batch, seed: int) -> Tensor:
        """Return the loss, a scalar."""
        if self.encoded is None:
            self.encoded = self._encode_all(model)
        queries = self.encoded[to_device(batch.queries, self.encoded.device)]  # (B, encoder.dim)
        if not self.ranks.exchanges:
            return classifier_loss(model, batch, self.losses, queries)
        part = self.ranks.shard(len(queries))
        own = queries[part.start : part.stop] if len(part) else None
        heads = [model.classifier]
        (vectors,) = gathered_queries(own, heads, model, len(queries), self.ranks)
        on_ranks = PoolLossOnRanks(self.losses, self.precision, self.ranks)
        return on_ranks.classifier(model, batch.pool, vectors)

    def _encode_all(self, model: Model) -> Tensor:
        was_training = model.training
        model.eval()
        with torch.no_grad():
            head, precision = (lambda vectors: vectors), self.precision
            encode = partial(encode_texts, model, head=head, precision=precision)
            encoded = encoded_on_ranks(encode, self.queries, self.ranks)
        model.train(was_training)
        return encoded
