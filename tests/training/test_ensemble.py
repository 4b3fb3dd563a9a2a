"""The ensemble of a run: fitted at the end of training, loaded, switched, added to, damaged."""

import json
import shutil

import numpy as np
import pytest
import torch
from small_runs import fit
from umpteen.answers.candidates import PARTS
from umpteen.answers.margins import MarginsRecipe
from umpteen.live.changes import NewLabel
from umpteen.training.ensemble import fit_ensemble

import umpteen
from umpteen.errors import ConfigError, DataError, LabelMismatch, RunError, UmpteenError
from umpteen.runs import RunFolder
from umpteen.settings import from_mapping
from umpteen.training.prepare import training_splits

CHANGES = ("validation.share=0.4", "ensemble.min_queries=5", "train.epochs=6")
NOVEL = "quite another lantern text"


@pytest.fixture(scope="module")
def fused_run(tiny_data, tmp_path_factory):
    place = tmp_path_factory.mktemp("ensemble") / "run"
    fit(tiny_data, place, *CHANGES)
    return place


@pytest.fixture(scope="module")
def model(fused_run):
    return umpteen.Predictor.load(fused_run)


@pytest.fixture
def run(fused_run, tmp_path):
    return shutil.copytree(fused_run, tmp_path / "run")


def settings_of(run):
    return from_mapping(RunFolder(run).read_settings(), source="test")


def refit(run, data, **changes):
    """Fit again with some settings changed."""
    values = RunFolder(run).read_settings()
    for key, value in changes.items():
        section, _, name = key.partition("_")
        values[section][name] = value
    settings = from_mapping(values, source="test")
    return fit_ensemble(RunFolder(run), data, settings, device="cpu", log=print, again=True)


def test_training_ends_with_a_fused_head_that_is_the_default(model, tiny_data):
    assert model.heads == ("dual", "classifier", "combined", "ensemble")
    texts = tiny_data["test"].texts()
    top = model.predict(texts, 5)
    np.testing.assert_array_equal(top.rows, model.predict(texts, 5, head="ensemble").rows)
    assert ((top.scores >= 0) & (top.scores <= 1)).all()
    assert (np.diff(top.scores, axis=1) <= 0).all()
    assert top.ids[0] == [tiny_data.labels.ids[row] for row in top.rows[0]]
    assert model.predict([], 5).rows.shape == (0, 5)


def test_a_text_is_answered_the_same_alone_and_in_company(model, tiny_data, monkeypatch):
    texts = tiny_data["test"].texts()
    together = model.predict(texts, 5)
    monkeypatch.setattr("umpteen.answers.views.QUERIES_AT_ONCE", 3)
    blocks = model.predict(texts, 5)
    np.testing.assert_allclose(blocks.scores, together.scores, atol=1e-5)
    for place in range(3):
        alone = model.predict(texts[place], 5)
        np.testing.assert_allclose(alone.scores[0], together.scores[place], atol=1e-5)


def test_margins_are_a_view_where_they_suit(run, tiny_data, monkeypatch):
    assert "margins" not in umpteen.Predictor.load(run).ensemble.views.names
    monkeypatch.setattr(MarginsRecipe, "suits", lambda *given: True)
    refit(run, tiny_data)
    model, texts = umpteen.Predictor.load(run), tiny_data["test"].texts()
    top = model.predict(texts, 5)
    for place in range(2):
        alone = model.predict(texts[place], 5)
        np.testing.assert_allclose(alone.scores[0], top.scores[place], atol=1e-5)
        assert "margins" in model.explain([texts[place]], alone)[0][0]["scores"]
    shutil.rmtree(run / "answers" / "lexical" / "margins")
    with pytest.raises(RunError, match="lacks what margins need"):
        umpteen.Predictor.load(run)


