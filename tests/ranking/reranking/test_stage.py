"""The re-ranking stage of a run: saved, loaded, switched off, explained, and safe with changes."""

import pickle
import shutil
from itertools import pairwise

import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen.errors import ConfigError, RunError
from umpteen.report.ensemble import ensemble
from umpteen.run_folder import RunFolder
from umpteen.serving.served_model import load_served_model, stamp_of

WITHOUT = ("reranker",)


@pytest.fixture(scope="module")
def model(reranked):
    return umpteen.Predictor.load(reranked[0], device="cpu")


@pytest.fixture
def run(reranked, tmp_path):
    return shutil.copytree(reranked[0], tmp_path / "run")


def assert_same(one, whole, place):
    """Equal up to rounding; labels with almost the same score may change places."""
    ours, theirs = one.scores[0], whole.scores[place]
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    gaps = np.abs(np.diff(theirs, prepend=2.0, append=-1.0))
    apart = (gaps[:-1] > 1e-4) & (gaps[1:] > 1e-4)
    np.testing.assert_array_equal(one.rows[0][apart], whole.rows[place][apart])


def stage_of(run):
    return next((run / "ensemble").glob("reranker-*"))


def test_the_outcome_has_metrics_a_gain_and_a_cost(reranked):
    _, outcome = reranked
    spec = outcome.after.reranking
    assert outcome.used
    assert spec.cost.of(8) > 0
    assert set(spec.gain) == {"P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"}
    assert outcome.decision.n_texts > 24  # validation and held-out training texts
    assert "ms a text" in spec.in_words


def test_the_report_names_it(model):
    shown = str(ensemble(model.ensemble))
    assert "Re-ranking (features)" in shown
    assert "Gain on validation" in shown


def test_it_is_one_more_scorer(model, tiny_run, tiny_data):
    assert model.ensemble.variants[0].scorers[-1] == "reranker"
    texts = tiny_data["test"].texts()
    before = umpteen.Predictor.load(tiny_run, device="cpu").predict(texts, 8)
    np.testing.assert_array_equal(model.predict(texts, 8, without=WITHOUT).rows, before.rows)
    other = model.predict(texts, 8, without=("knn",))
    assert other.rows.shape == before.rows.shape
    after = model.predict(texts, 8)
    assert (after.scores != before.scores).any()
    # The shortlist has 8 candidates: the same labels, in another order.
    np.testing.assert_array_equal(np.sort(after.rows, axis=1), np.sort(before.rows, axis=1))


def test_a_batch_is_as_its_texts_one_by_one(model, tiny_data):
    texts = tiny_data["test"].texts()
    whole = model.predict(texts, 10)
    for place, text in enumerate(texts):
        assert_same(model.predict([text], 10), whole, place)


def test_contributions_still_add_up(model, tiny_data):
    texts = tiny_data["test"].texts()[:4]
    with_stage = model.predict(texts, 3, explain=True)
    for place in range(4):
        entries = with_stage.explanations[place]
        assert all("reranker" in entry["contributions"] for entry in entries)
        sums = [sum(entry["contributions"].values()) for entry in entries]
        # Without a tail boost that is the order of the labels.
        assert all(high >= low - 1e-3 for high, low in pairwise(sums))


def test_changes_work_with_it(run):
    model = umpteen.Predictor.load(run, device="cpu")
    text = f"{model.labels.titles[0]} {model.labels.titles[13]}"
    model.add_labels({"new": text})
    model.retire_labels(["L03"])
    top = model.predict([text], 8)
    assert "new" in model.predict([text], 8, without=WITHOUT).ids[0]
    assert "new" in top.ids[0]
    assert "L03" not in model.predict([model.labels.titles[3]], 20).ids[0]
    model.add_examples(["something else"], [["L07"]])
    assert model.predict(["something else"], 1).ids[0] == ["L07"]
    again = umpteen.Predictor.load(run, device="cpu")
    np.testing.assert_array_equal(again.predict([text], 8).rows, top.rows)


def test_a_budget_limits_the_candidates(reranked, tiny_data):
    model = umpteen.Predictor.load(reranked[0], device="cpu")
    texts = tiny_data["test"].texts()
    assert model.limit_reranking(1e9) == 8
    whole = model.predict(texts, 8)
    assert model.limit_reranking(0.0) == 0
    none = model.predict(texts, 8)
    plain = model.predict(texts, 8, without=WITHOUT)
    np.testing.assert_array_equal(none.rows, plain.rows)
    assert (whole.scores != plain.scores).any()


