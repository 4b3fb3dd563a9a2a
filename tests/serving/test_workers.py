"""Worker processes: the parent ends, whether they do or not."""

import multiprocessing
import time
from types import SimpleNamespace

import pytest

pytest.importorskip("uvicorn")

from umpteen.serving import workers


def test_a_worker_that_does_not_end_is_killed_and_another_is_waited_for(monkeypatch):
    monkeypatch.setattr(workers, "SPARE_SECONDS", 2.0)
    there = multiprocessing.get_context("spawn")
    quick, stuck = (there.Process(target=time.sleep, args=(n,)) for n in (0, 600))
    supervisor = workers.Workers.__new__(workers.Workers)
    supervisor.config = SimpleNamespace(timeout_graceful_shutdown=0)
    supervisor.processes = [SimpleNamespace(process=p, pid=0) for p in (quick, stuck)]
    quick.start()
    stuck.start()
    supervisor.join_all()
    assert stuck.exitcode == -9
    assert not quick.is_alive()
