"""Re-ranking at the end of a training, and of a run from Python."""

import json
import shutil

import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen.errors import ConfigError
from umpteen.ranking.retrievers import character_ranker
from umpteen.run_folder import RunFolder
from umpteen.training.reporters import LogFile

ENSEMBLE = ("ensemble.enabled=auto", "ensemble.min_queries=5", "validation.share=0.4")
RERANKED = (*ENSEMBLE, "rerank.kind=features", "rerank.candidates=8")


def train(data, run, *changes, **options):
    return fit(data, run, *changes, reporters=[LogFile(RunFolder(run))], **options)


def outcome(run) -> dict:
    return json.loads((RunFolder(run).ensemble / "reranking.json").read_text())


@pytest.fixture(scope="module")
def trained(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("reranked") / "run"
    train(tiny_data, run, *RERANKED)
    return run


def test_training_fits_the_stage_and_says_what_it_gained(trained):
    found, log = outcome(trained), (trained / "log.txt").read_text()
    assert (found["kind"], found["candidates"]) == ("features", 8)
    assert set(found["before"]) == set(found["after"]) >= {"P@1", "PSP@5", "ECE"}
    assert f"Re-ranking {'is used' if found['used'] else 'is not used'}: gain" in log
    model = umpteen.Predictor.load(trained, device="cpu")
    assert (model.reranking is not None) == found["used"]


def test_a_fold_has_the_retrievers_of_the_run_though_it_has_fewer_texts(
    tiny_data, tmp_path, monkeypatch
):
    run, n = tmp_path / "run", len(tiny_data["train"])
    # 0.4 of the texts are for validation, and a fold leaves out a fifth of the others.
    monkeypatch.setattr(character_ranker, "MIN_TEXTS", int(0.55 * n))
    train(tiny_data, run, *RERANKED)
    assert "character_ranker" in umpteen.Predictor.load(run).ensemble.variants[0].retrievers
    assert outcome(run)["kind"] == "features"


def test_a_finished_run_is_resumed_without_fitting_it_again(tiny_data, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    before = {file: file.read_bytes() for file in sorted(run.glob("ensemble/*.json"))}
    train(tiny_data, run, resume=True)
    assert {file: file.read_bytes() for file in sorted(run.glob("ensemble/*.json"))} == before
    assert (run / "log.txt").read_text().count("Training the re-ranker") == 1


def test_a_run_killed_before_the_stage_comes_to_the_same(tiny_data, trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "ensemble" / "reranking.json").unlink()
    train(tiny_data, run, resume=True)
    before, after = outcome(trained), outcome(run)
    assert after["decision"] == pytest.approx(before["decision"])
    assert after["after"] == pytest.approx(before["after"])


def test_with_too_few_texts_the_run_is_kept_and_a_warning_given(tiny_data, tmp_path):
    few = ("validation.share=0", "ensemble.min_queries=13", "train.epochs=1")
    train(tiny_data, tmp_path / "run", *RERANKED, *few)
    log = (tmp_path / "run" / "log.txt").read_text()
    assert "Warning: no re-ranking:" in log
    assert "too few texts to measure a gain" in log
    assert len(umpteen.Predictor.load(tmp_path / "run").predict(["red apple"], 3)) == 1


def test_a_cross_encoder_starts_from_the_encoder_of_the_run(tiny_data, tiny_bert, tmp_path):
    changes = (*ENSEMBLE, f"encoder.name={tiny_bert}", "train.epochs=1", "data.max_tokens=16")
    train(tiny_data, tmp_path / "run", *changes, "rerank.kind=cross-encoder")
    found = outcome(tmp_path / "run")
    assert (found["kind"], found["encoder"]) == ("cross-encoder", str(tiny_bert))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("rerank.kind=features", "ensemble.enabled=off"), "rerank.kind must be none unless"),
        (("rerank.kind=cross-encoder", *ENSEMBLE), "rerank.encoder must be a transformer"),
        (("rerank.encoder=x", *ENSEMBLE), "rerank.encoder must be empty unless"),
        ((*RERANKED, "rerank.candidates=1"), "rerank.candidates must be between 2 and 500"),
        (
            (*ENSEMBLE, "rerank.kind=trees"),
            "must be none, features, late-interaction or cross-encoder",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, message, tiny_data, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(tiny_data, tmp_path / "run", *changes)
    assert not (tmp_path / "run").exists()


def test_a_time_budget_is_refused(tiny_data, tmp_path):
    with pytest.raises(ConfigError, match="run umpteen rerank"):
        train(tiny_data, tmp_path / "run", *RERANKED, minutes=5.0)


def test_a_model_uses_the_stage_that_is_fitted_for_it(tiny_data, tiny_run, tmp_path):
    model = umpteen.Predictor.load(shutil.copytree(tiny_run, tmp_path / "run"), device="cpu")
    texts = list(tiny_data["test"].texts())
    plain = model.predict(texts, 5)
    found = umpteen.rerank(model, tiny_data, candidates=8, epochs=3, keep="always", device="cpu")
    assert found.used
    assert model.reranking is not None
    changed = model.predict(texts, 5)
    assert not np.array_equal(changed.scores, plain.scores)
    again = umpteen.Predictor.load(tmp_path / "run", device="cpu").predict(texts, 5)
    np.testing.assert_array_equal(again.rows, changed.rows)
    np.testing.assert_allclose(again.scores, changed.scores, atol=1e-6)


def test_an_encoder_is_refused_for_features_and_needed_without_a_transformer(tiny_data, tiny_run):
    with pytest.raises(ConfigError, match="--kind cross-encoder"):
        umpteen.rerank(tiny_run, tiny_data, encoder="x")
    with pytest.raises(ConfigError, match="no transformer; name one for"):
        umpteen.rerank(tiny_run, tiny_data, kind="cross-encoder")


def test_labels_and_examples_of_the_run_before_count(tiny_data, tiny_run, tmp_path):
    first = shutil.copytree(tiny_run, tmp_path / "first")
    model = umpteen.Predictor.load(first, device="cpu")
    model.add_labels({"late": "a label that came later"})
    model.add_examples(["something that came later"] * 2, [["late"]] * 2)
    umpteen.train(tiny_data, out=tmp_path / "second", from_run=first, device="cpu")
    found = umpteen.rerank(
        tmp_path / "second", tiny_data, candidates=5, epochs=1, keep="never", device="cpu"
    )
    assert not found.used
    assert found.decision.n_texts > 0
