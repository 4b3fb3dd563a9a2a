"""Where the tokens of one call lie and who attends to whom, made on the host and copied at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.group_attention import Group, equal_groups, padded_group
from umpteen.compute.packing import Packed, pack, tiles
from umpteen.model.encoder import length_groups, to_device
from umpteen.types import Ragged


@dataclass(frozen=True)
class PackedLayout:
    """The arrays of one call, on the encoder's device; N tokens of M different texts."""

    ids: Tensor
    """(N,) int32 token ids."""
    places: Tensor
    """(N,) int32, how many tokens of its text come before a token."""
    texts: Tensor
    """(N,) int32, which text a token belongs to."""
    offsets: Tensor
    """(M + 1,) int32, where each text starts."""
    back: Tensor | None
    """(B,) int64, which of the M texts each of the caller's is."""
    longest: int
    tiles: dict[int, Tensor]
    """Tiles for the kernel, by size (see ``compute/packing.py``); empty without the kernel."""
    tiled: int
    """How many tokens are in tiles; they come first."""
    groups: list[Group]
    """The other texts, for torch's attention; their tokens counted from the first of them."""
    rest: Tensor
    """(R + 1,) int32, where each of the other texts starts, counted so too."""


def make_layout(tokens: Ragged, device: torch.device, *, in_tiles: bool) -> PackedLayout:
    """Arrange texts for one pass."""
    on_device = isinstance(tokens.ids, Tensor)
    # Of ids that are not here their places are packed, no two of which are the same.
    packed = pack(Ragged(np.arange(len(tokens.ids)), tokens.offsets) if on_device else tokens)
    cut, first = tiles(packed.offsets) if in_tiles else ({}, 0)
    tiled = int(packed.offsets[first])
    rest = packed.offsets[first:] - tiled
    padded = _padded_groups(rest) if device.type != "cpu" and len(rest) > 1 else []
    shapes = [group[3:] for group in padded]  # spread, gather and mask of each
    flat = [array for shape in shapes for array in shape]
    copied = copy_together([*_arrays(packed), rest, *cut.values(), *flat], device)
    ids, places, texts, offsets, back, rest_there = copied[:6]
    cuts, copied = copied[6 : 6 + len(cut)], copied[6 + len(cut) :]
    if device.type == "cpu":
        groups = equal_groups(rest) if len(rest) > 1 else []
    else:
        groups = [
            Group(own, count, longest, spread.long(), gather.long(), mask.bool())
            for (own, count, longest, *_), (spread, gather, mask) in zip(
                padded, zip(*[iter(copied)] * 3, strict=True), strict=True
            )
        ]
    return PackedLayout(
        ids=tokens.ids[ids] if on_device else ids,
        places=places,
        texts=texts,
        offsets=offsets,
        back=None if packed.back is None else back.long(),
        longest=int(packed.lengths[-1]),
        tiles=dict(zip(cut, cuts, strict=True)),
        tiled=tiled,
        groups=groups,
        rest=rest_there,
    )


def _arrays(packed: Packed) -> list[NDArray[Any]]:
    back = np.zeros(0, np.int64) if packed.back is None else packed.back
    return [packed.ids, packed.places, packed.texts, packed.offsets, back]


def _padded_groups(offsets: NDArray[Any]) -> list[Any]:
    groups = length_groups(np.diff(offsets))
    return [padded_group(offsets[group.start : group.stop + 1]) for group in groups]


def copy_together(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Copy integer arrays to int32 tensors of their shapes, in one asynchronous copy."""
    there = _side_by_side(arrays, device)
    starts = places_in_one([array.size for array in arrays])
    return [
        there[start : start + array.size].view(array.shape)
        for array, start in zip(arrays, starts[:-1], strict=True)
    ]


def places_in_one(lengths: Sequence[int]) -> list[int]:
    """Return where arrays of int32 start in one piece of memory, and where the last one stops.

    Each starts at a multiple of 128 bytes: kernels are compiled for how pointers are aligned.

    Example:
        >>> places_in_one([3, 33, 1])
        [0, 32, 96, 128]
    """
    return [0, *np.cumsum([-(-n // 32) * 32 for n in lengths]).tolist()]


def _side_by_side(arrays: Sequence[NDArray[Any]], device: torch.device) -> Tensor:
    """Copy arrays into one tensor, laid out by ``places_in_one``."""
    starts = places_in_one([array.size for array in arrays])
    flat = np.zeros(starts[-1], np.int32)
    for array, start in zip(arrays, starts[:-1], strict=True):
        flat[start : start + array.size] = array.ravel()
    return to_device(flat, device)
