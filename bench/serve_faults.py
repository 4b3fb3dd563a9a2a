"""Kill a service during changes, again and again: nothing granted is lost, nothing is half.

    python bench/serve_faults.py RUN [--kills 200] [--seed 0]

RUN is copied first. Clients add and retire labels and add examples, several at once, while the
service is killed (SIGKILL) at a random moment. It is started again, and the store is compared with
what was granted. A change that was sent and not answered may be there or not, but whole.
"""

import argparse
import concurrent.futures
import http.client
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from umpteen.runs import RunFolder
from umpteen.store import ChangeStore

PER_CHANGE = 3


def start(run):
    command = [sys.executable, "-m", "umpteen", "serve", str(run), "--port", "0", "--device", "cpu"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        found = re.search(r"at http://\S+:(\d+)", line)
        if found:
            threading.Thread(target=process.stderr.read, daemon=True).start()
            port = int(found.group(1))
            while not post(port, "/v1/predict", {"texts": "ready?"}):
                time.sleep(0.02)
            return process, port
    sys.exit("the service did not start")


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


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
            done = post(port, path, body)
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        run = shutil.copytree(
            given.run, Path(place) / "run", ignore=shutil.ignore_patterns("checkpoints")
        )
        granted, unsure = [], []
        for kill in range(given.kills):
            process, port = start(run)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for name in "abcd":
                    pool.submit(client, port, f"{kill}{name}", rng.random(), granted, unsure)
                time.sleep(rng.uniform(0.02, 0.8))
                process.kill()
                process.wait()
            n, examples = check(run, granted, unsure)
            if (kill + 1) % 10 == 0:
                print(f"{kill + 1} kills, {len(granted)} changes granted, {n} labels and "
                      f"{examples} examples there, "
                      f"{len(unsure)} not answered: none lost, none half", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
