"""Which tensors of a training loop are in a checkpoint, by name, and their way back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.training.checkpoint_shards import ShardFiles
from umpteen.training.loop import Loop, Position

TABLE = "label_vectors"
"""The weight that ranks share out by rows."""
MODEL, OPTIMIZER, BANK = "model.", "optimizer.", "bank.vectors"
"""What names of tensors start with, and that of the embedding bank."""


def tensors_of(loop: Loop) -> tuple[dict[str, Tensor], set[str]]:
    """Return all tensors by name, and which of them have a row for each label of this rank.

    ``optimizer.0.12.exp_avg`` is exp_avg of parameter 12 of the first optimizer.
    """
    found = {MODEL + name: value for name, value in loop.model.state_dict().items()}
    by_rows = {MODEL + TABLE} & found.keys()
    for place, optimizer in enumerate(loop.optimizers.all):
        table = _table_index(loop, optimizer)
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                key = f"{OPTIMIZER}{place}.{index}.{name}"
                found[key] = value if isinstance(value, Tensor) else torch.tensor(value)
                if index == table and found[key].ndim:
                    by_rows.add(key)
    if loop.bank is not None and loop.bank.vectors is not None:
        found[BANK] = loop.bank.vectors
        by_rows.add(BANK)
    return found, by_rows


def put_tensors_(loop: Loop, position: Position, shards: ShardFiles, ranks: Ranks) -> None:
    """Put the tensors of a checkpoint into a loop, and the position they belong to.

    Args:
        loop: Of the run.
        position: Where it goes on.
        shards: The checkpoint's files.
        ranks: Who trains; this one reads its own label rows.
    """
    loop.turn_to(position.stage)  # each stage has optimizers of its own
    own = ranks.shard(loop.model.n_labels)

    def of_labels(name: str) -> Tensor:
        return shards.rows(name, own.start, own.stop)

    weights = {
        name: of_labels(MODEL + name) if name == TABLE else shards.whole(MODEL + name)
        for name in shards.names(MODEL)
    }
    loop.model.load_state_dict(weights)
    for place, optimizer in enumerate(loop.optimizers.all):
        table, prefix = _table_index(loop, optimizer), f"{OPTIMIZER}{place}."
        states: dict[int, dict[str, Any]] = {}
        for key in shards.names(prefix):
            index, _, name = key.partition(".")
            by_rows = int(index) == table and shards.ndim(prefix + key)
            tensor = of_labels(prefix + key) if by_rows else shards.whole(prefix + key)
            counts = tensor.dtype == torch.int64 and tensor.ndim == 0
            states.setdefault(int(index), {})[name] = int(tensor) if counts else tensor
        _load_states(optimizer, states)
    loop.position = position
    if loop.bank is not None:
        stored = BANK in shards.names("")
        device = next(loop.model.parameters()).device
        loop.bank.vectors = of_labels(BANK).to(device) if stored else None


def _load_states(optimizer: torch.optim.Optimizer, states: dict[int, dict[str, Any]]) -> None:
    whole = optimizer.state_dict()
    whole["state"] = states
    optimizer.load_state_dict(whole)
    # torch casts every state to its parameter's type; counters must stay integers.
    loaded = optimizer.state_dict()["state"]
    for index, state in states.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and not value.is_floating_point():
                loaded[index][name] = loaded[index][name].to(value.dtype)


def _table_index(loop: Loop, optimizer: torch.optim.Optimizer) -> int | None:
    """Return where the label table is among an optimizer's parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    places = [i for i, p in enumerate(parameters) if p is loop.model.label_vectors]
    return places[0] if places else None
