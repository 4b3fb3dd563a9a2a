"""Settings of runs that name no preset: chosen, said, written, and below the user's own."""

import json

import pytest
from small_runs import SETTINGS, StopAt, fit, outcome

from umpteen.config.loading import load_config
from umpteen.data.dataset import Dataset
from umpteen.training.prepare import training_splits
from umpteen.training.resolve import (
    GivenSettings,
    profile_of,
    resolve_config,
    resolve_open_settings,
)
from umpteen.training.run import train


def resolved(data, **given):
    return resolve_config(data, GivenSettings(**given))


def test_without_a_preset_rules_choose(tiny_data):
    found = resolved(tiny_data)
    assert found.config.batches.size == 32
    assert found.config.train.lr_encoder is not None
    assert any(line.startswith("batches.size 32") for line in found.reasons)


def test_the_users_changes_lie_above_the_choice_and_a_preset_in_its_place(tiny_data):
    assert resolved(tiny_data, overrides=["batches.size=7"]).config.batches.size == 7
    for name in ("unidec-frugal", "depsl"):
        found = resolved(tiny_data, preset=name)
        assert found.config == resolve_open_settings(load_config(name))
        assert not found.reasons
    known = resolved(tiny_data, dataset="lf-amazontitles-131k")
    assert not known.reasons


def test_a_transformer_gets_the_preset_of_transformers(tiny_data, tiny_bert):
    found = resolved(tiny_data, overrides=[f"encoder.name={tiny_bert}"])
    assert found.config.train.lr_labels == load_config("unidec").train.lr_labels
    assert profile_of(tiny_data, found.config).encoder == "transformer"


def test_numbers_in_place_of_words_get_a_tokenizer_of_their_own():
    texts = [f"{7919 * row % 10_007} {row % 1009}" for row in range(1500)]
    data = Dataset.from_lists(texts, [[row % 5] for row in range(1500)])
    assert resolved(data).config.encoder.table == "random"
    assert any(line.startswith("encoder.table random:") for line in resolved(data).reasons)
    kept = resolved(data, overrides=["encoder.table=static"])
    assert kept.config.encoder.table == "static"
    assert not any("encoder.table" in line for line in kept.reasons)


def test_a_budget_bounds_the_fused_answer_too(tiny_data):
    assert resolved(tiny_data, minutes=10.0).config.ensemble.seconds == pytest.approx(120.0)
    user_keys = resolved(tiny_data, minutes=10.0, overrides=["ensemble.seconds=5"])
    assert user_keys.config.ensemble.seconds == 5


def test_where_margins_are_learned_the_fused_answer_gets_more_of_a_budget():
    def of(queries_per_label):
        rows = range(4 * queries_per_label)
        return Dataset.from_lists([f"word{i} thing" for i in rows], [[i % 4] for i in rows])

    assert resolved(of(9), minutes=10.0).config.ensemble.seconds == pytest.approx(120.0)
    assert resolved(of(10), minutes=10.0).config.ensemble.seconds == pytest.approx(240.0)
    assert (
        resolved(of(10), minutes=30.0).config.ensemble.seconds
        == load_config("unidec-frugal").ensemble.seconds
    )


def few_queries(n=600):
    texts = [f"word{row % 7} thing{row % 11} number{row}" for row in range(n)]
    return Dataset.from_lists(texts, [[row % 7, 10 + row % 11] for row in range(n)])


def test_of_few_queries_none_is_held_out_for_a_bag():
    data = few_queries()
    found = resolved(data)
    assert "validation" not in training_splits(data, found.config)
    assert found.config.ensemble.folds == 2
    assert any(line.startswith("validation.share 0.0: none of 600") for line in found.reasons)
    assert any(line.startswith("ensemble.folds 2: ") for line in found.reasons)


def test_few_queries_are_held_out_in_number_for_other_encoders():
    data = few_queries()
    found = resolved(data, overrides=["encoder.name=convolution"])
    assert len(training_splits(data, found.config)["validation"]) == 60
    assert any(line.startswith("validation.share 0.1: 60 of 600") for line in found.reasons)


def test_a_preset_keeps_its_own_share():
    assert resolved(few_queries(), preset="unidec-frugal").config.validation.share == 0.03


def test_reasons_are_said_and_kept_with_the_run(tiny_data, tmp_path):
    reporter = StopAt(0)
    changes = [c for c in SETTINGS if not c.startswith("batches.size")]
    train(tiny_data, out=tmp_path / "run", overrides=[*changes, "train.epochs=1"], device="cpu",
          reporters=[reporter])  # fmt: skip
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["config"]["batches"]["size"] == 32
    assert set(written["chosen"]) <= set(reporter.said)
    assert any("batches.size 32" in line for line in written["chosen"])


def test_a_choice_can_be_repeated_from_its_settings(tiny_data, tmp_path):
    fit(tiny_data, tmp_path / "first", "train.epochs=1")
    train(tiny_data, out=tmp_path / "again", preset=str(tmp_path / "first" / "config.json"),
          device="cpu")  # fmt: skip
    assert outcome(tmp_path / "again") == outcome(tmp_path / "first")
