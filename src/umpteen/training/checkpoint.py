"""Checkpoints: weights, optimizers and position, checksummed; the newest whole one is used.

Each rank writes a file of what it holds, and reads what it needs from the files of any number of
ranks. On several ranks a file is written while training goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, atomic_folder, digest, read_json, write_json
from umpteen.training.checkpoint_shards import ShardFiles, own_share, shard_name, write_shard
from umpteen.training.checkpoint_tensors import put_tensors_, tensors_of
from umpteen.training.loop import Loop, Position
from umpteen.training.refresh import Refreshed

logger = logging.getLogger(__name__)

KEPT = 2
STATE = "state.json"


@dataclass
class _Writing:
    """A checkpoint that is being written."""

    folder: Path
    temporary: Path
    state: dict[str, Any]
    digest: Future[str]
    """Of this rank's file, when it is written."""
    place: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """On the first rank, renames the folder when it is left."""


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
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._writing: _Writing | None = None
        self.last_good: Path | None = None
        """The checkpoint written or restored last."""

    @property
    def writing(self) -> bool:
        """Whether this rank's file is still being written."""
        return self._writing is not None and not self._writing.digest.done()

    def keep_refresh(self, refreshed: Refreshed, epoch: int) -> None:
        """Put a refresh on disk, so that a later resume need not make it again."""
        self.finish()  # or it would remove this refresh, which no checkpoint names yet
        if self._ranks.first:
            self._refresh_digests = refreshed.save(self._refresh_folder(epoch))

    def save(self, loop: Loop, *, wait: bool = True) -> Path:
        """Write a checkpoint and remove all but the newest ones.

        Args:
            loop: What is saved, as it is now.
            wait: Whether to return when it is written; on several ranks False returns as soon as
                the tensors are copied, and the checkpoint counts from ``finish`` on.

        Returns:
            Its folder.
        """
        self.finish()
        loop.flush()
        folder = self.folder / f"step-{loop.position.step:09d}"
        ranks, place = self._ranks, contextlib.ExitStack()
        made = place.enter_context(atomic_folder(folder, replace=True)) if ranks.first else folder
        temporary = self._seen(self.folder / ranks.json_from_first(made.name))
        tensors, by_rows = tensors_of(loop)
        start, copy = ranks.shard(loop.model.n_labels).start, not wait and ranks.exchanges
        own = {
            name: tensor.detach().to("cpu", copy=copy)
            for name, tensor in own_share(tensors, by_rows, ranks).items()
        }
        file = temporary / shard_name(ranks.rank, ranks.world)
        state = {
            "position": asdict(loop.position),
            "data": self._fingerprint,
            "refresh": self._refresh_digests,
        }
        job = self._writer.submit(write_shard, file, own, dict.fromkeys(by_rows, start))
        self._writing = _Writing(folder, temporary, state, job, place)
        if not copy:
            self.finish()
        return folder

    def finish(self) -> None:
        """Wait until the checkpoint under way is written on all ranks; it then counts."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        with writing.place:
            error = writing.digest.exception()
            if any(self._ranks.highest(error is not None)):
                raise error or RunError(f"another rank could not write {writing.folder}")
            digests = self._ranks.json_of_all(writing.digest.result())
            if self._ranks.first:
                names = [shard_name(rank, len(digests)) for rank in range(len(digests))]
                state = {**writing.state, "digests": dict(zip(names, digests, strict=True))}
                write_json(writing.temporary / STATE, {**state, "digest": _state_digest(state)})
        self.last_good = writing.folder
        if self._ranks.first:
            self._forget_others(writing.folder)

    def restore(self, loop: Loop) -> Path:
        """Put the newest whole checkpoint into the loop.

        Returns:
            The checkpoint's folder.

        Raises:
            RunError: If there is none, or it belongs to other data.
        """
        damage: list[str] = []
        for name in reversed(self._ranks.json_from_first([each.name for each in self._all()])):
            folder, found, error = self.folder / name, None, ""
            try:
                found = self._read(folder)
            except RunError as why:
                error = str(why)
            # Each rank looks at some of the files; one that is damaged is so for all.
            errors = [each for each in dict.fromkeys(self._ranks.json_of_all(error)) if each]
            if errors or found is None:
                logger.warning("%s; trying the checkpoint before it", errors[0])
                damage += errors
                continue
            state, shards, refreshed = found
            if state["data"] != self._fingerprint:
                raise RunError(
                    f"{folder} was made with other data or another tokenizer; "
                    "resume with the data the run was started with, or start a new run"
                )
            put_tensors_(loop, Position(**state["position"]), shards, self._ranks)
            loop.refreshed = refreshed
            self._refresh_digests = state["refresh"]
            self.last_good = folder
            if not damage and self._ranks.first:
                self._forget_others(folder)  # a kill may have come just before it was due
            return folder
        if not damage:
            raise RunError(f"{self.folder} holds no checkpoint to continue from; start a new run")
        raise RunError(f"no checkpoint is whole, start a new run: {'; '.join(damage)}")

    def _read(self, folder: Path) -> tuple[dict[str, Any], ShardFiles, Refreshed | None]:
        """Read a checkpoint, with the checksums of this rank's share of its files."""
        ranks, state = self._ranks, read_json(self._seen(folder) / STATE, error=RunError)
        try:
            if state.pop("digest") != _state_digest(state):
                raise RunError(f"{folder / STATE} is damaged: its checksum is another one")
            for name in list(state["digests"])[ranks.rank :: ranks.world]:
                if digest(folder / name) != state["digests"][name]:
                    raise RunError(f"{folder / name} is damaged: its checksum is another one")
            refresh_epoch = state["position"]["refresh_epoch"]
            refreshed = None
            if refresh_epoch >= 0:
                refreshed = Refreshed.load(self._refresh_folder(refresh_epoch), state["refresh"])
            return state, ShardFiles([folder / name for name in state["digests"]]), refreshed
        except (*LOAD_ERRORS, SafetensorError) as error:
            raise RunError(f"{folder} is damaged: {error}") from error

    def _seen(self, folder: Path) -> Path:
        """Return a folder that the first rank sees.

        Raises:
            RunError: If this rank does not.
        """
        if not folder.is_dir():
            raise RunError(
                f"rank {self._ranks.rank} does not find {folder}, which the first rank does; all "
                "ranks must see the same run folder"
            )
        return folder

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


def _state_digest(state: dict[str, Any]) -> str:
    """Return the SHA-256 of a state, the same before it is written and after it is read."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()
