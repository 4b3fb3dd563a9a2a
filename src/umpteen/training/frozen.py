"""A stage that leaves encoder and dual head as they are: the classifier's loss on the pool."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from umpteen.data.tokens import TokenStore
from umpteen.model.encoder import to_device
from umpteen.model.model import Model
from umpteen.model.vectors import encode_texts
from umpteen.training.batch import Batch
from umpteen.training.step import Losses, classifier_loss


def freeze_(model: Model) -> None:
    """Take encoder and dual head out of training; temperatures and the classifier stay in."""
    model.encoder.requires_grad_(False)
    if model.dual_head is not None:
        model.dual_head.requires_grad_(False)


@dataclass
class FrozenLoss:
    """L_C of a batch, from query vectors that are encoded once, without dropout of the encoder.

    The (N, encoder.dim) vectors of all training queries stay on the model's device.
    """

    losses: Losses
    queries: TokenStore
    precision: str
    encoded: Tensor | None = field(default=None, init=False)

    def __call__(self, model: Model, batch: Batch, seed: int) -> Tensor:
        """Return the loss, a scalar."""
        if self.encoded is None:
            self.encoded = self._encode_all(model)
        queries = self.encoded[to_device(batch.queries, self.encoded.device)]  # (B, encoder.dim)
        return classifier_loss(model, batch, self.losses, queries)

    def _encode_all(self, model: Model) -> Tensor:
        was_training = model.training
        model.eval()
        with torch.no_grad():
            encoded = encode_texts(
                model, self.queries, lambda vectors: vectors, precision=self.precision
            )
        model.train(was_training)
        return encoded
