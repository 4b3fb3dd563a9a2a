"""``train(from_run=...)``: what a run takes over from another one, refuses, and can resume."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from small_runs import SETTINGS, StopAt, fit, outcome

import umpteen
from umpteen.config.loading import load_config
from umpteen.data.dataset import Dataset, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, RunError
from umpteen.model.storage import load_model
from umpteen.predictor import Predictor
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.storage import StoredEnsemble
from umpteen.ranking.trained_examples import digest_texts, read_digests
from umpteen.run_folder import RunFolder
from umpteen.store.change_store import ChangeStore
from umpteen.store.checks import NewLabel
from umpteen.training import warm_labels
from umpteen.training.fit_retrievers import carried_weights
from umpteen.training.prepare import training_splits
from umpteen.training.run import train
from umpteen.training.warm_labels import ALPHAS
from umpteen.training.warm_settings import schedule_of, shortened
from umpteen.training.warm_start import WarmStart, with_changes_taken_over

FRESH = ["L40", "L41"]


@pytest.fixture(scope="module")
def before(tiny_data, tmp_path_factory):
    """A run of yesterday."""
    run = tmp_path_factory.mktemp("before") / "run"
    fit(tiny_data, run, "model.learn_temperatures=true")
    return run


@pytest.fixture(scope="module")
def today(tiny_data):
    """The data with its labels in another order, two removed, two added and one renamed."""
    kept = [row for row in reversed(range(40)) if row not in (3, 4)]
    labels = LabelSet(
        [*FRESH, *(tiny_data.labels.ids[row] for row in kept)],
        ["green river", "green candle", *(tiny_data.labels.titles[row] for row in kept)],
    )
    labels = dataclasses.replace(
        labels,
        titles=[
            "other name" if i == "L07" else t
            for i, t in zip(labels.ids, labels.titles, strict=True)
        ],
    )
    train_split = tiny_data["train"]
    rows = sp.csr_matrix(train_split.targets[:, kept])
    old = sp.hstack([sp.csr_matrix((len(train_split), 2), dtype=np.float32), rows], format="csr")
    new = targets_from_rows([[0], [1], [0, 5]], len(labels))
    titles = [*train_split.titles, "green river here", "green candle there", "river of green"]
    split = dataclasses.replace(
        train_split,
        titles=titles,
        targets=sp.csr_matrix(sp.vstack([old, new])),
        ids=None,
        filters=np.zeros((0, 2), np.int64),
    )
    return Dataset(labels, {"train": split}, name="today")


def begun(data, out, before, *changes, **options):
    """Start from a run, stop at the first step, and return the model before it."""
    with pytest.raises(KeyboardInterrupt):
        train(
            data,
            out=out,
            device="cpu",
            from_run=before,
            overrides=changes,
            reporters=[StopAt(1)],
            **options,
        )
    return load_model(out / "models" / "epoch-0000")[0]


# -- what is taken over ---------------------------------------------------------------------------


def test_weights_are_taken_over_and_labels_matched_by_id(today, before, tmp_path):
    model = begun(today, tmp_path / "run", before)
    other = load_model(RunFolder(before).model())[0]
    theirs = other.state_dict()
    for name, value in model.state_dict().items():
        if name != "label_vectors":
            assert torch.equal(value, theirs[name]), name
    old = RunFolder(before).read_labels()[0]
    for row, label_id in enumerate(today.labels.ids[2:], start=2):
        assert torch.equal(model.label_vectors[row], other.label_vectors[old.row(label_id)])


def text_vectors(run, texts):
    """Unit vectors of the classifier's head, which come after the dual head's."""
    return Predictor.load(run).vectors(list(texts))[:, 16:].double().numpy()


def predicted(texts, trained, new):
    """Ridge regression with the penalty of the smallest error on each label left out in turn."""

    def solved(some, wanted, alpha):
        means = some.mean(0), wanted.mean(0)
        x, y = some - means[0], wanted - means[1]
        slopes = np.linalg.solve(x.T @ x + alpha * np.eye(x.shape[1]), x.T @ y)
        return lambda rows: (rows - means[0]) @ slopes + means[1]

    def error(alpha):
        others = [np.delete(np.arange(len(texts)), row) for row in range(len(texts))]
        left_out = [solved(texts[o], trained[o], alpha)(texts[r]) for r, o in enumerate(others)]
        return ((np.stack(left_out) - trained) ** 2).sum()

    return solved(texts, trained, min(ALPHAS, key=error))(new)


def test_new_labels_start_from_what_their_texts_predict(today, before, tmp_path):
    model = begun(today, tmp_path / "run", before)
    vectors = model.label_vectors.detach().double().numpy()
    texts = text_vectors(before, today.labels.titles)
    expected = predicted(texts[2:], vectors[2:], texts[:2])
    np.testing.assert_allclose(vectors[:2], expected, atol=1e-5)
    assert np.abs(vectors[:2] - texts[:2]).max() > 0.01


def test_the_regression_reads_some_of_many_labels(today, before, tmp_path, monkeypatch):
    whole = begun(today, tmp_path / "whole", before).label_vectors[:2]
    monkeypatch.setattr(warm_labels, "MAX_FITTED", 20)
    some = [begun(today, tmp_path / name, before).label_vectors[:2] for name in ("one", "two")]
    assert torch.equal(*some)
    assert not torch.allclose(some[0], whole)


def test_with_few_known_labels_new_ones_start_from_their_texts(
    today, before, tmp_path, monkeypatch
):
    monkeypatch.setattr(warm_labels, "MIN_FITTED", 39)
    model = begun(today, tmp_path / "run", before)
    expected = text_vectors(before, today.labels.titles[:2])
    np.testing.assert_allclose(model.label_vectors[:2].detach(), expected, atol=1e-6)


def test_texts_that_were_held_out_before_are_held_out_again(today, before, tmp_path):
    begun(today, tmp_path / "run", before)
    known = set(read_digests(RunFolder(before).held_out).tolist())
    held = read_digests(RunFolder(tmp_path / "run").held_out)
    assert len(known) == 9
    # One more than before, since the data has grown; where the run stored no examples any will do.
    assert len(known & set(held.tolist())) >= min(len(held), len(known)) - 1


def test_a_run_may_grow_twice_and_its_schedule_is_cut_once(today, before, tmp_path):
    begun(today, tmp_path / "one", before, "train.epochs=2")
    train(today, out=tmp_path / "one", device="cpu", resume=True)
    said = StopAt(1)
    with pytest.raises(KeyboardInterrupt):
        train(
            today, out=tmp_path / "two", device="cpu", from_run=tmp_path / "one", reporters=[said]
        )
    own = load_config(str(tmp_path / "two" / "config.json"))
    first = load_config(str(before / "config.json"))
    assert schedule_of(RunFolder(tmp_path / "two")) == schedule_of(RunFolder(before))
    assert own.train == shortened(first, ()).train
    assert any("40 labels known, 0 new" in line for line in said.said)


# -- settings -------------------------------------------------------------------------------------


def test_settings_are_those_of_the_other_run_with_a_shorter_schedule(today, before, tmp_path):
    begun(today, tmp_path / "run", before, "batches.size=10", "train.lr_labels=0.5")
    own, first = (load_config(str(r / "config.json")) for r in (tmp_path / "run", before))
    assert own.batches.size == 10
    assert own.encoder == first.encoder
    assert own.train.epochs == 1 < first.train.epochs
    assert own.train.lr_labels == 0.5
    assert own.train.lr_encoder < first.train.lr_encoder


def test_with_far_more_texts_the_schedule_and_the_ensemble_are_those_of_a_new_run(
    today, tmp_path, monkeypatch
):
    rows = np.arange(24)
    few = dataclasses.replace(today, splits={"train": today["train"].select(rows)})
    small = tmp_path / "small"
    fit(few, small, "train.epochs=2", "validation.share=0", "ensemble.enabled=auto")
    assert umpteen.Predictor.load(small).ensemble.is_fitted
    store = ChangeStore.open(small, few.labels)
    added = [f"green river number {n}" for n in range(30)]
    store.add_examples(added, [["L01"]] * len(added))
    store.close()
    said = StopAt(1)
    options = {"device": "cpu", "from_run": small, "reporters": [said]}
    with pytest.raises(KeyboardInterrupt):
        train(few, out=tmp_path / "grown", **options)
    grown = load_config(str(tmp_path / "grown" / "config.json"))
    assert grown.train.epochs == load_config("unidec-frugal").train.epochs > 2
    assert grown.encoder == load_config(str(small / "config.json")).encoder
    assert any("54 training texts, 24 in" in line for line in said.said)
    with pytest.raises(KeyboardInterrupt):
        train(few, out=tmp_path / "same", changes=False, **options)
    assert load_config(str(tmp_path / "same" / "config.json")).train.epochs == 1
    model = EnsembleModel.load(small / "ensemble" / "ensemble.json")
    stored = StoredEnsemble(model, dict.fromkeys(model.variants[0].retrievers), None, None, None)
    folder = RunFolder(tmp_path / "same")
    carried = carried_weights(folder, stored)
    assert (
        carried.variants[0].weights.weights.tolist() == model.variants[0].weights.weights.tolist()
    )
    more = dataclasses.replace(model.propensity, n_train=2 * model.n_train + 1)
    many = dataclasses.replace(stored, model=dataclasses.replace(model, propensity=more))
    assert carried_weights(folder, many) is None


RATES = ("lr_encoder", "lr_heads", "lr_labels")
GIVEN_RATES = [f"train.{key}=0.{place}" for place, key in enumerate(RATES, start=1)]


def ratios(short, config):
    return {round(getattr(short.train, key) / getattr(config.train, key), 9) for key in RATES}


def test_rates_follow_the_share_of_the_epochs():
    def of(epochs):
        return load_config(overrides=[f"train.epochs={epochs}", *GIVEN_RATES])

    assert shortened(of(40), ()).train.epochs == 4
    assert ratios(shortened(of(40), ()), of(40)) == {round(0.1**0.5, 9)}
    assert shortened(of(4), ()).train.epochs == 1  # a quarter: there is no smaller part
    assert ratios(shortened(of(4), ()), of(4)) == {0.5}
    whole, given = {"train": {"epochs": 40}}, {"train.epochs"}
    assert ratios(shortened(of(10), given, whole), of(10)) == {0.5}
    assert ratios(shortened(of(90), given, whole), of(90)) == {1.0}


def test_steps_are_counted_where_they_end_a_run():
    config = load_config(overrides=["train.max_steps=200", "train.epochs=3", *GIVEN_RATES])
    short = shortened(config, ())
    assert (short.train.max_steps, short.train.epochs) == (20, 1)
    assert ratios(short, config) == {round(0.1**0.5, 9)}


def test_clusters_are_those_of_the_end_of_the_other_run():
    doubled = "batches.double_epochs=[5, 10, 15, 20, 99]"
    config = load_config(
        overrides=["train.epochs=40", "batches.cluster_size=2", "batches.first_refresh=3", doubled]
    )
    short = shortened(config, ())
    assert short.batches.cluster_size == 32
    assert short.batches.double_epochs == ()
    assert short.batches.first_refresh == 0
    given = {"batches.double_epochs", "batches.first_refresh"}
    assert shortened(config, given).batches == config.batches


def test_epochs_that_are_given_are_kept_and_both_stages_are_shortened():
    second = [
        "stage2.train={epochs = 20, lr_labels = 0.5}",
        "stage2.loss={dual_share = 0.0}",
        "stage2.batches={size = 64, cluster_size = 1, double_epochs = [4, 8], first_refresh = 4}",
    ]
    config = load_config(overrides=["train.epochs=40", *second])
    short = shortened(config, {"train.epochs"})
    assert short.train.epochs == 40
    assert short.stage2["train"] == {"epochs": 2, "lr_labels": pytest.approx(0.5 * 0.1**0.5)}
    assert short.stage2["loss"] == {"dual_share": 0.0}
    ended = {"size": 64, "cluster_size": 4, "double_epochs": [], "first_refresh": 0}
    assert short.stage2["batches"] == ended


REFUSED = [
    ({"overrides": ["model.dim=8"]}, r"model.dim is 8, but .* has 16"),
    ({"overrides": ["encoder.name=convolution"]}, "encoder.name is 'convolution'"),
    ({"overrides": ["data.chunks=2"]}, "data.chunks is 2"),
    ({"overrides": ["model.dual_temperature=0.2"]}, "model.dual_temperature is 0.2"),
    ({"preset": "unidec-frugal"}, r"encoder\.\w+ is .* leave the setting out"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_another_shape_is_refused(given, message, today, before, tmp_path):
    with pytest.raises(ConfigError, match=message):
        train(today, out=tmp_path / "run", from_run=before, **given)
    assert not (tmp_path / "run").exists()


def test_a_preset_of_the_same_shape_is_used_as_it_is(today, before, tmp_path):
    options = [*SETTINGS, "model.learn_temperatures=true"]
    begun(today, tmp_path / "run", before, *options, preset="unidec-frugal")
    assert load_config(str(tmp_path / "run" / "config.json")).train.epochs == 4


def test_what_is_no_trained_run_is_refused(today, before, tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        train(today, out=tmp_path / "run", from_run=tmp_path)
    begun(today, tmp_path / "stopped", before)
    with pytest.raises(RunError, match="has not finished an epoch"):
        train(today, out=tmp_path / "run", from_run=tmp_path / "stopped")


def test_settings_that_name_code_are_refused(today, before, tmp_path):
    other = shutil.copytree(before, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    config["config"]["loss"]["dual"] = "os:system"
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match="cannot name code"):
        train(today, out=tmp_path / "run", from_run=other)


def test_a_run_of_label_names_alone_gives_its_encoder(today, tmp_path, monkeypatch):
    monkeypatch.setattr("umpteen.model.frugal.tables.static_table_available", lambda: False)
    names = dict(zip(today.labels.ids, today.labels.titles, strict=True))
    umpteen.start(names, out=tmp_path / "names", device="cpu")
    model = begun(today, tmp_path / "run", tmp_path / "names", "data.chunks=2", *SETTINGS[2:])
    own, first = (load_config(str(tmp_path / r / "config.json")) for r in ("run", "names"))
    assert own.encoder == first.encoder
    assert (own.train.epochs, own.model.dim, own.model.heads) == (4, 16, ("dual", "classifier"))
    theirs = load_model(RunFolder(tmp_path / "names").model())[0].encoder.state_dict()
    for name, value in model.encoder.inner.state_dict().items():
        assert torch.equal(value, theirs[name])


def test_a_time_budget_is_kept(today, before, tmp_path):
    train(today, out=tmp_path / "run", device="cpu", from_run=before, minutes=1e-6)
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert written["minutes"] == 1e-6
    assert written["config"]["train"]["epochs"] == 1


# -- changes of the other run ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def changed(before, today, tmp_path_factory):
    """The run with added labels, examples and a retired label."""
    run = shutil.copytree(before, tmp_path_factory.mktemp("changed") / "run")
    store = ChangeStore.open(run, RunFolder(run).read_labels()[0])
    store.add_labels([NewLabel("new", "violet bridge", ""), NewLabel("gone", "no more", "")])
    texts = ["violet bridge at night", today["train"].titles[5], "only removed labels"]
    store.add_examples(texts, [["new", "L10"], ["new"], ["L03", "L04"]])
    store.retire_labels(["gone", "L20"])
    store.close()
    return run


def test_added_labels_and_examples_are_trained_on(today, changed, tmp_path):
    run = tmp_path / "run"
    begun(today, run, changed)
    start = WarmStart.of(RunFolder(run))
    data = with_changes_taken_over(RunFolder(run), today, "all")
    labels, split = data.labels, data["train"]
    assert list(labels.ids) == [*today.labels.ids, "new"]
    assert len(split) == len(today["train"]) + 1
    own = [[labels.ids[i] for i in split.targets[row].indices] for row in (5, len(split) - 1)]
    assert [set(ids) for ids in own] == [{"new"}, {"new", "L10"}]
    assert split.titles[-1] == "violet bridge at night"
    assert start.known[-1] == -1
    held = digest_texts(
        training_splits(data, load_config(str(run / "config.json")))["validation"].texts()
    )
    assert not np.isin(digest_texts([split.titles[5], split.titles[-1]]), held).any()
    train(today, out=run, device="cpu", resume=True)
    model = Predictor.load(run)
    assert model.labels.ids[-1] == "new"
    assert model.snapshot().labels.ids[-1] == "new"
    assert ChangeStore.open(run, model.labels).state().retired_ids == ["L20"]


def test_changes_are_left_behind_where_the_user_says_it(today, changed, tmp_path):
    begun(today, tmp_path / "run", changed, changes=False)
    data = with_changes_taken_over(RunFolder(tmp_path / "run"), today, "all")
    assert list(data.labels.ids) == list(today.labels.ids)
    assert len(data["train"]) == len(today["train"])


def test_examples_that_are_test_texts_are_left_out(tiny_data, changed, tmp_path):
    test = dataclasses.replace(
        tiny_data["test"], titles=["violet bridge at night", *tiny_data["test"].titles[1:]]
    )
    data = dataclasses.replace(tiny_data, splits={**tiny_data.splits, "test": test})
    begun(data, tmp_path / "run", changed)
    own = with_changes_taken_over(RunFolder(tmp_path / "run"), data, "all")
    assert len(own["train"]) == len(data["train"]) + 1
    assert own["train"].titles[-1] == "only removed labels"


# -- resuming -------------------------------------------------------------------------------------


def test_a_resumed_run_comes_to_the_same_without_the_other_one(today, changed, tmp_path):
    other = shutil.copytree(changed, tmp_path / "other")
    options = ["train.epochs=3", "train.checkpoint_seconds=0"]
    train(today, out=tmp_path / "whole", device="cpu", from_run=other, overrides=options)
    with pytest.raises(KeyboardInterrupt):
        train(
            today,
            out=tmp_path / "run",
            device="cpu",
            from_run=other,
            overrides=options,
            reporters=[StopAt(3)],
        )
    with pytest.raises(ConfigError, match="was started from .*other, not from"):
        train(today, out=tmp_path / "run", resume=True, from_run=changed)
    shutil.rmtree(other)
    train(today, out=tmp_path / "run", device="cpu", resume=True, from_run=other)
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_run_without_origin_is_not_resumed_from_another(tiny_data, before, tmp_path):
    run = shutil.copytree(before, tmp_path / "run")
    with pytest.raises(ConfigError, match="was started without --from"):
        train(tiny_data, out=run, resume=True, from_run=before)


def test_known_vectors_survive_the_start_of_a_second_stage(tiny_data, today, tmp_path):
    stages = (
        "train.epochs=1", "loss.dual_share=1.0", "batches.refresh_epochs=1",
        "stage2.train={frozen = true, epochs = 1, weight_decay = 0.0}",
        "stage2.train.lr_heads=0.0", "stage2.train.lr_labels=0.0",
        "stage2.loss={dual_share = 0.0, classifier_forward = 1.0}",
        "stage2.model={label_init = 'text'}",
    )  # fmt: skip
    fit(tiny_data, tmp_path / "old", *stages)
    train(today, out=tmp_path / "run", device="cpu", from_run=tmp_path / "old")
    old = load_model(RunFolder(tmp_path / "old").model("last"))[0].label_vectors
    new = load_model(RunFolder(tmp_path / "run").model("last"))[0]
    row = tiny_data.labels.row("L10")
    assert torch.allclose(new.label_vectors[today.labels.row("L10")], old[row], atol=1e-5)
    vectors = new.label_vectors.detach().double().numpy()
    texts = text_vectors(tmp_path / "run", today.labels.titles)
    expected = predicted(texts[2:], vectors[2:], texts[:2])
    np.testing.assert_allclose(vectors[:2], expected, atol=1e-4)
