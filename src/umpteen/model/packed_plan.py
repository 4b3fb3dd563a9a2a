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
from umpteen.model.fixed_plan import Sizes, filled_up, places_in_one
from umpteen.types import Ragged


@dataclass(frozen=True)
class Plan:
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
    sizes: Sizes | None = None
    """Of a plan of fixed sizes: all tokens are in tiles, and N and M count what was filled up."""
    flat: Tensor | None = None
    """Of such a plan all arrays but ``back``, as ``sizes`` lays them out."""


def make_plan(tokens: Ragged, device: torch.device, *, in_tiles: bool, fixed: bool = False) -> Plan:
    """Arrange texts for one pass.

    Args:
        tokens: Ragged tokens of at least one token each. Repeats are found where ids are NumPy.
        device: Where the network is.
        in_tiles: Whether attention has its kernel; else texts are grouped by length.
        fixed: Whether to fill up to fixed sizes, where ids are NumPy and all texts fit tiles.
    """
    on_device = isinstance(tokens.ids, Tensor)
    # Of ids that are not here their places are packed, no two of which are the same.
    packed = pack(Ragged(np.arange(len(tokens.ids)), tokens.offsets) if on_device else tokens)
    cut, first = tiles(packed.offsets) if in_tiles else ({}, 0)
    if fixed and not on_device and first == len(packed.offsets) - 1:
        filled = filled_up(packed, cut)
        if filled is not None:
            return _fixed(packed, *filled, device)
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
    return Plan(
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


def _fixed(packed: Packed, sizes: Sizes, arrays: list[NDArray[Any]], device: torch.device) -> Plan:
    """A plan of fixed sizes; which text is whose is not part of them."""
    back = np.arange(len(packed.offsets) - 1) if packed.back is None else packed.back
    flat = _side_by_side([*arrays, back], device)
    stop = places_in_one(sizes.lengths)[-1]
    return plan_of(sizes, flat[:stop], flat[stop : stop + len(back)].long())


def plan_of(sizes: Sizes, flat: Tensor, back: Tensor | None) -> Plan:
    """The plan whose arrays lie in ``flat``."""
    ids, places, texts, offsets, *starts = sizes.parts(flat)
    return Plan(
        ids=ids,
        places=places,
        texts=texts,
        offsets=offsets,
        back=back,
        longest=sizes.longest,
        tiles={most: own for (most, _), own in zip(sizes.tiles, starts, strict=True)},
        tiled=sizes.tokens,
        groups=[],
        rest=flat[:0],
        sizes=sizes,
        flat=flat,
    )


def _arrays(packed: Packed) -> list[NDArray[Any]]:
    back = np.zeros(0, np.int64) if packed.back is None else packed.back
    return [packed.ids, packed.places, packed.texts, packed.offsets, back]


def _padded_groups(offsets: NDArray[Any]) -> list[Any]:
    groups = length_groups(np.diff(offsets))
    return [padded_group(offsets[group.start : group.stop + 1]) for group in groups]


def copy_together(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Integer arrays as int32 tensors of their shapes, in one copy that nobody waits for."""
    there = _side_by_side(arrays, device)
    starts = places_in_one([array.size for array in arrays])
    return [
        there[start : start + array.size].view(array.shape)
        for array, start in zip(arrays, starts[:-1], strict=True)
    ]


def _side_by_side(arrays: Sequence[NDArray[Any]], device: torch.device) -> Tensor:
    """All in one piece of memory, laid out by ``places_in_one``."""
    starts = places_in_one([array.size for array in arrays])
    flat = np.zeros(starts[-1], np.int32)
    for array, start in zip(arrays, starts[:-1], strict=True):
        flat[start : start + array.size] = array.ravel()
    return to_device(flat, device)
