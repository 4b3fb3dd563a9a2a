"""A run killed at any moment continues to the same result, byte for byte."""

import random
import shutil
import signal

import pytest
from small_runs import outcome, steps

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.fixture(scope="module")
def never_killed(nursery, tiny_data_folder, tmp_path_factory):
    """A run left alone, and everything it did to its folder, in order."""
    run = tmp_path_factory.mktemp("runs") / "never-killed"
    assert nursery.train(tiny_data_folder, run) == 0, nursery.said
    return outcome(run), nursery.events


def finish(nursery, data, run, **job) -> None:
    """Do what a user would: continue where there is a run, else start it."""
    resume = (run / "config.json").exists()
    assert nursery.train(data, run, resume=resume, **job) == 0, nursery.said


def leftovers(run) -> list:
    return [place for place in run.rglob("*") if place.name.endswith(".tmp")]


def test_the_run_has_a_refresh_in_the_middle_and_several_models(never_killed):
    expected, events = never_killed
    assert len(expected["steps"]) == 8
    assert any("refresh-00002" in event for event in events)
    assert expected["models"]["best"] != expected["models"]["last"]


# What is about to happen when the kill comes: a part of the event, and which such event.
MOMENTS = {
    "before the settings are written": ("os.rename /.config.json", 0),
    "before the first model is written": ("os.mkdir /models", 0),
    "before the first checkpoint": ("os.rename /checkpoints/.step-000000000", 0),
    "while a checkpoint is written": ("/checkpoints/.step-000000003", 3),
    "before a checkpoint gets its name": ("os.rename /checkpoints/.step-000000004", 0),
    "while an old checkpoint is removed": ("shutil.rmtree /checkpoints/step-000000003", 0),
    "while a refresh is written": ("/checkpoints/.refresh-00002", 2),
    "after a refresh got its name": ("/checkpoints/.step-000000005", 0),
    "while the last model is written": ("/models/.epoch-0004", 3),
    "before the last model is named": ("os.rename /.models.json", -1),
    "before the last metrics": ("os.rename /.metrics.json", -1),
    "after the last checkpoint": ("/models/", -1),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_at_a_tender_moment_ends_as_if_nothing_had_happened(
    moment, nursery, never_killed, tiny_data_folder, tmp_path
):
    expected, events = never_killed
    part, which = MOMENTS[moment]
    kill_at = [place for place, event in enumerate(events, 1) if part in event][which]
    run = tmp_path / "run"
    assert nursery.train(tiny_data_folder, run, kill_at=kill_at) == -signal.SIGKILL
    finish(nursery, tiny_data_folder, run)
    assert outcome(run) == expected
    assert leftovers(run) == []


def kill_until_done(nursery, data, run, *, chance, longest, **job) -> int:
    """Start, kill at drawn moments and resume until the run is done; how often it was killed."""
    for kills in range(60):
        resume = (run / "config.json").exists()
        where = {"kill_at": chance.randint(1, longest)}
        if chance.random() < 0.2:
            where = {"kill_after_seconds": chance.uniform(0.01, 0.1)}
        if nursery.train(data, run, resume=resume, **where, **job) != -signal.SIGKILL:
            return kills
    raise AssertionError("the run does not get on")


def test_a_run_killed_again_and_again_ends_the_same(
    nursery, never_killed, tiny_data_folder, tmp_path
):
    chance, run = random.Random(36), tmp_path / "run"
    kills = kill_until_done(nursery, tiny_data_folder, run, chance=chance, longest=150)
    finish(nursery, tiny_data_folder, run)
    assert kills >= 3
    assert outcome(run) == never_killed[0]
    assert leftovers(run) == []


def test_two_threads_end_the_same_too(nursery, tiny_data_folder, tmp_path):
    chance, data = random.Random(5), tiny_data_folder
    run, whole = tmp_path / "run", tmp_path / "whole"
    assert nursery.train(data, whole, threads=2) == 0, nursery.said
    kills = kill_until_done(nursery, data, run, chance=chance, longest=250, threads=2)
    finish(nursery, data, run, threads=2)
    assert kills >= 2
    assert outcome(run) == outcome(whole)


def test_a_folder_put_aside_for_one_that_never_came_is_put_back(
    nursery, never_killed, tiny_data_folder, tmp_path
):
    run = tmp_path / "run"
    assert nursery.train(tiny_data_folder, run, "train.epochs=1") == 0
    # A second epoch-0001 was to be renamed into place when the kill came.
    shutil.move(run / "models" / "epoch-0001", run / "models" / ".epoch-0001.0123abcd.old.tmp")
    finish(nursery, tiny_data_folder, run)
    assert (run / "models" / "epoch-0001" / "vectors.npy").is_file()
    assert leftovers(run) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_saves_says_how_to_continue_and_does(
    number, nursery, never_killed, tiny_data_folder, tmp_path
):
    expected, events = never_killed
    third = next(n for n, event in enumerate(events, 1) if "/checkpoints/.step-000000003" in event)
    run = tmp_path / "run"
    data = tiny_data_folder
    assert nursery.train(data, run, signal=int(number), signal_at=third) == 130
    assert "with --resume" in nursery.said
    assert "Traceback" not in nursery.said
    taken = len(steps(run))
    assert 3 <= taken < 8
    assert f"checkpoints/step-{taken:09d}" in nursery.said
    finish(nursery, data, run)
    assert outcome(run) == expected
