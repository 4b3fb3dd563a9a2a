"""The routes: answers equal the library's, changes are in force in the next request."""

import concurrent.futures
import contextlib
import json
import shutil
import sqlite3
import threading

import numpy as np
import pytest
from hard_disks import no_room
from waiting import PATIENCE, until

import umpteen
from umpteen.errors import ConfigError
from umpteen.run_folder import RunFolder
from umpteen.store import ChangeStore

TEXTS = ["about red apple quite", "old river mirror", "tiny window near", ""]


def predict(client, texts, **body):
    answer = client.post("/v1/predict", json={"texts": texts, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(answer):
    return [[label["id"] for label in each["labels"]] for each in answer["predictions"]]


def stored(run):
    return ChangeStore.open(run, RunFolder(run).read_labels()[0]).state()


def sentence(answer, status):
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert set(answer.json()) == {"error"}
    assert "Traceback" not in answer.text
    return error["message"]


@pytest.mark.parametrize("head", ["dual", "classifier", "combined", "ensemble", None])
def test_answers_are_those_of_the_library(client, run, head):
    model = umpteen.Predictor.load(run, device="cpu")
    wanted = model.predict(TEXTS, 5, head=head)
    found = predict(client, TEXTS, k=5, **({"head": head} if head else {}))
    assert ids(found) == wanted.ids
    scores = [[label["score"] for label in each["labels"]] for each in found["predictions"]]
    np.testing.assert_allclose(scores, wanted.scores, atol=1e-5)
    assert found["head"] == head or head is None
    texts = [[label["text"] for label in each["labels"]] for each in found["predictions"]]
    assert texts == wanted.texts
    counts = found["predictions"][0]["labels"][0]["count"]
    assert counts == model.label_counts[wanted.rows[0, 0]]


def test_one_text_is_a_list_of_one(client):
    assert ids(predict(client, TEXTS[0])) == ids(predict(client, [TEXTS[0]]))


def test_contributions_of_the_heads_add_up_to_the_combined_score(client):
    client.post("/v1/labels", json={"labels": [{"id": "N1", "text": TEXTS[1]}]})
    found = predict(client, TEXTS, k=41, explain=True, head="combined")
    for each in found["predictions"]:
        for label in each["labels"]:
            assert sum(label["contributions"].values()) == pytest.approx(label["score"], abs=2e-5)
    assert "contributions" not in predict(client, TEXTS)["predictions"][0]["labels"][0]
    own = next(x for x in found["predictions"][1]["labels"] if x["id"] == "N1")
    assert own["contributions"]["dual"] == pytest.approx(1, abs=1e-5)


def test_the_ensemble_explains_with_contributions_and_neighbours(client):
    found = predict(client, TEXTS, k=3, explain=True)
    assert found["head"] == "ensemble"
    scorers = {"dual", "classifier", "knn", "lexical", "frequency"}
    for each in found["predictions"]:
        assert all(label["contributions"].keys() <= scorers for label in each["labels"])
        assert all(label["contributions"] for label in each["labels"])
        assert 1 <= len(each["neighbours"]) <= 5
        assert each["neighbours"][0]["labels"]
    assert "neighbours" not in predict(client, TEXTS)["predictions"][0]


@pytest.mark.parametrize("threshold", ["auto", 0.02, "groups"])
def test_thresholds_and_explanations_are_those_of_the_library(client, run, threshold):
    model = umpteen.Predictor.load(run, device="cpu")
    wanted = model.predict(TEXTS, 7, threshold=threshold, explain=True).to_list()
    found = predict(client, TEXTS, k=7, threshold=threshold, explain=True)
    for each, line in zip(found["predictions"], wanted, strict=True):
        assert [label["id"] for label in each["labels"]] == [label["id"] for label in line]
        for label, own in zip(each["labels"], line, strict=True):
            for part in ("scores", "contributions"):
                assert label[part] == pytest.approx(own[part], abs=1e-4)


def test_a_threshold_returns_up_to_20_labels_by_default(serving):
    client = serving()
    assert [len(each) for each in ids(predict(client, TEXTS[0]))] == [5]
    assert [len(each) for each in ids(predict(client, TEXTS[0], threshold=0.0))] == [20]
    few = serving(max_k=3)
    assert [len(each) for each in ids(predict(few, TEXTS[0]))] == [3]


def test_a_text_without_evidence_gets_a_note_and_no_label(client):
    found = predict(client, ["", TEXTS[0]], threshold="auto")["predictions"]
    assert found[0]["labels"] == []
    assert found[0]["note"]
    assert "note" not in found[1]


def test_corrections_count_in_the_next_prediction(client):
    text = "quite some candle under mountain"
    before = client.get("/v1/info").json()["n_examples"]
    body = {"examples": [{"text": text, "labels": ["L30"]}]}
    assert client.post("/v1/examples", json=body).json() == {"changed": 1, "revision": 1}
    assert client.post("/v1/examples", json=body).json() == {"changed": 0, "revision": 1}
    assert client.get("/v1/info").json()["n_examples"] == before + 1
    found = predict(client, text, k=1, explain=True)
    assert ids(found) == [["L30"]]
    assert found["predictions"][0]["neighbours"][0]["text"] == text
    bad = {"examples": [{"text": "a", "labels": ["nobody"]}]}
    assert "no label has the id 'nobody'" in sentence(client.post("/v1/examples", json=bad), 422)
    bad = {"examples": [{"text": " ", "labels": ["L30"]}]}
    assert "blank text" in sentence(client.post("/v1/examples", json=bad), 422)


@pytest.mark.parametrize("threshold", ["auto", "groups", 0.2, 0, 1])
def test_thresholds_are_those_of_the_library(client, run, threshold):
    model = umpteen.Predictor.load(run, device="cpu")
    wanted = model.predict(TEXTS, 9, threshold=threshold)
    assert ids(predict(client, TEXTS, k=9, threshold=threshold)) == wanted.ids


def test_a_threshold_needs_probabilities(client, run):
    model = umpteen.Predictor.load(run, device="cpu")
    for body in [
        {"threshold": 0.5, "head": "combined"},
        {"threshold": "auto", "head": "dual"},
        {"threshold": 1.5},
        {"threshold": -0.1, "head": "ensemble"},
    ]:
        with pytest.raises(ConfigError) as error:
            model.predict("a", **body)
        answer = client.post("/v1/predict", json={"texts": "a", **body})
        assert sentence(answer, 422) == str(error.value)
    answer = client.post("/v1/predict", json={"texts": "a", "threshold": "often"})
    assert "threshold" in sentence(answer, 422)


def test_allow_and_deny(client):
    every = predict(client, TEXTS, k=40, head="combined")
    some = predict(client, TEXTS, k=40, allow=["L03", "L30", "L03"])
    assert [sorted(each) for each in ids(some)] == [["L03", "L30"]] * 4
    best = ids(every)[0][0]
    without = predict(client, TEXTS, k=40, deny=[best, "L30"], head="combined")
    assert ids(without)[0] == [i for i in ids(every)[0] if i not in (best, "L30")]
    assert ids(predict(client, TEXTS, allow=[])) == [[], [], [], []]


def test_requests_of_all_kinds_at_once_get_what_they_get_alone(client):
    bodies = [
        {"texts": TEXTS[:2], "k": 3},
        {"texts": TEXTS[1:], "k": 7, "head": "dual"},
        {"texts": TEXTS[:1], "k": 40, "deny": ["L00", "L01"]},
        {"texts": TEXTS, "k": 2, "allow": ["L05", "L06", "L07"]},
        {"texts": TEXTS[2:], "k": 5, "threshold": 0.1},
        {"texts": TEXTS[:3], "k": 4, "explain": True},
    ]
    alone = [client.post("/v1/predict", json=body).json() for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        together = list(
            pool.map(lambda body: client.post("/v1/predict", json=body).json(), bodies * 10)
        )
    for place, found in enumerate(together):
        wanted = alone[place % len(bodies)]
        assert ids(found) == ids(wanted)
        for one, two in zip(found["predictions"], wanted["predictions"], strict=True):
            mine = [label["score"] for label in one["labels"]]
            np.testing.assert_allclose(mine, [label["score"] for label in two["labels"]], atol=2e-5)


def test_labels_are_added_retired_and_restored(client, run):
    answer = client.post("/v1/labels", json={"labels": [{"id": "N/1 ä", "text": TEXTS[1]}]})
    assert answer.json() == {"changed": 1, "revision": 1}
    assert ids(predict(client, TEXTS[1], k=1, head="dual")) == [["N/1 ä"]]
    assert stored(run).labels.rows["N/1 ä"] == 40
    gone = ids(predict(client, TEXTS[0], k=2))[0]
    answer = client.delete("/v1/labels", params={"id": ["N/1 ä", *gone]})
    assert answer.json() == {"changed": 3, "revision": 2}
    for head in ("dual", "classifier", "combined", "ensemble"):
        found = ids(predict(client, TEXTS, k=50, head=head))
        assert not {"N/1 ä", *gone} & {i for each in found for i in each}
    assert client.post("/v1/labels/restore", json={"ids": gone}).json()["changed"] == 2
    assert ids(predict(client, TEXTS[0], k=2)) == [gone]
    assert client.post("/v1/labels/retire", json={"ids": gone[:1]}).json()["changed"] == 1
    assert client.post("/v1/labels/retire", json={"ids": gone[:1]}).json()["changed"] == 0


def test_the_list_is_searched_and_paged(client):
    client.post("/v1/labels", json={"labels": [{"id": "N1", "text": "Zebra crossing"}]})
    found = client.get("/v1/labels", params={"search": "zebra"}).json()
    assert found == {
        "labels": [{"id": "N1", "text": "Zebra crossing", "count": 0, "state": "added"}],
        "total": 1,
    }
    page = client.get("/v1/labels", params={"offset": 38, "limit": 2}).json()
    assert [label["id"] for label in page["labels"]] == ["L38", "L39"]
    assert page["total"] == 41
    frequent = client.get("/v1/labels", params={"order": "frequent", "limit": 40}).json()
    counts = [label["count"] for label in frequent["labels"]]
    assert counts == sorted(counts, reverse=True)
    changed = client.get("/v1/labels", params={"changed": True}).json()
    assert changed["total"] == 1


def test_what_is_refused_is_a_sentence(serving):
    client = serving(max_texts=3, max_characters=50, max_k=9, max_ids=3, max_labels=2)
    post = client.post
    for body, status, words in [
        ({"texts": []}, 422, "texts is empty"),
        ({"texts": ["a"] * 4}, 413, "4 texts were sent; at most 3"),
        ({"texts": ["a" * 51]}, 413, "51 characters; at most 50"),
        ({"texts": "a", "k": 10}, 422, "k is 10; at most 9"),
        ({"texts": "a", "k": 0}, 422, "k: "),
        ({"texts": "a", "head": "both"}, 422, "the model has no head 'both'"),
        ({"texts": "a", "allow": ["nobody"]}, 422, "allow: no label has the id 'nobody'"),
        ({"texts": "a", "deny": ["L01"] * 4}, 413, "deny holds 4 ids; at most 3"),
        ({"texts": "a", "colour": 1}, 422, "colour: "),
        ({"texts": 3}, 422, "not valid: texts"),
        ({"text": "a"}, 422, 'send {"texts": ["some text"]}'),
        ({"texts": ["a", "b\ud800"]}, 422, "texts[1] contains a lone surrogate at character 2"),
        ({"texts": "a", "\ud800": 1}, 422, "not valid"),
        ({}, 422, "texts: Field required"),
        ([], 422, "not valid"),
    ]:
        answer = post(
            "/v1/predict",
            content=json.dumps(body),
            headers={"Content-Type": "application/json"},
        )
        assert words in sentence(answer, status)
    new = {"id": "N1", "text": "new"}
    for body, status, words in [
        ({"labels": []}, 422, "labels: "),
        ({"labels": [new] * 3}, 413, "at most 2 at once"),
        ({"labels": [{"id": "N1", "text": " "}]}, 422, "neither may be blank"),
        ({"labels": [new, {"id": "L01", "text": "taken"}]}, 409, "an id is never used twice"),
    ]:
        assert words in sentence(post("/v1/labels", json=body), status)
    assert "no label has the id 'x'" in sentence(client.delete("/v1/labels?id=x"), 404)
    assert "ids: " in sentence(post("/v1/labels/retire", json={"ids": []}), 422)
    assert "id: " in sentence(client.delete("/v1/labels"), 422)
    assert "nothing here" in sentence(client.get("/v2/predict"), 404)
    assert "cannot be done here" in sentence(client.get("/v1/predict"), 405)
    assert client.get("/v1/info").json()["revision"] == 0


def test_a_deadline_is_kept(serving):
    client = serving(wait_seconds=0.2)
    predict(client, TEXTS)
    client.app.state.engine._batcher._last = 4  # as many are waited for
    answer = client.post("/v1/predict", json={"texts": "a", "deadline_ms": 20})
    assert "the deadline passed" in sentence(answer, 504)


def test_overload_is_told_to_come_back(serving):
    client = serving(queue_texts=8, max_texts=7)
    go_on = threading.Event()
    client.app.state.engine._batcher._thread.submit(go_on.wait, PATIENCE)  # no answer before it

    def ask():
        return client.post("/v1/predict", json={"texts": TEXTS})

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask) for _ in range(4)]
        until(lambda: any(each.done() for each in asked))
        go_on.set()
        answers = [each.result() for each in asked]
    assert {answer.status_code for answer in answers} == {200, 429}
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert int(refused.headers["Retry-After"]) >= 1
    assert "try again in" in sentence(refused, 429)


def test_info_describes_the_run(client, run):
    about = client.get("/v1/info").json()
    assert about["heads"] == ["dual", "classifier", "combined", "ensemble"]
    assert about["default_head"] == "ensemble"
    assert (about["run"], about["n_labels"], about["changes"]) == ("run", 40, "")
    assert sum(each["labels"] for each in about["frequencies"]) == 40
    assert about["history"][-1]["heads"]["dual"]["P@1"] >= 0
    variant = json.loads((run / "ensemble" / "ensemble.json").read_text())["variants"][0]
    assert about["ensemble"]["scorers"] == variant["scorers"]
    assert about["ensemble"]["calibration_error"] == variant["validation"].get("ECE")
    assert about["ensemble"]["threshold"] == variant["calibration"]["threshold"]
    assert about["ensemble"]["group_thresholds"] == variant["calibration"]["group_thresholds"]
    client.delete("/v1/labels?id=L01")
    about = client.get("/v1/info").json()
    assert (about["n_labels"], about["n_retired"], about["revision"]) == (39, 1, 1)


def test_health_readiness_and_metrics(client):
    assert client.get("/healthz").json() == {"status": "alive"}
    assert client.get("/readyz").json()["status"] == "ready"
    predict(client, TEXTS)
    client.get("/nowhere/at/all")
    client.request("BREW", "/v1/predict")
    text = client.get("/metrics").text
    assert 'umpteen_requests_total{code="200",method="POST",route="/v1/predict"} 1' in text
    assert "nowhere" not in text
    assert "BREW" not in text
    assert "umpteen_texts_total 4" in text
    assert "umpteen_labels 40" in text
    assert "umpteen_store_revision 0" in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.rsplit(" ", 1)) == 2
        if not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz"])
