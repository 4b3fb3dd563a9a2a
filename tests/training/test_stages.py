"""A second stage: its settings, what it leaves alone, and stopping anywhere in it."""

import signal

import numpy as np
import pytest
import torch
from small_runs import SETTINGS, SHARD, StopAt, checkpoints, fit, outcome, steps, stop_at
from test_all_labels import gradients, model_of, token_store

import umpteen
from umpteen.config.loading import load_config, stages
from umpteen.data.pool import PoolBuilder
from umpteen.errors import ConfigError
from umpteen.model.vectors import encode_texts
from umpteen.run_folder import RunFolder
from umpteen.training.batch import BatchMaker
from umpteen.training.factories import build_losses
from umpteen.training.frozen import FrozenLoss
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.session import Session
from umpteen.training.step import batch_loss

FIRST = ("model.label_init=zeros", "loss.dual_share=1.0", "train.epochs=3")
SECOND = (
    "stage2.train={frozen = true, epochs = 3, lr_labels = 0.05, weight_decay = 0.0}",
    "stage2.loss={dual_share = 0.0, classifier_forward = 1.0}",
    "stage2.model={label_init = 'text'}",
    "stage2.batches={refresh_epochs = 3}",
)
KINDS = {
    "a head of its own": (*FIRST, *SECOND),
    "the dual head": (*FIRST, *SECOND, "model.classifier_head=dual"),
}
N_STEPS = 6  # of each stage: three epochs of two batches


def make_session(data, folder, *changes):
    settings = resolve_open_settings(load_config(overrides=(*SETTINGS, *changes)))
    session = Session(RunFolder(folder), settings, device="cpu", reporters=[])
    session.set_up(data, resume=False, cache=folder / "cache")
    return session


def weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


# -- settings -------------------------------------------------------------------------------------


def test_the_second_stage_differs_in_what_it_names_alone():
    config = load_config("unidec", [*KINDS["a head of its own"], "train.warmup=0.25"])
    first, second = stages(config)
    assert first is config
    assert second.stage2 == {}
    assert second.train.frozen
    assert not first.train.frozen
    assert (second.train.epochs, second.train.warmup) == (3, 0.25)
    assert second.encoder == first.encoder
    assert second.pool == first.pool


def test_a_run_without_a_second_stage_has_one():
    config = load_config("unidec")
    assert stages(config) == [config]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("stage2.trian.epochs=3", "stage2.trian is none of model, loss, pool, batches, train"),
        ("stage2.train=3", "stage2.train is none of"),
        ("stage2.data.max_tokens=9", "stage2.data is none of"),
        ("stage2.model.dim=9", "stage2.model.dim cannot differ from the run's own"),
        ("stage2.train.precision=bf16", "stage2.train.precision cannot differ"),
        ("stage2.train.epoch=3", r"stage2: unknown setting train.epoch. Did you mean 'epochs'\?"),
        ("stage2.train.epochs=0", "stage2: train.epochs must be above 0"),
        ("stage2.train.frozen=true", "stage2: train.frozen must be false unless .* is 0"),
    ],
)
def test_what_a_second_stage_cannot_be_is_a_sentence(change, says):
    with pytest.raises(ConfigError, match=says):
        load_config("unidec", [change])


@pytest.mark.parametrize(
    "changes",
    [
        ["model.heads=['dual']", "train.frozen=true"],
        ["pool.scope=all", "train.frozen=true", "loss.dual_share=0.0"],
        ["model.heads=['classifier']", "model.classifier_head=dual"],
        ["model.classifier_head=deep"],
    ],
)
def test_settings_that_do_not_go_together_are_refused(changes):
    with pytest.raises(ConfigError, match=r"train.frozen|model.classifier_head"):
        load_config("unidec", changes)


# -- what is trained ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_second_stage_leaves_encoder_and_dual_head_alone(kind, tiny_data, tmp_path):
    session = make_session(tiny_data, tmp_path / "run", *KINDS[kind])
    fresh = weights(session.model)
    session._take_steps()
    first = weights(session.model)
    assert not torch.equal(first["dual_head.linear.weight"], fresh["dual_head.linear.weight"])
    assert not first["label_vectors"].any()  # the classifier has no say in the first stage
    session._next_stage()
    start = weights(session.model)
    session._take_steps()
    last = weights(session.model)
    moved = {name for name in last if not torch.equal(last[name], start[name])}
    own = {"classifier_head.linear.weight", "classifier_head.linear.bias"}
    assert moved == {"label_vectors"} | (own if kind == "a head of its own" else set())
    at = session.loop.position
    assert (at.stage, at.epoch, at.step) == (1, 6, 2 * N_STEPS)


