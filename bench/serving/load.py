"""A service under load on loopback: throughput, latency, overload, and memory over many requests.

    python -m bench serving load RUN [--texts FILE] [--head NAME] [--seconds 10]
        [--requests 100000] [--flags ..]
    python -m bench serving load --echo

Starts ``umpteen serve RUN`` and drives it with concurrent clients in this process, each with a
connection of its own, one text a request, k 5. Texts are the run's examples unless a file with a
text per line is named. Client and service share the machine's cores. Overload is ten times the
requests per second that 64 clients sustained, sent without waiting for answers, with at most 900
unanswered at a time: more than the service lets wait, and fewer than it lets connect.

``--echo`` measures a bare FastAPI application instead, which parses the same request and returns
empty predictions, under the same server. CPU time is that of all processes of the service. Private
memory is what a process shares with no other (unique set size).
"""

import argparse
import asyncio
import json
import re
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from bench.common.tables import Table
from bench.serving.processes import cpu_seconds, private, processes, resident
from bench.serving.service import running, serve_command

IN_FLIGHT = 900


ECHO = """
from fastapi import FastAPI
from pydantic import BaseModel
class Body(BaseModel):
    texts: list[str]
    k: int = 5
app = FastAPI()
@app.post("/v1/predict")
async def predict(body: Body):
    return {"predictions": [{"labels": []} for _ in body.texts]}
import socket, uvicorn
listening = socket.create_server(("127.0.0.1", 0))
import sys
print(f"at http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="error")).run([listening])
"""


class Connection:
    """HTTP/1.1 by hand: the client must cost less than what it measures."""

    more = {}  # noqa: RUF012 - fields of every request

    def __init__(self, port):
        self.port = port
        self.reader = self.writer = None

    async def ask(self, text):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        body = json.dumps({"texts": [text], "k": 5, **self.more}).encode()
        self.writer.write(
            b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head, re.I).group(1))
        await self.reader.readexactly(length)
        return int(head[9:12])

    def close(self):
        if self.writer is not None:
            self.writer.close()
            self.writer = None


async def drive(port, texts, clients, *, seconds=None, requests=None):
    """Closed loop: each client asks again as soon as it has its answer."""
    codes, times, left = Counter(), [], [requests]
    end = time.perf_counter() + (seconds or 1e9)

    async def client(number):
        connection, place = Connection(port), number
        while time.perf_counter() < end and (left[0] is None or left[0] > 0):
            if left[0] is not None:
                left[0] -= 1
            began = time.perf_counter()
            codes[await connection.ask(texts[place % len(texts)])] += 1
            times.append(time.perf_counter() - began)
            place += clients
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(clients)))
    return codes, sorted(times), time.perf_counter() - began


async def overload(port, texts, rate, seconds):
    """Open loop: requests come when they come."""
    codes, free, tasks = Counter(), [], []

    async def one(number):
        connection = free.pop() if free else Connection(port)
        try:
            codes[await asyncio.wait_for(connection.ask(texts[number % len(texts)]), 30)] += 1
            free.append(connection)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            codes[type(error).__name__] += 1
            connection.close()

    began = time.perf_counter()
    number = 0
    while (now := time.perf_counter() - began) < seconds:
        while number < now * rate:
            if len(tasks) - sum(codes.values()) < IN_FLIGHT:
                tasks.append(asyncio.create_task(one(number)))
            number += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    return codes, len(tasks) / seconds


def at(times, share):
    return 1000 * times[min(len(times) - 1, int(share * len(times)))]


async def measure(given, port, pid):
    if given.run:
        lines = (Path(given.run) / "examples.jsonl").read_text("utf-8").split("\n")
        texts = [json.loads(line)["text"] for line in lines if line]
    else:
        texts = [f"some text with a few words, number {number}" for number in range(500)]
    if given.texts:
        texts = Path(given.texts).read_text("utf-8").splitlines()
    while True:
        try:
            await drive(port, texts, 1, requests=20)
            break
        except OSError:
            await asyncio.sleep(0.05)
    print(f"first answers after {time.perf_counter() - given.began:.1f} s")
    columns = ["clients", "requests/s", "p50 ms", "p95 ms", "p99 ms", "CPU ms per request", "codes"]
    table = Table(columns)
    rate = 0.0
    for clients in (1, 8, 64):
        before = cpu_seconds(pid)
        codes, times, took = await drive(port, texts, clients, seconds=given.seconds)
        rate, cpu = len(times) / took, 1000 * (cpu_seconds(pid) - before) / len(times)
        latencies = [at(times, share) for share in (0.5, 0.95, 0.99)]
        table.add(clients, f"{rate:.0f}", *latencies, cpu, dict(codes))
    print(f"private MiB of each process: {[round(private(each)) for each in processes(pid)]}")
    if given.echo:
        return
    codes, sent = await overload(port, texts, 10 * rate, given.seconds)
    print(
        f"overload, {10 * rate:.0f} requests/s wanted, {sent:.0f} sent: {dict(codes)}", flush=True
    )
    memory = [resident(pid)]
    for _ in range(10 if given.requests else 0):
        codes, *_ = await drive(port, texts, 16, requests=given.requests // 10)
        memory.append(resident(pid))
        assert set(codes) <= {200, 429}, codes
    print(f"memory over {given.requests} requests, MiB: {[round(each) for each in memory]}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", help="a run that `umpteen train` made")
    parser.add_argument("--echo", action="store_true", help="a bare FastAPI echo instead of RUN")
    parser.add_argument("--head", help="of the model; by default the best")
    parser.add_argument("--texts")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--flags", default="", help="for umpteen serve, such as '--workers 2'")


def main(given: argparse.Namespace) -> None:
    if given.echo == bool(given.run):
        sys.exit("name a RUN, or --echo")
    if given.head:
        Connection.more = {"head": given.head}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    given.began = time.perf_counter()
    command = [sys.executable, "-c", ECHO]
    if given.run:
        command = serve_command([given.run], given.flags.split())
    with running(command) as (process, port):
        asyncio.run(measure(given, port, process))
