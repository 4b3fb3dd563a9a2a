"""Whatever is sent, the service answers with a sentence: no 5xx, no traceback, no growth."""

import json
import random

import pytest

schemathesis = pytest.importorskip("schemathesis")
requests = pytest.importorskip("requests")
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

from .conftest import DEADLINE  # noqa: E402

WELL = (200, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 504)


def judge(answer):
    assert answer.status_code in WELL, (answer.status_code, answer.text[:300])
    assert "Traceback" not in answer.text
    assert "site-packages" not in answer.text
    if answer.status_code >= 400:
        assert set(answer.json()["error"]) == {"code", "message"}


@pytest.fixture(scope="module")
def app(served_run, tmp_path_factory):
    import shutil

    from umpteen.serving.app import create_app
    from umpteen.serving.options import Options

    run = shutil.copytree(served_run, tmp_path_factory.mktemp("fuzzed") / "run")
    options = {"poll_seconds": 0, "wait_seconds": 0, "deadline_seconds": DEADLINE}
    return create_app(Options((str(run),), device="cpu", **options))


@pytest.fixture(scope="module")
def fuzzed(app):
    from starlette.testclient import TestClient

    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.fixture(scope="module")
def schema(fuzzed):
    return schemathesis.openapi.from_dict(fuzzed.get("/openapi.json").json())


def told(case):
    """What schemathesis would hand to requests, without its own wishes for the connection."""
    fields = case.as_transport_kwargs(base_url="http://127.0.0.1")
    names = ("method", "url", "headers", "files", "data", "json", "params", "auth", "cookies")
    return {name: fields[name] for name in names if name in fields}


OPERATIONS = [
    ("post", "/v1/predict"),
    ("get", "/v1/labels"),
    ("post", "/v1/labels"),
    ("delete", "/v1/labels"),
    ("post", "/v1/labels/retire"),
    ("post", "/v1/labels/restore"),
    ("post", "/v1/examples"),
    ("get", "/v1/changes"),
    ("get", "/v1/models"),
    ("post", "/v1/models"),
    ("put", "/v1/models/active"),
    ("post", "/v1/models/rollback"),
    ("delete", "/v1/models/{name}"),
    ("get", "/v1/info"),
    ("get", "/metrics"),
]


BARE = {
    ("get", "/metrics"),
    ("get", "/v1/models"),
    ("post", "/v1/models/rollback"),
    ("delete", "/v1/models/{name}"),
}
"""Without anything to get wrong."""
MODES = [(mode, *each) for mode in ("positive", "negative") for each in OPERATIONS]


@pytest.mark.parametrize(
    ("mode", "method", "path"), [m for m in MODES if m[0] == "positive" or m[1:] not in BARE]
)
def test_requests_made_from_the_openapi_document(fuzzed, schema, mode, method, path):
    """Schemathesis makes requests that fit the document, and requests that do not."""
    from hypothesis import given

    operation = schema[path][method]
    cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode))

    @settings(
        max_examples=12,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def ask(case):
        made = requests.Request(**told(case)).prepare()
        answer = fuzzed.request(
            made.method, made.url, content=made.body, headers=dict(made.headers)
        )
        judge(answer)

    ask()


def pieces(rng):
    """JSON that is nearly right, and bytes that are not JSON at all."""
    values = [None, True, -1, 0, 1e308, 10**30, "", "a", "\ud800", "a" * 3000, [], {}, [[]], [None]]
    fields = ["texts", "k", "head", "threshold", "allow", "deny", "explain", "labels", "ids", "id"]
    for _ in range(150):
        body = {rng.choice(fields): rng.choice(values) for _ in range(rng.randrange(5))}
        if rng.random() < 0.5:
            body["texts"] = rng.choice(["a", ["a", "b"], [""]])
        raw = json.dumps(body).encode()
        change = rng.randrange(4)
        if change == 0 and raw:
            place = rng.randrange(len(raw))
            raw = raw[:place] + bytes([rng.randrange(256)]) + raw[place + 1 :]
        elif change == 1:
            raw = raw[: rng.randrange(len(raw) + 1)]
        yield raw
    yield from [
        b"",
        b"[" * 100_000,
        b"{" * 5000,
        b'{"k": ' + b"9" * 6000 + b"}",
        b"\xff\xfe",
        b"NaN",
    ]
    yield b'{"texts": "a", "threshold": NaN}'
    yield b'{"texts": "a", "k": 1e400}'
    yield b'{"texts": ' + b'["' + b'","'.join([b"a"] * 300) + b'"]}'


def test_raw_bodies(fuzzed):
    rng = random.Random(11)
    headers = {"Content-Type": "application/json"}
    for raw in pieces(rng):
        for path in ("/v1/predict", "/v1/labels", "/v1/labels/retire", "/v1/examples"):
            judge(fuzzed.post(path, content=raw, headers=headers))


def test_odd_addresses_and_headers(fuzzed):
    paths = ["/v1/labels?limit=x", "/v1/labels?offset=-1", "/v1/labels?search=%ff%fe%00", "//"]
    paths += ["/v1/labels?order=none", "/%00", "/v1/labels/%2e%2e", "/v1/labels?id=" + "a" * 9000]
    for path in paths:
        judge(fuzzed.get(path))
    odd = [("Authorization", "Bearer"), ("Host", ""), ("Host", "[::1"), ("Origin", "http://[::1")]
    for name, value in [*odd, ("Origin", "::"), ("Content-Length", "x"), ("Cookie", "\x80=1")]:
        judge(fuzzed.post("/v1/predict", content=b"{}", headers={name: value.encode("latin-1")}))


def test_nothing_grows_with_what_is_refused(fuzzed, app):
    metrics = app.state.engine.metrics
    before = None
    for round_ in range(40):
        fuzzed.get(f"/path-{round_}")
        fuzzed.post("/v1/predict", json={"texts": "a", f"field-{round_}": 1})
        fuzzed.request(f"VERB{round_}", "/v1/info")
        if round_ == 4:
            before = len(metrics.render().splitlines())
    assert len(metrics.render().splitlines()) == before
    assert app.state.engine.waiting == 0


def test_the_document_says_which_answers_need_no_token_and_are_no_json(serving, tmp_path):
    (tmp_path / "token").write_text("a token of some length")
    found = serving(read_token_file=str(tmp_path / "token")).app.openapi()["paths"]
    asked = {path: each["get"] for path, each in found.items() if "get" in each}
    free = [path for path, each in asked.items() if "security" not in each]
    assert sorted(free) == ["/healthz", "/readyz"]
    answers = found["/metrics"]["get"]["responses"]
    assert list(answers["200"]["content"]) == ["text/plain"]
    assert list(answers["401"]["content"]) == ["application/json"]
