"""The engine: versions that are swapped, freed, or fail to load."""

import asyncio
import gc
import logging
import math
import os
import shutil
import time
import weakref

import pytest
from waiting import PATIENCE

pytest.importorskip("fastapi")

from umpteen.serving import models as models_module
from umpteen.serving.answering import PredictionJob
from umpteen.serving.engine import Engine
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.options import Options
from umpteen.serving.served_model import stamp_of


def started(run):
    return Engine(Options((str(run),), device="cpu", poll_seconds=0.02), ServiceMetrics())


async def until(holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


def count_of(engine, outcome):
    lines = engine.metrics.render().splitlines()
    name = f'umpteen_reloads_total{{outcome="{outcome}"}} '
    return next((float(line.removeprefix(name)) for line in lines if line.startswith(name)), 0)


def test_a_version_that_was_replaced_is_freed(run, tmp_path):
    link, fresh = tmp_path / "current", tmp_path / "fresh"
    link.symlink_to(run)

    async def play():
        engine = started(link)
        assert gc.get_freeze_count() > 0  # labels are exempt from garbage collection
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
            await until(lambda old=old: old() is None)
            swapped.append(engine.version.folder.name)
        await engine.stop()
        return swapped

    assert asyncio.run(play()) == ["a", "b"]


def test_the_stamp_changes_with_the_ensemble(run):
    before = stamp_of(str(run))
    assert stamp_of(str(run)) == before
    file = run / "ensemble" / "ensemble.json"
    shutil.copy(file, run / "copy")
    os.replace(run / "copy", file)
    changed = stamp_of(str(run))
    assert changed != before
    shutil.rmtree(run / "ensemble")
    assert stamp_of(str(run)) not in (before, changed)


def test_a_newly_fitted_ensemble_is_picked_up(run, tmp_path):
    aside = tmp_path / "aside"
    (run / "ensemble").rename(aside)

    async def play():
        engine = started(run)
        await engine.start()
        before = engine.version.predictor.heads
        aside.rename(run / "ensemble")
        await until(lambda: engine.version.predictor.ensemble is not None)
        found = await engine.predict(PredictionJob(["red apple"], 1), seconds=PATIENCE)
        await engine.stop()
        return before, found.head

    before, head = asyncio.run(play())
    assert "ensemble" not in before
    assert head == "ensemble"


def test_a_load_that_fails_unexpectedly_keeps_the_old_version_and_the_watcher(
    run, monkeypatch, caplog
):
    load, failing = models_module.load_served_model, True

    def sometimes(*given):
        if failing:
            raise ZeroDivisionError("unexpected")
        return load(*given)

    def touch():
        os.utime(run / "models.json", ns=(time.time_ns(), time.time_ns()))

    async def play():
        nonlocal failing
        engine = started(run)
        monkeypatch.setattr(models_module, "load_served_model", sometimes)
        monkeypatch.setattr(models_module, "RETRY_SECONDS", math.inf)
        await engine.start()
        old = engine.version
        for n in (1, 2):
            touch()
            await until(lambda n=n: count_of(engine, "failed") == n)
        kept = engine.version is old
        answered = await engine.predict(PredictionJob(["red apple"], 1), seconds=PATIENCE)
        failing = False
        touch()
        await until(lambda: count_of(engine, "done") == 1)
        swapped = engine.version is not old
        await engine.stop()
        return kept, len(answered.labels), swapped

    with caplog.at_level(logging.ERROR, "umpteen.serving"):
        assert asyncio.run(play()) == (True, 1, True)
    failures = [record for record in caplog.records if record.message == "version not loaded"]
    assert [record.fields["why"] for record in failures] == ["unexpected"] * 2
    assert all(record.exc_info for record in failures)


def test_a_load_that_failed_is_tried_again_without_another_change(run, monkeypatch):
    load, failures = models_module.load_served_model, iter([True, True, False])

    def sometimes(*given):
        if next(failures, False):
            raise OSError("no memory left")
        return load(*given)

    async def play():
        engine = started(run)
        monkeypatch.setattr(models_module, "load_served_model", sometimes)
        monkeypatch.setattr(models_module, "RETRY_SECONDS", 0.0)
        await engine.start()
        old = engine.version
        os.utime(run / "models.json", ns=(time.time_ns(), time.time_ns()))
        await until(lambda: count_of(engine, "done") == 1)
        failed, swapped = count_of(engine, "failed"), engine.version is not old
        await engine.stop()
        return failed, swapped

    assert asyncio.run(play()) == (2, True)
