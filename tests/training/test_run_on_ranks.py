"""Training on several processes comes to what it comes to on one, and goes on with another number.

Without dropout, whose random numbers depend on who encodes which text. In float64, so that the
tolerance is for the order of sums alone: AdamW turns the rounding of a gradient near zero into a
step of full size, and float32 would hide a real difference behind that.
"""

import json
import math
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rank_children import on_ranks, said
from small_runs import SETTINGS, checkpoints, outcome, steps, stop_at
from small_runs import fit as fit_alone

from umpteen.compute.distributed.sharding import Ranks, start_ranks
from umpteen.config.loading import load_config
from umpteen.config.settings import from_mapping
from umpteen.data.formats import load_dataset
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, RunError, TrainingStopped
from umpteen.evaluation import evaluate
from umpteen.predictor import Predictor
from umpteen.run_folder import RunFolder
from umpteen.training import refresh
from umpteen.training.checkpoint_shards import ShardFiles
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.reporters import Silent
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.run import train
from umpteen.training.session import Session

pytestmark = [pytest.mark.slow, pytest.mark.processes]
SMALL = (
    *SETTINGS,
    "encoder.options={dropout=0.0}",
    "model.dropout=0.0",
    "train.epochs=2",
    "batches.size=17",
    "pool.chunk_tokens=40",
)
CASES = {
    "all labels, dual": (
        "pool.scope=all",
        "model.heads=['dual']",
        "loss.reduction=pol",
        "model.learn_temperatures=true",
        "batches.clustered=false",
    ),
    "all labels, both heads": ("pool.scope=all", "loss.bce=0.3", "train.clip_norm=0.5"),
    "all labels, classifier": (
        "pool.scope=all",
        "model.heads=['classifier']",
        "loss.classifier=bce",
        "loss.classifier_forward=1.0",
        "validation.patience=1",
        "train.epochs=3",
    ),
    "bank, both heads": (
        "pool.scope=bank",
        "loss.bce=0.3",
        "pool.extra_positives=1",
        "model.learn_temperatures=true",
        "batches.refresh_epochs=1",
        "batches.first_refresh=1",  # before it each rank encodes its labels by itself
    ),
    "bank, dual, one of positives": (
        "pool.scope=bank",
        "model.heads=['dual']",
        "loss.reduction=pol",
        "loss.dual_forward=1.0",
        "pool.positives=1",
        "batches.size=3",  # some ranks have none of the pool's labels
        "train.epochs=1",
    ),
    "pool, texts in chunks": ("data.max_tokens=4", "data.chunks=3"),
    "pool, both heads": (
        "loss.bce=0.3",
        "loss.classifier_reduction=pal",
        "pool.extra_positives=2",
        "model.learn_temperatures=true",
        "model.share_temperature=true",
        "model.dual_temperature=0.2",
        "batches.refresh_epochs=1",
    ),
    "pool, dual, one of positives": (
        "model.heads=['dual']",
        "loss.reduction=pol",
        "loss.dual=softmax",
        "pool.max_labels=11",
    ),
    "pool, classifier, one at a time": (
        "model.heads=['classifier']",
        "batches.size=2",
        "batches.clustered=false",
        "pool.positives=1",
        "pool.negatives=0",
        "train.epochs=1",
    ),
}
FROZEN = "two stages, the second frozen"
CASES[FROZEN] = (
    "loss.dual_share=1.0",
    "loss.bce=0.2",
    "model.label_init=zeros",
    "stage2.train={frozen = true, epochs = 1, lr_labels = 0.05}",
    "stage2.loss={dual_share = 0.0}",
    "stage2.model={label_init = 'text'}",
)
TRANSFORMER = "all labels, transformer"
CASES[TRANSFORMER] = (
    "pool.scope=all",
    "train.lr_encoder=0.001",
    "train.label_storage=bf16",
    "train.label_moments=int8",
)
"""In float32, as its weights are; the label table in few bits, which each rank rounds alike."""
IN_FLOAT32 = (TRANSFORMER, FROZEN)
"""The vectors of a frozen encoder are kept in float32."""
WHOLE = {2: list(CASES)[::2], 3: list(CASES)[1::2]}
RESUMED = {3: list(CASES)[::2], 1: list(CASES)[1::2]}
"""By number of ranks. Every case runs on two (until it is stopped), on three, and on another number
than it was stopped on; not every case in every way, as a run of three costs that of three runs."""
FORCED = ("pool, both heads", "all labels, both heads", "bank, both heads")
"""Cases that also run on one rank which exchanges with itself, as a test of nccl would."""
SHARDED = "pool, both heads"
"""The case whose ranks search their own labels when negatives are mined."""
IMPORTS = ("transformers.models.bert.modeling_bert", "transformers.models.auto.tokenization_auto")
"""What a transformer needs."""
STOP = 3
NO_FILTERS = np.zeros((0, 2), np.int64)
DAMAGED = "damaged"
"""Copies of a run whose checkpoints lack the last byte of the second rank's file."""
CONTINUED, CONTINUED_CASE = "from another run", "all labels, both heads"


