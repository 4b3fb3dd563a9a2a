"""The Encoder contract: ragged tokens in, one vector per text out; and what encoders share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.types import Ragged


class Encoder(Protocol):
    """Tokens to vectors; laws in ``tests/contracts/test_encoders.py``.

    The result for a text does not depend on the other texts of the batch (in evaluation mode, up to
    rounding). An encoder is a ``torch.nn.Module`` beside this.

    One that arranges its input on the host may have a further method ``layout``, from a ``Ragged``
    in NumPy to whatever it needs, with tensors on its device or None. Training calls it ahead of
    time, in another thread and stream, and hands the result back as ``tokens.layout``.
    """

    kind: str
    """Its name in the ENCODERS table."""
    dim: int
    """Size of the vectors."""

    def __call__(self, tokens: Ragged) -> Tensor:
        """Return ragged tokens of B texts to (B, dim) on the encoder's device.

        Offsets are NumPy; ids are NumPy or a tensor on that device, which stays there.
        """

    def row_parameters(self) -> list[torch.nn.Parameter]:
        """Return parameters of which a step touches few rows (token tables).

        They get row-wise updates.
        """

    def save(self, folder: Path) -> dict[str, Any]:
        """Write weights into a folder; return what ``load`` needs beside them, as JSON values."""

    @classmethod
    def load(cls, folder: Path, options: dict[str, Any]) -> Self:
        """Return the encoder that ``save`` wrote."""


def length_groups(lengths: NDArray[np.integer], *, waste: float = 0.15) -> Iterator[slice]:
    """Cut texts that are sorted by length into groups in which padding stays small.

    Args:
        lengths: (B,) ascending token counts.
        waste: The share of a group's cells that may be padding.

    Yields:
        Slices that cover 0 .. B in order. Each group costs one pass through the network, so a group
        is only cut when the padding saved is worth it: at most six groups.
    """
    n = len(lengths)
    stop = n
    groups: list[slice] = []
    totals = np.concatenate([[0], np.cumsum(lengths)])
    while stop > 0:
        start = stop - 1
        if len(groups) == 5:
            start = 0
        else:
            longest = int(lengths[stop - 1])
            starts = np.arange(stop)
            cells = (stop - starts) * longest
            padding = 1.0 - (totals[stop] - totals[starts]) / np.maximum(cells, 1)
            # Padding falls as the start moves right; take the longest group within the waste.
            start = int(np.argmax(padding <= waste))
        groups.append(slice(start, stop))
        stop = start
    yield from reversed(groups)


def pad(tokens: Ragged, rows: NDArray[np.integer], *, pad_id: int) -> tuple[Any, Any]:
    """Return the chosen texts as a padded matrix.

    Args:
        tokens: Ragged tokens.
        rows: (b,) which texts.
        pad_id: What to put behind the shorter ones.

    Returns:
        ids (b, T) int64, where the tokens are, and mask (b, T) bool, NumPy.
    """
    starts = tokens.offsets[rows]
    lengths = tokens.offsets[rows + 1] - starts
    columns = np.arange(int(lengths.max(initial=1)))
    mask = columns[None, :] < lengths[:, None]
    places = np.minimum(starts[:, None] + columns[None, :], max(len(tokens.ids) - 1, 0))
    if isinstance(tokens.ids, Tensor):
        device = tokens.ids.device
        found = tokens.ids[to_device(places, device)].long()
        return found.masked_fill(to_device(~mask, device), pad_id), mask
    ids = np.where(mask, np.asarray(tokens.ids)[places], pad_id).astype(np.int64)
    return ids, mask


def to_device(array: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """Return an array on a device, without waiting for the copy.

    A tensor that is there stays itself.
    """
    if isinstance(array, Tensor):
        return array.to(device, non_blocking=True)
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)
