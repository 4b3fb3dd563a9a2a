"""The loss of one batch: both heads on one shared pool, both directions. No optimizer here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from umpteen.compute.precision import at_least_float32, autocast
from umpteen.model.encoder import to_device
from umpteen.model.model import Model
from umpteen.objectives.base import Objective, Reduction
from umpteen.objectives.bidirectional import bidirectional_loss
from umpteen.training.batch import Batch
from umpteen.types import Positives


@dataclass(frozen=True)
class Losses:
    """What is minimised; see ``config.LossConfig`` for the meaning of the weights."""

    dual: Objective
    classifier: Objective
    reduction: Reduction
    classifier_reduction: Reduction
    bce_objective: Objective
    bce_reduction: Reduction
    dual_share: float = 0.5
    dual_forward: float = 0.5
    classifier_forward: float = 0.5
    bce: float = 0.0


def batch_loss(model: Model, batch: Batch, losses: Losses, *, precision: str) -> Tensor:
    """Return the loss of one batch, lambda L_D + (1 - lambda) L_C, a scalar.

    L_D = f L(queries to labels) + (1 - f) L(labels to queries), and L_C likewise on the label
    vectors, plus the added binary cross-entropy. With one head its loss counts alone.
    """
    device = next(model.parameters()).device
    with autocast(precision, device):
        encoded = model.encode(batch.tokens)
    # Heads and scores in float32 at least: at a temperature of 0.05 a cosine in bfloat16 is off by
    # up to 0.004 / 0.05 = 0.08 in the exponent.
    encoded = at_least_float32(encoded)
    # A split and not two slices: backward joins gradients, where slices would fill zeros and add.
    queries, others = encoded.tensor_split([len(batch.queries)])  # others: texts of labels
    if batch.mix is not None:
        queries = batch.mix.vectors(encoded)
    share = dual_share(model, losses)
    total = torch.zeros((), device=device)
    if "dual" in model.heads and share > 0:
        total = total + share * _dual_loss(model, batch, losses, queries, others)
    if "classifier" in model.heads and share < 1:
        texts = None if model.label_parametrization == "free" else others
        total = total + (1 - share) * classifier_loss(model, batch, losses, queries, texts)
    return total


def dual_share(model: Model, losses: Losses) -> float:
    """Return Lambda for this model: with one head its loss counts alone."""
    return losses.dual_share if len(model.heads) == 2 else float("dual" in model.heads)


def _dual_loss(
    model: Model, batch: Batch, losses: Losses, queries: Tensor, labels: Tensor
) -> Tensor:
    pool = batch.pool.with_text
    if batch.near is not None:
        labels = labels[: len(pool.labels)]  # after them come texts of neighbours
    scores = model.dual_scores(model.dual(queries), model.dual(labels))  # (B, n_text)
    return _bidirectional(
        losses.dual, losses.reduction, losses.dual_forward, scores, pool.positives, pool.ignored
    )


def classifier_loss(
    model: Model, batch: Batch, losses: Losses, queries: Tensor, texts: Tensor | None = None
) -> Tensor:
    """Return L_C of encoded queries (B, encoder.dim) on the batch's pool.

    With the added cross-entropy.

    Where label vectors have a part from texts, these come encoded: (C, encoder.dim) those of the
    pool's labels, then those of further neighbours in the graph.
    """
    pool = batch.pool
    rows = to_device(pool.labels, queries.device)
    labels = model.label_rows(rows)  # (C, dim)
    if texts is not None:
        near = None if batch.near is None else texts[to_device(batch.near, queries.device)]
        labels = labels + model.text_part(rows, texts[: len(rows)], near)
    scores = model.classifier_scores(model.classifier(queries), labels)  # (B, C)
    forward = losses.classifier_forward
    reduction = losses.classifier_reduction
    loss = _bidirectional(
        losses.classifier, reduction, forward, scores, pool.positives, pool.ignored
    )
    if losses.bce:
        bce = _bidirectional(
            losses.bce_objective, losses.bce_reduction, 1.0, scores, pool.positives, pool.ignored
        )
        loss = loss + losses.bce * bce
    return loss


def _bidirectional(
    objective: Objective,
    reduction: Reduction,
    forward: float,
    scores: Tensor,
    positives: Positives,
    ignored: Any,
) -> Tensor:
    device = scores.device
    if len(ignored):
        pairs = to_device(ignored, device)
        nothing = torch.full((), float("-inf"), dtype=scores.dtype, device=device)
        scores = scores.index_put((pairs[:, 0], pairs[:, 1]), nothing)
    placed = Positives(
        to_device(positives.rows, device),
        to_device(positives.cols, device),
        to_device(positives.targets, device).to(scores.dtype),
    )
    return bidirectional_loss(objective, reduction, forward, scores, placed)
