"""A small run to serve, an application in this process, and a service in another."""

import gc
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import forks
import pytest
from forks import fork
from small_runs import fit
from waiting import PATIENCE

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")
pytest.importorskip("httpx")

IMPORTS = ("uvicorn", "umpteen.cli.serve", "umpteen.serving.app", "umpteen.serving.run")
"""What a service needs."""
DEADLINE = 4 * PATIENCE
"""Of requests, where a test asks for no other: a busy machine must not refuse them."""


@pytest.fixture(scope="session")
def served_run(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("served") / "run"
    fit(tiny_data, run, "ensemble.enabled=auto", "ensemble.min_queries=5")
    shutil.rmtree(run / "checkpoints", ignore_errors=True)
    return run


@pytest.fixture
def run(served_run, tmp_path):
    return shutil.copytree(served_run, tmp_path / "run")


@pytest.fixture
def serving(run):
    """Makes clients of applications in this process: ``serving(max_texts=3)``."""
    from contextlib import ExitStack

    from starlette.testclient import TestClient

    from umpteen.serving.app import create_app
    from umpteen.serving.options import Options

    with ExitStack() as stack:

        def start(**options):
            options = {"deadline_seconds": DEADLINE, "poll_seconds": 0, **options}
            app = create_app(Options((str(run),), device="cpu", **options))
            client = TestClient(
                app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False
            )
            return stack.enter_context(client)

        yield start
    gc.freeze()  # as tests/conftest.py does: services unfreeze


@pytest.fixture
def client(serving):
    return serving()


class Service:
    """``umpteen serve`` in a process of its own, forked or (``afresh``) started by Python."""

    def __init__(self, run, *flags, afresh=False):
        words = ["serve", str(run), "--port", "0", "--deadline", str(DEADLINE), *map(str, flags)]
        words += ["--device", "cpu"]
        reading, writing = os.pipe()
        with os.fdopen(writing, "w") as out:
            if afresh:
                command = [sys.executable, "-m", "umpteen", *words]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                self.process = subprocess.Popen(command, stderr=out, env=environment)
            else:
                self.process = fork(forks.__file__, "command", *words, out=writing, imports=IMPORTS)
        self._pipe = os.fdopen(reading)
        self.lines = []
        self._said = threading.Event()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        try:
            self._find_address()
            self.wait_until_ready()
        except BaseException:
            self.process.kill()  # nobody else would
            raise

    def _find_address(self):
        assert self._said.wait(PATIENCE), self.lines
        # By what it says, not by its place: other lines may already have come after it.
        said = [line for line in self.lines if "serving " in line]
        found = re.search(r"(https?)://\S+:(\d+)", said[0] if said else "")
        assert found, self.lines
        self.port = int(found.group(2))
        self.url = f"{found.group(1)}://127.0.0.1:{self.port}"

    def _listen(self):
        with self._pipe:
            for line in self._pipe:
                self.lines.append(line.rstrip())
                if "serving " in line and "://" in line:
                    self._said.set()
        self._said.set()

    def wait_until_ready(self, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.call("/readyz")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(self.lines)

    def call(self, path, body=None, method=None, timeout=PATIENCE):
        """Status and JSON of a request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            context = ssl._create_unverified_context() if self.url.startswith("https") else None
            with urllib.request.urlopen(request, timeout=timeout, context=context) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def stop(self, how=signal.SIGTERM, seconds=PATIENCE):
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(seconds)
        self._listener.join(seconds)  # all that it wrote is in ``lines``
        return status


@pytest.fixture
def service():
    """Starts services, and ends them: ``service(run, "--workers", "2")``."""
    started = []

    def start(run, *flags, **options):
        started.append(Service(run, *flags, **options))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