def test_corrections_start_at_the_text_vectors_and_only_pooled_labels_have_one(tiny_data, tmp_path):
    changes = (*KINDS["the dual head"], "stage2.pool={positives = 1, negatives = 0}")
    session = make_session(tiny_data, tmp_path / "run", *changes)
    session._take_steps()
    session._next_stage()
    model = session.model.eval()
    texts = encode_texts(model, session.data.labels, model.dual, precision="fp32")
    torch.testing.assert_close(model.label_vectors.detach(), texts)
    pooled = set()
    build = session.loop.maker._pools.build

    def listening(*args):
        pool = build(*args)
        pooled.update(pool.labels.tolist())
        return pool

    session.loop.maker._pools.build = listening
    session._take_steps()
    moved = (session.model.label_vectors.detach() - texts).abs().sum(dim=1) > 1e-6
    corrected = set(torch.nonzero(moved).ravel().tolist())
    assert corrected <= pooled  # a label seen in the last step alone has a learning rate of zero
    assert 0 < len(corrected) < len(texts)


@pytest.mark.parametrize("shared", [False, True])
def test_the_frozen_loss_is_the_classifier_part_of_the_whole_one(shared, tiny_data):
    """With vectors encoded beforehand: value and gradients, in float64."""
    targets = tiny_data["train"].filtered_targets()
    queries, labels = token_store(targets.shape[0], 2), token_store(targets.shape[1], 3)
    pools = PoolBuilder(targets, np.array([[0, 3]]), positives_per_query=2, negatives_per_query=0)
    maker = BatchMaker(queries, labels, pools, seed=1, encode_labels=False)
    batch = maker.make(np.array([0, 4, 9, 11]), 0)
    losses = build_losses(load_config("unidec", ["loss.dual_share=0.0", "loss.bce=0.2"]).loss)
    model = model_of(("dual", "classifier"), targets.shape[1])
    if shared:
        model.shares_head, model.classifier_head = True, None
    loss = FrozenLoss(losses, queries, "fp32")
    loss.encoded = loss._encode_all(model).double()
    exact = model.encode(queries.take(np.arange(len(queries)))).detach()
    torch.testing.assert_close(loss.encoded, exact, rtol=1e-5, atol=1e-6)
    loss.encoded = exact
    found = loss(model, batch, 0)
    found.backward()
    ours = {name: value.clone() for name, value in gradients(model).items()}
    assert not any(name.startswith("encoder.") for name in ours)
    model.zero_grad()
    expected = batch_loss(model, batch, losses, precision="fp32")
    expected.backward()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    for name, value in ours.items():
        torch.testing.assert_close(value, gradients(model)[name], rtol=1e-9, atol=1e-12)


def test_both_stages_learn_and_all_heads_answer(tiny_data, tmp_path):
    changes = (*KINDS["a head of its own"], "train.epochs=25", "stage2.train.epochs=15")
    model = fit(tiny_data, tmp_path / "run", *changes)
    assert model.heads == ("dual", "classifier", "combined")
    last = umpteen.Predictor.load(tmp_path / "run", which="last")
    report = umpteen.evaluate(last, tiny_data, metrics=["P@1"])
    # The best of 40 labels by chance is right in about 5 of 100 queries.
    assert all(each.values["P@1"] > 25 for each in report.heads.values()), report
    rates = [line["lr_factor"] for line in steps(tmp_path / "run")]
    assert rates[49] < 0.01  # each stage has a schedule of its own
    assert max(rates[50:]) > 0.9


def test_before_its_stage_a_classifier_of_zeros_leaves_the_answers_to_the_dual_head(
    tiny_data, tmp_path
):
    model = fit(tiny_data, tmp_path / "run", *FIRST)
    texts = tiny_data["test"].texts()
    combined, dual = (model.predict(texts, 5, head=head) for head in ("combined", "dual"))
    np.testing.assert_array_equal(combined.rows, dual.rows)


