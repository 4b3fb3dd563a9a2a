"""The engine by itself: what it keeps in memory, and what it lets go."""

import asyncio
import gc
import os
import time
import weakref

import pytest

pytest.importorskip("fastapi")

from umpteen.serving.engine import Engine
from umpteen.serving.meters import Meters
from umpteen.serving.options import Options


def test_a_version_that_was_replaced_is_freed(run, tmp_path):
    link, fresh = tmp_path / "current", tmp_path / "fresh"
    link.symlink_to(run)

    async def play():
        engine = Engine(Options(run=str(link), device="cpu", poll_seconds=0.02), Meters())
        assert gc.get_freeze_count() > 0  # labels are not searched for garbage
        await engine.start()
        swapped = []
        for name in ("a", "b"):
            old = weakref.ref(engine.version.predictor)
            copy = tmp_path / name
            copy.mkdir()
            for part in run.iterdir():
                (copy / part.name).symlink_to(part)
            fresh.symlink_to(copy)
            os.replace(fresh, link)
            end = time.monotonic() + 180
            while old() is not None and time.monotonic() < end:
                await asyncio.sleep(0.02)
            swapped.append((engine.version.folder.name, old() is None))
        await engine.stop()
        return swapped

    assert asyncio.run(play()) == [("a", True), ("b", True)]
