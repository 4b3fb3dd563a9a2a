"""Hostile clients against ``umpteen serve`` in its own process, over real sockets."""

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from waiting import PATIENCE, until

from umpteen.serving.logs import LINES, PER_SECONDS

from .conftest import Service

pytestmark = [pytest.mark.slow, pytest.mark.processes]
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
TEXT = "old river mirror"
MAX_CONNECTIONS = 40


@pytest.fixture(scope="module")
def hardy(served_run, tmp_path_factory):
    """A service with short timeouts and few connections."""
    run = shutil.copytree(served_run, tmp_path_factory.mktemp("hostile") / "run")
    flags = ["--max-connections", str(MAX_CONNECTIONS), "--header-timeout", "2"]
    running = Service(run, *flags, "--idle-timeout", "2")
    yield running
    running.process.kill()
    running.process.wait()


def connect(service):
    made = socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def read_all(connection):
    """What comes until the service closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            found += piece
    return found


def status_of(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer[9:12])


def counter(service, name, **labels):
    text = urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE).read().decode()
    wanted = ",".join(f'{key}="{value}"' for key, value in labels.items())
    line = f"umpteen_{name}{{{wanted}}} " if wanted else f"umpteen_{name} "
    return sum(float(each[len(line) :]) for each in text.splitlines() if each.startswith(line))


def well(service):
    status, found = service.call("/v1/predict", {"texts": TEXT})
    return status == 200 and len(found["predictions"][0]["labels"]) == 5


def test_more_unfinished_connections_than_allowed_stop_nobody(hardy):
    beginnings = b"", b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(hardy)) for _ in range(3 * MAX_CONNECTIONS)]
        for each, sent in zip(held, itertools.cycle(beginnings), strict=False):
            with contextlib.suppress(ConnectionError):
                each.sendall(sent)
        assert hardy.call("/healthz")[0] == 200  # while all of them are held
        assert well(hardy)
        for answer in map(read_all, held):
            assert not answer or status_of(answer) == 408
    assert counter(hardy, "connections_closed_total", reason="replaced") > 0
    assert len("\n".join(hardy.lines)) < 200_000


def test_a_header_that_never_ends_is_given_up_and_a_silent_connection_closed(hardy):
    with connect(hardy) as kept, connect(hardy) as slow:
        kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        answer = b""
        slow.settimeout(0.2)
        end = time.monotonic() + PATIENCE
        while not answer and time.monotonic() < end:  # a byte now and then is no help
            with contextlib.suppress(ConnectionError):
                slow.sendall(b"x")
            with contextlib.suppress(TimeoutError, ConnectionError):
                answer = slow.recv(4096)  # also what came before the connection was closed
        assert status_of(answer) == 408
        assert b"did not come in time" in answer
        assert read_all(kept).count(b"HTTP/1.1 200") == 1


def test_a_long_header_is_refused(hardy):
    with connect(hardy) as large:
        with contextlib.suppress(ConnectionError):
            large.sendall(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * (1 << 20))
        answer = large.recv(4096)
    assert status_of(answer) == 431


def test_a_body_in_one_byte_chunks_is_refused(hardy):
    text = json.dumps({"texts": TEXT * 20_000}).encode()
    with connect(hardy) as tiny:
        tiny.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            tiny.sendall(b"".join(b"1\r\n%c\r\n" % byte for byte in text) + b"0\r\n\r\n")
        answer = tiny.recv(4096)
    assert status_of(answer) == 413
    assert b"too many small pieces" in answer
    assert well(hardy)


def test_a_body_in_ordinary_chunks_is_read(hardy):
    body = json.dumps({"texts": [TEXT] * 50}).encode()
    with connect(hardy) as chunked:
        chunked.sendall(HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 100):
            piece = body[start : start + 100]
            chunked.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        chunked.sendall(b"0\r\n\r\n")
        assert status_of(read_all(chunked)) == 200


def test_a_body_cut_short_changes_nothing_and_a_slow_one_is_read(hardy):
    body = json.dumps({"texts": TEXT}).encode()
    with connect(hardy) as gone:
        gone.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + body)
    with connect(hardy) as slow:
        slow.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body))
        for byte in body:
            slow.sendall(bytes([byte]))
        assert status_of(read_all(slow)) == 200


def test_a_token_is_checked_before_the_body(service, run, tmp_path):
    token = tmp_path / "token"
    token.write_text("r" * 20)
    running = service(run, "--read-token-file", token)
    with connect(running) as without:
        without.sendall(HEAD + b"Content-Length: 1000000\r\n\r\n")  # and no byte of the body
        answer = read_all(without)  # it is closed: the body is not wanted
    assert status_of(answer) == 401
    assert b"connection: close" in answer.lower()


def test_many_requests_sent_at_once_are_answered_in_order(hardy):
    n = 50
    with connect(hardy) as eager:
        eager.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * (n - 1))
        eager.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        assert read_all(eager).count(b"HTTP/1.1 200") == n


def test_nonsense_is_answered_and_its_log_is_limited(hardy):
    start = time.monotonic()
    for _ in range(300):
        with connect(hardy) as rude:
            rude.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
            assert status_of(read_all(rude)) == 400
    assert well(hardy)
    periods = 2 + int((time.monotonic() - start) / PER_SECONDS)
    assert sum("Invalid HTTP request" in line for line in hardy.lines) <= periods * LINES


def shared_folder(service):
    """The folder of the workers' counters, from the environment of a worker."""
    children = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children")
    for child in children.read_text().split():
        with contextlib.suppress(OSError):  # a process that has ended
            for entry in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if entry.startswith(b"PROMETHEUS_MULTIPROC_DIR="):
                    return Path(entry.split(b"=", 1)[1].decode())
    raise AssertionError("no worker")


