"""A writing process is killed at any moment: nothing granted is lost, nothing is half there."""

import os
import random
import signal
import time

import pytest

from umpteen.store import NewLabel, connections
from umpteen.store.change_store import ChangeStore

from .helpers import LABELS, make_run, open_store

pytestmark = pytest.mark.processes

ROUNDS, WRITERS = 20, "abc"
PART = 3


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch):
    """A kill takes nothing from the system's cache; only a power cut does."""
    monkeypatch.setattr(connections, "SYNCHRONOUS", "OFF")


def write_until_killed(run, name, out):
    """Add labels, examples and retirements three at a time; report each after it is granted."""
    store = ChangeStore(run, LABELS, busy_seconds=180)
    for n in range(10**6):
        ids = [f"{name}-{n}-{part}" for part in range(PART)]
        store.add_labels([NewLabel(label_id, f"text {label_id}") for label_id in ids])
        os.write(out, f"add {name}-{n}\n".encode())
        store.add_examples(ids, [ids] * PART)
        os.write(out, f"example {name}-{n}\n".encode())
        # The same text again, with other labels.
        store.add_examples([f"changing {part}" for part in range(PART)], [ids] * PART)
        os.write(out, f"change {name}-{n}\n".encode())
        store.retire_labels(ids)
        os.write(out, f"retire {name}-{n}\n".encode())


def start_writer(run, name):
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return child, read_end
    try:
        os.close(read_end)
        write_until_killed(run, name, write_end)
    finally:
        os._exit(1)


def kill_writers(children, rng, *, most_lines):
    """Kill all after one of them has reported a few changes and a moment more; what they said."""
    lines = [b""] * len(children)
    for _ in range(rng.randrange(most_lines + 1)):
        lines[0] += os.read(children[0][1], 4096)
    time.sleep(rng.uniform(0.0, 0.01))
    for child, _ in children:
        os.kill(child, signal.SIGKILL)
    for number, (child, read_end) in enumerate(children):
        os.waitpid(child, 0)
        with os.fdopen(read_end, "rb") as pipe:
            lines[number] += pipe.read()
    return [tuple(line.decode().split()) for own in lines for line in own.split(b"\n")[:-1]]


def whole(names):
    """Groups of three of which all are there; fails if some are and some are not."""
    groups = {}
    for name in names:
        groups.setdefault(name.rpartition("-")[0], []).append(name)
    assert {len(group) for group in groups.values()} <= {PART}
    return set(groups)


def check(state, texts, granted, newest):
    found = {
        "add": whole(state.added.ids),
        "example": whole(text for text in texts if "-" in text),
        "retire": whole(state.retired_ids),
    }
    lost = [(what, name) for what, name in granted if what in found and name not in found[what]]
    assert not lost, lost[:3]
    now = {tuple(state.example_label_ids(place)) for place, text in enumerate(texts)
           if text.startswith("changing")}  # fmt: skip
    assert len(now) <= 1, "relabelled in part"
    if newest is not None:
        assert list(now)[0][0].rpartition("-")[0] in newest


def test_kills_lose_nothing_that_was_granted(run):
    """Some of the rounds that ``python -m bench serving kills`` does by the hundred."""
    rng = random.Random(7)
    granted, reader, texts = [], open_store(run), []
    newest = None
    for kill in range(ROUNDS):
        children = [start_writer(run, f"{kill}{name}") for name in WRITERS]
        said = kill_writers(children, rng, most_lines=5)
        granted.extend(said)
        changes = {name for what, name in said if what == "change"}
        if changes or newest is not None:
            # One that was granted, or one that was sent and perhaps written.
            sent = {f"{kill}{name}-{n}" for name in WRITERS for n in range(len(said) + 1)}
            newest = sent if changes else newest | sent
        state = reader.state()
        texts += reader.example_texts(state.examples.digests[len(texts) :])
        check(state, texts, granted, newest)
        if kill % 10 == 9:  # and by a reader that starts from nothing
            fresh = open_store(run).state()
            assert fresh.revision == state.revision >= len(granted)
            assert list(fresh.labels.ids) == list(state.labels.ids)
            assert fresh.retired_ids == state.retired_ids
    assert len(granted) > ROUNDS


def test_killed_at_the_first_change_a_run_is_whole(tmp_path):
    rng = random.Random(3)
    for n in range(12):
        run = make_run(tmp_path / f"run{n}")
        granted = kill_writers([start_writer(run, "a")], rng, most_lines=1)
        store = open_store(run)
        assert store.revision >= len(granted)
        assert store.add_labels([NewLabel("x", "new")]) == 1
