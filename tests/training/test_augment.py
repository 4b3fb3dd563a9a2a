"""Training with label texts among the rows: every preset's way, and metrics that do not notice."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from small_runs import SETTINGS, NanAfter, fit, outcome, steps, stop_at

from umpteen.config.checks import CHOICES
from umpteen.config.loading import load_config
from umpteen.config.settings import from_mapping, read_preset
from umpteen.data.augment import AUGMENTATIONS
from umpteen.errors import ConfigError, TrainingStopped
from umpteen.evaluation import evaluate
from umpteen.model.frugal.tables import train_tokenizer
from umpteen.training import prepare
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.mixup import KINDS
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.run import train

GANDALF = "augment.method=gandalf"


def prepared(data, tmp_path, *changes):
    config = load_config(overrides=[*SETTINGS, *changes])
    splits = prepare.training_splits(data, config)
    tokenizer = train_tokenizer(prepare.all_texts(splits, "all"), vocabulary=200)
    said = []
    found = prepare.prepare(splits, config, tokenizer, cache=tmp_path, log=said.append)
    return found, splits, said


def test_label_texts_are_trained_on_and_counts_stay_those_before(tiny_data, tmp_path):
    found, splits, said = prepared(tiny_data, tmp_path, GANDALF)
    n = len(splits["train"])
    assert len(found.queries) == len(found.train) == n + 40
    assert list(found.train.titles[n:]) == list(tiny_data.labels.titles)
    assert (found.train.targets[n:].data < 1).any()
    assert found.dataset is splits
    np.testing.assert_array_equal(found.dataset.label_counts, splits.label_counts)
    assert "40 label texts as training rows" in " ".join(said)


def test_held_out_queries_give_no_targets(tiny_data, tmp_path):
    """Co-occurrence is of the queries that are trained on, not of the validation part."""
    found, splits, _ = prepared(tiny_data, tmp_path, GANDALF, "augment.delta=0")
    n = len(splits["train"])
    y = splits["train"].filtered_targets()
    expected = (y.T @ y).toarray() > 0
    np.fill_diagonal(expected, True)
    np.testing.assert_array_equal(found.train.targets[n:].toarray() > 0, expected)


def test_label_rows_have_their_own_filter_pairs_not_those_of_the_queries(tiny_data, tmp_path):
    changes = (GANDALF, "augment.rows=only", "pool.scope=all")
    found, splits, _ = prepared(tiny_data, tmp_path, *changes)
    config = resolve_open_settings(load_config(overrides=[*SETTINGS, *changes]))
    model, _ = build_untrained_model(config, splits)
    loop = build_loop(config, found, model, keep_refresh=lambda *_: None, precision="fp32")
    assert len(splits["train"].filters)
    assert not len(loop.maker.make(np.arange(40), 0).pool.ignored)


def test_the_fingerprint_knows_the_augmentation(tiny_data, tmp_path):
    keys = {
        prepared(tiny_data, tmp_path, *changes)[0].fingerprint
        for changes in ((), (GANDALF,), (GANDALF, "augment.delta=0.5"), ("augment.method=self",))
    }
    assert len(keys) == 4


def test_source_rows_name_label_texts_with_negative_numbers(tiny_data):
    config = load_config(overrides=[*SETTINGS, GANDALF])
    rows = prepare.source_rows(tiny_data, config)
    plain = prepare.source_rows(tiny_data, load_config(overrides=SETTINGS))
    np.testing.assert_array_equal(rows[: len(plain)], plain)
    np.testing.assert_array_equal(rows[len(plain) :], -1 - np.arange(40))


WAYS = {
    "pool": (),
    "label rows only": ("augment.rows=only",),
    "as many rows": ("augment.rows=sampled", "augment.share=0.5", "augment.order=tail"),
    "self": ("augment.method=self",),
    "walks": ("augment.method=walks", "augment.walk_steps=50"),
    "glas": ("augment.method=glas",),
    "all labels, bce": ("pool.scope=all", "loss.classifier=bce", "loss.reduction=pal"),
    "soft top-k": ("loss.dual=soft_top_k", "loss.dual_options={k = 2}"),
    "one positive": ("loss.reduction=pol", "loss.dual=triplet"),
    "bank": ("pool.scope=bank", "model.heads=['dual']"),
    "second stage, frozen": (
        'stage2={train = {frozen = true, epochs = 1}, loss = {dual_share = 0.0}}',
    ),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_training_takes_soft_rows(tiny_data, tmp_path, way):
    model = fit(tiny_data, tmp_path / "run", GANDALF, "train.epochs=2", *WAYS[way])
    assert all(np.isfinite(step["loss"]) for step in steps(tmp_path / "run"))
    counts = [
        json.loads(line)["count"]
        for line in (tmp_path / "run" / "labels.jsonl").read_text().splitlines()
    ]
    assert counts == tiny_data.label_counts.tolist()
    assert evaluate(model, tiny_data)["dual" if way == "bank" else "combined"].n == 20


def test_label_rows_teach_the_labels_that_no_query_has(tiny_data, tmp_path):
    """Trained on label rows alone, a label's text finds the label."""
    changes = (GANDALF, "augment.rows=only", "train.epochs=30")
    model = fit(tiny_data, tmp_path / "run", *changes)
    top = model.predict(list(tiny_data.labels.titles), k=1, head="combined")
    assert (top.rows[:, 0] == np.arange(40)).mean() > 0.9