WITH_ENSEMBLE = f"{TRANSFORMER}, ensemble"
ENSEMBLE = (
    *CASES[TRANSFORMER],
    "ensemble.enabled=auto",
    "ensemble.min_queries=5",
    "validation.share=0.4",
)


class InterruptAt(Silent):
    """Ctrl-C for this process alone, as a step is reported."""

    def step(self, info, epoch):
        if info.step == STOP:
            os.kill(os.getpid(), signal.SIGINT)


# -- on every rank ----------------------------------------------------------------------------


def fit(ranks, folder, name, *changes, **options):
    refresh.SHARDED_BYTES = 0 if name.startswith(SHARDED) else 1 << 30
    torch.set_default_dtype(torch.float32 if name.startswith(IN_FLOAT32) else torch.float64)
    if name.startswith(TRANSFORMER):
        changes = (*changes, f"encoder.name={folder / 'bert'}", "encoder.options={}")
    data = load_dataset(folder / "data")
    overrides = () if options.get("resume") else (*SMALL, *changes)
    out = folder / name
    return train(data, out=out, overrides=overrides, device="cpu", ranks=ranks, **options)


def whole(ranks, folder):
    for case in WHOLE.get(ranks.world, CASES):
        predictor = fit(ranks, folder, f"{case}-{ranks.world}", *CASES[case])
        assert predictor.predict("red apple", 2).rows.shape == (1, 2)
    fit(
        ranks,
        folder,
        f"{CONTINUED}-{ranks.world}",
        *CASES[CONTINUED_CASE],
        from_run=folder / "before",
    )
    ensemble_of_a_run(ranks, folder)
    predictor = fit(ranks, folder, f"{WITH_ENSEMBLE}-{ranks.world}", *ENSEMBLE)
    assert predictor.heads[-1] == "ensemble"


def ensemble_of_a_run(ranks, folder):
    """The ensemble of the same run, fitted again on every number of ranks."""
    torch.set_default_dtype(torch.float32)
    run = RunFolder(folder / f"tiny-{ranks.world}")
    settings = from_mapping(run.read_settings(), source="test")
    encoded, vectors = [], Predictor.vectors

    def counted(self, texts):
        encoded.append(len(texts))
        return vectors(self, texts)

    Predictor.vectors = counted
    given = load_dataset(folder / "data"), settings
    found = fit_ensemble_of_run(run, *given, device="cpu", log=print, again=True, ranks=ranks)
    Predictor.vectors = vectors
    assert (found is None) == (not ranks.first)
    (folder / f"encoded-{ranks.world}-{ranks.rank}.json").write_text(json.dumps(encoded))


def stopped(ranks, folder):
    whole(ranks, folder)
    for case, changes in CASES.items():
        try:
            fit(ranks, folder, f"{case}-stopped", *changes, reporters=[InterruptAt()])
        except KeyboardInterrupt:
            continue
        raise AssertionError(f"rank {ranks.rank} went on")

    an_evaluation_is_that_of_one_rank(ranks, folder)
    what_needs_one_rank_is_refused(ranks, folder)
    losses_that_are_not_numbers(ranks, folder)
    each_rank_draws_its_own_and_the_same_again(ranks, folder)


def an_evaluation_is_that_of_one_rank(ranks, folder):
    """Every head, the ensemble too, with filter pairs; and of fewer texts than ranks."""
    torch.set_default_dtype(torch.float32)
    predictor, data = Predictor.load(folder / "tiny"), load_dataset(folder / "data")
    some = replace(data["test"].select(np.arange(7)), filters=np.array([[0, 1], [6, 2]]))
    for part in (some, some.select(np.array([3]))):
        given = replace(data, splits={**data.splits, "test": part})
        found = evaluate(predictor, given, ranks=ranks)
        alone = evaluate(predictor, given)
        for head, report in alone.heads.items():
            assert found.heads[head].n == report.n
            # Products of fewer texts at once may round otherwise.
            assert found.heads[head].values == pytest.approx(report.values, abs=1e-4), head
        wanted = alone.sets["expected_calibration_error"]
        assert found.sets["expected_calibration_error"] == pytest.approx(wanted, abs=1e-3)
        assert "ensemble" in found.heads


def what_needs_one_rank_is_refused(ranks, folder):
    with pytest.raises(ConfigError, match="several ranks train no label vectors with texts"):
        fit(ranks, folder, "refused", "model.label_parametrization=text")
    if ranks.first:  # which makes the folder, and removes it on its way out
        assert not (folder / "refused").exists()


