"""The served run: the loaded version, its queue, its changes, and the watcher for new versions."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from umpteen.errors import UmpteenError
from umpteen.predictor import Predictor
from umpteen.runs import RunFolder
from umpteen.serving.answering import Found, Question, answer
from umpteen.serving.batching import Batcher
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.options import Options
from umpteen.store import ChangeStore

logger = logging.getLogger("umpteen.serving")
Stamp = tuple[object, ...]
WHO = "service"
"""Who made a change, in the audit trail of the store."""


@dataclass(frozen=True)
class Version:
    """A loaded run; a batch uses one version from its first to its last text."""

    predictor: Predictor
    folder: Path
    model: str
    stamp: Stamp

    @property
    def store(self) -> ChangeStore:
        """The run's store of changes."""
        return self.predictor.require_store()

    def problem(self) -> str | None:
        """Return why this version should get no traffic; None while all is well."""
        if not RunFolder(self.folder).config.is_file():
            return "the run folder is gone"
        damage = self.store.damage
        if damage is None:
            return None
        return f"the store of changes {damage.detail}; repair it with: umpteen repair"


class Engine:
    """Serve predictions and changes, one version at a time.

    Args:
        options: Settings of the service.
        metrics: Counters and histograms.
    """

    def __init__(self, options: Options, metrics: ServiceMetrics) -> None:
        self.options = options
        self.metrics = metrics
        self.version = load(options)
        gc.freeze()  # a garbage collection of the whole model would delay requests
        self.draining = False
        self._batcher: Batcher[Question, Found] | None = None
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="changes")
        self._changing: asyncio.Lock | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the queue and the watcher; called on the event loop."""
        options = self.options
        self._batcher = Batcher(
            self._answer,
            batch_size=options.batch_texts,
            wait_seconds=options.wait_seconds,
            queue_size=options.queue_texts,
            on_failure=self._report_batch,
        )
        self._changing = asyncio.Lock()
        if options.poll_seconds:
            self._watch = asyncio.create_task(self._watch_run())

    async def stop(self) -> None:
        """Finish accepted requests, then stop."""
        self.draining = True
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        if self._batcher is not None:
            await self._batcher.close()
        self._changes.shutdown(wait=True)
        gc.unfreeze()

    @property
    def waiting(self) -> int:
        """Number of texts in the queue."""
        return self._batcher.waiting if self._batcher is not None else 0

    async def predict(self, question: Question, *, seconds: float) -> Found:
        """Return the labels of some texts (see ``Batcher.submit``)."""
        assert self._batcher is not None
        return await self._batcher.submit(question, len(question.texts), seconds=seconds)

    async def change(self, kind: str, make: Callable[[ChangeStore], int]) -> tuple[int, int]:
        """Make a change in the change thread, one at a time.

        Args:
            kind: The label of the counter.
            make: Makes the change; returns the number of changed labels or examples.

        Returns:
            That number, and the revision of the store afterwards.

        Raises:
            DataError: If the change is refused; nothing has changed then.
            NotWritten: If it cannot be written.
            StoreDamaged: If the store is damaged.
        """

        def work() -> tuple[int, int]:
            count = make(version.store)
            revision = version.store.revision
            # New texts are encoded here; a prediction then finds them done.
            version.predictor.snapshot()
            return count, revision

        assert self._changing is not None
        async with self._changing:  # no version is swapped in the middle of a change
            version = self.version
            loop = asyncio.get_running_loop()
            count, revision = await loop.run_in_executor(self._changes, work)
        self.metrics.add("changes_total", count, kind=kind)
        return count, revision

    async def add_examples(self, texts: list[str], labels: list[list[str]]) -> tuple[int, int]:
        """Store labelled texts.

        Args:
            texts: The texts.
            labels: Label ids of each.

        Returns:
            How many were new or got other labels, and the revision of the store afterwards.

        Raises:
            DataError: If an example cannot be stored; none is stored then.
        """
        return await self.change(
            "add_examples", lambda store: store.add_examples(texts, labels, who=WHO)
        )

    def _answer(self, questions: list[Question]) -> list[Found]:
        version = self.version
        self.metrics.observe("batch_texts", sum(len(question.texts) for question in questions))
        return answer(version.predictor, version.model, questions)

    def _report_batch(self, error: Exception) -> None:
        self.metrics.add("batch_failures_total")
        fields = {"why": type(error).__name__}  # the message may hold a text
        logger.warning("batch failed, requests are repeated alone", extra={"fields": fields})

    async def _watch_run(self) -> None:
        """Load each new version while the old one serves; ends only when it is cancelled."""
        tried = self.version.stamp
        replaced = False
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            if replaced:  # no batch uses the old version any more
                await asyncio.to_thread(_collect)
                replaced = False
            try:
                now = await asyncio.to_thread(stamp_of, self.options.run)
                if now == tried:
                    continue
                tried = now
                await self._swap()
                replaced = True
            except Exception as error:  # the old version serves on; the next change is tried
                self._report_failure(error)

    async def _swap(self) -> None:
        new = await asyncio.to_thread(load, self.options)
        assert self._changing is not None
        async with self._changing:
            self.version = new
        self.metrics.add("reloads_total", 1, outcome="done")
        logger.info("version swapped", extra={"fields": {"model": new.model}})

    def _report_failure(self, error: Exception) -> None:
        self.metrics.add("reloads_total", 1, outcome="failed")
        expected = isinstance(error, UmpteenError | OSError)  # a folder that is still copied, say
        fields = {"why": str(error) or type(error).__name__}
        logger.error(
            "version not loaded",
            extra={"fields": fields},
            exc_info=None if expected else (type(error), error, error.__traceback__),
        )


def load(options: Options) -> Version:
    """Load the run and predict once, so that the first request takes no longer than others.

    Raises:
        RunError: If the run is not complete.
    """
    stamp = stamp_of(options.run)
    folder = Path(options.run).resolve()
    predictor = Predictor.load(folder, device=options.device, tolerant=True)
    predictor.predict(["warm"], 1)
    return Version(predictor, folder, RunFolder(folder).model("best").name, stamp)


def stamp_of(run: str) -> Stamp:
    """Return a value that differs when the run has a new model, index or ensemble, or moved."""
    folder = Path(run).resolve()
    files = ("models.json", "index", "labels.jsonl", "ensemble/ensemble.json")
    stats = []
    for name in files:
        try:
            stat = os.stat(folder / name)
            stats.append((stat.st_ino, stat.st_mtime_ns))
        except (FileNotFoundError, NotADirectoryError):
            stats.append((0, 0))
    return (str(folder), *stats)


def _collect() -> None:
    """Free the old version, which was exempt from garbage collection."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
