"""Worker processes: restarted, ended with the parent, killed if they do not end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from umpteen.serving import workers

pytestmark = pytest.mark.processes

PARENT = """
import socket, sys
sys.path.insert(0, {here!r})
from umpteen.serving import workers
from worker_work import note_and_wait
workers.SPARE_SECONDS = 0.5
listening = socket.create_server(("127.0.0.1", 0))
done = workers.Workers(note_and_wait, {given!r}, listening, count=2, drain_seconds=0).run()
sys.exit(done)
"""


def lives(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.fixture
def parent(tmp_path):
    started = []

    def start(kind):
        given = f"{tmp_path}|{kind}"
        code = PARENT.format(here=str(Path(__file__).parent), given=given)
        started.append(subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait()


def pids(folder, n):
    until(lambda: len(list(folder.iterdir())) >= n)
    return [int(path.name) for path in folder.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "stubborn"])
def test_workers_end_with_a_signal_and_are_killed_if_they_do_not(parent, tmp_path, kind):
    running = parent(kind)
    own = pids(tmp_path, 2)
    running.send_signal(signal.SIGTERM)
    assert running.wait(PATIENCE) == 0
    assert not any(map(lives, own))


@pytest.mark.slow
def test_workers_end_when_the_parent_is_killed(parent, tmp_path):
    running = parent("plain")
    own = pids(tmp_path, 2)
    running.kill()
    until(lambda: not any(map(lives, own)))


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(parent, tmp_path):
    running = parent("plain")
    first = pids(tmp_path, 2)
    os.kill(first[0], signal.SIGKILL)
    assert len(set(pids(tmp_path, 3)) - set(first)) == 1
    assert running.poll() is None


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_parent(parent, tmp_path):
    assert parent("failing").wait(PATIENCE) == workers.START_FAILED
