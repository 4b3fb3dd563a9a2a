"""What each rule says, and that all of them together are settings."""

import dataclasses

import pytest

from umpteen.config.data_profile import DataProfile
from umpteen.config.default_rules import (
    RULES,
    USUAL_SHARE,
    batch_size,
    choose,
    folds,
    held_out,
    length,
    preset_of,
    token_table,
)
from umpteen.config.loading import load_config

SHORT = DataProfile(
    queries=7138,
    length_90=12,
    length_99=17,
    validation=0,
    spare=2000,
    min_validation=50,
    encoder="bag",
)


def facts(**changes):
    return dataclasses.replace(SHORT, **changes)


LENGTHS = [
    (("bag", 12, 17), (32, 1)),
    (("bag", 40, 45), (48, 1)),
    (("bag", 440, 645), (512, 1)),
    (("convolution", 20, 90), (96, 1)),
    (("convolution", 440, 645), (128, 1)),
    (("transformer", 12, 17), (32, 1)),
    (("transformer", 120, 400), (128, 1)),
    (("transformer", 129, 400), (128, 2)),
    (("transformer", 300, 4000), (128, 3)),
    (("transformer", 9000, 9000), (128, 4)),
]


@pytest.mark.parametrize(("given", "expected"), LENGTHS)
def test_length(given, expected):
    encoder, length_90, length_99 = given
    said = length(facts(encoder=encoder, length_90=length_90, length_99=length_99))
    assert (said.settings["data.max_tokens"], said.settings["data.chunks"]) == expected


SIZES = [
    ("bag", 60, 32),
    ("bag", 3000, 32),
    ("bag", 3200, 64),
    ("bag", 7138, 128),
    ("bag", 10**6, 128),
    ("transformer", 7138, 128),
    ("transformer", 45_000, 512),
    ("transformer", 87_472, 1024),
    ("transformer", 10**7, 1024),
]


@pytest.mark.parametrize(("encoder", "queries", "expected"), SIZES)
def test_batch_size(encoder, queries, expected):
    said = batch_size(facts(encoder=encoder, queries=queries))
    assert said.settings == {"batches.size": expected}


@pytest.mark.parametrize(("tokens", "expected"), [(128, 1024), (129, 256), (384, 170), (9000, 128)])
def test_long_texts_are_fewer_in_a_batch(tokens, expected):
    said = batch_size(facts(encoder="transformer", queries=10**6, length_90=tokens))
    assert said.settings == {"batches.size": expected}
    assert ("65,536 tokens" in said.reason) == (tokens > 128)


@pytest.mark.parametrize(
    ("words", "tokens", "replaced"),
    [(0, 0, False), (999, 10, False), (1000, 99, True), (1000, 100, False), (10_162, 478, True)],
)
def test_a_tokenizer_is_learned_where_the_packaged_one_loses_the_words(words, tokens, replaced):
    said = token_table(facts(distinct_words=words, distinct_tokens=tokens))
    assert said.settings == ({"encoder.table": "random"} if replaced else {})
    assert bool(said.reason) == replaced


HELD = [
    (300, 0, 0),
    (599, 0, 0),
    (600, 0, 60),
    (640, 0, 64),
    (1201, 0, 64),
    (2133, 0, 64),
    (2200, 66, 66),
    (10**5, 3000, 3000),
]


@pytest.mark.parametrize(("queries", "of_bag", "of_others"), HELD)
def test_small_data_holds_out_what_an_ensemble_needs_or_nothing(queries, of_bag, of_others):
    for encoder, expected in (("bag", of_bag), ("convolution", of_others)):
        settings = held_out(facts(queries=queries, encoder=encoder)).settings
        assert set(settings) == {"validation.share"}
        assert round(settings["validation.share"] * queries) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"queries": 599}, {}),
        ({"queries": 600}, {"ensemble.folds": 2}),
        ({"queries": 2133, "spare": 0}, {"ensemble.folds": 2}),
        ({"queries": 2134}, {}),
        ({"queries": 1200, "validation": 30}, {}),
        ({"queries": 1200, "encoder": "transformer", "spare": 0}, {}),
        ({"queries": 1200, "min_validation": 0}, {}),
    ],
)
def test_two_folds_of_a_bag_are_cross_validated(changes, expected):
    assert folds(facts(**changes)).settings == expected


def test_texts_are_held_out_to_choose_the_epoch_where_no_ensemble_is_wanted():
    settings = held_out(facts(queries=1200, min_validation=0)).settings
    assert round(settings["validation.share"] * 1200) == 64


def test_folds_that_the_user_sets_leave_the_held_out_texts_to_the_rule():
    settings = choose(facts(queries=1200), ["ensemble.folds=5"]).settings
    assert settings["validation.share"] == 0.0
    assert "ensemble.folds" not in settings


@pytest.mark.parametrize("changes", [{"spare": 49}, {"min_validation": 65}])
def test_nothing_is_held_out_where_it_is_too_few_for_an_ensemble(changes):
    said = held_out(facts(queries=1200, encoder="transformer", **changes))
    assert said.settings == {"validation.share": 0.0}
    assert "cross-validated" in said.reason


def test_nothing_is_said_of_a_share_where_validation_is_given():
    said = held_out(facts(queries=1200, validation=30))
    assert not said.settings
    assert "30 validation texts" in said.reason


@pytest.mark.parametrize("encoder", ["bag", "transformer"])
def test_the_usual_share_is_that_of_the_presets(encoder):
    assert load_config(preset_of(facts(encoder=encoder))).validation.share == USUAL_SHARE


def test_spare_queries_bound_what_is_held_out():
    few = facts(queries=1200, spare=55, encoder="transformer")
    assert "55 of 1,200 texts" in held_out(few).reason


def test_the_preset_follows_the_encoder():
    assert preset_of(SHORT) == "unidec-frugal"
    assert preset_of(facts(encoder="transformer")) == "unidec"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("encoder", ["bag", "convolution", "transformer"])
def test_every_rule_gives_a_reason_and_settings_that_exist(rule, encoder):
    said = rule(facts(encoder=encoder, length_90=900, length_99=2000, queries=900))
    assert said.reason or not said.settings
    assert "\n" not in said.reason
    changes = [f"{key}={value}" for key, value in said.settings.items()]
    load_config(preset_of(facts(encoder=encoder)), changes)


def test_the_measured_data_set_keeps_its_measured_settings():
    choice = choose(SHORT)
    chosen = load_config(choice.preset, choice.overrides())
    assert chosen == load_config("unidec-frugal")


def test_every_rule_with_something_to_say_has_a_line():
    choice = choose(SHORT)
    silent = [rule for rule in RULES if not rule(SHORT).reason]
    assert silent == [token_table, folds]
    assert len(choice.reasons) == 1 + len(RULES) - len(silent)
    assert choice.reasons[2].startswith("batches.size 128: 7,138 queries")


def test_what_the_user_sets_is_left_to_the_user():
    choice = choose(facts(encoder="transformer", length_90=900), ["data.max_tokens=64"])
    assert "data.max_tokens" not in choice.settings
    assert "data.chunks" not in choice.settings  # or texts would be longer than told
    assert choice.settings["batches.size"] == 128
    assert not [line for line in choice.reasons if "data.max_tokens" in line]
    for queries in (100, 900, 9000):
        assert "validation.share" in choose(facts(queries=queries)).settings
        choice = choose(facts(queries=queries), ["validation.share=0.05"])
        assert not [line for line in choice.reasons if "validation.share" in line]
