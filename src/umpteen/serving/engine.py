"""What is served now: a version of the run, its queue, its label changes, and its successor."""

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
from typing import TypeVar

from umpteen.errors import NotWritten, UmpteenError
from umpteen.live.overlay import LiveLabels
from umpteen.predictor import Predictor
from umpteen.runs import RunFolder
from umpteen.serving.answering import Found, Question, answer
from umpteen.serving.batching import Batcher
from umpteen.serving.meters import Meters
from umpteen.serving.options import Options

logger = logging.getLogger("umpteen.serving")
Value = TypeVar("Value")
Stamp = tuple[object, ...]


@dataclass(frozen=True)
class Version:
    """A loaded run; requests that began with one end with it."""

    predictor: Predictor
    folder: Path
    model: str
    stamp: Stamp

    @property
    def live(self) -> LiveLabels:
        """Its labels of now."""
        assert self.predictor.live is not None
        return self.predictor.live


class Engine:
    """Answers and changes, one version at a time.

    Args:
        options: Settings of the service.
        meters: Where to count.
    """

    def __init__(self, options: Options, meters: Meters) -> None:
        self.options = options
        self.meters = meters
        self.version = load(options)
        gc.freeze()  # a look at all of it for garbage would hold up requests, again and again
        self.draining = False
        self._batcher: Batcher[Question, Found] | None = None
        self._changes = ThreadPoolExecutor(1, thread_name_prefix="changes")
        self._changing: asyncio.Lock | None = None
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to answer; called on the event loop."""
        options = self.options
        self._batcher = Batcher(
            self._answer,
            batch_size=options.batch_texts,
            wait_seconds=options.wait_seconds,
            queue_size=options.queue_texts,
        )
        self._changing = asyncio.Lock()
        if options.poll_seconds:
            self._watch = asyncio.create_task(self._look_for_versions())

    async def stop(self) -> None:
        """Finish what was accepted."""
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
        """Texts that wait for an answer."""
        return self._batcher.waiting if self._batcher is not None else 0

    async def predict(self, question: Question, *, seconds: float) -> Found:
        """The labels of some texts (see ``Batcher.submit``)."""
        assert self._batcher is not None
        return await self._batcher.submit(question, len(question.texts), seconds=seconds)

    async def change(self, kind: str, make: Callable[[LiveLabels], int]) -> tuple[int, int]:
        """Change the labels, off the event loop and one change at a time.

        Args:
            kind: What to count it as.
            make: The change; returns how many labels it touched.

        Returns:
            That number, and the revision after it.
        """
        assert self._changing is not None
        async with self._changing:  # a version is not swapped in between
            live = self.version.live
            count = await self.aside(lambda: make(live))
        self.meters.add("label_changes_total", count, kind=kind)
        self._changes.submit(_compact, live)
        return count, live.book.journal.revision

    async def remember(self, texts: list[str], labels: list[list[str]]) -> tuple[int, int]:
        """Add examples to the run's memory; how many were added, and how many there are.

        Raises:
            ConfigError: If the run keeps no memory.
            DataError: If an example cannot be added; none of them is.
        """
        assert self._changing is not None
        async with self._changing:
            predictor = self.version.predictor
            count = await self.aside(lambda: predictor.remember(texts, labels))
        self.meters.add("label_changes_total", count, kind="remember")
        return count, len(predictor.require_memory())

    async def aside(self, work: Callable[[], Value]) -> Value:
        """Do slow work off the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._changes, work)

    def _answer(self, questions: list[Question]) -> list[Found]:
        version = self.version
        self.meters.observe("batch_texts", sum(len(question.texts) for question in questions))
        return answer(version.predictor, version.model, questions)

    async def _look_for_versions(self) -> None:
        """Load the run anew when it has changed, beside the old one, then let it take over."""
        tried = self.version.stamp
        old = False
        while True:
            await asyncio.sleep(self.options.poll_seconds)
            if old:  # and nobody asks it any more
                await asyncio.to_thread(_forget)
                old = False
            try:
                now = await asyncio.to_thread(stamp_of, self.options.run)
                if now == tried:
                    continue
                tried = now
                new = await asyncio.to_thread(load, self.options)
                assert self._changing is not None
                async with self._changing:
                    self.version = new
                del new  # or it would be kept when it is old
                old = True
                self.meters.add("swaps_total", 1, outcome="done")
                logger.info("version swapped", extra={"fields": {"model": self.version.model}})
            except (UmpteenError, OSError) as error:
                # Half copied, perhaps; the old one goes on until something changes again.
                self.meters.add("swaps_total", 1, outcome="failed")
                logger.error("version not loaded", extra={"fields": {"why": str(error)}})


def load(options: Options) -> Version:
    """The run as it is now, warm: the first answer takes no longer than others.

    Raises:
        RunError: If there is no whole run.
    """
    stamp = stamp_of(options.run)
    folder = Path(options.run).resolve()
    predictor = Predictor.load(folder, device=options.device, tolerant=True)
    predictor.predict(["warm"], 1)
    return Version(predictor, folder, RunFolder(folder).model("best").name, stamp)


def stamp_of(run: str) -> Stamp:
    """What changes when there is another version: where a link leads, which model is best."""
    folder = Path(run).resolve()
    places = [folder / "models.json", folder / "index", folder / "labels.jsonl"]
    stats = []
    for place in places:
        try:
            stat = os.stat(place)
            stats.append((stat.st_ino, stat.st_mtime_ns))
        except FileNotFoundError:
            stats.append((0, 0))
    return (str(folder), *stats)


def _forget() -> None:
    """Free what is no longer used of all that was kept from the search for garbage."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _compact(live: LiveLabels) -> None:
    try:
        live.book.compact()
    except (NotWritten, UmpteenError) as error:
        logger.error("journal not compacted", extra={"fields": {"why": str(error)}})
