"""The dual loss over all labels, of which only the batch's pool is encoded; a bank knows the rest.

Each label's vector is remembered from when it was encoded last: in a step that had it in its pool,
or in the last refresh. Remembered vectors are constants; gradients go through the pool's alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.label_blocks import streamed_loss
from umpteen.compute.precision import at_least_float32, autocast
from umpteen.data.pool import AllLabels
from umpteen.data.tokens import TokenStore
from umpteen.model.encoder import to_device
from umpteen.model.model import Model
from umpteen.model.vectors import encode_texts
from umpteen.training.batch import Batch
from umpteen.training.step import Losses, classifier_loss, dual_share


class Bank:
    """The vector of every label as it was encoded last."""

    def __init__(self) -> None:
        self.vectors: Tensor | None = None
        """(L, D) on the model's device; None before anything was encoded."""

    def fill(self, vectors: Tensor) -> None:
        """Take new vectors for all labels; the tensor is the bank's own from now on."""
        self.vectors = vectors.detach()

    def remember(self, rows: Tensor, fresh: Tensor) -> Tensor:
        """All labels' vectors with fresh ones for some, which are remembered.

        Args:
            rows: (C,) the labels with fresh vectors, each once.
            fresh: (C, D) their vectors.

        Returns:
            (L, D), the bank itself and no copy; gradients by it reach ``fresh``. It is good until
            the next call.
        """
        assert self.vectors is not None
        with torch.no_grad():
            self.vectors.index_copy_(0, rows, fresh.detach().to(self.vectors.dtype))
        vectors: Tensor = _Remembered.apply(fresh, rows, self)
        return vectors


class _Remembered(torch.autograd.Function):
    """The bank, as if its fresh rows had been put in by an operation that can be differentiated."""

    @staticmethod
    def forward(ctx: Any, fresh: Tensor, rows: Tensor, bank: Bank) -> Tensor:
        assert bank.vectors is not None
        ctx.save_for_backward(rows)
        ctx.kind = fresh.dtype
        return bank.vectors.detach()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        return gradient[rows].to(ctx.kind), None, None


@dataclass(frozen=True)
class BankLoss:
    """lambda L_D + (1 - lambda) L_C of a batch: L_D over all labels, L_C over the batch's pool.

    With a bank that is up to date L_D is that of ``AllLabelLoss``, and so are its gradients by the
    queries and by the pool's labels.
    """

    losses: Losses
    labels: TokenStore
    everything: AllLabels
    """Says which of all labels are a query's positives, in the pool or not."""
    bank: Bank
    precision: str
    memory_bytes: int
    """What a block of scores may take."""

    def __call__(self, model: Model, batch: Batch, seed: int) -> Tensor:
        """The loss, a scalar; differentiable once, and before the next call."""
        device = next(model.parameters()).device
        with autocast(self.precision, device):
            encoded = model.encode(batch.tokens)
        encoded = at_least_float32(encoded)
        n_queries = len(batch.queries)
        queries = encoded[:n_queries]
        share = dual_share(model, self.losses)
        total = torch.zeros((), device=device)
        if share > 0:
            total = total + share * self._dual(model, batch, queries, encoded[n_queries:])
        if "classifier" in model.heads and share < 1:
            total = total + (1 - share) * classifier_loss(model, batch, self.losses, queries)
        return total

    def _dual(self, model: Model, batch: Batch, queries: Tensor, labels: Tensor) -> Tensor:
        if self.bank.vectors is None:  # no refresh yet
            self.bank.fill(self._encode_all(model))
        rows = to_device(batch.pool.labels[: batch.pool.n_text], queries.device)
        vectors = self.bank.remember(rows, model.dual(labels))  # (L, D)
        whole = self.everything.build(batch.queries, np.random.default_rng(0))  # nothing is drawn
        return streamed_loss(
            self.losses.dual,
            self.losses.reduction,
            model.dual(queries),
            vectors,
            whole.positives,
            scale=model.log_scales[0].exp(),
            ignored=whole.ignored,
            forward=self.losses.dual_forward,
            memory_bytes=self.memory_bytes,
            precision=self.precision,
        )

    def _encode_all(self, model: Model) -> Tensor:
        was_training = model.training
        model.eval()
        vectors = encode_texts(model, self.labels, model.dual, precision=self.precision)
        model.train(was_training)
        return vectors