def test_evaluation_has_the_fused_head_and_its_sets(model, tiny_data):
    document = umpteen.evaluate(model, tiny_data).as_json()
    assert list(document["heads"]) == ["dual", "classifier", "combined", "ensemble"]
    sets = document["sets"]
    assert 0 <= sets["expected_calibration_error"] <= 100
    assert {"micro_f1", "macro_f1", "labels_per_query"} == set(sets["auto"]) == set(sets["groups"])
    assert json.loads(json.dumps(document)) == document
    alone = umpteen.evaluate(model, tiny_data, head="dual").as_json()
    assert "sets" not in alone
    # The vocabulary of the tiny data decides everything, and words are a part.
    assert document["heads"]["ensemble"]["P@1"] >= document["heads"]["combined"]["P@1"] - 5


def test_held_out_queries_are_in_no_part(model, tiny_data, fused_run):
    from umpteen.answers.memory import digest_texts

    held = training_splits(tiny_data, settings_of(fused_run))
    memory = model.require_memory().memory
    np.testing.assert_array_equal(memory.digests, digest_texts(held["train"].texts()))
    np.testing.assert_array_equal(model.ensemble.label_counts, held.label_counts)


def test_excluded_pairs_and_labels_that_are_not_allowed_stay_away(model, tiny_data):
    texts = tiny_data["test"].texts()[:4]
    best = model.predict(texts, 5)
    pairs = np.column_stack([np.repeat(np.arange(4), 5), best.rows.ravel()])
    again = model.predict(texts, 5, exclude=pairs)
    for query in range(4):
        assert not set(best.rows[query]) & set(again.rows[query])
    allowed = np.ones(40, bool)
    allowed[best.rows[0]] = False
    assert not set(best.rows[0]) & set(model.predict(texts, 5, allowed=allowed).rows.ravel())


@pytest.mark.parametrize("part", PARTS)
def test_every_part_can_be_left_out(part, model, tiny_data):
    texts = tiny_data["test"].texts()
    way = model.ensemble.recipe.way([part])
    assert part not in way.parts
    whole, less = model.predict(texts, 5), model.predict(texts, 5, without=[part])
    assert not np.array_equal(whole.scores, less.scores)
    values = umpteen.evaluate(model, tiny_data, head="ensemble", without=[part])
    assert values["ensemble"].n == 20


def test_parts_that_do_not_exist_or_were_not_fitted_are_a_sentence(model):
    with pytest.raises(ConfigError, match="no part 'magic'"):
        model.predict("a", without=["magic"])
    with pytest.raises(ConfigError, match="no answer was fitted without"):
        model.predict("a", without=["dual", "classifier"])


def test_what_parts_say_is_told_and_adds_up(model, tiny_data):
    texts = tiny_data["test"].texts()[:3]
    top = model.predict(texts, 4)
    told = model.explain(texts, top)
    assert [len(own) for own in told] == [4, 4, 4]
    queries = model.vectors(texts).numpy()
    for query in range(3):
        for rank, entry in enumerate(told[query]):
            row = top.rows[query, rank]
            dual = queries[query, model.columns("dual")] @ model.label_vectors("dual")[row]
            assert entry["scores"]["dual"] == pytest.approx(float(dual), abs=1e-5)
            assert set(entry["shares"]) == {*model.ensemble.recipe.way().parts, "frequency"}
    shares = model.ensemble.recipe.way().shares
    assert sum(shares.values()) == pytest.approx(100)


def test_pair_scores_are_those_of_a_search(model):
    vectors = model.vectors(["red apple", "old river"])
    top = model.search(vectors, 40, head="classifier")
    queries = np.repeat([0, 1], 40)
    scores = model.pair_scores(vectors, queries, top.rows.ravel(), head="classifier")
    np.testing.assert_allclose(scores, top.scores.ravel(), atol=1e-5)


def test_a_search_by_vectors_alone_uses_the_best_of_the_other_heads(model):
    vectors = model.vectors(["red apple"])
    combined = model.search(vectors, 3, head="combined")
    np.testing.assert_array_equal(model.search(vectors, 3).rows, combined.rows)
    with pytest.raises(ConfigError, match="reads words"):
        model.search(vectors, 3, head="ensemble")


# -- memory ---------------------------------------------------------------------------------------


