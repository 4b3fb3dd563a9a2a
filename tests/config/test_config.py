import dataclasses
import json

import pytest

from umpteen.config.checks import get
from umpteen.config.loading import load_config
from umpteen.config.schema import RunConfig
from umpteen.config.settings import from_mapping, preset_names, read_preset, to_json, with_overrides
from umpteen.errors import ConfigError
from umpteen.training.factories import build_losses, build_model
from umpteen.training.resolve import resolve_open_settings


def problems(values):
    with pytest.raises(ConfigError) as caught:
        from_mapping(values, source="a.toml")
    return str(caught.value)


def test_nothing_given_is_the_defaults():
    assert from_mapping({}, source="x") == RunConfig()


def test_every_unknown_key_is_reported_with_the_nearest_known_one():
    message = problems({"sed": 1, "train": {"epoch": 3}, "pol": {}, "loss": {"dual_shar": 0.1}})
    assert message.startswith("a.toml: ")
    for key, near in (
        ("sed", "seed"),
        ("train.epoch", "epochs"),
        ("pol", "pool"),
        ("loss.dual_shar", "dual_share"),
    ):
        assert f"unknown setting {key}. Did you mean {near!r}?" in message


def test_wrong_types_are_reported_together_with_unknown_keys():
    message = problems({"seed": "x", "train": {"epochs": 2.5, "nothing_like_it": 1}, "model": 3})
    assert "seed must be int, not 'x'" in message
    assert "train.epochs must be int, not 2.5" in message
    assert "unknown setting train.nothing_like_it" in message
    assert "model must be a section, not 3" in message


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"seed": True}, "seed must be int, not True"),
        ({"train": {"lr_labels": True}}, "train.lr_labels must be float, not True"),
        ({"train": {"lr_encoder": False}}, "train.lr_encoder must be float, not False"),
        ({"batches": {"clustered": 1}}, "batches.clustered must be bool, not 1"),
        ({"batches": {"size": None}}, "batches.size must be int, not None"),
        ({"model": {"heads": "dual"}}, "model.heads must be a list, not 'dual'"),
        ({"data": {"text": 3}}, "data.text must be str, not 3"),
        ({"encoder": {"options": [1]}}, "encoder.options must be a table, not [1]"),
    ],
)
def test_each_type_is_its_own(values, says):
    assert says in problems(values)


def test_whole_numbers_serve_as_fractions_and_lists_as_tuples():
    config = from_mapping(
        {"train": {"weight_decay": 0, "lr_encoder": 1}, "model": {"heads": ["dual"]}}, source="x"
    )
    assert isinstance(config.train.weight_decay, float)
    assert isinstance(config.train.lr_encoder, float)
    assert config.model.heads == ("dual",)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"data": {"text": "content"}}, "data.text must be title or all, not 'content'"),
        ({"data": {"max_tokens": 0}}, "data.max_tokens must be above 0, not 0"),
        ({"model": {"heads": []}}, "model.heads must be some of dual and classifier"),
        ({"model": {"heads": ["dual", "x"]}}, "model.heads must be some of dual and classifier"),
        ({"model": {"dual_temperature": 0.0}}, "model.dual_temperature must be above 0"),
        ({"model": {"normalize": False}}, "true unless model.heads is dual alone, not False"),
        (
            {"model": {"normalize": False, "heads": ["classifier"]}},
            "true unless model.heads is dual alone",
        ),
        (
            {"model": {"share_temperature": True, "heads": ["dual"]}},
            "model.share_temperature must be false unless model.heads are both",
        ),
        ({"train": {"schedule": "steps"}}, "train.schedule must be cosine or linear, not 'steps'"),
        ({"model": {"dropout": 1.0}}, "model.dropout must be at least 0 and below 1"),
        ({"loss": {"dual_share": 1.5}}, "loss.dual_share must be between 0 and 1"),
        ({"pool": {"negatives": -1}}, "pool.negatives must be 0 or more"),
        (
            {"encoder": {"pooling": "max"}},
            "must be auto, mean, first or last, not 'max'",
        ),
        ({"batches": {"cluster_size": 1, "double_epochs": [5, 5]}}, "whole numbers of 0 or more"),
        ({"batches": {"cluster_size": 1, "double_epochs": [1, "x"]}}, "whole numbers of 0 or more"),
        ({"batches": {"double_epochs": [5]}}, "batches.cluster_size must be 1 or more where"),
        ({"pool": {"scope": "some"}}, "pool.scope must be batch, all or bank, not 'some'"),
        (
            {"pool": {"scope": "bank"}, "model": {"heads": ["classifier"]}},
            "model.heads must be dual, for pool.scope bank",
        ),
        ({"pool": {"max_labels": 5, "min_labels": 6}}, "pool.min_labels must be at most"),
        ({"pool": {"scores": "bf16"}}, "pool.scores must be auto unless pool.scope is all or bank"),
        (
            {"model": {"label_init": "odds"}},
            "model.label_init must be text, zeros or random unless",
        ),
        (
            {"batches": {"search": "int8"}},
            "batches.search must be auto, exact, clusters, bfloat16 or float8",
        ),
        ({"train": {"precision": "fp8"}}, "train.precision must be auto, fp32 or bf16"),
        ({"train": {"lr_labels": float("nan")}}, "train.lr_labels must be 0 or more"),
        ({"train": {"lr_encoder": -1e-3}}, "train.lr_encoder must be 0 or more"),
        ({"train": {"lr_heads": float("nan")}}, "train.lr_heads must be 0 or more"),
    ],
)
def test_values_out_of_range_are_refused(values, says):
    assert says in problems(values)