def test_an_augmented_run_that_was_stopped_comes_to_the_same(tiny_data, tmp_path):
    changes = (GANDALF, "train.epochs=2")
    fit(tiny_data, tmp_path / "whole", "train.checkpoint_seconds=0", *changes)
    stop_at(4, tiny_data, tmp_path / "cut", *changes)
    fit(tiny_data, tmp_path / "cut", resume=True)
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_a_loss_that_is_not_finite_tells_queries_from_label_texts(tiny_data, tmp_path, monkeypatch):
    monkeypatch.setattr(NanAfter, "finite", 0)
    with pytest.raises(TrainingStopped, match=r"training rows [\d, .]+ and \d+ label texts"):
        fit(tiny_data, tmp_path / "run", GANDALF, "loss.dual=small_runs:NanAfter",
            "batches.clustered=false", "batches.size=200")  # fmt: skip


def test_training_on_an_augmented_copy_is_training_with_the_setting(tiny_data, tmp_path):
    """The same rows, so where the model has no say (it reads other tokens) the same batches."""
    config = load_config(overrides=[*SETTINGS, GANDALF])
    splits = prepare.training_splits(tiny_data, config)
    found = prepare.augmented(splits, config)
    copy = dataclasses.replace(splits, splits={**splits.splits, "train": found.split})
    plain = ("train.epochs=1", "batches.clustered=false", "pool.negatives=0")
    fit(splits, tmp_path / "setting", GANDALF, *plain)
    fit(copy, tmp_path / "copy", *plain)
    one, two = (
        [(step["labels"], step["positives"]) for step in steps(tmp_path / run)]
        for run in ("setting", "copy")
    )
    assert one == two


def test_any_preset_has_a_name_with_gandalf():
    values = read_preset("gandalf-renee")
    assert values["augment"] == {"method": "gandalf"}
    assert {**values, "augment": None} == {**read_preset("renee"), "augment": None}
    config = load_config("gandalf-unidec", dataset="lf-amazontitles-131k")
    plain = load_config("unidec", dataset="lf-amazontitles-131k")
    assert dataclasses.replace(config, augment=plain.augment) == plain
    with pytest.raises(ConfigError, match="preset 'nothing' is not known"):
        read_preset("gandalf-nothing")


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"method": "gandalv"}, "augment.method must be none, gandalf, self, walks, glas, "),
        ({"rows": "all"}, "augment.rows must be added, only or sampled, not 'all'"),
        ({"order": "head"}, "augment.order must be random or tail"),
        ({"delta": 1.0}, "augment.delta must be left out, or at least 0 and below 1"),
        ({"share": 0.0}, "augment.share must be above 0"),
        ({"share": 1.5}, "augment.share must be between 0 and 1"),
    ],
)
def test_wrong_settings_are_named(values, says):
    with pytest.raises(ConfigError, match=says):
        from_mapping({"augment": values}, source="x")


def test_every_augmentation_can_be_chosen():
    assert set(CHOICES["augment.method"]) == {"none", "synonyms", *AUGMENTATIONS, *KINDS}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(
    "changes",
    [
        (GANDALF,),
        (GANDALF, "augment.rows=only", "model.heads=['classifier']"),
        (GANDALF, "pool.scope=all", "loss.classifier=bce", "loss.reduction=pal"),
        ("augment.method=mixup",),
        ("augment.method=label-mixup", "model.heads=['classifier']"),
        (GANDALF, "model.label_parametrization=text"),
        (GANDALF, "model.label_parametrization=graph", "model.heads=['classifier']"),
    ],
    ids=lambda changes: " ".join(changes),
)
def test_a_gpu_learns_the_same_ways(tiny_data, tmp_path, changes):
    """Losses fall, and the model finds most labels, as on the CPU."""
    settings = [*SETTINGS, "train.epochs=20", *changes]
    model = train(tiny_data, out=tmp_path / "run", overrides=settings, device="cuda")
    losses = [step["loss"] for step in steps(tmp_path / "run")]
    assert np.isfinite(losses).all()
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    found = evaluate(model, tiny_data)
    assert found[model.heads[-1]].values["R@10"] > 50


def test_a_second_stage_cannot_change_the_rows():
    with pytest.raises(ConfigError, match=r"stage2\.augment is none of"):
        load_config(overrides=["stage2={augment = {method = 'self'}}"])
