"""A backup and a restore under load: no failed prediction, no granted change lost."""

import concurrent.futures
import itertools
import threading
import time

import pytest
from waiting import until

from umpteen.run_folder import RunFolder
from umpteen.store import ChangeStore
from umpteen.store.backup import backup, restore

pytestmark = [pytest.mark.slow, pytest.mark.processes]
TEXT = "old river mirror"


class Load:
    """Clients that predict and change labels until they are stopped."""

    def __init__(self, service):
        self.service = service
        self.stopped = threading.Event()
        self.failed = []
        self.answered = 0
        self.granted = []
        """Label and the moment before it was sent, and after it was granted."""

    def read(self):
        while not self.stopped.is_set():
            status, found = self.service.call("/v1/predict", {"texts": [TEXT], "k": 3})
            if status != 200:
                self.failed.append((status, found))
            self.answered += 1

    def write(self):
        for n in itertools.count():
            if self.stopped.is_set():
                return
            label, sent = f"W{n}", time.monotonic()
            body = {"labels": [{"id": label, "text": f"label {n}"}]}
            status, found = self.service.call("/v1/labels", body)
            if status == 200:
                self.granted.append((label, sent, time.monotonic()))
            else:
                self.failed.append((status, found))

    def wait_for(self, changes):
        wanted = len(self.granted) + changes
        until(lambda: len(self.granted) >= wanted, unless=lambda: self.failed[:3])


def added(run):
    labels, _ = RunFolder(run).read_labels()
    return set(ChangeStore.open(run, labels).state().added.ids)


def test_backup_and_restore_while_clients_predict_and_change(service, run, tmp_path):
    running = service(run, "--workers", "2", "--poll", "0.1", "--queue", "1024")
    labels, _ = RunFolder(run).read_labels()
    load = Load(running)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        clients = [pool.submit(load.read) for _ in range(3)] + [pool.submit(load.write)]
        try:
            load.wait_for(10)
            before_backup = time.monotonic()
            backup(run, tmp_path / "backup", labels)
            after_backup = time.monotonic()
            load.wait_for(10)
            before_restore = time.monotonic()
            done = restore(tmp_path / "backup", run, labels)
            after_restore = time.monotonic()
            load.wait_for(20)
            until(lambda: load.answered > 20, unless=lambda: load.failed[:3])
        finally:
            load.stopped.set()
        for client in clients:
            client.result()
    assert not load.failed, load.failed[:3]
    now, then = added(run), added(done.aside)
    assert {label for label, _, end in load.granted if end < before_backup} <= now & then
    between = {
        label for label, start, end in load.granted if start > after_backup and end < before_restore
    }
    assert between
    assert between <= then
    assert not between & now
    since = {label for label, start, _ in load.granted if start > after_restore}
    assert len(since) >= 10
    assert since <= now
    assert {label for label, *_ in load.granted} <= now | then
