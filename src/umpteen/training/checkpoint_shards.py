"""Files of a checkpoint: each rank writes the tensors and rows it holds, and reads those it needs.

The layout is that of ``torch.distributed.checkpoint`` in safetensors, which its
``HuggingFaceStorageReader`` reads: the header of a file holds the row that each tensor starts at.
docs/explanation/distributed.md says why its writer is not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.errors import RunError
from umpteen.files import digest, sync

OFFSETS = "DCP_SHARDING_INFO"


def shard_name(rank: int, world: int) -> str:
    """Return the file of a rank.

    Example:
        >>> shard_name(1, 4)
        'shard-00002-of-00004.safetensors'
    """
    return f"shard-{rank + 1:05d}-of-{world:05d}.safetensors"


def own_share(tensors: Mapping[str, Tensor], by_rows: set[str], ranks: Ranks) -> dict[str, Tensor]:
    """Return what this rank writes: its rows, and an even share of what all ranks hold alike.

    Args:
        tensors: By name, the same names in the same order on every rank.
        by_rows: Names of those of which each rank holds other rows.
        ranks: Who writes.
    """
    alike = [name for name in tensors if name not in by_rows]
    total = max(1, sum(tensors[name].nbytes for name in alike))
    found = {name: tensors[name] for name in tensors if name in by_rows and len(tensors[name])}
    before = 0
    for name in alike:
        if before * ranks.world // total == ranks.rank:
            found[name] = tensors[name]
        before = min(before + tensors[name].nbytes, total - 1)
    return found


def write_shard(file: Path, tensors: Mapping[str, Tensor], starts: Mapping[str, int]) -> str:
    """Write one rank's file.

    Args:
        file: Where to.
        tensors: On the host, by name.
        starts: The first row among those of all ranks, of tensors of which it has some rows.

    Returns:
        The file's SHA-256.
    """
    offsets = {
        name: {"saved_offsets": [starts.get(name, 0), *[0] * tensor.ndim][: tensor.ndim]}
        for name, tensor in tensors.items()
    }
    header = {OFFSETS: json.dumps(offsets, sort_keys=True)}  # of several keys the order varies
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, header)
    sync(file)  # here: another machine's sync does not reach it
    return digest(file)


class ShardFiles:
    """The tensors of a checkpoint, read from the files of any number of ranks.

    Args:
        files: All of them.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._pieces: dict[str, list[tuple[int, Any]]] = {}
        for file in files:
            opened = safe_open(file, framework="pt")
            offsets = json.loads(opened.metadata()[OFFSETS])
            for name in opened.keys():  # noqa: SIM118 (no mapping)
                start = (*offsets[name]["saved_offsets"], 0)[0]
                self._pieces.setdefault(name, []).append((int(start), opened))

    def names(self, prefix: str) -> list[str]:
        """Return what follows a prefix in the names that start with it."""
        return [name.removeprefix(prefix) for name in self._pieces if name.startswith(prefix)]

    def ndim(self, name: str) -> int:
        """Return the number of dimensions of a tensor."""
        return len(self._pieces[name][0][1].get_slice(name).get_shape())

    def whole(self, name: str) -> Tensor:
        """Return a tensor with the rows of all files."""
        pieces = sorted(self._pieces[name], key=lambda piece: piece[0])
        found = [opened.get_tensor(name) for _, opened in pieces]
        return found[0] if len(found) == 1 else torch.cat(found)

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return some rows of a tensor (start to stop - 1); read no others.

        Raises:
            RunError: If the files do not hold all of them.
        """
        pieces = sorted(self._pieces[name], key=lambda piece: piece[0])
        found = []
        for first, opened in pieces:
            piece = opened.get_slice(name)
            begin, end = max(start, first), min(stop, first + piece.get_shape()[0])
            if begin < end:
                found.append(piece[begin - first : end - first])
        if start == stop:  # a rank without labels
            found = [pieces[0][1].get_slice(name)[0:0]]
        if sum(map(len, found)) != stop - start:
            raise RunError(f"the checkpoint lacks label rows of {name}; start a new run")
        return found[0] if len(found) == 1 else torch.cat(found)