def test_a_remembered_pair_counts_at_once_here_and_elsewhere(run):
    ours, theirs = umpteen.Predictor.load(run), umpteen.Predictor.load(run)
    before = ours.predict([NOVEL, "red apple"], 40)
    last = before.ids[0][-1]
    assert ours.remember([NOVEL], [[last]]) == 1
    for model in (ours, theirs, umpteen.Predictor.load(run)):
        after = model.predict([NOVEL, "red apple"], 40)
        assert after.ids[0][0] == last
        assert (np.diff(after.scores, axis=1)[:, :-1] <= 0).all()
    np.testing.assert_array_equal(after.rows[1], before.rows[1])  # another text, far away
    near = ours.predict(NOVEL + " very", 40)
    told = ours.explain([NOVEL + " very"], near)[0][near.ids[0].index(last)]
    assert told["scores"]["votes"] > 0.05
    assert told["scores"]["word_votes"] > 0.05


def test_metrics_are_of_the_training_alone(run, tiny_data):
    model = umpteen.Predictor.load(run)
    before = umpteen.evaluate(model, tiny_data).as_json()
    texts = tiny_data["test"].texts()
    model.remember(texts, [["L00"]] * len(texts))
    assert umpteen.evaluate(model, tiny_data).as_json() == before


def test_sets_are_judged_alike_whatever_else_is_measured(model, tiny_data, monkeypatch):
    monkeypatch.setattr("umpteen.answers.fused.DEPTH", 6)  # of 40 labels, as 40 of many
    few, many = (umpteen.evaluate(model, tiny_data, head="ensemble", metrics=metrics).sets
                 for metrics in (["P@1"], ["P@1", "R@100"]))  # fmt: skip
    assert few == many


def test_what_was_remembered_outlives_a_new_fit(run, tiny_data):
    umpteen.Predictor.load(run).remember([NOVEL], [["L07"]])
    refit(run, tiny_data)
    assert umpteen.Predictor.load(run).predict(NOVEL, 1).ids == [["L07"]]


def test_labels_that_were_added_can_be_remembered_and_retired_ones_stay_away(run):
    model = umpteen.Predictor.load(run)
    model.live.add([NewLabel("N1", "purple lantern")])
    model.remember([NOVEL], [["N1", "L01"]])
    assert set(model.predict(NOVEL, 2).ids[0]) == {"N1", "L01"}
    top = model.predict("purple lantern", 41)
    told = model.explain(["purple lantern"], top)[0][top.ids[0].index("N1")]
    assert told["scores"]["words"] > 1
    vectors = model.vectors(["purple lantern"])
    dual = model.search(vectors, 41, head="dual")
    assert told["scores"]["dual"] == pytest.approx(
        dual.scores[0][dual.ids[0].index("N1")], abs=1e-5
    )
    model.live.retire(["N1"])
    assert model.predict(NOVEL, 40).ids[0][0] == "L01"
    assert "N1" not in model.predict(NOVEL, 40).ids[0]


def test_an_added_label_whose_text_is_asked_word_for_word_is_first(run):
    model = umpteen.Predictor.load(run)
    texts = ["purple umbrella stand", "velvet", "green cucumber, sliced"]
    model.live.add([NewLabel(f"N{place}", text) for place, text in enumerate(texts)])
    top = model.predict(texts, 5)
    assert [ids[0] for ids in top.ids] == ["N0", "N1", "N2"]
    for ids in model.predict(["red apple", "old river"], 3).ids:
        assert not {"N0", "N1", "N2"} & set(ids)


def test_a_recipe_of_before_there_was_trust_in_new_labels_is_read(run):
    file = run / "answers" / "recipe.json"
    recipe = json.loads(file.read_text())
    trained = umpteen.Predictor.load(run).predict(["red apple"], 3)
    for way in recipe["ways"]:
        assert way["fusion"].pop("untrained")
    file.write_text(json.dumps(recipe))
    np.testing.assert_array_equal(umpteen.Predictor.load(run).predict(["red apple"], 3).rows,
                                  trained.rows)  # fmt: skip


