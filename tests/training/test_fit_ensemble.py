"""Fitting the ensemble of a run: what it learns from, settings, small data, refits, resuming."""

import dataclasses
import json
import shutil
import time

import numpy as np
import pytest
import torch
from small_runs import fit

import umpteen
from umpteen.config.settings import from_mapping
from umpteen.errors import RunError
from umpteen.ranking.lexical.one_vs_rest_training import OneVsRestConfig
from umpteen.ranking.trained_examples import digest_texts
from umpteen.run_folder import RunFolder
from umpteen.training import cross_validation, ensemble_validation, fit_ensemble, fit_time
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.fit_time import FitTime
from umpteen.training.prepare import training_splits

ENSEMBLE = "ensemble.enabled=auto"
HELD_OUT = ("validation.share=0.4", "ensemble.min_queries=5", ENSEMBLE)
NOVEL = "quite another lantern text"


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


def settings_of(run):
    return from_mapping(RunFolder(run).read_settings(), source="test")


def refit(run, data, log=print, again=True, limit=None, training_seconds=0.0, **changes):
    """Fit again with some settings changed."""
    values = RunFolder(run).read_settings()
    for key, value in changes.items():
        section, _, name = key.partition("_")
        values[section][name] = value
    settings = from_mapping(values, source="test")
    return fit_ensemble_of_run(
        RunFolder(run),
        data,
        settings,
        device="cpu",
        log=log,
        again=again,
        limit=limit,
        training_seconds=training_seconds,
    )


def out_of_time(slack):
    """A limit that is over, but for what may end late."""
    return FitTime(time.monotonic(), strict=True, slack=slack)


def load(run, **options):
    return umpteen.Predictor.load(run, device="cpu", **options)


def check_works(model):
    """Probabilities, thresholds, explanations and, in a run folder, corrections."""
    top = model.predict(["red apple", NOVEL], 3, explain=True)
    assert model.heads[-1] == "ensemble"
    assert ((top.scores >= 0) & (top.scores <= 1)).all()
    assert len(top.explanations[0]) == 3
    model.predict("red apple", threshold="auto")
    model.predict("red apple", threshold="groups")
    model.add_examples([NOVEL], [["L07"]])
    after = model.predict(NOVEL, 2)
    assert after.ids[0][0] == "L07"
    assert after.scores[0, 0] >= 0.99


# -- what it learns from --------------------------------------------------------------------------


def test_texts_that_are_held_out_are_in_no_scorer(tiny_run, tiny_data):
    model = load(tiny_run)
    held = training_splits(tiny_data, settings_of(tiny_run))
    assert len(held["validation"]) == 24
    examples = model.snapshot().examples
    np.testing.assert_array_equal(examples.trained.digests, digest_texts(held["train"].texts()))
    np.testing.assert_array_equal(model.snapshot().label_counts, held.label_counts)
    assert model.ensemble.n_train == 36
    assert model.ensemble.fitted_on.startswith("24 validation texts")
    names = json.loads((tiny_run / "models.json").read_text())
    assert model.ensemble.model == names["best"].removeprefix("models/")


def test_variants_leave_out_one_scorer_each(tiny_run):
    found = {variant.scorers for variant in load(tiny_run).ensemble.variants}
    assert found == {
        ("dual", "classifier", "knn", "lexical"),
        ("classifier", "knn", "lexical"),
        ("dual", "knn", "lexical"),
        ("dual", "classifier", "lexical"),
        ("dual", "classifier", "knn"),
        ("dual", "classifier"),
    }


def test_one_vs_rest_is_used_where_it_suits(run, tiny_data, monkeypatch):
    assert "one_vs_rest" not in load(run).ensemble.variants[0].retrievers
    monkeypatch.setattr(OneVsRestConfig, "suits", lambda *given: True)
    refit(run, tiny_data)
    top = load(run).predict("red apple", 3, explain=True)
    assert "one_vs_rest" in top.explanations[0][0]["scores"]
    shutil.rmtree(run / "ensemble" / "one_vs_rest")
    with pytest.raises(RunError, match="one_vs_rest cannot be loaded; fit it again"):
        load(run)


