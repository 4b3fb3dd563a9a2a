"""A whole run in one process: what stops it, what it refuses, what it keeps, and every variant."""

import dataclasses
import json
import math
import re
import shutil

import numpy as np
import pytest
import torch
from small_runs import SETTINGS, StopAt, checkpoints, fit, outcome, steps, stop_at

import umpteen
from umpteen import errors
from umpteen.data.dataset import Dataset, Split
from umpteen.training import selection
from umpteen.training.prepare import source_rows
from umpteen.training.run import train


@pytest.fixture(scope="module")
def finished_run(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("finished") / "run"
    fit(tiny_data, run)
    return run


@pytest.fixture
def finished(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "finished")


# -- what stops a run -------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_names_step_rows_and_checkpoint(tiny_data, tmp_path):
    run = tmp_path / "run"
    changes = ("loss.dual=small_runs:NanAfter", "train.checkpoint_seconds=0")
    with pytest.raises(errors.TrainingStopped) as caught:
        fit(tiny_data, run, *changes)
    message = str(caught.value)
    assert "the loss became nan at step 6 (epoch 3)" in message
    assert str(run / "checkpoints" / "step-000000005") in message
    assert "\n" not in message
    shown = re.search(r"training rows (.+) \(counted from 0\)", message)[1]
    rows = [int(row) for row in shown.removesuffix(", ...").split(", ")]
    settings = umpteen.load_config(overrides=SETTINGS)
    assert rows == sorted(set(rows))
    assert set(rows) <= set(source_rows(tiny_data, settings).tolist())
    assert checkpoints(run)[-1].name == "step-000000005"
    assert [line["step"] for line in steps(run)] == [1, 2, 3, 4, 5]


def test_weights_that_are_not_finite_are_never_kept(tiny_data, tmp_path):
    run = tmp_path / "run"
    changes = ("loss.dual=small_runs:NanGradient", "train.checkpoint_seconds=0")
    with pytest.raises(errors.TrainingStopped, match="weight is no longer finite after step 1"):
        fit(tiny_data, run, *changes)
    assert [each.name for each in checkpoints(run)] == ["step-000000000"]


def test_out_of_memory_says_what_to_make_smaller(tiny_data, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(errors.TrainingStopped) as caught:
        fit(tiny_data, run, "loss.dual=small_runs:OutOfMemory", "train.checkpoint_seconds=0")
    message = str(caught.value)
    assert "too small for step 3" in message
    for name in ("batches.size (it is 20)", "pool.max_labels", "data.max_tokens", "--resume"):
        assert name in message
    assert str(checkpoints(run)[-1]) in message


def test_encoding_goes_on_with_less_at_once_when_memory_runs_out(tiny_data, tmp_path, monkeypatch):
    from umpteen.model.frugal.bag import BagEncoder

    forward, refused = BagEncoder.forward, []

    def small_memory(self, tokens):
        if not self.training and len(tokens) > 17:
            refused.append(len(tokens))
            raise torch.OutOfMemoryError("out of memory")
        return forward(self, tokens)

    whole = fit(tiny_data, tmp_path / "whole")
    monkeypatch.setattr(BagEncoder, "forward", small_memory)
    fit(tiny_data, tmp_path / "run")
    assert refused
    texts = tiny_data["test"].texts()
    again = umpteen.Predictor.load(tmp_path / "run").predict(texts, 5)
    assert again.rows.shape == (20, 5)
    np.testing.assert_allclose(again.scores, whole.predict(texts, 5).scores, atol=1e-4)


def test_an_interrupted_run_says_how_to_continue(tiny_data, tmp_path):
    said = stop_at(4, tiny_data, tmp_path / "run")
    assert said[-1].startswith("Stopped; continue from ")
    assert "step-000000003" in said[-1]
    assert "--resume" in said[-1]


# -- what a run refuses -----------------------------------------------------------------------


def test_a_folder_with_something_in_it_is_refused(tiny_data, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(errors.RunError, match="is not empty"):
        fit(tiny_data, tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_in_the_way_is_refused(tiny_data, tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(errors.RunError, match="is a file"):
        fit(tiny_data, tmp_path / "run")
    assert (tmp_path / "run").read_text() == "mine"


def test_an_empty_folder_is_taken(tiny_data, tmp_path):
    fit(tiny_data, tmp_path, "train.epochs=1")
    assert (tmp_path / "models.json").is_file()


def test_nothing_to_resume_is_a_sentence(tiny_data, tmp_path):
    with pytest.raises(errors.RunError, match="is not a run folder"):
        train(tiny_data, out=tmp_path / "nowhere", resume=True)
    assert not (tmp_path / "nowhere").exists()


def test_an_unknown_metric_to_select_by_is_refused_at_once(tiny_data, tmp_path):
    with pytest.raises(errors.ConfigError, match="nGDC"):
        fit(tiny_data, tmp_path / "run", "validation.select=nGDC@5")
    assert not (tmp_path / "run").exists()


def test_texts_longer_than_the_encoders_positions_are_refused(tiny_bert, tiny_data, tmp_path):
    changes = (f"encoder.name={tiny_bert}", "data.max_tokens=65")
    with pytest.raises(errors.ConfigError, match="max_tokens is 65.*has positions for 64"):
        fit(tiny_data, tmp_path / "run", *changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", ["{hidden=-3}", "{dropout=2.0}", "{width=3}"])
def test_encoder_options_that_do_not_fit_are_a_sentence(options, tiny_data, tmp_path):
    with pytest.raises(errors.ConfigError, match="encoder.options do not fit 'bag'"):
        fit(tiny_data, tmp_path / "run", f"encoder.options={options}")


@pytest.mark.parametrize("wrong", ["loss.dual=softmx", "loss.reduction=pall"])
def test_an_unknown_part_of_the_loss_is_refused_before_texts_are_read(wrong, tiny_data, tmp_path):
    with pytest.raises(errors.ConfigError, match="is not known. Known: "):
        fit(tiny_data, tmp_path / "run", wrong, cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_data_without_a_label_to_learn_is_refused(tiny_data, tmp_path):
    train_split = tiny_data["train"]
    bare = Split(train_split.titles, train_split.targets * 0)
    bare.targets.eliminate_zeros()
    with pytest.raises(errors.DataError, match="nothing to learn from"):
        fit(dataclasses.replace(tiny_data, splits={"train": bare}), tmp_path / "run")


def test_resuming_a_finished_run_changes_nothing(finished, tiny_data):
    before = outcome(finished)
    predictor = fit(tiny_data, finished, resume=True)
    assert outcome(finished) == before
    assert len(predictor.predict("red apple", 3).ids[0]) == 3


# -- what a run keeps -------------------------------------------------------------------------


def test_every_step_has_one_line_after_many_stops(tiny_data, tmp_path):
    run = tmp_path / "run"
    whole = tmp_path / "whole"
    fit(tiny_data, whole, "train.checkpoint_seconds=0")
    stop_at(3, tiny_data, run)
    for step in (4, 6, 7):
        with pytest.raises(KeyboardInterrupt):
            fit(tiny_data, run, resume=True, reporters=[StopAt(step)])
    fit(tiny_data, run, resume=True)
    assert [line["step"] for line in steps(run)] == list(range(1, 9))
    assert outcome(run) == outcome(whole)
    seconds = [json.loads(line)["seconds"] for line in (run / "steps.jsonl").open()]
    assert seconds == sorted(seconds)


def test_history_and_models_agree(finished):
    metrics = json.loads((finished / "metrics.json").read_text())
    history = metrics["validation"]
    assert metrics["select"] == "nDCG@5"
    assert [entry["epoch"] for entry in history] == [1, 2, 3, 4]
    assert all(set(entry["heads"]) == {"dual", "classifier", "combined"} for entry in history)
    assert all(entry["value"] == entry["heads"]["combined"]["nDCG@5"] for entry in history)
    best = max(history, key=lambda entry: entry["value"])["epoch"]
    names = json.loads((finished / "models.json").read_text())
    assert names == {"best": f"models/epoch-{best:04d}", "last": "models/epoch-0004"}
    kept = {f"models/{place.name}" for place in (finished / "models").iterdir()}
    assert kept == set(names.values())


def test_another_metric_can_select(tiny_data, tmp_path):
    fit(tiny_data, tmp_path, "train.epochs=1", "validation.select=R@10")
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    entry = metrics["validation"][0]
    assert entry["value"] == entry["heads"]["combined"]["R@10"]


PATIENT = (
    "train.epochs=30",
    "validation.patience=2",
    "train.lr_encoder=0.0",
    "train.lr_heads=0.0",
    "train.lr_labels=0.0",
)


def test_patience_ends_a_run_that_gets_no_better(tiny_data, tmp_path):
    fit(tiny_data, tmp_path, *PATIENT)  # with rates of 0 the first validation stays the best
    history = json.loads((tmp_path / "metrics.json").read_text())["validation"]
    assert [entry["epoch"] for entry in history] == [1, 2, 3]
    names = json.loads((tmp_path / "models.json").read_text())
    assert names == {"best": "models/epoch-0001", "last": "models/epoch-0003"}
    before = outcome(tmp_path)
    fit(tiny_data, tmp_path, resume=True)
    assert outcome(tmp_path) == before


def test_patience_counts_across_a_stop(tiny_data, tmp_path):
    stop_at(5, tiny_data, tmp_path / "run", *PATIENT)
    fit(tiny_data, tmp_path / "run", resume=True)
    fit(tiny_data, tmp_path / "whole", "train.checkpoint_seconds=0", *PATIENT)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_validation_can_be_rarer_than_epochs(tiny_data, tmp_path):
    fit(tiny_data, tmp_path, "train.epochs=5", "validation.every_epochs=2")
    history = json.loads((tmp_path / "metrics.json").read_text())["validation"]
    assert [entry["epoch"] for entry in history] == [2, 4, 5]


def test_validations_share_a_tokenizer(tiny_data, tmp_path, monkeypatch):
    """Copying one of thirty thousand tokens takes longer than validating on a few texts."""
    seen = []

    def noted(predictor, *given, **options):
        seen.append(predictor.encoder.tokenizer)
        return umpteen.evaluate(predictor, *given, **options)

    monkeypatch.setattr(selection, "evaluate", noted)
    fit(tiny_data, tmp_path, "train.epochs=3")
    assert len(seen) == 3
    assert len(set(map(id, seen))) == 1
    assert seen[0].truncation["max_length"] > 0


def test_a_run_without_validation_answers_with_the_last_model(tiny_data, tmp_path):
    predictor = fit(tiny_data, tmp_path, "validation.share=0", "train.epochs=2")
    names = json.loads((tmp_path / "models.json").read_text())
    assert names == {"best": "models/epoch-0002", "last": "models/epoch-0002"}
    assert not (tmp_path / "metrics.json").exists()
    assert predictor.predict("red apple", 2).rows.shape == (1, 2)
    assert sum(line["queries"] for line in steps(tmp_path)) == 2 * 60


class Untouchable:
    """A split that nobody may look at."""

    def __getattribute__(self, name):
        raise AssertionError(f"training looked at .{name} of the test split")

    def __len__(self):
        raise AssertionError("training counted the test split")


def test_the_test_split_is_never_looked_at(tiny_data, tmp_path):
    splits = dict(tiny_data.splits)
    data = dataclasses.replace(tiny_data, splits=splits)
    splits["test"] = Untouchable()
    fit(data, tmp_path / "run", "train.epochs=2")
    fit(data, tmp_path / "run", resume=True)
    given = dict(splits, validation=tiny_data["test"])
    data = dataclasses.replace(tiny_data, splits={**given, "test": tiny_data["test"]})
    data.splits["test"] = Untouchable()
    fit(data, tmp_path / "validated", "train.epochs=1")
    with pytest.raises(AssertionError):  # had it been looked at, the runs would have ended so
        len(data.splits["test"])


def test_a_run_depends_on_its_own_seed_alone(tiny_data, tmp_path):
    torch.manual_seed(1)
    fit(tiny_data, tmp_path / "one", "train.epochs=2")
    torch.manual_seed(99)
    fit(tiny_data, tmp_path / "two", "train.epochs=2")
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    fit(tiny_data, tmp_path / "three", "train.epochs=2", "seed=18")
    assert steps(tmp_path / "three") != steps(tmp_path / "one")


# -- every variant ----------------------------------------------------------------------------

VARIANTS = {
    "dual alone": ("model.heads=['dual']", "loss.dual_share=1.0"),
    "classifier alone": ("model.heads=['classifier']",),
    "convolution": ("encoder.name=convolution",),
    "scores without a bound": (
        "model.heads=['dual']",
        "loss.dual_share=1.0",
        "model.normalize=false",
        "model.dual_temperature=1.0",
        "train.schedule=linear",
    ),
    "softmax": ("loss.dual=softmax", "loss.classifier=softmax", "loss.reduction=pal"),
    "learned temperatures": ("model.learn_temperatures=true",),
    "one learned temperature": (
        "model.learn_temperatures=true",
        "model.share_temperature=true",
        "model.dual_temperature=0.1",
    ),
    "added bce": ("loss.bce=0.5", "pool.extra_positives=3"),
    "bce throughout": ("loss.dual=bce", "loss.classifier=bce"),
    "bf16": ("train.precision=bf16",),
    "zeros, dropout, clipping": (
        "model.label_init=zeros",
        "model.label_dropout=0.2",
        "train.clip_norm=1.0",
    ),
    "random batches": ("batches.clustered=false", "pool.negatives=0"),
    "late refresh, capped pool": (
        "batches.first_refresh=1",
        "pool.max_labels=15",
        "pool.min_labels=15",
    ),
    "small clusters": ("batches.cluster_size=4",),
    "a bank of labels": ("pool.scope=bank", "pool.memory_mib=1"),
    "a bank without refreshed negatives": (
        "pool.scope=bank",
        "batches.clustered=false",
        "pool.negatives=0",
        "batches.first_refresh=2",
    ),
    "growing clusters": ("batches.cluster_size=1", "batches.double_epochs=[1, 2]"),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_trains_resumes_and_answers(variant, tiny_data, tmp_path):
    changes = VARIANTS[variant]
    model = fit(tiny_data, tmp_path / "whole", "train.checkpoint_seconds=0", *changes)
    stop_at(4, tiny_data, tmp_path / "run", *changes)
    fit(tiny_data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert all(math.isfinite(line["loss"]) for line in steps(tmp_path / "run"))
    loaded = umpteen.Predictor.load(tmp_path / "run")
    texts = tiny_data["test"].texts()
    np.testing.assert_array_equal(loaded.predict(texts, 7).rows, model.predict(texts, 7).rows)
    report = umpteen.evaluate(loaded, tiny_data, metrics=["P@1", "PSP@3"])
    assert set(report.heads) == set(loaded.heads)
    assert all(
        0 <= value <= 100 for each in report.heads.values() for value in each.values.values()
    )


@pytest.mark.parametrize("heads", ["['dual', 'classifier']", "['dual']", "['classifier']"])
def test_what_can_be_learned_is_learned(heads, tiny_data, tmp_path):
    changes = ("train.epochs=25", "train.lr_labels=0.01", f"model.heads={heads}")
    model = fit(tiny_data, tmp_path, *changes)
    report = umpteen.evaluate(model, tiny_data, metrics=["P@1", "R@10"])
    # The best of 40 labels by chance is right in about 5 of 100 queries.
    assert all(each.values["P@1"] > 25 for each in report.heads.values()), report
    loss = [line["loss"] for line in steps(tmp_path)]
    assert np.mean(loss[-4:]) < 0.8 * np.mean(loss[:4])


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_transformer_trains_resumes_and_answers(pooling, tiny_bert, tiny_data, tmp_path):
    changes = (f"encoder.name={tiny_bert}", f"encoder.pooling={pooling}", "train.epochs=2")
    fit(tiny_data, tmp_path / "whole", "train.checkpoint_seconds=0", *changes)
    stop_at(3, tiny_data, tmp_path / "run", *changes)
    fit(tiny_data, tmp_path / "run", resume=True)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    model = umpteen.Predictor.load(tmp_path / "run")
    assert model.predict(["red apple", ""], 3).rows.shape == (2, 3)


def test_a_run_carries_its_transformer_with_it(tiny_bert, tiny_data, tmp_path):
    elsewhere = shutil.copytree(tiny_bert, tmp_path / "bert")
    fit(tiny_data, tmp_path / "run", f"encoder.name={elsewhere}", "train.epochs=1")
    shutil.rmtree(elsewhere)
    assert umpteen.Predictor.load(tmp_path / "run").predict("red apple", 1).rows.shape == (1, 1)


def test_the_static_table_trains(tiny_data, tmp_path):
    pytest.importorskip("wordllama")
    changes = ("encoder.table=static", "train.epochs=2", "model.dim=32")
    model = fit(tiny_data, tmp_path, *changes)
    report = umpteen.evaluate(model, tiny_data, metrics=["R@10"])
    assert report["dual"].values["R@10"] > 50


def test_filter_pairs_are_neither_learned_nor_answered(tiny_data, tmp_path):
    model = fit(tiny_data, tmp_path)
    test = tiny_data["test"]
    top = model.predict(test.texts(), 40, exclude=test.filters)
    for row, label in test.filters.tolist():
        assert label not in top.rows[row]
        assert (top.rows[row] >= 0).sum() == 39


def test_one_label_and_one_query_are_enough(tmp_path):
    data = Dataset.from_lists(["only text here"], [["only"]])
    model = fit(data, tmp_path, "train.epochs=1")
    assert model.predict("only text", 5).ids == [["only"]]