def test_the_best_model_is_of_the_second_stage_even_where_validation_falls(tiny_data, tmp_path):
    """A model of the first stage has a classifier head that nothing has trained."""
    worse = ("train.epochs=12", "stage2.model={label_init = 'random'}", "stage2.train.lr_labels=0")
    session = make_session(tiny_data, tmp_path / "run", *KINDS["the dual head"], *worse)
    session.train()
    at = session.loop.position
    first = max(entry["value"] for entry in at.history if entry["epoch"] <= 12)
    second = max(entry["value"] for entry in at.history if entry["epoch"] > 12)
    assert first > second  # or this would test nothing
    folder = RunFolder(tmp_path / "run")
    best = int(folder.model("best").name.rpartition("-")[2])
    assert best > 12
    assert umpteen.Predictor.load(folder.path).model.label_vectors.abs().sum(dim=1).min() > 0
    said = session.selection.summary(at)
    assert said[0] == f"Best model: epoch {best}"
    assert f"from {first:.2f}" in said[1]
    assert f"to {second:.2f}" in said[1]


# -- stopping and resuming ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=list(KINDS))
def whole(request, tiny_data, tmp_path_factory):
    changes = KINDS[request.param]
    run = tmp_path_factory.mktemp("whole") / "run"
    fit(tiny_data, run, "train.checkpoint_seconds=0", *changes)
    return changes, outcome(run)


@pytest.mark.parametrize("step", [2, N_STEPS, N_STEPS + 1, N_STEPS + 2, 2 * N_STEPS])
def test_a_run_stopped_in_any_stage_continues_to_the_same_bytes(step, whole, tiny_data, tmp_path):
    changes, expected = whole
    run = tmp_path / "run"
    stop_at(step, tiny_data, run, *changes)
    fit(tiny_data, run, resume=True)
    assert outcome(run) == expected


def test_a_damaged_checkpoint_of_the_second_stage_falls_back_to_the_first(
    whole, tiny_data, tmp_path
):
    changes, expected = whole
    run = tmp_path / "run"
    stop_at(N_STEPS + 2, tiny_data, run, *changes)
    newest = checkpoints(run)[-1]
    assert newest.name == f"step-{N_STEPS + 1:09d}"
    (newest / SHARD).write_bytes(b"")
    fit(tiny_data, run, resume=True)
    assert outcome(run) == expected


def test_patience_ends_a_stage_and_not_the_run(tiny_data, tmp_path):
    run = tmp_path / "run"
    changes = (
        *KINDS["a head of its own"],
        "train.epochs=30",
        "train.lr_encoder=0.0",
        "train.lr_heads=0.0",
        "validation.patience=2",
    )
    fit(tiny_data, run, *changes)
    epochs = [line["epoch"] for line in steps(run)]
    assert max(epoch for epoch in epochs if epoch <= 30) == 3  # nothing gets better
    assert min(epoch for epoch in epochs if epoch > 30) == 31


class Signal(StopAt):
    """A reporter that sends a signal as a step is reported."""

    def step(self, info, epoch):
        if info.step == self.at:
            signal.raise_signal(signal.SIGINT)


def test_a_wish_to_stop_in_the_last_step_of_a_stage_is_granted(whole, tiny_data, tmp_path):
    changes, expected = whole
    run = tmp_path / "run"
    reporters = [Signal(N_STEPS)]
    with pytest.raises(KeyboardInterrupt):
        fit(tiny_data, run, *changes, "train.checkpoint_seconds=0", reporters=reporters)
    assert len(steps(run)) == N_STEPS
    fit(tiny_data, run, resume=True)
    assert outcome(run) == expected


def test_a_stop_in_the_very_last_step_counts_too(tiny_data, tmp_path):
    run = tmp_path / "run"
    changes = ("train.epochs=1", "ensemble.enabled=auto", "ensemble.min_queries=5")
    with pytest.raises(KeyboardInterrupt):
        fit(tiny_data, run, *changes, reporters=[Signal(2)])
    assert len(steps(run)) == 2
    assert not (run / "ensemble").exists()
    fit(tiny_data, run, resume=True)
    assert len(steps(run)) == 2
    assert (run / "ensemble" / "ensemble.json").is_file()
