"""Checkpoints: weights, optimizers and position, checksummed; the newest whole one is used.

A checkpoint does not depend on the number of ranks: the first one writes it, with the label table
and its moments in whole, and each takes its own rows of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, atomic_folder, digest, read_json, write_json
from umpteen.training.loop import Loop, Position
from umpteen.training.refresh import Refreshed

logger = logging.getLogger(__name__)

KEPT = 2
TABLE = "label_vectors"
"""The weight that ranks share out by rows."""
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
BANK = "bank.safetensors"


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: Where they live.
        data_fingerprint: What the run trains on; a checkpoint of other data is refused.
        ranks: Who trains; all of them call ``save`` and ``restore``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        data_fingerprint: str,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        self.folder = folder
        self._fingerprint = data_fingerprint
        self._ranks = ranks
        self._refresh_digests: dict[str, str] = {}
        self.last_good: Path | None = None
        """The checkpoint written or restored last."""

    def keep_refresh(self, refreshed: Refreshed, epoch: int) -> None:
        """Put a refresh on disk, so that a later resume need not make it again."""
        if self._ranks.first:
            self._refresh_digests = refreshed.save(self._refresh_folder(epoch))

    def save(self, loop: Loop) -> Path:
        """Write a checkpoint and remove all but the newest ones."""
        loop.flush()
        folder = self.folder / f"step-{loop.position.step:09d}"
        weights, moments, bank = self._weights(loop), self._moments(loop), self._bank(loop)
        if not self._ranks.first:
            self.last_good = folder
            return folder
        with atomic_folder(folder, replace=True) as temporary:
            save_file(weights, temporary / WEIGHTS)
            save_file(moments, temporary / MOMENTS)
            names = [WEIGHTS, MOMENTS]
            if bank is not None:
                save_file({"vectors": bank.contiguous()}, temporary / BANK)
                names.append(BANK)
            state = {
                "position": asdict(loop.position),
                "data": self._fingerprint,
                "refresh": self._refresh_digests,
                "digests": {name: digest(temporary / name) for name in names},
            }
            write_json(temporary / STATE, {**state, "digest": _state_digest(state)})
        self.last_good = folder
        self._forget_others(folder)
        return folder

    def restore(self, loop: Loop) -> Path:
        """Put the newest whole checkpoint into the loop.

        Returns:
            The checkpoint's folder.

        Raises:
            RunError: If there is none, it belongs to other data, or ranks find different ones.
        """
        with self._ranks.first_goes_first():
            folder = self._restore(loop)
        expected = self._ranks.json_from_first(folder.name)
        if folder.name != expected:
            raise RunError(
                f"rank {self._ranks.rank} finds the checkpoint {folder} and the first rank "
                f"{expected}; all ranks must see the same run folder"
            )
        return folder

    def _restore(self, loop: Loop) -> Path:
        damage = []
        for folder in reversed(self._all()):
            try:
                state, weights, moments, refreshed = self._read(folder)
            except RunError as error:
                logger.warning("%s; trying the checkpoint before it", error)
                damage.append(str(error))
                continue
            if state["data"] != self._fingerprint:
                raise RunError(
                    f"{folder} was made with other data or another tokenizer; "
                    "resume with the data the run was started with, or start a new run"
                )
            position = Position(**state["position"])
            loop.turn_to(position.stage)  # each stage has optimizers of its own
            if TABLE in weights:
                weights[TABLE] = self._own_rows(weights[TABLE])
            loop.model.load_state_dict(weights)
            self._restore_moments(loop, moments)
            loop.position = position
            loop.refreshed = refreshed
            if loop.bank is not None:
                self._restore_bank(loop, folder / BANK if BANK in state["digests"] else None)
            self._refresh_digests = state["refresh"]
            self.last_good = folder
            if not damage and self._ranks.first:
                self._forget_others(folder)  # a kill may have come just before it was due
            return folder
        if not damage:
            raise RunError(f"{self.folder} holds no checkpoint to continue from; start a new run")
        raise RunError(f"no checkpoint is whole, start a new run: {'; '.join(damage)}")

    def _read(
        self, folder: Path
    ) -> tuple[dict[str, Any], dict[str, Tensor], dict[str, Tensor], Refreshed | None]:
        state = read_json(folder / STATE, error=RunError)
        try:
            if state.pop("digest") != _state_digest(state):
                raise RunError(f"{folder / STATE} is damaged: its checksum is another one")
            for name, expected in state["digests"].items():
                if digest(folder / name) != expected:
                    raise RunError(f"{folder / name} is damaged: its checksum is another one")
            refresh_epoch = state["position"]["refresh_epoch"]
            refreshed = None
            if refresh_epoch >= 0:
                refreshed = Refreshed.load(self._refresh_folder(refresh_epoch), state["refresh"])
            return state, load_file(folder / WEIGHTS), load_file(folder / MOMENTS), refreshed
        except (*LOAD_ERRORS, SafetensorError) as error:
            raise RunError(f"{folder} is damaged: {error}") from error

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []

    def _refresh_folder(self, epoch: int) -> Path:
        return self.folder / f"refresh-{epoch:05d}"

    def _forget_others(self, newest: Path) -> None:
        """Remove all but the newest ones, and damaged ones from beyond the present step."""
        folders = self._all()
        place = folders.index(newest) + 1
        kept = folders[max(0, place - KEPT) : place]
        for folder in folders:
            if folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)
        in_use = set()
        for folder in kept:
            # An older one may be damaged; restoring skips it, and so can we.
            with contextlib.suppress(RunError, KeyError, TypeError):
                position = read_json(folder / STATE, error=RunError)["position"]
                in_use.add(self._refresh_folder(position["refresh_epoch"]))
        for folder in self.folder.glob("refresh-*"):
            if folder not in in_use:
                shutil.rmtree(folder, ignore_errors=True)

    # -- rows of the label table --------------------------------------------------------------

    def _own_rows(self, whole: Tensor) -> Tensor:
        own = self._ranks.shard(len(whole))
        return whole[own.start : own.stop].clone() if self._ranks.world > 1 else whole

    def _all_rows(self, own: Tensor, n_labels: int) -> Tensor | None:
        return self._ranks.rows_to_first(own, self._ranks.bounds(n_labels))

    def _weights(self, loop: Loop) -> dict[str, Tensor]:
        """Return all weights on the host; of use on the first rank alone."""
        weights = {}
        for name, value in loop.model.state_dict().items():
            found = self._all_rows(value, loop.model.n_labels) if name == TABLE else value.cpu()
            if found is not None:
                weights[name] = found.detach().contiguous()
        return weights

    def _moments(self, loop: Loop) -> dict[str, Tensor]:
        """Return the optimizers' states as flat names: ``0.12.exp_avg`` is exp_avg of parameter 12.

        Of use on the first rank alone.
        """
        flat = {}
        for place, optimizer in enumerate(loop.optimizers.all):
            table = _table_index(loop, optimizer)
            for index, state in optimizer.state_dict()["state"].items():
                for name, value in state.items():
                    tensor = value if isinstance(value, Tensor) else torch.tensor(value)
                    found: Tensor | None = tensor.detach().cpu()
                    if index == table and tensor.ndim:
                        found = self._all_rows(tensor, loop.model.n_labels)
                    if found is not None:
                        flat[f"{place}.{index}.{name}"] = found.contiguous()
        return flat

    def _bank(self, loop: Loop) -> Tensor | None:
        """Return the embedding bank of all labels, on the first rank.

        None where there is nothing.
        """
        if loop.bank is None or loop.bank.vectors is None:
            return None
        return self._all_rows(loop.bank.vectors, loop.model.n_labels)

    def _restore_bank(self, loop: Loop, file: Path | None) -> None:
        assert loop.bank is not None
        device = next(loop.model.parameters()).device
        loop.bank.vectors = None
        if file is not None:
            loop.bank.vectors = self._own_rows(load_file(file)["vectors"]).to(device)

    def _restore_moments(self, loop: Loop, flat: dict[str, Tensor]) -> None:
        for place, optimizer in enumerate(loop.optimizers.all):
            table = _table_index(loop, optimizer)
            whole = optimizer.state_dict()
            whole["state"] = {}
            for key, tensor in flat.items():
                where, index, name = key.split(".")
                if int(where) == place:
                    if int(index) == table and tensor.ndim:
                        tensor = self._own_rows(tensor)
                    counts = tensor.dtype == torch.int64 and tensor.ndim == 0
                    value = int(tensor) if counts else tensor
                    whole["state"].setdefault(int(index), {})[name] = value
            optimizer.load_state_dict(whole)
            # torch casts every state to its parameter's type; counters must stay integers.
            loaded = optimizer.state_dict()["state"]
            for index, state in whole["state"].items():
                for name, value in state.items():
                    if isinstance(value, Tensor) and not value.is_floating_point():
                        loaded[index][name] = loaded[index][name].to(value.dtype)


def _state_digest(state: dict[str, Any]) -> str:
    """Return the SHA-256 of a state, the same before it is written and after it is read."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _table_index(loop: Loop, optimizer: torch.optim.Optimizer) -> int | None:
    """Return where the label table is among an optimizer's parameters."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    places = [i for i, p in enumerate(parameters) if p is loop.model.label_vectors]
    return places[0] if places else None
