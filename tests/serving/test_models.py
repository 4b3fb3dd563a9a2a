"""Several models in one service: named, loaded, activated, rolled back, followed by all workers."""

import asyncio
import gc
import itertools
import json
import shutil
import threading
from functools import partial

import pytest
from click.testing import CliRunner
from waiting import PATIENCE, until

from umpteen.cli import main
from umpteen.client import Client, ServiceError
from umpteen.errors import ConfigError, NotWritten
from umpteen.serving.app import create_app
from umpteen.serving.metrics import ServiceMetrics
from umpteen.serving.models import ServedModels
from umpteen.serving.options import Options, name_runs

from .conftest import DEADLINE

pytestmark = pytest.mark.processes

TEXT = "old river mirror"


@pytest.fixture(scope="module")
def two_runs(served_run, tiny_data, tmp_path_factory):
    """A folder with two runs of the same labels, ``a`` and ``b``."""
    from small_runs import fit

    folder = tmp_path_factory.mktemp("runs")
    shutil.copytree(served_run, folder / "a")
    fit(tiny_data, folder / "b", "seed=5", "train.epochs=2")
    return folder


@pytest.fixture
def folder(two_runs, tmp_path):
    return shutil.copytree(two_runs, tmp_path / "runs")


@pytest.fixture
def serve_runs():
    from contextlib import ExitStack

    from starlette.testclient import TestClient

    with ExitStack() as stack:

        def start(*runs, **options):
            given = tuple(map(str, runs))
            options = {"deadline_seconds": DEADLINE, "poll_seconds": 0, **options}
            app = create_app(Options(given, device="cpu", **options))
            return stack.enter_context(TestClient(app, base_url="http://127.0.0.1:8000"))

        yield start


def states(client):
    found = client.get("/v1/models").json()
    return {each["name"]: each["state"] for each in found["models"]}


def best(client, **body):
    answer = client.post("/v1/predict", json={"texts": TEXT, "head": "dual", "k": 40, **body})
    assert answer.status_code == 200, answer.text
    return [label["id"] for label in answer.json()["predictions"][0]["labels"]]


def test_runs_are_named_by_their_folder_or_by_hand(tmp_path):
    assert name_runs(("x/a", "b=x/a", "some run")) == {
        "a": "x/a", "b": "x/a", "some-run": "some run"}  # fmt: skip
    with pytest.raises(ConfigError, match="two runs have the name 'a'"):
        name_runs(("x/a", "y/a"))


def test_requests_get_the_active_model_or_the_one_they_name(serve_runs, folder):
    client = serve_runs(folder / "a", f"second={folder / 'b'}")
    assert states(client) == {"a": "active", "second": "loaded"}
    assert best(client) == best(client, model="a") != best(client, model="second")
    assert client.get("/v1/info").json()["name"] == "a"
    assert client.get("/v1/info?model=second").json()["run"] == "b"
    wrong = client.post("/v1/predict", json={"texts": TEXT, "model": "none"})
    assert wrong.status_code == 404
    new = {"labels": [{"id": "N1", "text": TEXT}]}
    assert client.post("/v1/labels?model=second", json=new).status_code == 200
    assert "N1" in best(client, model="second")
    assert "N1" not in best(client)
    listed = {each["name"]: each["labels"] for each in client.get("/v1/models").json()["models"]}
    infos = {name: client.get(f"/v1/info?model={name}").json()["n_labels"] for name in listed}
    assert listed == infos
    assert listed["second"] == listed["a"] + 1


def test_load_activate_roll_back_and_unload(serve_runs, folder):
    client = serve_runs(folder / "a", folder=str(folder))
    assert states(client) == {"a": "active", "b": "available"}
    first = best(client)
    refused = client.put("/v1/models/active", json={"name": "b"})
    assert refused.status_code == 409
    assert "no model 'b' is loaded" in refused.json()["error"]["message"]
    assert client.post("/v1/models/rollback").status_code == 409
    assert client.post("/v1/models", json={"name": "b"}).status_code == 200
    assert best(client) == first
    assert client.put("/v1/models/active", json={"name": "b"}).json()["active"] == "b"
    second = best(client)
    assert second != first
    assert client.delete("/v1/models/b").status_code == 409
    assert client.post("/v1/models/rollback").json()["active"] == "a"
    assert best(client) == first
    assert client.delete("/v1/models/b").status_code == 200
    assert states(client) == {"a": "active", "b": "available"}
    assert client.post("/v1/models/rollback").status_code == 409


