"""A service under mixed load for a while: predictions, changes, swaps, hostile clients, kills.

    python -m bench serving soak RUN [--minutes 30] [--workers 2] [--clients 8] [--pause 0.02]
        [--kill-seconds 120] [--out FILE]

RUN is copied twice, as models ``a`` and ``b`` of one service with keys. Then, all at once: clients
predict (one to many texts); two clients add labels and examples and retire labels; an administrator
activates the other model again and again; hostile clients send half headers, one-byte chunks,
nonsense, dear requests and requests without a key; a worker is killed (SIGKILL) now and then. A
prediction fails if it is neither answered nor refused with 429 or 504; one whose connection a kill
cuts is counted apart. At the end both stores are compared with what was granted. Memory is that of
all workers together, so that a replaced worker does not hide growth: private memory, which also has
the pages of mapped files that one worker alone has read so far, and what belongs to no file.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.common import options
from bench.common.results import facts, save
from bench.serving.processes import anonymous, private
from bench.serving.service import serve_command, start
from umpteen.run_folder import RunFolder
from umpteen.serving.keys import add_key
from umpteen.store import ChangeStore

GOOD = {200, 429, 504}


class Soak:
    """The service, what was done to it, and what came back."""

    def __init__(self, given, folder):
        self.given, self.folder = given, folder
        self.seen = {name: Counter() for name in ("predict", "change", "admin", "hostile")}
        kinds = ("labels", "retired", "examples")
        self.granted = {name: {kind: set() for kind in kinds} for name in "ab"}
        self.memory, self.anonymous, self.kills = [], [], 0
        self.end = 0.0
        self.tokens = {
            scope: add_key(folder / "keys.json", scope, scope)
            for scope in ("read", "change", "admin")
        }
        lines = (Path(given.run) / "examples.jsonl").read_text("utf-8").splitlines()
        self.texts = [json.loads(line)["text"] for line in lines]
        self.known = RunFolder(given.run).read_labels()[0].ids[0]

    def start(self):
        flags = ["--workers", str(self.given.workers), "--keys",
                 str(self.folder / "keys.json"), "--max-connections", "200", "--header-timeout",
                 "2"]  # fmt: skip
        self.log_bytes = 0
        runs = [self.folder / name for name in "ab"]
        self.process, self.port = start(serve_command(runs, flags), self._read_log)

    def _read_log(self, line):
        self.log_bytes += len(line)

    def workers(self):
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        pids = [int(pid) for pid in children.read_text().split()]
        return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    async def call(self, method, path, body, scope):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            content = json.dumps(body).encode()
            token = f"Authorization: Bearer {self.tokens[scope]}\r\n" if scope else ""
            head = (
                f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{token}"
                f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            )
            writer.write(head.encode() + content)
            answer = await asyncio.wait_for(reader.read(), 60)
            status = int(answer[9:12])
            parsed = json.loads(answer.partition(b"\r\n\r\n")[2]) if status == 200 else None
            return status, parsed
        except (OSError, ValueError, asyncio.IncompleteReadError):
            return 0, None  # cut off
        finally:
            writer.close()

    async def predict(self, rng):
        while time.monotonic() < self.end:
            n = rng.choice([1, 1, 1, 1, 4, 50])
            body = {"texts": rng.sample(self.texts, min(n, len(self.texts))), "k": 5}
            if rng.random() < 0.1:
                body |= {"explain": True, "k": 20}
            status, _ = await self.call("POST", "/v1/predict", body, "read")
            self.seen["predict"][status] += 1
            await asyncio.sleep(rng.random() * self.given.pause)

    async def change(self, name, rng):
        number = 0
        while time.monotonic() < self.end:
            model, number = rng.choice("ab"), number + 1
            ids = [f"{name}-{number}-{n}" for n in range(rng.choice([1, 3]))]
            labels = [{"id": label, "text": f"label {label}"} for label in ids]
            path = f"/v1/labels?model={model}"
            status, _ = await self.call("POST", path, {"labels": labels}, "change")
            self.seen["change"][status] += 1
            if status == 200:
                self.granted[model]["labels"] |= set(ids)
                path = f"/v1/labels/retire?model={model}"
                status, _ = await self.call("POST", path, {"ids": ids[:1]}, "change")
                self.seen["change"][status] += 1
                if status == 200:
                    self.granted[model]["retired"] |= set(ids[:1])
                await self.add_example(model, name, number, rng)
            await asyncio.sleep(2 + 2 * rng.random())

    async def add_example(self, model, name, number, rng):
        text = f"{rng.choice(self.texts)} {name} {number}"
        body = {"examples": [{"text": text, "labels": [self.known]}]}
        status, _ = await self.call("POST", f"/v1/examples?model={model}", body, "change")
        self.seen["change"][status] += 1
        if status == 200:
            self.granted[model]["examples"].add(text)

    async def swap(self):
        names = ["b", "a"]
        while time.monotonic() < self.end:
            await asyncio.sleep(2)
            body = {"name": names[0]}
            status, _ = await self.call("PUT", "/v1/models/active", body, "admin")
            self.seen["admin"][status] += 1
            names.reverse()

    async def attack(self, rng):
        while time.monotonic() < self.end:
            kind = rng.choice(["half", "half", "silent", "chunks", "nonsense", "dear", "no key"])
            self.seen["hostile"][kind] += 1
            if kind == "dear":
                body = {"texts": [self.texts[0]] * 256, "k": 1000, "explain": True}
                await self.call("POST", "/v1/predict", body, "read")
            elif kind == "no key":
                await self.call("POST", "/v1/labels", {"labels": []}, None)
            else:
                await self._raw(kind)
            await asyncio.sleep(rng.random() * 0.1)

    async def _raw(self, kind):
        head = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        sent = {
            "half": head, "silent": b"", "nonsense": b"\x16\x03 nonsense\r\n\r\n",
            "chunks": head + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 50_000,
        }[kind]  # fmt: skip
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(sent)
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        except (OSError, TimeoutError):
            pass

    async def watch(self, rng):
        next_kill = time.monotonic() + self.given.kill_seconds
        while time.monotonic() < self.end:
            await asyncio.sleep(self.given.minutes * 60 / 30)
            pids = self.workers()
            self.memory.append(sum(private(pid) for pid in pids))
            self.anonymous.append(sum(anonymous(pid) for pid in pids))
            print(f"private {self.memory[-1]:.0f}, of no file {self.anonymous[-1]:.0f} MiB in "
                  f"{len(pids)} workers, predictions {dict(self.seen['predict'])}",
                  file=sys.stderr, flush=True)  # fmt: skip
            if self.given.kill_seconds and time.monotonic() > next_kill and len(pids) > 1:
                os.kill(rng.choice(pids), signal.SIGKILL)
                self.kills += 1
                next_kill = time.monotonic() + self.given.kill_seconds

    async def run(self):
        while (await self._try())[0] != 200:
            await asyncio.sleep(0.2)
        self.end = time.monotonic() + 60 * self.given.minutes
        rng = random.Random(self.given.seed)
        jobs = [self.predict(random.Random(rng.random())) for _ in range(self.given.clients)]
        jobs += [self.change(f"c{n}", random.Random(rng.random())) for n in range(2)]
        jobs += [self.attack(random.Random(rng.random())) for _ in range(10)]
        await asyncio.gather(*jobs, self.swap(), self.watch(rng))

    async def _try(self):
        try:
            return await self.call("POST", "/v1/predict", {"texts": "ready"}, "read")
        except OSError:
            return 0, None

    def lost(self):
        """Granted changes that are not in the stores."""
        missing = 0
        for name, granted in self.granted.items():
            run = self.folder / name
            state = ChangeStore.open(run, RunFolder(run).read_labels()[0]).state()
            missing += len(granted["labels"] - set(state.added.ids))
            missing += len(granted["retired"] - set(state.retired_ids))
            missing += sum(state.examples.find(text) is None for text in granted["examples"])
        return missing


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--pause", type=float, default=0.02, help="of a client at most, seconds")
    parser.add_argument("--kill-seconds", type=float, default=120, help="0: no worker is killed")
    options.add_seed(parser)
    options.add_out(parser)


def main(given: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name in "ab":
            shutil.copytree(given.run, folder / name)
        soak = Soak(given, folder)
        soak.start()
        try:
            asyncio.run(soak.run())
        finally:
            soak.process.terminate()
            soak.process.wait()
        figures = {
            "minutes": given.minutes,
            "predictions": dict(soak.seen["predict"]),
            "predictions_failed": sum(
                n for code, n in soak.seen["predict"].items() if code and code not in GOOD
            ),
            "predictions_cut_by_kills": soak.seen["predict"][0],
            "changes": dict(soak.seen["change"]),
            "changes_granted": sum(
                len(ids) for model in soak.granted.values() for ids in model.values()
            ),
            "changes_lost": soak.lost(),
            "swaps": soak.seen["admin"][200],
            "swaps_refused": {code: n for code, n in soak.seen["admin"].items() if code != 200},
            "attacks": dict(soak.seen["hostile"]),
            "workers_killed": soak.kills,
            "private_mib_of_all_workers": [round(each) for each in soak.memory],
            "mib_of_no_file": [round(each) for each in soak.anonymous],
            "log_mib": round(soak.log_bytes / 2**20, 1),
            "exit_status": soak.process.returncode,
        }
    print(json.dumps(figures, indent=2))
    save(given.out, [figures], **facts("cpu"))
