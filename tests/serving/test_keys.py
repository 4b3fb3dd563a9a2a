"""Named keys: scopes, rotation without a restart, rate limits, the audit trail."""

import json
import os
import stat
import time

import pytest

from umpteen.errors import ConfigError
from umpteen.serving import access
from umpteen.serving.access import Access
from umpteen.serving.keys import add_key, read_keys, remove_key
from umpteen.serving.options import Options

NEW = {"labels": [{"id": "N1", "text": "new"}]}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys.json"


@pytest.fixture
def often(monkeypatch):
    monkeypatch.setattr(access, "LOOK_SECONDS", 0.0)


def test_scopes_include_those_before_them(serving, file):
    tokens = {scope: add_key(file, f"{scope}er", scope) for scope in ("read", "change", "admin")}
    client = serving(keys_file=str(file))
    wanted = {None: (401, 401, 401), "read": (200, 401, 401), "change": (200, 200, 401),
              "admin": (200, 200, 200)}  # fmt: skip
    for scope, expected in wanted.items():
        headers = bearer(tokens[scope]) if scope else {}
        codes = (
            client.post("/v1/predict", json={"texts": "a"}, headers=headers).status_code,
            client.post("/v1/labels", json=NEW, headers=headers).status_code,
            client.put("/v1/models/active", json={"name": "run"}, headers=headers).status_code,
        )
        assert codes == expected
        assert client.get("/v1/changes", headers=headers).status_code == expected[1]
        assert client.get("/v1/models", headers=headers).status_code == expected[0]


def test_a_key_that_may_only_read_is_named(serving, file):
    token = add_key(file, "page", "read")
    client = serving(keys_file=str(file))
    for headers, words in (
        (bearer(token), "the key 'page' may only read; give it the scope change"),
        ({}, "changes are off: no key has the scope change"),
    ):
        answer = client.post("/v1/labels", json=NEW, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["error"]["message"] == words


def test_the_file_holds_no_token_and_is_its_owners(file):
    token = add_key(file, "page", "read")
    assert token not in file.read_text()
    assert len(token) >= 32
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_keys_are_rotated_without_a_restart(serving, file, often):
    old = add_key(file, "page", "change")
    client = serving(keys_file=str(file))
    get = lambda token: client.get("/v1/info", headers=bearer(token)).status_code  # noqa: E731
    assert get(old) == 200
    new = add_key(file, "page", "change")
    assert (get(old), get(new)) == (401, 200)
    file.write_text("{ not JSON")  # the last good ones stay
    assert (get(old), get(new)) == (401, 200)
    add = json.dumps({"keys": []})
    file.write_text(add)
    assert get(new) == 401


def test_the_audit_trail_names_the_key(serving, file):
    add_key(file, "owner", "admin")
    token = add_key(file, "librarian", "change")
    client = serving(keys_file=str(file))
    assert client.post("/v1/labels", json=NEW, headers=bearer(token)).status_code == 200
    body = {"examples": [{"text": "a", "labels": ["L01"]}]}
    assert client.post("/v1/examples", json=body, headers=bearer(token)).status_code == 200
    found = client.get("/v1/changes?limit=5", headers=bearer(token)).json()["changes"]
    kinds = [(each["revision"], each["kind"], each["count"], each["who"]) for each in found]
    assert kinds == [
        (2, "add_examples", 1, "key librarian"),
        (1, "add_labels", 1, "key librarian"),
    ]
    assert time.strptime(found[0]["time"][:19], "%Y-%m-%dT%H:%M:%S")


def test_without_keys_the_audit_trail_names_the_address(client):
    assert client.delete("/v1/labels?id=L01").status_code == 200
    assert client.get("/v1/changes").json()["changes"][0]["who"] == "address testclient"


def test_a_key_has_its_own_rate(serving, file):
    slow = add_key(file, "slow", "read", rate=0.001)
    quick = add_key(file, "quick", "read")
    client = serving(keys_file=str(file))
    codes = [client.get("/v1/info", headers=bearer(slow)).status_code for _ in range(3)]
    assert codes == [200, 429, 429]
    refused = client.get("/v1/info", headers=bearer(slow))
    assert "may send 0.001 requests per second" in refused.json()["error"]["message"]
    assert int(refused.headers["Retry-After"]) > 100
    assert all(client.get("/v1/info", headers=bearer(quick)).status_code == 200 for _ in range(9))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "expected {"),
        ('{"keys": [{}]}', "key 1: expected name, scope"),
        ('{"keys": [{"name": "a", "scope": "root", "sha256": ""}]}', "scope 'root'"),
        ('{"keys": [{"name": "a", "scope": "read", "sha256": "00"}]}', "64 hexadecimal"),
        ('{"keys": [{"name": "", "scope": "read", "sha256": ""}]}', "no name of a key"),
        ("nonsense", "keys.json"),
    ],
)
def test_a_wrong_file_is_a_sentence_at_the_start(file, content, sentence):
    file.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        Access(Options(("run",), keys_file=str(file)))


def test_a_key_is_removed_and_an_unknown_one_is_a_sentence(file):
    add_key(file, "a", "read")
    add_key(file, "b", "change", rate=2.5)
    remove_key(file, "a")
    assert [(key.name, key.requests_per_second) for key in read_keys(file)] == [("b", 2.5)]
    with pytest.raises(ConfigError, match="has no key 'a'"):
        remove_key(file, "a")
