"""Runs on a hub: what is pushed is downloaded and predicts the same; the card says what it is."""

import json
import os
import shutil
import subprocess
import sys

import hub_server
import pytest
from small_runs import fit

from umpteen.errors import ConfigError, RunError, UmpteenError
from umpteen.hub import LEFT_OUT, save_for_hub
from umpteen.model_card import model_card
from umpteen.predictor import Predictor

pytest.importorskip("huggingface_hub")

pytestmark = pytest.mark.processes
TEXTS = ["red apple", "old river"]
CODE = """
import sys
import umpteen
print(umpteen.Predictor.load(sys.argv[1], device="cpu").push_to_hub(sys.argv[2]))
model = umpteen.Predictor.from_pretrained(sys.argv[2], device="cpu")
print(model.predict(["red apple", "old river"], 3).ids)
try:
    model.add_labels({"N1": "red apple"})
except umpteen.errors.RunError as error:
    print(error)
model.save(sys.argv[3])
print(umpteen.Predictor.load(sys.argv[3], device="cpu").add_labels({"N1": "red apple"}))
"""


def test_a_saved_run_is_loaded_from_its_folder(tiny_run, tmp_path):
    save_for_hub(tiny_run, tmp_path / "out", "me/tags")
    assert not {path.name for path in (tmp_path / "out").iterdir()} & set(LEFT_OUT)
    found = Predictor.from_pretrained(str(tmp_path / "out"), device="cpu")
    wanted = Predictor.load(tiny_run, device="cpu")
    assert found.predict(TEXTS, 5).ids == wanted.predict(TEXTS, 5).ids
    with pytest.raises(UmpteenError, match="exists already"):
        save_for_hub(tiny_run, tmp_path / "out", "me/tags")


def test_the_card_has_metadata_metrics_and_how_to_run(tiny_run, tmp_path):
    from huggingface_hub import ModelCard

    save_for_hub(tiny_run, tmp_path / "out", "me/tags")
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.library_name == "umpteen"
    assert card.data.pipeline_tag == "text-classification"
    assert {result.metric_type for result in card.data.eval_results} >= {"P@1", "P@5"}
    for said in (
        'from_pretrained("me/tags")',
        "| training texts | ",
        "| labels | 40 |",
        "Intended",
    ):
        assert said in card.text


def test_the_card_says_how_good_the_ensemble_is(tiny_data, tmp_path):
    from huggingface_hub import ModelCard

    fit(tiny_data, tmp_path / "run", "train.epochs=1", "ensemble.enabled=auto",
        "ensemble.min_queries=5", "validation.share=0.4")  # fmt: skip
    measured = json.loads((tmp_path / "run" / "ensemble" / "ensemble.json").read_text())
    wanted = f"{measured['variants'][0]['validation']['P@1']:.2f}"
    card = ModelCard(model_card(tmp_path / "run", "me/tags"))
    assert f"| ensemble | {wanted} |" in card.text
    values = {each.metric_type: each.metric_value for each in card.data.eval_results}
    assert f"{values['P@1']:.2f}" == wanted


def test_without_validation_the_card_says_that_nothing_was_measured(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run", ignore=shutil.ignore_patterns("ensemble"))
    (run / "metrics.json").unlink()
    card = model_card(run, "me/tags")
    assert "Nothing was measured: there were too few texts." in card
    assert "model-index" not in card


@pytest.mark.slow
def test_a_pushed_run_is_downloaded_and_predicts_the_same(tiny_run, tmp_path):
    hub = hub_server.Hub()
    environment = {
        **os.environ, "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": "hf_test",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }  # fmt: skip

    try:
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(tiny_run), "me/tags", str(tmp_path / "own")],
            capture_output=True, text=True, timeout=300, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        pushed, found, refused, added = done.stdout.strip().splitlines()[-4:]
        assert "is in the cache of the hub" in refused
        assert added == "1"
        assert pushed.startswith(hub.url)
        assert {"README.md", "config.json", "labels.jsonl"} <= set(hub.files["me/tags"])
        assert any((tmp_path / "home").rglob("labels.jsonl"))  # downloaded
        assert found == str(Predictor.load(tiny_run, device="cpu").predict(TEXTS, 3).ids)
    finally:
        hub.close()


def test_what_is_no_run_is_a_sentence(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="neither a folder nor a model on the hub"):
        Predictor.from_pretrained("not a name/at all/x", device="cpu")
    predictor = Predictor.load(tiny_run, device="cpu")
    predictor.folder = None
    with pytest.raises(RunError, match="can be pushed"):
        predictor.push_to_hub("me/tags")