def test_a_label_that_nobody_knows_is_a_sentence(run):
    model = umpteen.Predictor.load(run)
    with pytest.raises(DataError, match="umpteen labels add"):
        model.remember(["a"], [["nobody"]])


# -- settings -------------------------------------------------------------------------------------


def test_too_few_held_out_queries_fit_nothing(small_run_folder):
    assert not (small_run_folder / "answers").exists()
    assert umpteen.Predictor.load(small_run_folder).heads[-1] == "combined"


def test_training_tells_that_too_few_queries_are_held_out(small_run_folder, tiny_data):
    folder, told = RunFolder(small_run_folder), []
    settings = settings_of(small_run_folder)
    assert fit_ensemble(folder, tiny_data, settings, device="cpu", log=told.append) is None
    (sentence,) = told
    assert sentence.startswith("no ensemble: ")
    assert "validation.share" in sentence


@pytest.fixture(scope="module")
def small_run_folder(tiny_data, tmp_path_factory):
    place = tmp_path_factory.mktemp("plain") / "run"
    fit(tiny_data, place, "train.epochs=1")
    return place


def test_a_run_without_a_fused_answer_says_so(small_run_folder, tiny_data):
    model = umpteen.Predictor.load(small_run_folder)
    with pytest.raises(ConfigError, match="umpteen fit-ensemble"):
        model.remember(["a"], [["L00"]])
    with pytest.raises(ConfigError, match="umpteen fit-ensemble"):
        model.explain(["a"], model.predict("a"))
    with pytest.raises(DataError, match="too few"):
        refit(small_run_folder, tiny_data)


def test_it_can_be_switched_off(tiny_data, tmp_path):
    fit(tiny_data, tmp_path / "run", *CHANGES, "ensemble.enabled=off", "train.epochs=1")
    assert not (tmp_path / "run" / "answers").exists()


def test_without_memory_or_words_the_other_parts_answer(run, tiny_data):
    recipe = refit(run, tiny_data, examples_kept="none")
    assert recipe.ways[0].parts == ("dual", "classifier", "lexical")
    model = umpteen.Predictor.load(run)
    assert model.predict("red apple", 3).rows.shape == (1, 3)
    with pytest.raises(ConfigError, match="keeps no memory"):
        model.remember(["a"], [["L00"]])
    recipe = refit(
        run, tiny_data, ensemble_lexical=False, examples_max_examples=10, ensemble_tail_boost=0.25
    )
    assert max((way.parts for way in recipe.ways), key=len) == ("dual", "classifier", "votes")
    assert {way.tilt for way in recipe.ways} == {0.25}
    model = umpteen.Predictor.load(run)
    assert len(model.require_memory()) == 10
    assert model.remember([NOVEL], [["L07"]]) == 1
    assert model.predict(NOVEL, 1).ids == [["L07"]]


@pytest.mark.parametrize("head", ["dual", "classifier"])
def test_a_model_of_one_head_can_be_fused(head, tiny_data, tmp_path):
    share = 1.0 if head == "dual" else 0.0
    model = fit(
        tiny_data, tmp_path / "run", *CHANGES, f'model.heads=["{head}"]', "train.epochs=1",
        f"loss.dual_share={share}",
    )  # fmt: skip
    assert model.heads[-1] == "ensemble"
    assert model.predict("red apple", 3).rows.shape == (1, 3)