def test_all_values_out_of_range_are_reported_at_once():
    message = problems({"train": {"epochs": 0, "warmup": 2.0}, "seed": -1})
    assert message.startswith("a.toml: ")
    for key in ("train.epochs", "train.warmup", "seed"):
        assert key in message


def test_a_config_made_in_python_is_checked_as_well():
    with pytest.raises(ConfigError, match="seed must be 0 or more"):
        RunConfig(seed=-1)


class TestOverrides:
    @pytest.mark.parametrize(
        ("override", "key", "value"),
        [
            ("train.epochs=3", "train.epochs", 3),
            ("train.lr_labels=1e-4", "train.lr_labels", 1e-4),
            ("batches.clustered=false", "batches.clustered", False),
            ("encoder.name=some/folder", "encoder.name", "some/folder"),
            ('encoder.name="3"', "encoder.name", "3"),
            ('model.heads=["classifier"]', "model.heads", ("classifier",)),
            (" seed = 5 ", "seed", 5),
            ("encoder.name=a=b", "encoder.name", "a=b"),
        ],
    )
    def test_values_are_read_as_toml_and_otherwise_as_text(self, override, key, value):
        config = load_config("unidec", [override])
        assert get(config, key) == value
        assert type(get(config, key)) is type(value)

    def test_the_last_one_wins(self):
        assert load_config("unidec", ["seed=1", "seed=2"]).seed == 2

    def test_they_lie_over_the_preset_and_leave_the_rest(self):
        config = load_config("unidec", ["train.lr_labels=0.5"])
        assert config.train.epochs == load_config("unidec").train.epochs

    def test_options_of_an_encoder_can_be_set(self):
        config = load_config("unidec-frugal", ["encoder.options.hidden=7"])
        assert config.encoder.options == {"hidden": 7}

    def test_the_values_given_are_not_modified(self):
        given = {"encoder": {"options": {"hidden": 1}}}
        merged = with_overrides(given, ["encoder.options.hidden=2", "encoder.dim=3"])
        assert merged == {"encoder": {"options": {"hidden": 2}, "dim": 3}}
        assert given == {"encoder": {"options": {"hidden": 1}}}

    @pytest.mark.parametrize("override", ["train.epochs", "=3", "", " =1"])
    def test_without_key_or_value_they_are_an_error(self, override):
        with pytest.raises(ConfigError, match=r"expected section.key=value"):
            with_overrides({}, [override])

    def test_a_value_has_no_keys(self):
        with pytest.raises(ConfigError, match="'seed' is not a section"):
            with_overrides({"seed": 1}, ["seed.more=1"])

    def test_an_unknown_key_says_where_it_came_from(self):
        with pytest.raises(ConfigError, match="unidec with --set: unknown setting train.epo"):
            load_config("unidec", ["train.epo=1"])


class TestPresets:
    @pytest.mark.parametrize("name", preset_names())
    def test_every_preset_loads_and_survives_json(self, name):
        config = resolve_open_settings(load_config(name))
        again = from_mapping(json.loads(json.dumps(to_json(config))), source="json")
        assert again == config
        assert config.train.lr_encoder is not None
        assert config.train.lr_heads is not None
        assert config.encoder.table != "auto" or config.encoder.name not in ("bag", "convolution")

    def test_the_presets_of_the_contract_are_there(self):
        assert {"unidec", "unidec-frugal", "depsl", "supcon-de"} <= set(preset_names())

    def test_an_unknown_preset_names_the_nearest(self):
        with pytest.raises(ConfigError, match=r"'unidc' is not known.*Did you mean 'unidec'\?"):
            read_preset("unidc")


