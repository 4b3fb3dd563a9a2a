"""Gradients added up over ranks, dense ones in few large pieces and sparse ones as rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks

PIECE = 1 << 24
"""Numbers that travel at once; fewer calls for small weights, and no second copy of large ones."""
NONE, DENSE, SPARSE = 0, 1, 2


def sum_gradients_(parameters: Iterable[Tensor], ranks: Ranks) -> None:
    """Put the sum over ranks in the place of each parameter's gradient.

    A rank without a gradient counts as zero; a parameter without one on any rank stays so. Sparse
    gradients stay sparse, with the rows that any rank has, so that row-wise optimizers see what
    they would on one rank.
    """
    if not ranks.exchanges:
        return
    parameters = list(parameters)
    kinds = ranks.highest(*(_kind(parameter) for parameter in parameters))
    dense: dict[torch.dtype, list[Tensor]] = {}
    for parameter, kind in zip(parameters, kinds, strict=True):
        if kind == SPARSE:
            parameter.grad = _sum_rows(parameter, ranks)
        elif kind == DENSE:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dense.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for gradients in dense.values():
        for piece in _pieces(gradients):
            _sum_dense_(piece, ranks)


def _kind(parameter: Tensor) -> int:
    if parameter.grad is None:
        return NONE
    return SPARSE if parameter.grad.is_sparse else DENSE


def _pieces(gradients: list[Tensor]) -> Iterable[list[Tensor]]:
    piece: list[Tensor] = []
    for gradient in gradients:
        if piece and sum(one.numel() for one in piece) + gradient.numel() > PIECE:
            yield piece
            piece = []
        piece.append(gradient)
    yield piece


def _sum_dense_(gradients: list[Tensor], ranks: Ranks) -> None:
    if len(gradients) == 1 and gradients[0].is_contiguous():
        ranks.sum_(gradients[0])
        return
    flat = ranks.sum_(torch.cat([gradient.reshape(-1) for gradient in gradients]))
    parts = flat.split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def _sum_rows(parameter: Tensor, ranks: Ranks) -> Tensor:
    """Return the sum of sparse gradients (one sparse dimension).

    As one of the rows of all ranks.
    """
    if parameter.grad is None:
        rows = torch.empty(0, dtype=torch.int64, device=parameter.device)
        values = parameter.new_empty((0, *parameter.shape[1:]))
    else:
        # On a GPU the host would have to wait for the number of distinct rows.
        gradient = parameter.grad if parameter.grad.is_cuda else parameter.grad.coalesce()
        rows, values = gradient._indices()[0], gradient._values()
    counts = ranks.stack(torch.tensor(len(rows))).numpy()
    bounds = np.concatenate([[0], np.cumsum(counts)])
    rows = ranks.concatenate(rows, bounds)
    values = ranks.concatenate(values, bounds)
    total = torch.sparse_coo_tensor(
        rows.unsqueeze(0), values, parameter.shape, check_invariants=False
    )
    return total if total.is_cuda else total.coalesce()
