"""The served models: load, activate, roll back, unload, and follow changes of their folders."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError, NotWritten, RunError, UmpteenError
from umpteen.serving.control import Control, Wanted
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.options import NAME, Options, name_runs
from umpteen.serving.served_model import ServedModel, Stamp, load_served_model, stamp_of
from umpteen.store.carry import carry_changes

logger = logging.getLogger("umpteen.serving")
FOLLOW_SECONDS = 60.0
"""How long a change waits for the other workers to follow."""
RETRY_SECONDS = 30.0
"""After which a version that could not be loaded is tried again, also without a change."""


class ServedModels:
    """The versions of one worker, by name.

    A version is replaced in one assignment, between two batches: requests that were accepted
    before finish with the old one.
    """

    def __init__(self, options: Options, metrics: ServiceMetrics) -> None:
        self._options, self._metrics = options, metrics
        runs = name_runs(options.runs)
        self.control = Control(options.shared, Wanted(runs, next(iter(runs))))
        wanted = self.control.wanted
        self._versions = {name: self._load(name, run) for name, run in wanted.runs.items()}
        self._active, self._previous = wanted.active, wanted.previous
        self._tried: dict[str, Stamp] = {name: v.stamp for name, v in self._versions.items()}
        self._retry_at: dict[str, float] = {}
        self._swapping = asyncio.Lock()
        self._garbage = False
        self.checked = time.monotonic()
        """When the folders were last looked at."""
        self.failures = 0
        """Loads that failed since the last one that did not."""
        gc.freeze()  # a garbage collection of the whole model would delay requests
        self.control.acknowledge(wanted.generation)

    @property
    def active(self) -> ServedModel:
        """The version that requests without a model get."""
        return self._versions[self._active]

    def get(self, name: str | None) -> ServedModel | None:
        """Return a version by name, the active one for None; None if there is none."""
        return self.active if name is None else self._versions.get(name)

    def listing(self) -> list[dict[str, Any]]:
        """Return what is served, as JSON values, and what could be loaded."""
        served = [
            {
                "name": version.name,
                "run": version.folder.name,
                "model": version.model,
                "state": "active" if version.name == self._active else "loaded",
                "previous": version.name == self._previous,
                "labels": version.n_labels,
                "revision": version.store.revision,
                "loaded": version.loaded,
                "problem": version.problem(),
            }
            for version in list(self._versions.values())
        ]
        names = {version["name"] for version in served}
        return served + [
            {"name": name, "run": name, "state": "available"}
            for name in self._available()
            if name not in names
        ]

    async def load(self, name: str) -> None:
        """Load a run of the folder of runs, in all workers; it gets requests that name it.

        Raises:
            ConfigError: If there is no such run.
            RunError: If it is not complete.
        """
        if name in self._versions:
            return
        if name not in self._available():
            where = "start the service with --runs FOLDER" if not self._options.folder else (
                "it is no run in the folder of --runs")  # fmt: skip
            raise ConfigError(f"there is no model {name[:80]!r} to load; {where}")
        run = str(Path(str(self._options.folder)) / name)

        def change(wanted: Wanted) -> dict[str, object]:
            return {"runs": {**wanted.runs, name: run}}

        version = await asyncio.to_thread(self._load, name, run)
        await self._change(change, {name: version})

    async def activate(self, name: str, *, carry: bool = False, who: str = "") -> None:
        """Give requests that name no model to this one.

        Args:
            name: A loaded model.
            carry: Apply the changes of labels and examples of the active model to it first.
            who: For the audit trail.

        Raises:
            ConfigError: If it is not loaded.
        """
        version = self._require(name)
        if name == self._active:
            return
        if carry:
            old = self.active.store
            await asyncio.to_thread(carry_changes, old, version.store, who=who)
            await asyncio.to_thread(version.predictor.snapshot)
        await self._change(lambda wanted: {"active": name, "previous": wanted.active})

    async def roll_back(self) -> None:
        """Activate what was active before.

        Raises:
            ConfigError: If nothing was, or it is no longer loaded.
        """
        if self._previous is None:
            raise ConfigError("no other model has been active; nothing to roll back to")
        await self.activate(self._previous)

    async def unload(self, name: str) -> None:
        """Free a model that is not active.

        Raises:
            ConfigError: If it is active, or not loaded.
        """
        self._require(name)
        if name == self._active:
            raise ConfigError(f"the model {name!r} is active; activate another one first")

        def change(wanted: Wanted) -> dict[str, object]:
            previous = None if wanted.previous == name else wanted.previous
            runs = {key: run for key, run in wanted.runs.items() if key != name}
            return {"runs": runs, "previous": previous}

        await self._change(change)

    async def watch(self, seconds: float) -> None:
        """Follow other workers and the folders; ends only when it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self.checked = time.monotonic()
            if self._garbage:  # no batch uses the old version any more
                self._garbage = False
                await asyncio.to_thread(_collect)
            try:
                await self._follow({})
                for version in list(self._versions.values()):
                    await self._refresh(version)
            except Exception as error:  # the old version serves on; the next change is tried
                self._report_failure(error)

    async def _refresh(self, version: ServedModel) -> None:
        """Load a version again if its folder has changed."""
        name, now = version.name, await asyncio.to_thread(stamp_of, version.run)
        due = self._retry_at.get(name, math.inf) <= time.monotonic()
        if now == self._tried.get(name, version.stamp) and not due:
            return
        self._tried[name], self._retry_at[name] = now, time.monotonic() + RETRY_SECONDS
        new = await asyncio.to_thread(self._load, name, version.run)
        self._retry_at.pop(name, None)
        async with self._swapping:
            if name in self._versions:
                self._put({name: new})

    async def _change(
        self,
        change: Callable[[Wanted], dict[str, object]],
        loaded: dict[str, ServedModel] | None = None,
    ) -> None:
        """Change what all workers serve, and wait until they do."""

        def write() -> None:
            try:
                with self.control.change() as wanted:
                    self.control.write(**change(wanted))
            except OSError as error:
                raise NotWritten(
                    "the folder that all workers share cannot be written "
                    f"({error.strerror}); the models stay as they are, restart the service"
                ) from error

        await asyncio.to_thread(write)
        await self._follow(loaded or {})
        end = time.monotonic() + FOLLOW_SECONDS
        while self.control.behind() and time.monotonic() < end:
            await asyncio.sleep(0.05)

    async def _follow(self, loaded: dict[str, ServedModel]) -> None:
        """Serve what is wanted."""
        async with self._swapping:
            wanted = await asyncio.to_thread(self.control.read)
            for name, run in wanted.runs.items():
                if name not in self._versions and name not in loaded:
                    loaded[name] = await asyncio.to_thread(self._load, name, run)
            gone = set(self._versions) - set(wanted.runs)
            if loaded:
                self._put(loaded)
            if (wanted.active, wanted.previous) != (self._active, self._previous):
                if wanted.active != self._active:
                    logger.info("model activated", extra={"fields": {"model": wanted.active}})
                self._active, self._previous = wanted.active, wanted.previous
            for name in gone:
                del self._versions[name]
                self._tried.pop(name, None)
                self._retry_at.pop(name, None)
                self._garbage = True
            self.control.acknowledge(wanted.generation)

    def _put(self, loaded: dict[str, ServedModel]) -> None:
        self._garbage = self._garbage or any(name in self._versions for name in loaded)
        self._versions.update(loaded)
        self.failures = 0
        for version in loaded.values():
            self._tried[version.name] = version.stamp
            self._metrics.add("reloads_total", 1, outcome="done")
            fields = {"name": version.name, "model": version.model}
            logger.info("version loaded", extra={"fields": fields})

    def _load(self, name: str, run: str) -> ServedModel:
        return load_served_model(
            name, run, self._options.device, self._options.backend, self._options.budget_ms
        )

    def _require(self, name: str) -> ServedModel:
        version = self._versions.get(name)
        if version is None:
            known = ", ".join(self._versions)
            raise ConfigError(f"no model {name[:80]!r} is loaded; loaded are: {known}")
        return version

    def _available(self) -> list[str]:
        """Return the names of the runs that may be loaded."""
        folder = self._options.folder
        if folder is None:
            return []
        try:
            entries = sorted(os.listdir(folder))
        except OSError as error:
            raise RunError(f"the folder of runs cannot be read: {error.strerror}") from error
        path = Path(folder)
        return [
            name for name in entries
            if NAME.fullmatch(name) and (path / name / "config.json").is_file()
        ]  # fmt: skip

    def _report_failure(self, error: Exception) -> None:
        self.failures += 1
        self._metrics.add("reloads_total", 1, outcome="failed")
        expected = isinstance(error, UmpteenError | OSError)  # a folder that is still copied, say
        fields = {"why": str(error) or type(error).__name__}
        logger.error(
            "version not loaded",
            extra={"fields": fields},
            exc_info=None if expected else (type(error), error, error.__traceback__),
        )


def _collect() -> None:
    """Free the old version, which was exempt from garbage collection."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