class TestFiles:
    def test_a_toml_file_is_a_preset(self, tmp_path):
        file = tmp_path / "mine.toml"
        file.write_text("seed = 4\n[train]\nlr_labels = 1e-4\n")
        config = load_config(str(file), ["train.epochs=2"])
        assert (config.seed, config.train.lr_labels, config.train.epochs) == (4, 1e-4, 2)

    def test_a_runs_config_json_is_a_preset(self, tmp_path):
        file = tmp_path / "config.json"
        config = dataclasses.replace(load_config("depsl"), seed=99)
        file.write_text(json.dumps({"config": to_json(config), "versions": {}}))
        assert load_config(str(file)) == config

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("a.toml", "seed = ", "is not TOML"),
            ("a.toml", b"\xff\xfe", "is not TOML"),
            ("a.json", "{", "cannot be read as JSON"),
            ("a.json", "[1, 2]", "expected an object"),
            ("a.json", '{"config": 3}', "expected an object"),
        ],
    )
    def test_a_file_that_cannot_be_read_is_an_error_that_names_it(
        self, tmp_path, name, content, says
    ):
        file = tmp_path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(ConfigError, match=rf"{name}.*{says}"):
            load_config(str(file))

    @pytest.mark.parametrize("name", ["no.toml", "no.json"])
    def test_a_file_that_is_not_there_is_an_error(self, tmp_path, name):
        with pytest.raises(ConfigError, match=name):
            load_config(str(tmp_path / name))


def test_learning_rates_that_were_left_open_follow_the_kind_of_encoder():
    frugal = resolve_open_settings(load_config("unidec-frugal", ["encoder.table=random"]))
    transformer = resolve_open_settings(load_config("unidec", ["encoder.name=some-bert"]))
    assert frugal.train.lr_encoder > transformer.train.lr_encoder
    kept = resolve_open_settings(load_config("unidec-frugal", ["train.lr_encoder=0.125"]))
    assert kept.train.lr_encoder == 0.125


class TestBuild:
    def test_losses_take_their_weights_and_parts_from_the_config(self):
        from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
        from umpteen.objectives.reductions import sum_of_positives
        from umpteen.objectives.softmax import Softmax

        overrides = [
            "loss.dual=softmax", "loss.reduction=pal", "loss.dual_share=0.1",
            "loss.dual_forward=0.2", "loss.classifier_forward=0.3", "loss.bce=0.4",
        ]  # fmt: skip
        losses = build_losses(load_config("unidec", overrides).loss)
        assert isinstance(losses.dual, Softmax)
        assert isinstance(losses.classifier, DecoupledSoftmax)
        assert losses.reduction is sum_of_positives
        # The added cross-entropy is summed over labels, whatever the reduction of the rest.
        assert losses.bce_reduction is sum_of_positives
        weights = (losses.dual_share, losses.dual_forward, losses.classifier_forward, losses.bce)
        assert weights == (0.1, 0.2, 0.3, 0.4)

    def test_an_unknown_part_names_the_nearest(self):
        with pytest.raises(ConfigError, match=r"objective 'softmx'.*Did you mean 'softmax'\?"):
            build_losses(load_config("unidec", ["loss.dual=softmx"]).loss)
        with pytest.raises(ConfigError, match=r"reduction 'mean' .* Known: k-sample, pal, pal-n"):
            build_losses(load_config("unidec", ["loss.reduction=mean"]).loss)

    def test_a_model_has_the_shape_the_config_says(self):
        import torch

        from umpteen.model.frugal.bag import BagEncoder

        overrides = ["model.dim=3", "model.dual_temperature=0.5", "model.label_dropout=0.25"]
        config = load_config("unidec", overrides)
        model = build_model(config, BagEncoder(torch.zeros(4, 6)), n_labels=7)
        assert model.label_vectors.shape == (7, 3)
        assert model.heads == ("dual", "classifier")
        assert model.log_scales[0].exp().item() == pytest.approx(2.0)
        assert model.label_dropout.p == 0.25
        dual = build_model(load_config("depsl"), BagEncoder(torch.zeros(4, 6)), n_labels=7)
        assert dual.label_vectors is None
