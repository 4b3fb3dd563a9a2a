"""Settings for well-known data sets: where they lie, what they hold, and how far they reach."""

import json
import tomllib

import numpy as np
import pytest
from papers_settings import PAPERS, QUERY2BID, RETRIEVERS

import umpteen
from umpteen.config.checks import get
from umpteen.config.known_datasets import (
    TABLES,
    around_preset,
    dataset_names,
    dataset_text,
    lay_over,
)
from umpteen.config.loading import load_config, stages
from umpteen.config.settings import preset_names, read_preset
from umpteen.errors import ConfigError

CONSTANTS = {
    "eurlex-4k": (0.55, 1.5),
    "lf-amazon-131k": (0.6, 2.6),
    "lf-amazontitles-1.3m": (0.6, 2.6),
    "lf-amazontitles-131k": (0.6, 2.6),
    "lf-wikipedia-500k": (0.5, 0.4),
    "lf-wikiseealso-320k": (0.55, 1.5),
    "lf-wikiseealsotitles-320k": (0.55, 1.5),
    "lf-wikititles-500k": (0.5, 0.4),
}
SMALL = (
    "encoder.name=bag", "encoder.table=random", "encoder.dim=8", "model.dim=8",
    "ensemble.enabled=off",
)  # fmt: skip


@pytest.mark.parametrize("dataset", dataset_names())
@pytest.mark.parametrize("preset", preset_names())
def test_every_data_set_goes_with_every_preset(dataset, preset):
    config = load_config(preset, dataset=dataset)
    assert (config.data.propensity_a, config.data.propensity_b) == CONSTANTS[dataset]
    titles = "titles" in dataset
    assert config.data.text == ("title" if titles else "all")
    told = PAPERS.get((dataset, preset), {})
    if preset == "query2bid":  # a preset for one data set, with its own length
        told = {"data.max_tokens": 12}
    assert config.data.max_tokens == told.get("data.max_tokens", 32 if titles else 128)


@pytest.mark.parametrize(("dataset", "preset"), PAPERS)
def test_settings_are_the_papers(dataset, preset):
    config = load_config(preset, dataset=dataset)
    for key, value in PAPERS[dataset, preset].items():
        told = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
        second = stages(config)[-1]
        found = get(second, key.removeprefix("stage2.")) if "stage2." in key else get(config, key)
        assert found == told, key


@pytest.mark.parametrize(("preset", "told"), [*RETRIEVERS.items(), ("query2bid", QUERY2BID)])
def test_presets_of_other_data_are_their_codes(preset, told):
    config = load_config(preset)
    for key, value in told.items():
        assert get(config, key) == value, key


def test_the_second_stage_of_ngame_is_its_configuration():
    """LF-AmazonTitles-131K: 294,805 queries, 100 epochs of 2,048, 500 steps of warm-up."""
    config = load_config("ngame")
    told = config.stage2
    assert told["loss"] == {
        "classifier": "triplet",
        "classifier_options": {
            "margin": 0.2,
            "n_negatives": 5,
            "temperature": 1.0,
            "n_positives": 3,
        },
        "classifier_forward": 1.0,
        "reduction": "pal",  # a query with one positive counts a third of one with three
        "dual_share": 0.0,
    }
    assert told["pool"]["positives"] == 1000  # every positive is in the pool, none is drawn
    assert told["train"]["warmup"] == pytest.approx(500 / (294_805 / 2048 * 100), abs=5e-4)
    assert told["train"]["frozen"]
    assert told["train"]["lr_labels"] == 1e-3
    assert "weight_decay" not in told["train"]
    assert config.train.weight_decay == 0  # of both stages
    assert (config.model.classifier_dropout, config.model.normalize_classifier) == (0.5, True)


def test_renee_after_ngame_decays_its_encoder_again():
    config = load_config("ngame-renee")
    assert (config.train.weight_decay, config.stage2["train"]["weight_decay"]) == (0.0, 0.01)


def test_the_stages_of_siamesexml_are_its_configuration():
    """LF-AmazonTitles-131K; k and the constants of both losses are its code's defaults."""
    config = load_config("siamese")
    assert config.loss.dual_options == {"c": 0.9, "d": 1.5, "n_negatives": 1}
    assert config.loss.reduction == "pal"  # every positive of a row of the batch has its term
    assert config.train.epochs == 50
    told = config.stage2
    options = dict(told["loss"]["classifier_options"])
    assert options.pop("n_negatives") == 3  # where its code has a shortlist for each query
    assert options == {"c": 0.75, "d": 3.0, "threshold": 0.05}
    assert (told["train"]["epochs"], told["train"]["lr_labels"]) == (20, 2e-4)
    assert told["pool"]["shortlist_size"] == 500


@pytest.mark.parametrize("preset", ["decaf", "eclare"])
def test_the_loss_of_decaf_and_eclare_is_the_mean_cross_entropy_of_a_shortlist(preset):
    config = load_config(preset)
    assert config.loss.classifier == "bce"
    assert config.loss.classifier_options == {"mean": True}
    assert (config.loss.reduction, config.loss.classifier_forward) == ("pal", 1.0)
    assert config.pool.scope == "batch"
    walks = (config.augment.walk_steps, config.augment.restart, config.model.neighbours)
    assert walks == (400, 0.8, 10)  # ECLARE's configuration


def keys_of(sections):
    """Return the dotted keys of settings, those of the second stage with its name before them."""
    for section, values in sections.items():
        if section == "stage2":
            yield from (f"stage2.{key}" for key in keys_of(values))
        else:
            yield from (f"{section}.{key}" for key in values)