def test_head_is_answered_as_get_is(client, path):
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert client.get(path).status_code == 200


def test_a_full_disk_refuses_changes_and_predictions_go_on(client, run):
    client.delete("/v1/labels?id=L01")
    with no_room((run / "changes.sqlite-wal").stat().st_size + 10):
        answer = client.post("/v1/labels", json={"labels": [{"id": "N", "text": "x" * 2000}]})
        assert "could not be written" in sentence(answer, 503)
        assert str(run) not in answer.text
        assert "L01" not in ids(predict(client, TEXTS, k=50))[0]
    assert client.post("/v1/labels", json={"labels": [{"id": "N", "text": "x"}]}).status_code == 200


def test_a_damaged_store_refuses_changes_and_predictions_go_on(serving, run):
    first = serving()
    first.delete("/v1/labels?id=L01")
    first.delete("/v1/labels?id=L02")
    examples = {"examples": [{"text": "candle number", "labels": ["L30"]}]}
    assert first.post("/v1/examples", json=examples).status_code == 200
    with contextlib.closing(sqlite3.connect(run / "changes.sqlite")) as connection:
        connection.execute("UPDATE retirements SET retired = 0 WHERE row = 1")
        connection.commit()
    client = serving()
    assert "L02" not in ids(predict(client, TEXTS, k=50))[0]
    assert ids(predict(client, "candle number", k=1)) == [["L30"]]
    for answer in [client.delete("/v1/labels?id=L05"), client.post("/v1/examples", json=examples)]:
        assert "is damaged" in sentence(answer, 503)
        assert str(run) not in answer.text
    assert "damaged" in client.get("/v1/info").json()["changes"]
    assert "umpteen_store_damaged 1" in client.get("/metrics").text
    assert "the store of changes" in sentence(client.get("/readyz"), 503)
    assert client.get("/healthz").status_code == 200