def test_without_time_the_first_variant_is_fitted(run, tiny_data):
    lines = []
    model = refit(run, tiny_data, log=lines.append, ensemble_seconds=1e-6)
    assert [variant.scorers for variant in model.variants] == [
        ("dual", "classifier", "knn", "lexical")
    ]
    assert "No time for more than 1 of 6 variants" in lines


def test_in_a_budget_some_validation_texts_are_fitted(run, tiny_data, monkeypatch):
    for module in (fit_time, fit_ensemble):
        monkeypatch.setattr(module, "MIN_FITTED", 8)
    monkeypatch.setattr(fit_ensemble, "TRIED_TEXTS", 4)
    lines = []
    model = refit(run, tiny_data, log=lines.append, limit=out_of_time(slack=60.0))
    assert "Fitting on 8 of 24 validation texts, to stay within the time" in lines
    assert model.fitted_on.startswith("8 validation texts")
    check_works(load(run))


def test_without_any_time_weights_are_prior(run, tiny_data):
    lines = []
    model = refit(run, tiny_data, log=lines.append, limit=out_of_time(slack=0.0))
    assert "No time to fit weights: the ensemble has prior weights" in lines
    assert "there was too little time" in model.fitted_on
    check_works(load(run))


def test_the_log_has_the_calibration_error_and_warns_of_a_large_one(run, tiny_data, monkeypatch):
    monkeypatch.setattr(fit_ensemble, "MAX_CALIBRATION_ERROR", -1.0)  # any error is too large
    lines = []
    error = refit(run, tiny_data, log=lines.append).variants[0].validation["ECE"]
    assert f"Calibration error of its probabilities: {error:.2f} points" in lines
    assert [line for line in lines if line.startswith("Warning: probabilities are off by")]


# -- small data -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_run(tiny_data, tmp_path_factory):
    """Too few texts are held out: the ensemble is cross-validated on the training texts."""
    place = tmp_path_factory.mktemp("small") / "run"
    fit(tiny_data, place, "train.epochs=2", ENSEMBLE)
    return place


def n_known(run, data, folds):
    """Count the texts of the first folds that share a label with a text of another fold."""
    settings = settings_of(run)
    targets = training_splits(data, settings)["train"].filtered_targets().toarray() > 0
    order = np.random.default_rng([settings.seed, 0xF01D]).permutation(len(targets))
    known = 0
    for fold in range(folds):
        own = set(order[fold::5].tolist())
        elsewhere = {
            label
            for i in range(len(targets))
            if i not in own
            for label in np.flatnonzero(targets[i])
        }
        known += sum(bool(elsewhere & set(np.flatnonzero(targets[i]))) for i in own)
    return known


def test_few_held_out_texts_mean_cross_validation(small_run, tiny_data, tmp_path):
    run = shutil.copytree(small_run, tmp_path / "run")
    model = load(run)
    best = json.loads((run / "models.json").read_text())["best"]
    assert model.ensemble.model == best.removeprefix("models/")
    n_train = len(model.snapshot().examples.trained)
    assert n_train == 51
    assert model.ensemble.n_train == n_train
    known = n_known(run, tiny_data, 5)
    assert known < 51
    assert model.ensemble.fitted_on == f"{known} training texts, cross-validated"
    assert model.ensemble.variants[0].validation["P@1"] > 0
    check_works(model)


def test_very_few_texts_mean_prior_weights(tiny_data, tmp_path):
    split = tiny_data["train"].select(np.arange(12))
    data = dataclasses.replace(tiny_data, splits={"train": split})
    model = fit(data, tmp_path / "run", "train.epochs=2", "validation.share=0", ENSEMBLE)
    assert "prior weights" in model.ensemble.fitted_on
    assert model.ensemble.variants[0].validation == {}
    check_works(model)


