"""Several small host arrays to a device in one copy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNMENT = 16
"""Bytes; where each array starts in the buffer, so that any number format may."""


def to_device_together(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Return the arrays as tensors on a device.

    Equals ``[torch.from_numpy(array).to(device) for array in arrays]``, but they share one
    buffer, which a GPU fetches from pinned memory in a single copy that the host does not wait for.
    """
    room = [-(-array.nbytes // ALIGNMENT) * ALIGNMENT for array in arrays]
    ends = list(accumulate(room))
    places = [
        slice(end - size, end - size + a.nbytes)
        for end, size, a in zip(ends, room, arrays, strict=True)
    ]
    n_bytes = ends[-1] if ends else 0
    host = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=device.type == "cuda")
    filled = host.numpy()
    for place, array in zip(places, arrays, strict=True):
        filled[place] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    there = host.to(device, non_blocking=True)
    return [
        there[place].view(_dtype(array)).view(array.shape)
        for place, array in zip(places, arrays, strict=True)
    ]


def on_stream(stream: torch.cuda.Stream | None) -> AbstractContextManager[Any]:
    """Queue work on a stream of a GPU; None changes nothing."""
    return nullcontext() if stream is None else torch.cuda.stream(stream)


def _dtype(array: NDArray[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, array.dtype)).dtype