def test_a_model_that_does_not_normalize_can_be_fused(tiny_data, tmp_path):
    changes = ("model.heads=['dual']", "model.normalize=false", "model.dual_temperature=1.0")
    model = fit(tiny_data, tmp_path / "run", *CHANGES, *changes)
    loaded = umpteen.Predictor.load(tmp_path / "run")
    texts = tiny_data["test"].texts()
    np.testing.assert_array_equal(loaded.predict(texts, 5).rows, model.predict(texts, 5).rows)
    vectors = loaded.vectors(texts)
    assert vectors.norm(dim=1).std() > 0.05
    # A label's score is the inner product, of trained and of added labels.
    loaded.live.add([NewLabel("new", "red lantern", "")])
    top = loaded.search(vectors, len(loaded.labels_now()), head="dual")
    known = np.concatenate(
        [loaded.label_vectors("dual"), loaded.live.refresh().vectors.cpu().numpy()]
    )
    expected = vectors.cpu().numpy() @ known.T
    np.testing.assert_allclose(
        np.take_along_axis(expected, top.rows, axis=1), top.scores, rtol=1e-4, atol=1e-5
    )
    # Near queries are found by cosine: a remembered text is nearest to itself.
    remembered = loaded.ensemble.views.remembered
    own = tiny_data["train"].texts()[:9]
    loaded.remember(own, [[tiny_data.labels.ids[0]]] * len(own))
    near = remembered.nearest(loaded.vectors(own), 1, remembered.refresh())
    np.testing.assert_allclose(near.scores, 1.0, rtol=1e-5)
    everyone = remembered.nearest(vectors, 3, remembered.refresh())
    assert np.abs(everyone.scores).max() <= 1.00001


def test_fitting_twice_comes_to_the_same(run, tiny_data):
    before = (run / "answers" / "recipe.json").read_bytes()
    refit(run, tiny_data)
    assert (run / "answers" / "recipe.json").read_bytes() == before


def test_a_resumed_run_that_is_done_keeps_its_answer(run, tiny_data):
    before = (run / "answers" / "recipe.json").stat().st_mtime_ns
    fit(tiny_data, run, resume=True)
    assert (run / "answers" / "recipe.json").stat().st_mtime_ns == before
    shutil.rmtree(run / "answers")
    assert fit(tiny_data, run, resume=True).heads[-1] == "ensemble"


# -- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("damage", ["remove", "empty", "other json"])
@pytest.mark.parametrize(
    "part",
    ["recipe.json", "label_counts.npy", "memory/vectors.npy", "lexical/words.json", "memory",
     "memory/targets_indptr.npy", "lexical/weights.npy"],
)  # fmt: skip
def test_a_damaged_part_is_a_sentence(part, damage, run):
    place = run / "answers" / part
    if place.is_dir():
        shutil.rmtree(place)
    elif damage == "remove":
        place.unlink()
    else:
        place.write_bytes(b"" if damage == "empty" else b"[1, 2]")
    with pytest.raises(UmpteenError) as caught:
        umpteen.Predictor.load(run)
    assert str(run) in str(caught.value)
    assert umpteen.Predictor.load(run, with_ensemble=False).heads[-1] == "combined"


def test_an_answer_for_another_model_is_a_mismatch(run):
    file = run / "answers" / "recipe.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "model": "epoch-0777"}))
    with pytest.raises(LabelMismatch, match="umpteen fit-ensemble"):
        umpteen.Predictor.load(run)


def test_a_new_best_model_takes_the_old_answer_away(run):
    folder = RunFolder(run)
    other = shutil.copytree(folder.model("best"), folder.models / "epoch-0099")
    folder.point(best=other)
    assert not folder.answers.exists()


def test_the_last_model_does_not_use_the_answer_of_the_best(run):
    names = json.loads((run / "models.json").read_text())
    if names["best"] == names["last"]:
        folder = RunFolder(run)
        folder.point(last=shutil.copytree(folder.model("best"), folder.models / "epoch-0099"))
    assert umpteen.Predictor.load(run, which="last").heads[-1] == "combined"


def test_only_a_recipe_of_our_format_is_read(run):
    file = run / "answers" / "recipe.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    with pytest.raises(RunError, match="format 99"):
        umpteen.Predictor.load(run)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_answers_on_a_gpu_are_those_of_the_cpu(fused_run, tiny_data):
    texts = tiny_data["test"].texts()
    host = umpteen.Predictor.load(fused_run, device="cpu").predict(texts, 5)
    device = umpteen.Predictor.load(fused_run, device="cuda").predict(texts, 5)
    np.testing.assert_allclose(device.scores, host.scores, atol=1e-3)
