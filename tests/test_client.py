"""The client against a service: the same answers, its sentences, its patience."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.client import Client, ServiceError
from umpteen.errors import DataError, UmpteenError


@pytest.fixture
def script():
    """A server that answers from a list, and remembers what it was asked."""
    answers, asked = [], []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, dict(self.headers), body))
            status, headers, content = answers.pop(0)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
            if headers.get("X-Hang-Up"):
                self.close_connection = True

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers, asked
    server.shutdown()
    server.server_close()


def test_an_overloaded_service_is_asked_again(script):
    url, answers, asked = script
    answers += [
        (429, {"Retry-After": "0"}, b"{}"),
        (200, {}, b'{"predictions": [{"labels": [{"id": "a"}]}]}'),
    ]
    with Client(url, token="secret") as client:
        assert client.predict("text", 1, deny=("b",)) == [[{"id": "a"}]]
    assert len(asked) == 2
    assert asked[0][2]["Authorization"] == "Bearer secret"
    assert b'"deny": ["b"]' in asked[0][3]


def test_texts_come_in_any_container_of_strings(script):
    url, answers, asked = script
    answers += [(200, {}, b'{"predictions": [{"labels": []}, {"labels": []}]}')]
    with Client(url) as client:
        client.predict(pd.Series(["one", "two"]))
        with pytest.raises(DataError, match=r"such as table\['text'\]"):
            client.predict(pd.DataFrame({"text": ["one"]}))
    assert json.loads(asked[0][3])["texts"] == ["one", "two"]


def test_patience_ends(script):
    url, answers, _ = script
    answers += [(429, {"Retry-After": "9"}, b'{"error": {"code": "overloaded", "message": "no"}}')]
    with pytest.raises(ServiceError, match="no") as refused:
        Client(url, patience=1).predict("text")
    assert (refused.value.status, refused.value.code) == (429, "overloaded")


def test_a_connection_that_was_closed_meanwhile_is_opened_again(script):
    url, answers, asked = script
    answers += [(200, {"X-Hang-Up": "1"}, b'{"changed": 1}'), (200, {}, b'{"changed": 0}')]
    client = Client(url)
    assert [client.retire_labels(["a"]), client.retire_labels(["a"])] == [1, 0]
    assert len(asked) == 2


def test_examples_are_sent_to_their_route(script):
    url, answers, asked = script
    answers += [(200, {}, b'{"changed": 2, "revision": 7}')]
    examples = [{"text": "a", "labels": ["x"]}, {"text": "b", "labels": ["y"]}]
    assert Client(url).add_examples(examples) == 2
    method, path, _, body = asked[0]
    assert (method, path) == ("POST", "/v1/examples")
    assert json.loads(body) == {"examples": examples}


def test_refusals_are_the_services_own_sentences(script):
    url, answers, _ = script
    answers += [(409, {}, b'{"error": {"code": "conflict", "message": "it is taken"}}')]
    answers += [(502, {}, b"<html>")]
    client = Client(url)
    with pytest.raises(ServiceError, match="it is taken"):
        client.add_labels([{"id": "a", "text": "b"}])
    with pytest.raises(ServiceError, match="answered with 502"):
        client.info()


def test_nobody_there_is_a_sentence():
    with socket.socket() as silent:  # taken, and not listened on
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UmpteenError, match=f"the service at {url} does not answer"):
            Client(url).info()
        said = CliRunner().invoke(main, ["models", "list", "--url", url]).stderr
        assert said.startswith(f"umpteen: the service at {url} does not answer")
        assert said.endswith("; name its address with --url\n")
    with pytest.raises(UmpteenError, match="no address of a service"):
        Client("somewhere")