def losses_that_are_not_numbers(ranks, folder):
    """All ranks stop with the same sentence; none waits for another."""
    for part, sentence in (
        ("NanAfter", "the loss became nan"),
        ("NanGradient", "no longer finite"),
    ):
        for scope in ("all", "batch"):
            changes = (f"loss.dual=small_runs:{part}", f"pool.scope={scope}")
            with pytest.raises(TrainingStopped, match=sentence):
                fit(ranks, folder, f"{part}-{scope}", *changes, "train.checkpoint_seconds=0")


def each_rank_draws_its_own_and_the_same_again(ranks, folder):
    """Dropout masks must not repeat from one rank's texts to the next one's."""
    settings = resolve_open_settings(load_config(overrides=SMALL))
    found = []
    for name in ("draws", "draws-again"):
        session = Session(
            RunFolder(folder / name), settings, device="cpu", reporters=[], ranks=ranks
        )
        session.set_up(load_dataset(folder / "data"), resume=False, cache=folder / "cache")
        drawn = []

        def loss_of(model, batch, seed, drawn=drawn):
            drawn.append(torch.rand(3))
            return sum((weights * 0).sum() for weights in model.parameters())

        session.loop.loss_of = loss_of
        for _ in zip(range(3), session.loop.ticks(), strict=False):
            pass
        found.append(ranks.stack(torch.stack(drawn[:3])))  # (ranks, steps, 3)
    assert torch.equal(*found)
    assert len(found[0].flatten().unique()) == ranks.world * 3 * 3


def resumed(ranks, folder):
    for case in RESUMED[ranks.world]:
        fit(ranks, folder, f"{case}-resumed-{ranks.world}", resume=True)
    with pytest.raises(RunError, match="no checkpoint is whole.*shard-00002-of-00002") as caught:
        fit(ranks, folder, f"{DAMAGED}-{ranks.world}", resume=True)
    assert "\n" not in str(caught.value)


def whole_and_resumed(ranks, folder):
    whole(ranks, folder)
    resumed(ranks, folder)
    if ranks.world == 1:
        forced = start_ranks(torch.device("cpu"), forced=True)
        for case in FORCED:
            fit(forced, folder, f"{case}-forced", *CASES[case])
        forced.close()