def test_a_service_has_a_budget_too(reranked, tiny_run):
    served = load_served_model("a", str(reranked[0]), "cpu", budget_ms=0.0)
    plain = served.predictor.predict(["red apple"], 8, without=WITHOUT)
    np.testing.assert_array_equal(served.predictor.predict(["red apple"], 8).rows, plain.rows)
    assert load_served_model("b", str(tiny_run), "cpu", budget_ms=0.0).predictor.reranking is None


def test_a_budget_needs_the_stage(tiny_run):
    model = umpteen.Predictor.load(tiny_run, device="cpu")
    with pytest.raises(ConfigError, match="umpteen rerank"):
        model.limit_reranking(1.0)


def test_it_travels_in_a_pickle(model):
    again = pickle.loads(pickle.dumps(model))
    assert again.reranking == model.reranking


@pytest.mark.parametrize("file", ["network.safetensors", "names.npy", "label_tokens.npy"])
def test_a_changed_or_missing_file_is_a_sentence(run, file):
    damaged = stage_of(run) / file
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match=r"checksum.*umpteen rerank"):
        umpteen.Predictor.load(run, device="cpu")
    damaged.unlink()
    with pytest.raises(RunError, match="umpteen rerank"):
        umpteen.Predictor.load(run, device="cpu")


def test_a_service_sees_that_the_run_changed(tiny_run, run):
    fresh = shutil.copytree(tiny_run, run.parent / "fresh")
    before = stamp_of(str(fresh))
    shutil.copytree(stage_of(run), fresh / "ensemble" / stage_of(run).name)
    model = umpteen.Predictor.load(run, device="cpu").ensemble
    model.save(fresh / "ensemble" / "ensemble.json")
    assert stamp_of(str(fresh)) != before
    assert umpteen.Predictor.load(fresh, device="cpu").reranking is not None


@pytest.mark.parametrize("kind", ["cross-encoder", "late-interaction"])
def test_a_transformer_replaces_the_old_stage(kind, run, tiny_data, tiny_bert, tmp_path):
    from umpteen.config.settings import from_mapping
    from umpteen.training.rerank import rerank_run
    from umpteen.training.run_to_rerank import RerankOptions

    old, folder = stage_of(run).name, RunFolder(run)
    settings = from_mapping(folder.read_settings(), source="config")
    options = RerankOptions(kind, str(tiny_bert), 5, epochs=2, keep="always")
    found = rerank_run(
        folder, tiny_data, settings, options, device="cpu", log=print, cache=tmp_path / "cache"
    )
    stages = [place.name for place in (run / "ensemble").glob("reranker-*")]
    assert stages == [found.after.reranking.folder]
    assert stages != [old]
    model = umpteen.Predictor.load(run, device="cpu")
    kinds = [v.reranking.kind for v in model.ensemble.variants if v.reranking is not None]
    assert kinds == [kind]
    model.add_labels({"new": "red apple and green pear"})
    texts = [*tiny_data["test"].texts()[:5], "red apple and green pear"]
    whole = model.predict(texts, 8)
    for place, text in enumerate(texts):
        assert_same(model.predict([text], 8), whole, place)
    # In memory it is what was written.
    model.use_ensemble(found.ensemble)
    np.testing.assert_allclose(model.predict(texts, 8).scores, whole.scores, atol=1e-5)


