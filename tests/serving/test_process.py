"""``umpteen serve`` as a process: shutdown, workers, new versions, kills, a disk that refuses."""

import concurrent.futures
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import urllib.request
from pathlib import Path

import pytest
from forks import run_command
from waiting import PATIENCE, until

from umpteen.run_folder import RunFolder
from umpteen.serving.costs import cost_of
from umpteen.store import ChangeStore

from .test_dashboard import dashboard_metrics

pytestmark = [pytest.mark.slow, pytest.mark.processes]
ROOT = Path(__file__).parents[2]
TEXT = "old river mirror"


def answers(service, text=TEXT, **body):
    status, found = service.call("/v1/predict", {"texts": text, "head": "dual", **body})
    assert status == 200, found
    return [label["id"] for label in found["predictions"][0]["labels"]]


def stored(run):
    return ChangeStore.open(run, RunFolder(run).read_labels()[0]).state()


@pytest.fixture(scope="module")
def other_run(tiny_data, tmp_path_factory):
    """A later training: other vectors, the same labels."""
    from small_runs import fit

    run = tmp_path_factory.mktemp("other") / "run"
    fit(tiny_data, run, "seed=5", "train.epochs=2")
    return run


def test_stopping_finishes_what_was_accepted(service, run):
    running, sizes = service(run, afresh=True), [60] * 8 + [1] * 8
    unit = cost_of(len(TEXT), 40, explain=False)

    def accepted():
        text = read_metrics(running)
        return read_counter(text, "texts_total") + read_counter(text, "queue_texts") / unit

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(answers, running, [TEXT] * size, k=40) for size in sizes]
        until(lambda: accepted() > sum(sizes) - 0.01)  # answered or waiting
        assert running.stop() == 0
        assert all(len(each.result()) == 40 for each in asked)
    events = [json.loads(line)["event"] for line in running.lines if line.startswith("{")]
    assert events.count("request") >= 16
    assert not [line for line in running.lines if "Traceback" in line]


def test_responses_are_sent_without_delay():
    """A body must not wait for the caller's acknowledgement of its head."""
    from umpteen.serving.run import bind

    with (
        bind("127.0.0.1", 0) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as ours,
    ):
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_workers_share_changes_and_counts(service, run):
    running = service(run, "--workers", "2")
    for round_ in range(4):
        label = f"N{round_}"
        status, _ = running.call("/v1/labels", {"labels": [{"id": label, "text": TEXT}]})
        assert status == 200
        # New connections each time: some reach one worker, some the other.
        assert all(label in answers(running, k=50) for _ in range(8))
        assert running.call(f"/v1/labels?id={label}", method="DELETE")[0] == 200
        assert not any(label in answers(running, k=50) for _ in range(8))
    for _ in range(8):
        answers(running)
    until(lambda: read_counter(read_metrics(running), "texts_total") >= 64)
    # What the dashboard shows is there from the start, also what has not happened yet.
    shown = set(re.findall(r"^# TYPE (\S+)", read_metrics(running), re.M))
    assert dashboard_metrics() <= shown
    assert running.stop() == 0


def read_metrics(service):
    with urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE) as answer:
        return answer.read().decode()


def read_counter(text, name):
    return sum(float(n) for n in re.findall(rf"^umpteen_{name}(?:{{.*}})? (\S+)$", text, re.M))


def test_a_new_version_takes_over_without_a_lost_request(service, run, other_run, tmp_path):
    link = tmp_path / "current"
    link.symlink_to(run)
    running = service(link, "--poll", "0.1")
    running.call("/v1/labels?id=L01", method="DELETE")
    before = answers(running, k=40)
    stop, codes, wrong = threading.Event(), [], []

    def ask():
        while not stop.is_set():
            status, found = running.call("/v1/predict", {"texts": TEXT, "head": "dual", "k": 40})
            codes.append(status)
            if status != 200 or len(found["predictions"][0]["labels"]) not in (39, 40):
                wrong.append(found)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    later = shutil.copytree(other_run, tmp_path / "later")
    fresh = tmp_path / "fresh"
    fresh.symlink_to(later)
    os.replace(fresh, link)
    until(lambda: answers(running, k=40) != before)
    assert "L01" in answers(running, k=40)  # the later run has labels of its own
    broken = tmp_path / "broken"
    broken.mkdir()
    fresh.symlink_to(broken)
    os.replace(fresh, link)  # one that cannot be loaded
    until(lambda: any("version not loaded" in line for line in running.lines))
    assert "L01" in answers(running, k=40)
    until(lambda: len(codes) > 20)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(codes) == {200}
    assert not wrong


def test_killed_right_after_the_answer_no_change_is_lost(service, run):
    """A few of the rounds that ``python -m bench serving kills`` does by the hundred."""
    for round_ in range(2):
        running = service(run)
        label = f"K{round_}"
        status, _ = running.call(
            "/v1/labels", {"labels": [{"id": label, "text": f"{TEXT} {label}"}]}
        )
        assert status == 200
        running.stop(signal.SIGKILL)
        assert list(stored(run).added.ids) == [f"K{n}" for n in range(round_ + 1)]
    assert {"K0", "K1"} <= set(answers(service(run), k=50))


def test_mistakes_at_the_start_are_sentences(run, tmp_path, service):
    def serve(*words):
        return run_command("serve", *words, file=tmp_path / "said.txt")

    code, said = serve(tmp_path / "nowhere")
    assert (code, "is not a run folder" in said) == (1, True)
    code, said = serve(run, "--read-token-file", tmp_path / "none")
    assert (code, "token cannot be read" in said) == (1, True)
    running = service(run)
    code, said = serve(run, "--port", running.port)
    assert code == 1
    assert "cannot be listened on" in said
    assert "Traceback" not in said


def test_the_examples_of_the_document_run(service, run):
    text = (ROOT / "docs" / "guide" / "serve.md").read_text("utf-8")
    blocks = dict(re.findall(r"<!-- run -->\n```(\w+)\n(.*?)```", text, re.S))
    running = service(run)
    if shutil.which("curl"):
        done = subprocess.run(
            ["bash", "-ec", blocks["sh"]],
            env={**os.environ, "URL": running.url},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count('{"predictions":[{') == 2
        assert '"contributions"' in done.stdout
        assert "umpteen_requests_total" in done.stdout
    names = {"URL": running.url}
    exec(blocks["python"], names)
    assert len(names["labels"]) == 3
    assert stored(run).retired_ids == ["N2"]