# -- what they left ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(tiny_data, tiny_data_folder, tiny_bert, tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("on-ranks")
    shutil.copytree(tiny_data_folder, folder / "data")
    shutil.copytree(tiny_bert, folder / "bert")
    for world in (1, 2, 3):
        shutil.copytree(tiny_run, folder / f"tiny-{world}")
    (folder / "tiny").symlink_to(tiny_run)
    settings = json.loads((folder / "bert" / "config.json").read_text())
    settings.update(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    (folder / "bert" / "config.json").write_text(json.dumps(settings))

    # A run that lacks the last two labels.
    train_split = tiny_data["train"]
    fewer = replace(train_split, targets=train_split.targets[:, :-2], filters=NO_FILTERS)
    labels = LabelSet(tiny_data.labels.ids[:-2], tiny_data.labels.titles[:-2])
    data = replace(tiny_data, labels=labels, splits={"train": fewer})
    torch.set_default_dtype(torch.float64)
    try:
        fit_alone(data, folder / "before", *SMALL, *CASES[CONTINUED_CASE])
    finally:
        torch.set_default_dtype(torch.float32)

    def start(function, world):
        codes = on_ranks(__file__, function, world, folder, imports=IMPORTS)
        assert codes == [0] * world, said(folder)

    start("stopped", 2)
    for world, cases in RESUMED.items():
        for case in cases:
            shutil.copytree(folder / f"{case}-stopped", folder / f"{case}-resumed-{world}")
        damage(checkpoints(folder / f"{cases[0]}-resumed-{world}")[-1])  # the one before is taken
        shutil.copytree(folder / f"{cases[0]}-stopped", folder / f"{DAMAGED}-{world}")
        for checkpoint in checkpoints(folder / f"{DAMAGED}-{world}"):
            damage(checkpoint)
    start("whole_and_resumed", 1)
    start("whole_and_resumed", 3)
    return folder


def damage(checkpoint):
    file = checkpoint / "shard-00002-of-00002.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def weights_of(run):
    """Every tensor of the newest checkpoint, weights and moments."""
    shards = ShardFiles(sorted(checkpoints(run)[-1].glob("*.safetensors")))
    return {name: shards.whole(name) for name in shards.names("")}


def history(run):
    return json.loads((Path(run) / "metrics.json").read_text())["validation"]


def assert_same_run(run, expected):
    ours, theirs = steps(run), steps(expected)
    assert len(ours) == len(theirs) >= 4
    exact = not run.name.startswith(IN_FLOAT32)
    for one, other in zip(ours, theirs, strict=True):
        near = 1e-9 if exact else 2e-6
        found, expected_loss = one.pop("loss"), other.pop("loss")
        assert math.isclose(found, expected_loss, rel_tol=near), (found, expected_loss)
        assert one == other
    one, other = weights_of(run), weights_of(expected)
    assert one.keys() == other.keys()
    for name, value in other.items():
        assert one[name].dtype == value.dtype
        assert one[name].shape == value.shape
        if not exact:
            continue  # a step of AdamW turns rounding into numbers of full size
        torch.testing.assert_close(
            one[name], value, rtol=1e-6, atol=1e-9, msg=lambda why, name=name: f"{name}: {why}"
        )
    assert not exact or history(run) == history(expected)
    assert os.listdir(run / "models") == os.listdir(expected / "models")


def pairs(cases):
    return [(world, case) for world in cases for case in cases[world]]


@pytest.mark.parametrize(("world", "case"), pairs(WHOLE))
def test_any_number_of_ranks_comes_to_what_one_comes_to(case, world, runs):
    assert_same_run(runs / f"{case}-{world}", runs / f"{case}-1")


@pytest.mark.parametrize("case", FORCED)
def test_one_rank_that_exchanges_with_itself_comes_to_the_same(case, runs):
    assert_same_run(runs / f"{case}-forced", runs / f"{case}-1")


@pytest.mark.parametrize("world", [2, 3])
def test_the_ensemble_is_that_of_one_rank(world, runs):
    """Examples and validation texts are encoded in shares."""
    found, alone = (
        {
            str(file.relative_to(runs / f"tiny-{n}")): file.read_bytes()
            for file in sorted((runs / f"tiny-{n}" / "ensemble").rglob("*"))
            if file.is_file()
        }
        for n in (world, 1)
    )
    assert len(alone) > 5
    assert found == alone
    encoded = [
        json.loads((runs / f"encoded-{world}-{rank}.json").read_text()) for rank in range(world)
    ]
    assert [sum(texts) for texts in zip(*encoded, strict=True)] == [36, 24]
    assert max(max(each) for each in encoded) <= 36 // world


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_start_from_another_run_as_one_does(world, runs):
    assert_same_run(runs / f"{CONTINUED}-{world}", runs / f"{CONTINUED}-1")
    known = np.load(runs / f"{CONTINUED}-{world}" / "from" / "known.npy")
    assert known.tolist() == [*range(38), -1, -1]


@pytest.mark.parametrize(("world", "case"), pairs(RESUMED))
def test_a_run_stopped_on_two_ranks_goes_on_with_any_number(case, world, runs):
    taken = len(steps(runs / f"{case}-stopped"))
    assert STOP <= taken < len(steps(runs / f"{case}-1"))
    assert_same_run(runs / f"{case}-resumed-{world}", runs / f"{case}-1")


def test_torch_reads_the_checkpoint_of_several_ranks(runs):
    import torch.distributed.checkpoint as dcp

    run = runs / f"{WHOLE[3][0]}-3"
    expected = weights_of(run)
    found = {name: torch.full_like(value, 7) for name, value in expected.items()}
    reader = dcp.HuggingFaceStorageReader(str(checkpoints(run)[-1]))
    dcp.load(found, storage_reader=reader, no_dist=True)
    assert len(found) > 10
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    files = list(checkpoints(run)[-1].glob("*.safetensors"))
    sizes = [file.stat().st_size for file in files]
    assert len(sizes) == 3
    assert max(sizes) < 0.6 * sum(sizes)  # each rank writes its share


def test_the_first_rank_alone_writes(runs):
    for run in runs.glob("*-3"):
        assert not list(run.rglob("*.tmp"))
        numbers = [line["step"] for line in steps(run)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_a_restart_continues_with_the_settings_of_the_first_try(tiny_data, tmp_path):
    """torchrun repeats the command it was given, in which --resume is not."""
    every_step = "train.checkpoint_seconds=0"
    fit_alone(tiny_data, tmp_path / "whole", every_step, "train.epochs=2")
    stop_at(3, tiny_data, tmp_path / "run", "train.epochs=2")
    train(
        tiny_data,
        out=tmp_path / "run",
        preset="unidec",
        dataset="lf-amazontitles-131k",
        overrides=["train.epochs=9"],
        device="cpu",
        ranks=Ranks(restarts=1),
    )
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")


def test_a_restart_before_anything_was_written_starts(tiny_data, tmp_path):
    fit_alone(tiny_data, tmp_path / "run", "train.epochs=1", ranks=Ranks(restarts=1))
    assert steps(tmp_path / "run")
