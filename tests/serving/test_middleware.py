"""Tokens, hosts, origins, sizes, headers, and a log without texts."""

import asyncio
import logging

import pytest
from waiting import PATIENCE

from umpteen.errors import ConfigError
from umpteen.serving.access import Access
from umpteen.serving.connections import Connection, Connections
from umpteen.serving.options import Options

READ, CHANGE = "r" * 20, "c" * 20
NEW = {"labels": [{"id": "N1", "text": "new"}]}


@pytest.fixture
def tokens(tmp_path):
    files = {}
    for name, token in (("read", READ), ("change", CHANGE)):
        file = tmp_path / f"{name}.token"
        file.write_text(token + "\n")
        files[f"{name}_token_file"] = str(file)
    return files


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_tokens_for_reading_and_for_changing(serving, tokens):
    client = serving(**tokens)
    body = {"texts": "a"}
    for headers, reads, changes in [
        ({}, 401, 401),
        (bearer("x" * 20), 401, 401),
        ({"Authorization": "Basic abc"}, 401, 401),
        (bearer(READ), 200, 401),
        (bearer(CHANGE), 200, 200),
        (bearer("ü"), 401, 401),
    ]:
        headers = {name: value.encode("latin-1") for name, value in headers.items()}
        assert client.post("/v1/predict", json=body, headers=headers).status_code == reads
        for path in ("/v1/info", "/v1/labels", "/metrics", "/openapi.json"):
            assert client.get(path, headers=headers).status_code == reads
        assert client.post("/v1/labels", json=NEW, headers=headers).status_code == changes
        answer = client.delete("/v1/labels?id=L01", headers=headers)
        assert answer.status_code == changes
        if changes == 401:
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/healthz", "/readyz", "/"):
        assert client.get(path).status_code == 200


def test_a_change_token_alone_leaves_reading_free(serving, tokens):
    client = serving(change_token_file=tokens["change_token_file"])
    assert client.get("/v1/info").status_code == 200
    assert client.post("/v1/labels", json=NEW).status_code == 401
    assert client.post("/v1/labels", json=NEW, headers=bearer(CHANGE)).status_code == 200


def test_a_read_token_alone_switches_changes_off(serving, tokens):
    client = serving(read_token_file=tokens["read_token_file"])
    example = {"examples": [{"text": "a", "labels": ["L01"]}]}
    for headers in ({}, bearer(READ)):
        for path, body in [("/v1/labels", NEW), ("/v1/examples", example)]:
            answer = client.post(path, json=body, headers=headers)
            assert answer.status_code == 403
            assert "--change-token-file" in answer.json()["error"]["message"]
        assert client.delete("/v1/labels?id=L01", headers=headers).status_code == 403
    about = client.get("/v1/info", headers=bearer(READ)).json()
    assert "without a token" in about["changes"]


def test_off_loopback_changes_need_a_token(serving, tokens):
    client = serving(host="0.0.0.0")
    assert client.post("/v1/predict", json={"texts": "a"}).status_code == 200
    answer = client.post("/v1/labels", json=NEW)
    assert answer.status_code == 403
    assert "--change-token-file" in answer.json()["error"]["message"]
    assert "without a token" in client.get("/v1/info").json()["changes"]
    client = serving(host="0.0.0.0", change_token_file=tokens["change_token_file"])
    assert client.post("/v1/labels", json=NEW, headers=bearer(CHANGE)).status_code == 200


@pytest.mark.parametrize("content", ["", "short", "ü" * 20, "a b\tc" * 6])
def test_a_poor_token_is_refused_at_the_start(tmp_path, content):
    file = tmp_path / "token"
    file.write_text(content)
    with pytest.raises(ConfigError, match="at least 16 printable ASCII characters"):
        Access(Options(("run",), read_token_file=str(file)))
    with pytest.raises(ConfigError, match="cannot be read from"):
        Access(Options(("run",), read_token_file=str(tmp_path / "none")))


def test_other_names_and_other_sites_are_refused(client, serving):
    for host, status in [("evil.example", 403), ("localhost:8000", 200), ("[::1]:8000", 200)]:
        assert client.get("/v1/info", headers={"Host": host}).status_code == status
    for origin, status in [
        ("http://evil.example", 403),
        ("null", 403),
        ("http://127.0.0.1:8000", 200),
    ]:
        answer = client.post("/v1/labels", json=NEW, headers={"Origin": origin})
        assert answer.status_code == status
    named = serving(hosts=("labels.example",))
    assert named.get("/v1/info", headers={"Host": "labels.example"}).status_code == 200


def test_only_json_is_read(client):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/v1/labels", content='{"labels": []}', headers={"Content-Type": kind})
        assert answer.status_code == 415
    answer = client.post(
        "/v1/predict",
        content='{"texts": "a"}',
        headers={"Content-Type": "Application/JSON; charset=utf-8"},
    )
    assert answer.status_code == 200


def test_a_large_body_is_refused_with_and_without_its_length(serving):
    client = serving(max_body_bytes=1000)
    body = b'{"texts": "' + b"a" * 2000 + b'"}'
    headers = {"Content-Type": "application/json"}
    assert client.post("/v1/predict", content=body, headers=headers).status_code == 413
    pieces = iter([body[:900], body[900:]])
    answer = client.post("/v1/predict", content=pieces, headers=headers)
    assert answer.status_code == 413
    assert "larger than the 1000 bytes" in answer.json()["error"]["message"]


def test_every_answer_has_safe_headers(client):
    for path in ("/", "/v1/info", "/nothing", "/healthz"):
        headers = client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Request-Id"]
        assert "access-control-allow-origin" not in headers


def test_the_log_holds_no_texts(client, caplog):
    caplog.set_level(logging.INFO, "umpteen.serving")
    client.post("/v1/predict", json={"texts": ["my secret"], "allow": ["secret id"]})
    client.post("/v1/labels", json={"labels": [{"id": "N1", "text": "secret label"}]})
    client.get("/v1/labels?search=secret")
    fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
    assert [each["status"] for each in fields] == [422, 200, 200]
    assert {each["route"] for each in fields} == {"/v1/predict", "/v1/labels"}
    assert "secret" not in str(fields) + caplog.text


@pytest.mark.parametrize(
    "path", ["/web/../app.py", "/web/..%2fapp.py", "/web//etc/passwd", "/web/none.js", "/web/"]
)
def test_no_path_of_a_request_is_opened(client, path):
    assert client.get(path).status_code == 404


def test_time_in_which_the_process_did_not_run_is_not_counted_as_the_client_s():
    async def play():
        loop = asyncio.get_running_loop()
        connections = Connections(Options(("run",), header_seconds=60))
        accept = lambda: Connection(connections, asyncio.Protocol())  # noqa: E731
        async with await loop.create_server(accept, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            async with asyncio.timeout(PATIENCE):
                while not len(connections):
                    await asyncio.sleep(0.01)
                now = loop.time()
                connections.sweep(now + 3600, late=3600)
                kept = len(connections)
                connections.sweep(now + 7200, late=0)
                answer = await reader.read()
            writer.close()
            return kept, answer

    kept, answer = asyncio.run(play())
    assert kept == 1
    assert answer.startswith(b"HTTP/1.1 408 ")