def test_every_number_of_a_data_set_is_in_the_table_of_the_papers():
    for dataset in dataset_names():
        for preset, sections in tomllib.loads(dataset_text(dataset))["presets"].items():
            assert set(keys_of(sections)) <= set(PAPERS[dataset, preset]), (dataset, preset)


def test_gandalf_before_a_preset_keeps_its_numbers_and_its_own_rows():
    plain = load_config("renee", dataset="lf-wikipedia-500k")
    assert plain.augment.method == "self"
    rows = load_config("gandalf-renee", dataset="lf-wikipedia-500k")
    assert rows.augment.method == "gandalf"
    assert (rows.batches.size, rows.model.dropout) == (2048, 0.7)


def test_the_data_sets_of_the_papers_are_there_and_speak_of_presets_that_are():
    assert dataset_names() == sorted(CONSTANTS)
    for name in dataset_names():
        about = tomllib.loads(dataset_text(name))
        assert set(about) == set(TABLES)
        assert set(about["presets"]) <= set(preset_names())
        assert f"--dataset {name}" in dataset_text(name).splitlines()[0]


def test_defaults_lie_below_the_preset_and_its_own_numbers_above():
    frugal = load_config("unidec-frugal", dataset="lf-amazontitles-131k")
    assert frugal.encoder.name == "bag"  # the preset names an encoder itself
    assert frugal.batches.size == read_preset("unidec-frugal")["batches"]["size"]
    assert frugal.data.max_tokens == 32
    unidec = load_config("unidec", dataset="LF-AmazonTitles-131K")
    assert unidec.encoder.name.endswith("msmarco-distilbert-base-v4")
    assert unidec.batches.size != read_preset("unidec")["batches"]["size"]
    assert unidec.train.lr_labels == 1e-3


@pytest.mark.parametrize(
    ("preset", "dataset"),
    [
        ("unidec", "lf-amazontitles-131k"),
        ("dexml-sampled", "lf-wikipedia-500k"),
        ("renee", "lf-wikiseealso-320k"),
    ],
)
def test_a_run_with_the_papers_settings_trains_and_answers(preset, dataset, tiny_data, tmp_path):
    changes = (*SMALL, "train.epochs=2", "batches.size=32", "batches.first_refresh=1")
    model = umpteen.train(
        tiny_data, out=tmp_path / "run", preset=preset, dataset=dataset, overrides=changes
    )
    loaded = umpteen.Predictor.load(tmp_path / "run")
    texts = tiny_data["test"].texts()
    top = loaded.predict(texts, 3)
    assert (top.rows >= 0).all()
    np.testing.assert_array_equal(top.rows, model.predict(texts, 3).rows)
    assert loaded.model.normalize == (preset != "dexml-sampled")
    assert loaded.model.log_scales.requires_grad == (preset == "unidec")


def test_what_is_set_lies_above_all():
    changes = ["batches.size=7", "data.propensity_a=0.7"]
    config = load_config("unidec", changes, dataset="lf-amazontitles-131k")
    assert (config.batches.size, config.data.propensity_a) == (7, 0.7)


def test_an_unknown_data_set_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'lf-amazon131k' is not known.*mean 'lf-amazon-131k'"):
        load_config("unidec", dataset="lf-amazon131k")


def test_one_propensity_constant_alone_is_refused():
    with pytest.raises(ConfigError, match="both left out, or both above 0"):
        load_config("unidec", ["data.propensity_a=0.5"])


def test_values_are_laid_over_each_other_without_changing_either():
    below, above = {"a": {"b": 1, "c": [1]}, "d": 2}, {"a": {"b": 3}, "d": {"e": 4}}
    assert lay_over(below, above) == {"a": {"b": 3, "c": [1]}, "d": {"e": 4}}
    assert below == {"a": {"b": 1, "c": [1]}, "d": 2}
    assert around_preset({}, "no-such-preset", "eurlex-4k")["data"]["max_tokens"] == 128


def test_the_constants_reach_validation_evaluation_and_resumed_runs(tiny_data, tmp_path):
    settings = (*SMALL, "train.epochs=1", "batches.size=32")
    run = tmp_path / "run"
    model = umpteen.train(
        tiny_data, out=run, preset="depsl", dataset="lf-wikipedia-500k", overrides=settings
    )
    found = umpteen.evaluate(model, tiny_data)
    assert found.as_json()["propensity"] == {"a": 0.5, "b": 0.4}
    plain = umpteen.train(tiny_data, out=tmp_path / "plain", preset="depsl", overrides=settings)
    assert umpteen.evaluate(plain, tiny_data).as_json()["propensity"] == {"a": 0.55, "b": 1.5}
    told = ["data.propensity_a=0.5", "data.propensity_b=0.4"]
    again = umpteen.train(
        tiny_data, out=tmp_path / "told", preset="depsl", overrides=[*settings, *told]
    )
    assert again.propensity == model.propensity

    def validated(run):
        return json.loads((run / "metrics.json").read_text())["validation"][0]["heads"]["dual"]

    # The same model, the same P@1, another PSP.
    assert validated(tmp_path / "told")["P@1"] == validated(tmp_path / "plain")["P@1"]
    assert validated(tmp_path / "told")["PSP@5"] != validated(tmp_path / "plain")["PSP@5"]
    with pytest.raises(ConfigError, match="keeps its own settings"):
        umpteen.train(tiny_data, out=run, dataset="lf-wikipedia-500k", resume=True)