def test_a_store_that_was_rolled_back_is_noticed_and_keeps_labels_retired(client, run):
    client.delete("/v1/labels?id=L01")
    backup = {f: f.read_bytes() for f in run.glob("changes.sqlite*")}
    client.delete("/v1/labels?id=L02")
    for file in run.glob("changes.sqlite*"):
        file.unlink()
    for file, content in backup.items():
        file.write_bytes(content)
    answer = sentence(client.get("/readyz"), 503)
    assert "the store of changes" in answer
    assert str(run) not in answer
    assert not {"L01", "L02"} & set(ids(predict(client, TEXTS, k=50))[0])
    assert client.delete("/v1/labels?id=L05").status_code == 503


def test_a_run_folder_that_is_gone_is_not_ready_and_predictions_go_on(client, run):
    shutil.rmtree(run)
    assert "the run folder is gone" in sentence(client.get("/readyz"), 503)
    assert client.get("/healthz").status_code == 200
    assert ids(predict(client, TEXTS[0], k=2))[0]


def test_the_openapi_document_names_every_route(client):
    paths = client.get("/openapi.json").json()["paths"]
    assert {"/v1/predict", "/v1/labels", "/v1/examples", "/v1/info", "/healthz", "/metrics"} <= set(
        paths
    )
    assert set(paths["/v1/labels"]) == {"get", "post", "delete"}


