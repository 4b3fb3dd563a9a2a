"""Predictions while labels and examples change: each is consistent with one revision."""

import concurrent.futures
import contextlib
import sqlite3
import threading

import pytest
from waiting import until

from .conftest import DEADLINE

N_READERS = 8
N_ROUNDS = 16
TEXTS = ["about red apple quite", "old river mirror", "tiny window near"]


class Writer:
    """Adds, retires, restores and corrects; records the active labels of every revision."""

    def __init__(self, client):
        self.client = client
        self.active = {f"L{row:02d}" for row in range(40)}
        self.history = {0: frozenset(self.active)}
        self.granted = 0
        self.gone_for_good = set()

    def send(self, path, body, *, add=(), remove=()):
        answer = self.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        self.active = (self.active | set(add)) - set(remove)
        revision = answer.json()["revision"]
        self.history[revision] = frozenset(self.active)
        self.granted = revision
        self.gone_for_good |= {label for label in remove if label.startswith("GONE")}

    def round(self, n):
        new, gone = f"N{n}", f"GONE{n}"
        labels = [{"id": new, "text": f"{TEXTS[n % 3]} {n}"}, {"id": gone, "text": TEXTS[n % 3]}]
        self.send("/v1/labels", {"labels": labels}, add=[new, gone])
        trained = f"L{n % 40:02d}"
        example = {"text": f"{TEXTS[n % 3]} {n % 4}", "labels": [new]}
        self.send("/v1/examples", {"examples": [example]})
        ids = [trained, new, gone]
        self.send("/v1/labels/retire", {"ids": ids}, remove=ids)
        self.send("/v1/labels/restore", {"ids": [trained, new]}, add=[trained, new])


def check(answer, writer, granted, gone, head):
    """The answer has the labels of one revision that is not older than the request."""
    assert answer["revision"] >= granted
    found = [{label["id"] for label in each["labels"]} for each in answer["predictions"]]
    for ids in found:
        assert not ids & gone
    return [(answer["revision"], frozenset(ids), head) for ids in found]


def test_every_prediction_is_consistent_with_one_revision(serving):
    client = serving(queue_texts=4096)
    writer, done, failures, seen = Writer(client), threading.Event(), [], []

    def read(number):
        head = ("dual", "ensemble", "combined", "classifier")[number % 4]
        body = {"texts": TEXTS, "k": 200, "head": head, "explain": number < N_READERS // 2}
        while not done.is_set():
            granted, gone = writer.granted, set(writer.gone_for_good)
            answer = client.post("/v1/predict", json=body)
            if answer.status_code != 200:
                failures.append((answer.status_code, answer.text))
                return
            seen.extend(check(answer.json(), writer, granted, gone, head))

    with concurrent.futures.ThreadPoolExecutor(N_READERS) as pool:
        readers = [pool.submit(read, number) for number in range(N_READERS)]
        try:
            for n in range(N_ROUNDS):
                writer.round(n)
            until(lambda: len({revision for revision, *_ in list(seen)}) > 1 or failures)
        finally:
            done.set()
        for each in readers:
            each.result()
    assert not failures
    counts = client.get("/metrics").text.splitlines()
    assert "umpteen_batch_failures_total 0.0" in counts
    assert len({revision for revision, *_ in seen}) > 1
    for revision, ids, head in seen:
        active = writer.history[revision]
        # A head returns every active label; the ensemble returns its candidates.
        assert ids == active if head != "ensemble" else ids <= active
        assert head != "ensemble" or len(ids) >= 20


def wait_for_the_lock(client, monkeypatch, *, seconds):
    """Let changes wait so long for another writer."""
    writer = client.app.state.engine.version.store._writer
    monkeypatch.setattr(writer._link, "busy_seconds", seconds)
    writer.close()  # opened again with that wait


@pytest.mark.parametrize("head", ["dual", "ensemble"])
def test_reads_do_not_wait_for_a_writer_that_holds_the_lock(client, run, head, monkeypatch):
    assert client.delete("/v1/labels?id=L01").status_code == 200
    wait_for_the_lock(client, monkeypatch, seconds=DEADLINE)
    connection = sqlite3.connect(run / "changes.sqlite", isolation_level=None)
    with contextlib.closing(connection), concurrent.futures.ThreadPoolExecutor(1) as pool:
        connection.execute("BEGIN IMMEDIATE")
        waiting = pool.submit(client.post, "/v1/labels/retire", json={"ids": ["L02"]})
        for path in ("/healthz", "/readyz", "/v1/info", "/v1/labels?changed=true", "/metrics"):
            assert client.get(path).status_code == 200
        found = client.post("/v1/predict", json={"texts": TEXTS, "k": 50, "head": head})
        assert found.status_code == 200
        ids = {label["id"] for each in found.json()["predictions"] for label in each["labels"]}
        assert "L01" not in ids
        assert found.json()["revision"] == 1  # the change is still waiting
        assert not waiting.done()
        connection.execute("ROLLBACK")
        assert waiting.result().json() == {"changed": 1, "revision": 2}


def test_a_writer_that_never_lets_go_refuses_changes_alone(client, run, monkeypatch):
    assert client.delete("/v1/labels?id=L01").status_code == 200
    wait_for_the_lock(client, monkeypatch, seconds=0.05)
    with contextlib.closing(sqlite3.connect(run / "changes.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answer = client.delete("/v1/labels?id=L02")
        assert answer.status_code == 503
        assert "could not be written" in answer.json()["error"]["message"]
        assert client.post("/v1/predict", json={"texts": "a"}).status_code == 200


def test_a_lone_surrogate_fails_its_own_request_only(serving):
    client = serving(queue_texts=4096, wait_seconds=0.05)
    raw = b'{"texts": ["about red apple", "\\ud800"]}'
    headers = {"Content-Type": "application/json"}

    def ask(number):
        if number % 3 == 0:
            return client.post("/v1/predict", content=raw, headers=headers).status_code
        return client.post("/v1/predict", json={"texts": TEXTS}).status_code

    with concurrent.futures.ThreadPoolExecutor(N_READERS) as pool:
        codes = list(pool.map(ask, range(60)))
    assert codes == [422 if number % 3 == 0 else 200 for number in range(60)]
