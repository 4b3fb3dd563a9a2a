"""``/v1/report`` says what the run's own files say, and less where they are gone."""

import json

import numpy as np
import pytest

from umpteen.predictor import Predictor
from umpteen.report.history import read_history
from umpteen.run_folder import RunFolder


def report_of(client):
    answer = client.get("/v1/report")
    assert answer.status_code == 200
    return answer.json()


def test_it_tells_the_history_of_the_run(client, run):
    told, history = report_of(client), read_history(RunFolder(run))
    assert told["model_epoch"] == history.model_epoch
    assert told["select"] == history.select
    assert [e["epoch"] for e in told["validations"]] == [e.epoch for e in history.validations]
    assert told["validations"][-1]["heads"] == history.validations[-1].heads
    assert len(told["loss"]["steps"]) == len(told["loss"]["smooth"]) > 1
    assert told["loss"]["steps"][-1] <= history.steps.steps[-1]
    assert told["facts"]["Epochs"] == f"{history.reached} of {history.planned}"
    variants = json.loads((run / "ensemble" / "ensemble.json").read_text())["variants"]
    for name in ("scorers", "validation", "contributions"):
        assert [each[name] for each in told["ensemble"]] == [each[name] for each in variants]


def test_bins_hold_every_label_and_go_down(client, run):
    bins, counts = report_of(client)["bins"], np.asarray(Predictor.load(run).label_counts)
    assert sum(each["labels"] for each in bins) == len(counts)
    assert bins[0]["max"] == counts.max()
    assert bins[-1]["min"] == counts.min()
    for one, next_one in zip(bins, bins[1:], strict=False):
        assert one["min"] >= next_one["max"]


def test_examples_are_texts_the_run_keeps(client, run):
    kept = [json.loads(line)["text"] for line in (run / "examples.jsonl").read_text().splitlines()]
    told = report_of(client)["examples"]
    assert told == kept[: len(told)]
    assert len(told) == 3


@pytest.mark.parametrize("lost", ["steps.jsonl", "metrics.json", "examples.jsonl"])
def test_what_is_gone_is_left_out(serving, run, lost):
    client = serving()
    (run / lost).unlink()
    told = report_of(client)
    empty = {"steps.jsonl": "loss", "metrics.json": "validations", "examples.jsonl": "examples"}
    assert not told[empty[lost]]
    assert [name for name in empty.values() if not told[name]] == [empty[lost]]


def test_damaged_files_leave_the_rest(client, run):
    (run / "metrics.json").write_text("{")
    (run / "examples.jsonl").write_text("[1]\n")
    told = report_of(client)
    assert told["validations"] == []
    assert told["examples"] == []
    assert told["bins"]


def test_the_document_knows_it(client):
    schema = client.get("/openapi.json").json()
    answer = schema["paths"]["/v1/report"]["get"]["responses"]["200"]
    assert answer["content"]["application/json"]["schema"]["$ref"].endswith("ReportResponse")


def test_neighbours_have_the_words_of_training_texts(client, tiny_data):
    body = {"texts": "some red apple near", "explain": True}
    near = client.post("/v1/predict", json=body).json()["predictions"][0]["neighbours"]
    texts = list(tiny_data["train"].texts("all"))
    for each in near:
        own = tiny_data["train"].targets[texts.index(each["text"])].indices
        assert each["labels"] == [tiny_data.labels.texts[row] for row in own]
        assert -1.0 <= each["score"] <= 1.0001


def test_neighbours_do_not_name_retired_labels(client):
    body = {"texts": "some red apple near", "explain": True}
    named = lambda: {  # noqa: E731
        label
        for each in client.post("/v1/predict", json=body).json()["predictions"][0]["neighbours"]
        for label in each["labels"]
    }
    gone = next(iter(named()))
    listed = client.get("/v1/labels", params={"search": gone}).json()["labels"]
    label_id = next(label["id"] for label in listed if label["text"] == gone)
    assert client.delete("/v1/labels", params={"id": label_id}).status_code == 200
    assert gone not in named()