def test_it_learns_from_validation_texts_without_a_further_model(
    run, tiny_data, tiny_bert, tmp_path, monkeypatch
):
    from umpteen.config.settings import from_mapping
    from umpteen.training import rerank, rerank_fitting
    from umpteen.training.rerank_pairs import PairOptions
    from umpteen.training.run_to_rerank import RerankOptions

    monkeypatch.setattr(rerank, "ENOUGH_VALIDATION", 20)
    monkeypatch.setattr(rerank_fitting, "ENOUGH_VALIDATION", 20)
    monkeypatch.setattr(rerank, "out_of_fold", None)  # would be called for a fold
    folder, lines = RunFolder(run), []
    settings = from_mapping(folder.read_settings(), source="config")
    pairs = PairOptions(epochs=1, batch=16)
    options = RerankOptions("cross-encoder", str(tiny_bert), 5, pairs=pairs, keep="always")
    found = rerank.rerank_run(folder, tiny_data, settings, options, device="cpu", log=lines.append)
    assert found.decision.n_texts == 24
    assert found.after.reranking.fitted_on.startswith("24 validation texts")
    assert any(line.startswith("Transformer, epoch 1 of 1") for line in lines)
    assert any(line.startswith("Re-ranker, epoch 40") for line in lines)
    network = found.ensemble.reranker.network
    assert float(network.last.weight.detach().abs().max()) > 0
    model = umpteen.Predictor.load(run, device="cpu")
    texts = tiny_data["test"].texts()
    model.use_ensemble(found.ensemble)
    again = umpteen.Predictor.load(run, device="cpu").predict(texts, 8)
    np.testing.assert_allclose(model.predict(texts, 8).scores, again.scores, atol=1e-5)


def test_with_many_texts_a_fifth_is_kept_back(reranked, run, tiny_data, tmp_path, monkeypatch):
    from umpteen.config.settings import from_mapping
    from umpteen.training import rerank, rerank_fitting
    from umpteen.training.run_to_rerank import RerankOptions

    monkeypatch.setattr(rerank_fitting, "ENOUGH_KEPT_BACK", 1)
    folder = RunFolder(run)
    settings = from_mapping(folder.read_settings(), source="config")
    options = RerankOptions(candidates=8, folds=2, epochs=1, keep="never")
    found = rerank.rerank_run(
        folder, tiny_data, settings, options, device="cpu", log=print, cache=tmp_path / "cache"
    )
    apart = reranked[1].decision.n_texts - 24  # there, all of two folds were cross-fitted
    assert found.decision.n_texts == 24 + -(-apart // 5)


def test_five_folds_leave_nothing_for_a_cross_encoder(tiny_run, tiny_data, tiny_bert):
    from umpteen.config.settings import from_mapping
    from umpteen.training.rerank import rerank_run
    from umpteen.training.run_to_rerank import RerankOptions

    folder = RunFolder(tiny_run)
    settings = from_mapping(folder.read_settings(), source="config")
    options = RerankOptions("cross-encoder", str(tiny_bert), 5, folds=5)
    with pytest.raises(ConfigError, match="leaves no text"):
        rerank_run(folder, tiny_data, settings, options, device="cpu", log=print)


def test_without_validation_texts_the_gain_is_measured_on_folds(tiny_data, tmp_path):
    from umpteen.config.settings import from_mapping
    from umpteen.training.rerank import rerank_run
    from umpteen.training.run_to_rerank import RerankOptions

    place = tmp_path / "run"
    share = ("validation.share=0", "ensemble.min_queries=5", "ensemble.enabled=auto")
    fit(tiny_data, place, "train.epochs=4", *share)
    folder = RunFolder(place)
    settings = from_mapping(folder.read_settings(), source="config")
    options = RerankOptions(candidates=8, folds=2, epochs=6, keep="always")
    found = rerank_run(folder, tiny_data, settings, options, device="cpu", log=print)
    n = found.decision.n_texts
    assert 0 < n <= 24  # two folds of 60 texts, without those that only have lost labels
    assert found.after.reranking.fitted_on.startswith(f"{n} out-of-fold texts")
    assert set(found.after.reranking.gain) == {"P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"}
    model = umpteen.Predictor.load(place, device="cpu")
    assert model.ensemble.variants[0].scorers[-1] == "reranker"
    with pytest.raises(ConfigError, match="--folds 0 needs 5 validation texts"):
        rerank_run(folder, tiny_data, settings, RerankOptions(folds=0), device="cpu", log=print)


def test_too_few_validation_texts_are_refused(tiny_run, tiny_data, tmp_path):
    from umpteen.config.settings import from_mapping, with_overrides
    from umpteen.training.rerank import rerank_run
    from umpteen.training.run_to_rerank import RerankOptions

    folder = RunFolder(tiny_run)
    raised = with_overrides(folder.read_settings(), ("ensemble.min_queries=500",))
    settings = from_mapping(raised, source="config")
    with pytest.raises(ConfigError, match="500 validation texts, or 2500 training texts"):
        rerank_run(folder, tiny_data, settings, RerankOptions(), device="cpu", log=print)
