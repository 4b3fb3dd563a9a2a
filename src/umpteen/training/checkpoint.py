"""Checkpoints: weights, optimizers and position, checksummed; the newest whole one is used."""

from __future__ import annotations

import contextlib
import logging
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from umpteen.errors import RunError
from umpteen.files import atomic_folder, digest, read_json, write_json
from umpteen.training.loop import Loop, Position
from umpteen.training.refresh import Refreshed

logger = logging.getLogger(__name__)

KEPT = 2
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
BANK = "bank.safetensors"


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: Where they live.
        data_fingerprint: What the run trains on; a checkpoint of other data is refused.
    """

    def __init__(self, folder: Path, *, data_fingerprint: str) -> None:
        self.folder = folder
        self._fingerprint = data_fingerprint
        self._refresh_digests: dict[str, str] = {}
        self.last_good: Path | None = None
        """The checkpoint written or restored last."""

    def keep_refresh(self, refreshed: Refreshed, epoch: int) -> None:
        """Put a refresh on disk, so that a later resume need not make it again."""
        self._refresh_digests = refreshed.save(self._refresh_folder(epoch))

    def save(self, loop: Loop) -> Path:
        """Write a checkpoint and remove all but the newest ones."""
        folder = self.folder / f"step-{loop.position.step:09d}"
        with atomic_folder(folder, replace=True) as temporary:
            weights = {k: v.detach().cpu().contiguous() for k, v in loop.model.state_dict().items()}
            save_file(weights, temporary / WEIGHTS)
            save_file(_moments(loop), temporary / MOMENTS)
            names = [WEIGHTS, MOMENTS]
            if loop.bank is not None and loop.bank.vectors is not None:
                save_file({"vectors": loop.bank.vectors.cpu().contiguous()}, temporary / BANK)
                names.append(BANK)
            state = {
                "position": asdict(loop.position),
                "data": self._fingerprint,
                "refresh": self._refresh_digests,
                "digests": {name: digest(temporary / name) for name in names},
            }
            write_json(temporary / STATE, state)
        self.last_good = folder
        self._forget_others(folder)
        return folder

    def exist(self) -> bool:
        """Whether there is any checkpoint, whole or not."""
        return bool(self._all())

    def restore(self, loop: Loop) -> Path:
        """Put the newest whole checkpoint into the loop.

        Returns:
            The checkpoint's folder.

        Raises:
            RunError: If there is none, or it belongs to other data.
        """
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
            loop.model.load_state_dict(weights)
            _restore_moments(loop, moments)
            loop.position = position
            loop.refreshed = refreshed
            if loop.bank is not None:
                _restore_bank(loop, folder / BANK if BANK in state["digests"] else None)
            self._refresh_digests = state["refresh"]
            self.last_good = folder
            if not damage:
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
            for name, expected in state["digests"].items():
                if digest(folder / name) != expected:
                    raise RunError(f"{folder / name} is damaged: its checksum is another one")
            refresh_epoch = state["position"]["refresh_epoch"]
            refreshed = None
            if refresh_epoch >= 0:
                refreshed = Refreshed.load(self._refresh_folder(refresh_epoch), state["refresh"])
            return state, load_file(folder / WEIGHTS), load_file(folder / MOMENTS), refreshed
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
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


def _restore_bank(loop: Loop, file: Path | None) -> None:
    assert loop.bank is not None
    device = next(loop.model.parameters()).device
    loop.bank.vectors = None if file is None else load_file(file)["vectors"].to(device)


def _moments(loop: Loop) -> dict[str, Tensor]:
    """The optimizers' states as flat names: ``0.12.exp_avg`` is state exp_avg of parameter 12."""
    flat = {}
    for place, optimizer in enumerate(loop.optimizers.all):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensor = value if isinstance(value, Tensor) else torch.tensor(value)
                flat[f"{place}.{index}.{name}"] = tensor.detach().cpu().contiguous()
    return flat


def _restore_moments(loop: Loop, flat: dict[str, Tensor]) -> None:
    for place, optimizer in enumerate(loop.optimizers.all):
        whole = optimizer.state_dict()
        whole["state"] = {}
        for key, tensor in flat.items():
            where, index, name = key.split(".")
            if int(where) == place:
                value = int(tensor) if tensor.dtype == torch.int64 and tensor.ndim == 0 else tensor
                whole["state"].setdefault(int(index), {})[name] = value
        optimizer.load_state_dict(whole)
        # torch casts every state to its parameter's type; counters must stay integers.
        loaded = optimizer.state_dict()["state"]
        for index, state in whole["state"].items():
            for name, value in state.items():
                if isinstance(value, Tensor) and not value.is_floating_point():
                    loaded[index][name] = loaded[index][name].to(value.dtype)