def test_a_method_that_is_not_there_names_those_that_are(client):
    for path, allowed in [
        ("/v1/labels", "DELETE, GET, POST"),
        ("/v1/models", "GET, POST"),
        ("/v1/models/none", "DELETE"),
        ("/v1/predict", "POST"),
        ("/healthz", "GET, HEAD"),
    ]:
        answer = client.request("PATCH", path)
        assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)


def test_texts_to_label_next_are_those_of_the_library(client, run):
    from umpteen.predictor import Predictor
    from umpteen.suggestions import suggest

    texts = ["red apple", "an unclear thing", "old river"]
    answer = client.post("/v1/suggest", json={"texts": texts, "n": 2})
    assert answer.status_code == 200, answer.text
    found = answer.json()["suggestions"]
    expected = suggest(Predictor.load(run, device="cpu"), texts, 2)
    assert [each["position"] for each in found] == [each.position for each in expected]
    assert [each["gain"] for each in found] == [round(each.gain, 4) for each in expected]
    assert found[0]["labels"] == expected[0].labels


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"texts": []}, 422),
        ({"texts": ["a"], "n": 0}, 422),
        ({"texts": ["a"], "k": 3}, 422),
        ({"texts": ["a"] * 300}, 413),
        ({"texts": ["a" * 20_001]}, 413),
    ],
)
def test_suggestions_have_limits(body, status, client):
    answer = client.post("/v1/suggest", json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_the_report_of_the_run_is_served_once_it_is_written(client, run):
    sentence(client.get("/report"), 404)
    (run / "report.html").write_text("<p>page")
    answer = client.get("/report")
    assert (answer.text, answer.headers["content-type"]) == ("<p>page", "text/html; charset=utf-8")
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
