"""The routes of an Annif project: what Annif's http backend sends, answered as Annif answers."""

import json
from datetime import UTC, datetime

import pytest

import umpteen
from umpteen.errors import ConfigError

PROJECT = "/v1/projects/my-tags"
TEXT = "about red apple quite"


@pytest.fixture
def annif(serving):
    return serving(annif="my-tags", max_characters=60)


def test_suggest_takes_a_form_and_answers_with_probabilities(annif, run):
    (run / "label_metadata.jsonl").write_text('{"id": "L00", "notation": "4.2"}\n')
    answer = annif.post(f"{PROJECT}/suggest", data={"text": TEXT, "limit": 3, "metadata_a": "b"})
    assert answer.status_code == 200, answer.text
    wanted = umpteen.Predictor.load(run, device="cpu").predict(TEXT, 3)
    results = answer.json()["results"]
    assert [each["uri"] for each in results] == wanted.ids[0]
    assert [each["label"] for each in results] == wanted.texts[0]
    assert [each["score"] for each in results] == pytest.approx(wanted.scores[0].tolist(), abs=1e-5)
    assert {each["notation"] for each in results} <= {"4.2", None}
    assert all((each["notation"] == "4.2") == (each["uri"] == "L00") for each in results)
    assert all(0 < each["score"] <= 1 for each in results)


def test_limit_and_threshold_are_kept(annif):
    def suggest(**fields):
        answer = annif.post(f"{PROJECT}/suggest", data={"text": TEXT, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["results"]

    assert len(suggest()) == 10
    assert suggest(limit=0) == []
    scores = [each["score"] for each in suggest(limit=5)]
    assert len(suggest(limit=5, threshold=scores[1])) == 2


def test_a_longer_text_than_is_read_is_cut(annif):
    long = f"{TEXT} {'river ' * 50}"
    cut = annif.post(f"{PROJECT}/suggest", data={"text": long[:60]}).json()
    assert annif.post(f"{PROJECT}/suggest", data={"text": long}).json() == cut


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"limit": "3"}, "no field 'text'"),
        ({"text": TEXT, "limit": "many"}, "limit is 'many'; expected a number"),
        ({"text": TEXT, "limit": "-1"}, "limit is -1; expected at least 0"),
        ({"text": TEXT, "threshold": "nan"}, "threshold is nan"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(annif, fields, says):
    answer = annif.post(f"{PROJECT}/suggest", data=fields)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_bytes_that_are_no_text_are_refused(annif):
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = annif.post(f"{PROJECT}/suggest", content=b"text=%ff", headers=headers)
    assert answer.status_code == 400
    answer = annif.post(f"{PROJECT}/suggest", content=b"a=&" * 2000, headers=headers)
    assert answer.status_code == 400


def test_a_batch_holds_at_most_32_documents(annif):
    documents = [{"text": TEXT, "document_id": "one"}, {"text": "old river"}]
    answer = annif.post(f"{PROJECT}/suggest-batch?limit=2", json={"documents": documents}).json()
    assert [each["document_id"] for each in answer] == ["one", None]
    alone = annif.post(f"{PROJECT}/suggest", data={"text": TEXT, "limit": 2}).json()
    assert answer[0]["results"] == alone["results"]
    refused = annif.post(f"{PROJECT}/suggest-batch", json={"documents": [{"text": "a"}] * 33})
    assert refused.status_code == 400
    assert "at most 32" in refused.json()["error"]["message"]


def test_the_project_says_that_it_is_trained_and_since_when(annif, run):
    about = annif.get(PROJECT).json()
    assert about["is_trained"] is True
    changed = datetime.fromisoformat(about["modification_time"])
    assert changed == datetime.fromtimestamp((run / "models.json").stat().st_mtime, UTC)
    assert annif.get("/v1/projects").json() == {"projects": [about]}
    assert annif.get("/v1/projects/other").status_code == 404


def test_learn_adds_examples_and_leaves_unknown_labels_out(annif, run):
    documents = [
        {"text": "zebra quux", "subjects": [{"uri": "L03", "label": "x"}, {"uri": "unknown"}]},
        {"text": "nothing known", "subjects": [{"uri": "unknown"}]},
    ]
    answer = annif.post(f"{PROJECT}/learn", json=documents)
    assert (answer.status_code, answer.content) == (204, b"")
    best = annif.post(f"{PROJECT}/suggest", data={"text": "zebra quux"}).json()["results"][0]
    assert best["uri"] == "L03"
    assert annif.get("/v1/info").json()["revision"] == 1


def test_forms_are_taken_by_suggest_alone(annif, serving):
    for path in ("/v1/predict", "/v1/examples", f"{PROJECT}/learn", f"{PROJECT}/suggest-batch"):
        refused = annif.post(path, data={"text": TEXT})
        assert refused.status_code == 415
        assert "only /v1/projects/" in refused.json()["error"]["message"]
    assert serving().post(f"{PROJECT}/suggest", data={"text": TEXT}).status_code == 415
    foreign = {"Origin": "http://elsewhere.example"}
    refused = annif.post(f"{PROJECT}/suggest", data={"text": TEXT}, headers=foreign)
    assert refused.status_code == 403


def test_suggesting_needs_no_token_for_changes_and_learning_does(serving, tmp_path):
    (tmp_path / "token").write_text("a-token-of-enough-letters")
    client = serving(annif="my-tags", change_token_file=str(tmp_path / "token"))
    assert client.post(f"{PROJECT}/suggest", data={"text": TEXT}).status_code == 200
    batch = {"documents": [{"text": TEXT}]}
    assert client.post(f"{PROJECT}/suggest-batch", json=batch).status_code == 200
    body = json.dumps([{"text": TEXT, "subjects": [{"uri": "L00"}]}])
    headers = {"Content-Type": "application/json"}
    assert client.post(f"{PROJECT}/learn", content=body, headers=headers).status_code == 401
    headers["Authorization"] = "Bearer a-token-of-enough-letters"
    assert client.post(f"{PROJECT}/learn", content=body, headers=headers).status_code == 204


def test_a_project_needs_an_id_that_fits_a_path(serving):
    with pytest.raises(ConfigError, match="cannot be the id of a project of Annif"):
        serving(annif="a/b")