def test_changes_can_be_carried_over(serve_runs, folder):
    client = serve_runs(folder / "a", folder / "b")
    client.delete("/v1/labels?id=L01")
    body = {"name": "b", "carry_changes": True}
    assert client.put("/v1/models/active", json=body).status_code == 200
    assert "L01" not in best(client)
    trail = client.get("/v1/changes").json()["changes"]
    assert trail[0]["who"] == "address testclient"


@pytest.mark.parametrize("name", ["../a", "/etc", "none", "a/../b", ".", ".."])
def test_only_runs_of_the_folder_can_be_loaded(serve_runs, folder, name):
    client = serve_runs(folder / "a", folder=str(folder))
    answer = client.post("/v1/models", json={"name": name})
    assert answer.status_code == 409
    assert str(folder) not in answer.text


def test_a_run_that_cannot_be_loaded_changes_nothing(serve_runs, folder):
    shutil.rmtree(folder / "b" / "models")
    client = serve_runs(folder / "a", folder=str(folder))
    answer = client.post("/v1/models", json={"name": "b"})
    assert answer.status_code == 409
    assert str(folder) not in answer.text
    assert states(client) == {"a": "active", "b": "available"}


def has_at_least(items, n):
    return len(items) >= n


@pytest.mark.slow
def test_a_swap_under_load_fails_no_request_in_any_worker(service, folder):
    flags = ("--workers", "2", "--runs", str(folder), "--poll", "0.1")
    running = service(folder / "a", *flags)
    stop, codes, seen = threading.Event(), [], set()

    def ask():
        while not stop.is_set():
            status, found = running.call("/v1/predict", {"texts": TEXT, "head": "dual", "k": 40})
            codes.append(status)
            if status == 200:
                seen.add(tuple(label["id"] for label in found["predictions"][0]["labels"]))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    with Client(running.url, seconds=PATIENCE) as client:
        assert client.load_model("b")["workers_behind"] == 0
        for _, name in zip(range(3), itertools.cycle("ba"), strict=False):
            assert client.activate_model(name)["workers_behind"] == 0
            # New connections each time: some reach one worker, some the other.
            assert {running.call("/v1/models")[1]["active"] for _ in range(8)} == {name}
            # Three may have been asked before the activation.
            until(partial(has_at_least, codes, len(codes) + 4))
        assert client.roll_back_model()["active"] == "a"
        with pytest.raises(ServiceError, match="is active"):
            client.unload_model("a")
    until(lambda: len(codes) >= 30)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(codes) == {200}
    assert len(seen) == 2  # each answer comes from one of the models, none from both
    done = CliRunner().invoke(main, ["models", "list", "--url", running.url, "--json"])
    assert json.loads(done.stdout)["active"] == "a", done.stderr


def test_commands_load_activate_roll_back_and_unload(service, folder):
    running = service(folder / "a", "--runs", str(folder))

    def models(*words):
        done = CliRunner().invoke(main, ["models", *words, "--url", running.url])
        return done.exit_code, done.stdout, done.stderr

    def states(found):
        return {words[0]: words[1] for words in map(str.split, found[1].splitlines()[2:])}

    assert states(models("load", "b")) == {"a": "active", "b": "loaded"}
    assert states(models("activate", "b", "--carry-changes")) == {"a": "loaded", "b": "active"}
    assert states(models("rollback")) == {"a": "active", "b": "loaded"}
    assert states(models("unload", "b"))["a"] == "active"
    code, said, error = models("unload", "a")
    assert (code, said) == (1, "")
    assert "is active" in error


def test_the_client_lists_and_changes_labels(service, folder):
    running = service(folder / "a")
    with Client(running.url, seconds=PATIENCE) as client:
        known = client.info()["n_labels"]
        assert client.add_labels([{"id": "n1", "text": "a new label"}]) == 1
        assert client.retire_labels(["n1"]) == 1
        assert client.restore_labels(["n1", "n1"]) == 1
        found = client.labels("a new label", limit=1)
        assert [label["id"] for label in found["labels"]] == ["n1"]
        assert client.info()["n_labels"] == known + 1
        assert [each["kind"] for each in client.changes(limit=2)] == ["restore", "retire"]


def test_models_stay_as_they_are_where_the_shared_folder_is_gone(folder, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    runs = tuple(str(folder / name) for name in "ab")
    models = ServedModels(Options(runs, shared=str(shared), device="cpu"), ServiceMetrics())
    gc.unfreeze()
    shutil.rmtree(shared)
    with pytest.raises(NotWritten, match="restart the service"):
        asyncio.run(models.activate("b"))
    assert models.active.name == "a"