@pytest.mark.parametrize("n_texts", [1, 15])
def test_prior_weights_find_texts_without_evidence(tiny_data, tmp_path, n_texts):
    split = tiny_data["train"].select(np.arange(n_texts))
    data = dataclasses.replace(tiny_data, splits={"train": split})
    model = fit(data, tmp_path / "run", "train.epochs=2", "validation.share=0", ENSEMBLE)
    assert np.isfinite(model.ensemble.similarity_floor)
    top = model.predict(["zzzz qqqq", split.titles[0]], 3)
    assert top.notes[0] is not None
    assert top.notes[1] is None
    assert model.predict("zzzz qqqq", threshold="auto").ids == [[]]


def test_folds_there_is_no_time_for_are_left_out(small_run, tiny_data, tmp_path, monkeypatch):
    run = shutil.copytree(small_run, tmp_path / "run")
    lines, limit = [], out_of_time(slack=60.0)
    model = refit(run, tiny_data, log=lines.append, limit=limit, training_seconds=1e6)
    assert any(line.startswith("Cross-validation left out: a fold and a fit") for line in lines)
    assert "there was too little time" in model.fitted_on
    assert [line for line in limit.left_out if line.startswith("a cross-validation takes")]
    monkeypatch.setattr(cross_validation, "folds_in_time", lambda seconds, **plan: 2)
    lines, limit = [], out_of_time(slack=60.0)
    model = refit(run, tiny_data, log=lines.append, limit=limit)
    assert any(line.startswith("No time for more than 2 of 5 folds") for line in lines)
    assert model.fitted_on == f"{n_known(run, tiny_data, 2)} training texts, cross-validated"
    assert limit.left_out[-1].startswith("a further fold takes about")
    check_works(load(run))


def test_some_folds_are_enough(small_run, tiny_data, tmp_path):
    run, lines = shutil.copytree(small_run, tmp_path / "run"), []
    model = refit(run, tiny_data, log=lines.append, ensemble_folds=1)
    assert any(line.endswith("on 11 texts in up to 1 of 5 folds") for line in lines)
    assert model.fitted_on == f"{n_known(run, tiny_data, 1)} training texts, cross-validated"


@pytest.mark.slow
def test_cross_validation_is_deterministic(small_run, tiny_data, tmp_path):
    run = shutil.copytree(small_run, tmp_path / "run")
    before = (run / "ensemble" / "ensemble.json").read_bytes()
    refit(run, tiny_data)
    assert (run / "ensemble" / "ensemble.json").read_bytes() == before


# -- settings -------------------------------------------------------------------------------------


def test_it_can_be_switched_off_and_fitted_later(tiny_data, tmp_path):
    run = tmp_path / "run"
    model = fit(tiny_data, run, *HELD_OUT, "ensemble.enabled=off", "train.epochs=1")
    assert not (run / "ensemble").exists()
    assert model.heads[-1] == "combined"
    assert refit(run, tiny_data, again=False) is None
    refit(run, tiny_data)
    check_works(load(run))


def test_without_stored_examples_corrections_still_count(run, tiny_data):
    fitted = refit(run, tiny_data, examples_kept="none")
    assert max((v.scorers for v in fitted.variants), key=len) == ("dual", "classifier", "lexical")
    assert not (run / "ensemble" / "examples").exists()
    check_works(load(run))


def test_without_lexical_scorers_and_with_few_examples(run, tiny_data):
    fitted = refit(
        run, tiny_data, ensemble_lexical=False, examples_max_examples=10, ensemble_tail_boost=0.25
    )
    assert max((v.scorers for v in fitted.variants), key=len) == ("dual", "classifier", "knn")
    assert {variant.tail_boost for variant in fitted.variants} == {0.25}
    model = load(run)
    assert model.snapshot().examples.n_trained == 10
    check_works(model)


def test_training_and_validation_texts_have_limits(run, tiny_data, monkeypatch):
    monkeypatch.setattr(ensemble_validation, "MAX_TEXTS", 9)
    model = refit(run, tiny_data, ensemble_max_texts=20)
    assert model.fitted_on.startswith("9 validation texts")
    assert len(load(run).snapshot().examples.trained.digests) == 20


