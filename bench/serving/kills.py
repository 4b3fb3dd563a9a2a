"""Kill a service during changes, again and again: nothing granted is lost, nothing is half.

    python -m bench serving kills RUN [--kills 200] [--seed 0]

RUN is copied first. Clients add and retire labels and add examples, several at once, while the
service is killed (SIGKILL) at a random moment. It is started again, and the store is compared with
what was granted. A change that was sent and not answered may be there or not, but whole.
"""

import argparse
import concurrent.futures
import random
import shutil
import tempfile
import time
from pathlib import Path

from bench.common import options
from bench.serving.service import post, serve_command, start, wait_until_ready
from umpteen.run_folder import RunFolder
from umpteen.store import ChangeStore

PER_CHANGE = 3


def client(port, name, seed, granted, unsure):
    """Add three labels at a time, add examples, retire some, until the service is gone."""
    rng = random.Random(seed)
    for n in range(10**6):
        ids = [f"{name}-{n}-{part}" for part in range(PER_CHANGE)]
        labels = [{"id": label_id, "text": f"label {label_id}"} for label_id in ids]
        examples = [{"text": f"text {label_id}", "labels": ids} for label_id in ids]
        changes = [("add", "/v1/labels", {"labels": labels})]
        if rng.random() < 0.5:
            changes.append(("examples", "/v1/examples", {"examples": examples}))
        if rng.random() < 0.5:
            changes.append(("retire", "/v1/labels/retire", {"ids": ids}))
        for what, path, body in changes:
            done = post(port, path, body) == 200
            (granted if done else unsure).append((what, ids))
            if not done:
                return


def check(run, granted, unsure):
    store = ChangeStore.open(run, RunFolder(run).read_labels()[0])
    state = store.state()
    texts = store.example_texts(state.examples.digests)
    labels = [state.example_label_ids(position) for position in range(len(texts))]
    store.close()
    # An example counts with all of its labels or not at all.
    whole = {
        text.removeprefix("text ")
        for text, own in zip(texts, labels, strict=True)
        if len(own) == PER_CHANGE
    }
    assert len(whole) == len(texts), "an example is there twice, or without some of its labels"
    sets = {"add": set(state.added.ids), "examples": whole, "retire": set(state.retired_ids)}
    lost = [(what, ids) for what, ids in granted if not set(ids) <= sets[what]]
    half = [ids for what, ids in unsure if len(set(ids) & sets[what]) not in (0, PER_CHANGE)]
    assert not lost, f"lost: {lost[:3]}"
    assert not half, f"half there: {half[:3]}"
    return len(sets["add"]), len(whole)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("--kills", type=int, default=200)
    options.add_seed(parser)


def main(given: argparse.Namespace) -> None:
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        run = shutil.copytree(
            given.run, Path(place) / "run", ignore=shutil.ignore_patterns("checkpoints")
        )
        granted, unsure = [], []
        for kill in range(given.kills):
            process, port = start(serve_command([run], ["--device", "cpu"]))
            wait_until_ready(port)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for name in "abcd":
                    pool.submit(client, port, f"{kill}{name}", rng.random(), granted, unsure)
                time.sleep(rng.uniform(0.02, 0.8))
                process.kill()
                process.wait()
            n, examples = check(run, granted, unsure)
            if (kill + 1) % 10 == 0 or kill + 1 == given.kills:
                print(f"{kill + 1} kills, {len(granted)} changes granted, {n} labels and "
                      f"{examples} examples there, "
                      f"{len(unsure)} not answered: none lost, none half", flush=True)  # fmt: skip
