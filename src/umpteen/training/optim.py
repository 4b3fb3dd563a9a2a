"""Parameter groups, their learning rates, and the schedule."""

from __future__ import annotations

import math

import torch
from torch import nn

from umpteen.compute.streaming.label_products import ApplyBlock, BlockGradient
from umpteen.model.model import Model
from umpteen.training.row_adamw import RowAdamW
from umpteen.training.row_optimizer import ROWS_AT_ONCE
from umpteen.training.row_sgd import RowSGD


class Optimizers:
    """AdamW for dense weights and row-wise AdamW for tables, under one schedule.

    Label vectors may have SGD instead.

    Weights that take no gradient (a frozen encoder's) are left out.

    Args:
        model: The model.
        lr_encoder: Learning rate of the encoder (and its token table).
        lr_heads: Of the heads and temperatures.
        lr_labels: Of the label vectors.
        weight_decay: On everything but biases, norms and temperatures.
        label_optimizer: ``adamw``, ``adamw-dense`` or ``sgd`` for the label vectors.
        label_weight_decay: On the label vectors, where it differs.
        batch_size: Queries per batch, which ``sgd`` multiplies the gradient of their mean with.
        label_moments: Of the label vectors' optimizer, ``fp32`` or ``int8``.
        seed: Decides how label vectors and moments are rounded.
        first_label: The first label of this rank.
    """

    def __init__(
        self,
        model: Model,
        *,
        lr_encoder: float,
        lr_heads: float,
        lr_labels: float,
        weight_decay: float,
        label_optimizer: str = "adamw",
        label_weight_decay: float | None = None,
        batch_size: int = 1,
        label_moments: str = "fp32",
        seed: int = 0,
        first_label: int = 0,
    ) -> None:
        tables = {id(p) for p in model.row_parameters()}
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if id(parameter) in tables or not parameter.requires_grad:
                continue
            lr = lr_encoder if name.startswith("encoder.") else lr_heads
            decay = weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((lr, decay), []).append(parameter)
        dense = [{"params": ps, "lr": lr, "weight_decay": wd} for (lr, wd), ps in groups.items()]
        self.labels, self._all_rows = model.label_vectors, label_optimizer == "adamw-dense"
        # One pass over each weight instead of a dozen, on a CPU as well.
        self.dense = torch.optim.AdamW(dense, fused=True) if dense else None
        label_decay = weight_decay if label_weight_decay is None else label_weight_decay
        labels = {
            "lr": lr_labels,
            "weight_decay": label_decay,
            "moments": label_moments,
            "unique_rows": True,  # a pool names each label once
            "seed": seed,
            "first_row": first_label,
        }
        # Token weights are scalars around 0 in the exponent; decay would pull them to 1.
        rows = [
            {"params": [p], "lr": lr_encoder, "weight_decay": weight_decay * (p.shape[1] > 1)}
            if p is not model.label_vectors
            else {"params": [p], **labels}
            for p in model.row_parameters()
            if p.requires_grad and not (label_optimizer == "sgd" and p is model.label_vectors)
        ]
        self.rows = RowAdamW(rows) if rows else None
        self.sgd = None
        if label_optimizer == "sgd" and self.labels is not None and self.labels.requires_grad:
            self.sgd = RowSGD(
                [self.labels],
                lr=lr_labels,
                weight_decay=label_decay,
                scale=batch_size,
                unique_rows=True,
            )
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["base_lr"] = group["lr"]

    @property
    def all(self) -> list[torch.optim.Optimizer]:
        """The optimizers that have something to train."""
        three = (self.dense, self.rows, self.sgd)
        return [optimizer for optimizer in three if optimizer is not None]

    def set_rates(self, factor: float) -> None:
        """Make every learning rate ``factor`` times what it was set to."""
        for optimizer in self.all:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * factor

    def update_labels(self) -> ApplyBlock:
        """Begin a step of the label vectors whose gradient comes in blocks, at the present rate.

        Equals ``step`` with a gradient of all labels. It is never clipped, as tables are not.
        """
        assert self.labels is not None
        optimizer = self.rows if self.sgd is None else self.sgd
        assert optimizer is not None
        return step_in_blocks(optimizer, self.labels)

    def step(self, factor: float, *, clip_norm: float) -> None:
        """Update every weight at ``factor`` times its learning rate, then drop the gradients."""
        if clip_norm and self.dense is not None:
            dense = [p for group in self.dense.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(dense, clip_norm)
        self.set_rates(factor)
        gradient = None if self.labels is None else self.labels.grad
        if self._all_rows and self.labels is not None and gradient is not None:
            self.labels.grad = gradient.to_dense()  # momentum moves the rows without a gradient
        for optimizer in self.all:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


def step_in_blocks(optimizer: RowAdamW | RowSGD, table: nn.Parameter) -> ApplyBlock:
    """Begin a table's next step, whose gradient comes in blocks; each updates its rows at once."""
    optimizer.next_step(table)
    kind = torch.promote_types(table.dtype, torch.float32)

    def apply(block: slice, gradient: BlockGradient) -> None:
        for start in range(block.start, block.stop, ROWS_AT_ONCE):
            stop = min(start + ROWS_AT_ONCE, block.stop)
            some = slice(start - block.start, stop - block.start)
            values = BlockGradient(gradient.slopes[some], gradient.queries).dense(kind)
            optimizer.update(table, torch.arange(start, stop, device=table.device), values)

    return apply


def schedule(progress: float, warmup: float, fall: str = "cosine") -> float:
    """Return the learning rate's factor at a share of the run: linear rise, then a fall to zero.

    Args:
        progress: The share of the run.
        warmup: The share at which the factor is one.
        fall: ``cosine`` or ``linear``.

    Returns:
        In [0, 1].

    Example:
        >>> schedule(0.05, 0.1), schedule(0.1, 0.1), round(schedule(0.55, 0.1), 6)
        (0.5, 1.0, 0.5)
        >>> round(schedule(0.775, 0.1, "linear"), 6), round(schedule(0.775, 0.1), 6)
        (0.25, 0.146447)
    """
    if progress < warmup:
        return progress / warmup
    share = min(1.0, (progress - warmup) / max(1e-12, 1.0 - warmup))
    return 1.0 - share if fall == "linear" else 0.5 * (1.0 + math.cos(math.pi * share))