def test_texts_of_examples_can_be_left_out(run, tiny_data):
    assert load(run).snapshot().examples.trained.texts is not None
    refit(run, tiny_data, examples_texts=False)
    assert load(run).snapshot().examples.trained.texts is None


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_a_model_of_one_head_has_an_ensemble(head, tiny_data, tmp_path):
    share = 1.0 if head == "dual" else 0.0
    model = fit(
        tiny_data, tmp_path / "run", *HELD_OUT, f'model.heads=["{head}"]', "train.epochs=1",
        f"loss.dual_share={share}",
    )  # fmt: skip
    assert model.heads == (head, "ensemble")
    check_works(model)
    model.add_labels({"N": "purple lantern"})
    assert "N" in model.predict("purple lantern", 3).ids[0]


def test_a_model_that_does_not_normalize_has_an_ensemble(tiny_data, tmp_path):
    changes = ("model.heads=['dual']", "model.normalize=false", "model.dual_temperature=1.0")
    model = fit(tiny_data, tmp_path / "run", *HELD_OUT, *changes)
    texts = tiny_data["test"].texts()
    vectors = model.vectors(texts)
    assert vectors.norm(dim=1).std() > 0.05
    # A label's score is the inner product, of trained and of added labels.
    model.add_labels({"new": "red lantern"})
    top = model.predict(texts, 41, head="dual")
    added = model.snapshot().added_vectors.vectors.numpy()
    known = np.concatenate([model.label_vectors.numpy("dual"), added])
    expected = vectors.numpy() @ known.T
    np.testing.assert_allclose(
        np.take_along_axis(expected, top.rows, axis=1), top.scores, rtol=1e-4, atol=1e-5
    )
    # Near texts are found by cosine: a stored text is nearest to itself.
    own = tiny_data["train"].texts()[:9]
    model.add_examples(own, [["L00"]] * len(own))
    examples = model.snapshot().examples
    np.testing.assert_allclose(examples.nearest(model.vectors(own), 1).scores, 1.0, rtol=1e-4)
    assert np.abs(examples.nearest(vectors, 3).scores).max() <= 1.0001


# -- again ----------------------------------------------------------------------------------------


def test_fitting_twice_gives_the_same_files(run, tiny_data):
    def files():
        return {f: f.read_bytes() for f in (run / "ensemble").rglob("*") if f.is_file()}

    before = files()
    refit(run, tiny_data)
    assert files() == before


def test_an_ensemble_of_the_same_model_is_left_alone(run, tiny_data):
    assert refit(run, tiny_data, again=False) is None


def test_a_resumed_run_that_is_done_keeps_its_ensemble(run, tiny_data):
    file = run / "ensemble" / "ensemble.json"
    before = file.stat().st_mtime_ns
    fit(tiny_data, run, resume=True)
    assert file.stat().st_mtime_ns == before
    shutil.rmtree(run / "ensemble")
    assert fit(tiny_data, run, resume=True).heads[-1] == "ensemble"


def test_corrections_and_labels_outlive_a_new_fit(run, tiny_data):
    model = load(run)
    model.add_labels({"N": "velvet curtain"})
    model.add_examples([NOVEL, "old curtain"], [["L07"], ["N"]])
    refit(run, tiny_data)
    again = load(run)
    assert again.predict([NOVEL, "old curtain"], 1).ids == [["L07"], ["N"]]
    # The fit does not depend on changes.
    assert again.as_trained().snapshot().n_labels == 40


def test_a_new_best_model_removes_the_ensemble_of_the_old_one(run):
    folder = RunFolder(run)
    other = shutil.copytree(folder.model("best"), folder.models / "epoch-0099")
    folder.point(best=other)
    assert not folder.ensemble.exists()


def test_the_last_model_does_not_use_the_ensemble_of_the_best(run):
    names = json.loads((run / "models.json").read_text())
    assert names["best"] != names["last"]
    assert load(run, which="last").heads[-1] == "combined"
    assert load(run, with_ensemble=False).heads[-1] == "combined"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_predictions_on_a_gpu_are_those_of_the_cpu(tiny_run, tiny_data):
    texts = tiny_data["test"].texts()
    host = load(tiny_run).predict(texts, 5)
    device = umpteen.Predictor.load(tiny_run, device="cuda").predict(texts, 5)
    np.testing.assert_allclose(device.scores, host.scores, atol=1e-3)