def requests_are_answered(service):
    for _ in range(8):
        assert well(service)
        assert service.call("/nothing")[0] == 404  # a counter that was not there yet
        assert urllib.request.urlopen(f"{service.url}/metrics", timeout=PATIENCE).status == 200


@contextlib.contextmanager
def small_disk(folder):
    """A file system of a few megabytes, or nothing where none can be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        yield False
        return
    try:
        yield True
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_or_a_removed_folder_of_counters_fails_no_request(
    service, run, tmp_path, monkeypatch
):
    small = tmp_path / "small"
    small.mkdir()
    monkeypatch.setenv("TMPDIR", str(small))
    with small_disk(small) as mounted:
        running = service(run, "--workers", "2")
        if mounted:
            with contextlib.suppress(OSError), (small / "filler").open("wb") as filler:
                while True:
                    filler.write(bytes(1 << 16))
                    filler.flush()
            requests_are_answered(running)
        # Moved in one step: a worker may create a counter while a folder is emptied file by file.
        folder = shared_folder(running)
        shutil.rmtree(folder.rename(folder.with_name(f"{folder.name}-removed")))
        assert not folder.exists()
        requests_are_answered(running)
        assert not [line for line in running.lines if "worker ended" in line]
        assert running.stop() == 0


def test_a_request_that_costs_too_much_is_refused_and_limits_are_published(hardy):
    limits = hardy.call("/v1/info")[1]["limits"]
    body = {"texts": [TEXT] * 256, "k": 1000, "explain": True}
    status, found = hardy.call("/v1/predict", body)
    assert status == 413
    assert f"at most {limits['max_cost']} are accepted" in found["error"]["message"]
    text = 1 + 10 / limits["labels_per_unit"] + len(TEXT) / limits["characters_per_unit"]
    fits = int(limits["max_cost"] / text)
    assert min(fits, 256) == 256
    assert hardy.call("/v1/predict", {**body, "k": 10, "explain": False})[0] == 200


def test_a_large_answer_is_whole_and_does_not_stop_others(hardy):
    body = {"texts": [f"{TEXT} {n}" for n in range(200)], "k": 40, "explain": True}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        large = pool.submit(hardy.call, "/v1/predict", body)
        while not large.done():
            assert hardy.call("/healthz")[0] == 200
    status, found = large.result()
    assert status == 200
    assert [len(each["labels"]) for each in found["predictions"]] == [40] * 200
    one = hardy.call("/v1/predict", {**body, "texts": body["texts"][150]})[1]
    both = [found["predictions"][150]["labels"], one["predictions"][0]["labels"]]
    ids, again = ([label["id"] for label in labels] for labels in both)
    assert ids[:5] == again[:5]


def test_a_flood_of_changes_is_held_back_and_predictions_go_on(service, run):
    running = service(run)
    codes, statuses, before = [], [], running.call("/v1/info")[1]["n_labels"]

    def add(number):
        for again in itertools.count():
            name = f"F{number}-{again}"
            labels = [{"id": f"{name}-{n}", "text": f"flood {name} {n}"} for n in range(1000)]
            statuses.append(running.call("/v1/labels", {"labels": labels})[0])
            if 429 in statuses:
                return

    with concurrent.futures.ThreadPoolExecutor(30) as pool:
        added = [pool.submit(add, number) for number in range(30)]
        while not all(each.done() for each in added):
            codes.append(running.call("/v1/predict", {"texts": TEXT})[0])
        assert not any(each.exception() for each in added)
    assert set(statuses) == {200, 429}
    assert set(codes) == {200}
    granted = statuses.count(200)
    assert running.call("/v1/info")[1]["n_labels"] == before + 1000 * granted


def test_https(service, run, tmp_path):
    from umpteen.client import Client

    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(certificate)],
        capture_output=True,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl cannot make a certificate here")
    running = service(run, "--certfile", certificate, "--keyfile", key)
    with Client(running.url, cafile=str(certificate)) as client:
        assert len(client.predict([TEXT])[0]) == 5
    with connect(running) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200" not in read_all(plain)


def test_a_silent_tls_handshake_is_closed_after_the_header_timeout():
    from umpteen.serving.run import event_loop

    async def silent():
        loop, tls = asyncio.get_running_loop(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        async with await loop.create_server(asyncio.Protocol, "127.0.0.1", 0, ssl=tls) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            async with asyncio.timeout(PATIENCE):
                began = loop.time()
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()
            return loop.time() - began

    with asyncio.Runner(loop_factory=event_loop(0.2)) as runner:
        assert runner.run(silent()) < 55  # without the limit it is a minute


def test_a_trace_is_passed_through(hardy):
    sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    request = urllib.request.Request(hardy.url + "/v1/info", headers={"traceparent": sent})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        back = answer.headers["traceparent"]
    assert back.split("-")[1] == sent.split("-")[1]
    assert back.split("-")[2] != sent.split("-")[2]
    until(lambda: any(f'"trace_id": "{sent.split("-")[1]}"' in line for line in hardy.lines))


def test_a_client_that_floods_the_queue_takes_no_place_of_another(service, run, tmp_path):
    from umpteen.client import Client, ServiceError
    from umpteen.serving.keys import add_key

    keys = tmp_path / "keys.json"
    greedy, modest = (add_key(keys, name, "read") for name in ("greedy", "modest"))
    running = service(run, "--keys", keys, "--queue", "128")
    stop, refused = threading.Event(), []

    def flood():
        with Client(running.url, token=greedy, seconds=PATIENCE, patience=0) as client:
            while not stop.is_set():
                try:
                    client.predict([TEXT] * 60, k=40, explain=True)
                except ServiceError as error:
                    refused.append(error.status)

    threads = [threading.Thread(target=flood) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: refused)  # the queue is full
        with Client(running.url, token=modest, seconds=PATIENCE, patience=0) as client:
            assert all(len(client.predict([TEXT])[0]) == 5 for _ in range(8))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert set(refused) == {429}
