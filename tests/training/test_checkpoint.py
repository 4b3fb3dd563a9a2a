"""Checkpoints that are damaged, missing or of other data."""

import dataclasses
import json
import logging
import shutil

import pytest
import torch
from small_runs import SHARD, checkpoints, fit, outcome, steps, stop_at

from umpteen import errors
from umpteen.data.dataset import Dataset, Split
from umpteen.data.labels import LabelSet


@pytest.fixture(scope="module")
def whole(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    fit(tiny_data, run, "train.checkpoint_seconds=0")
    return outcome(run)


@pytest.fixture(scope="module")
def stopped_run(tiny_data, tmp_path_factory):
    """Lost in step 6: checkpoints of step 4, and of step 5 with the second refresh."""
    run = tmp_path_factory.mktemp("stopped") / "run"
    stop_at(6, tiny_data, run)
    return run


@pytest.fixture
def stopped(stopped_run, tmp_path):
    return shutil.copytree(stopped_run, tmp_path / "run")


def flip(file) -> None:
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def truncate(file) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def remove(file) -> None:
    file.unlink()


def empty(file) -> None:
    file.write_bytes(b"")


NEWEST = "checkpoints/step-000000005"
DAMAGE = [
    (flip, f"{NEWEST}/{SHARD}"),
    (truncate, f"{NEWEST}/{SHARD}"),
    (remove, f"{NEWEST}/{SHARD}"),
    (truncate, f"{NEWEST}/state.json"),
    (empty, f"{NEWEST}/state.json"),
    (remove, f"{NEWEST}/state.json"),
    (flip, "checkpoints/refresh-00002/negatives.npy"),
    (remove, "checkpoints/refresh-00002/order.npy"),
]


def test_two_checkpoints_and_their_refreshes_are_kept(stopped):
    assert [each.name for each in checkpoints(stopped)] == ["step-000000004", "step-000000005"]
    refreshes = sorted(each.name for each in (stopped / "checkpoints").glob("refresh-*"))
    assert refreshes == ["refresh-00000", "refresh-00002"]


@pytest.mark.parametrize(("damage", "name"), DAMAGE)
def test_the_checkpoint_before_a_damaged_one_is_used(
    damage, name, stopped, whole, tiny_data, caplog
):
    damage(stopped / name)
    with caplog.at_level(logging.WARNING, logger="umpteen"):
        fit(tiny_data, stopped, resume=True)
    assert "trying the checkpoint before it" in caplog.text
    assert "step-000000005" in caplog.text or "refresh-00002" in caplog.text
    assert outcome(stopped) == whole


def test_state_that_is_json_of_another_shape_counts_as_damaged(stopped, whole, tiny_data):
    (stopped / NEWEST / "state.json").write_text("[1, 2]")
    fit(tiny_data, stopped, resume=True)
    assert outcome(stopped) == whole


def test_a_whole_newest_checkpoint_needs_no_warning(stopped, whole, tiny_data, caplog):
    with caplog.at_level(logging.WARNING, logger="umpteen"):
        fit(tiny_data, stopped, resume=True)
    assert not caplog.records
    assert outcome(stopped) == whole


def test_no_whole_checkpoint_is_one_sentence(stopped, tiny_data):
    before = steps(stopped)
    for folder in checkpoints(stopped):
        flip(folder / SHARD)
    with pytest.raises(errors.RunError, match="no checkpoint is whole") as caught:
        fit(tiny_data, stopped, resume=True)
    assert "step-000000004" in str(caught.value)
    assert "step-000000005" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert steps(stopped) == before


def test_a_trained_run_without_checkpoints_is_not_started_again(stopped, tiny_data):
    shutil.rmtree(stopped / "checkpoints")
    before = outcome(stopped)
    with pytest.raises(errors.RunError, match="holds no checkpoint"):
        fit(tiny_data, stopped, resume=True)
    assert outcome(stopped) == before


def test_a_damaged_checkpoint_of_a_later_step_does_not_outlive_the_next_save(stopped, tiny_data):
    later = stopped / "checkpoints" / "step-000000099"
    shutil.copytree(stopped / NEWEST, later)
    (later / "state.json").write_text("{")
    fit(tiny_data, stopped, resume=True)
    assert [each.name for each in checkpoints(stopped)] == ["step-000000007", "step-000000008"]


def test_moments_keep_their_types(stopped, tiny_data):
    from safetensors.torch import load_file

    before = load_file(stopped / NEWEST / SHARD)
    fit(tiny_data, stopped, resume=True)
    after = load_file(checkpoints(stopped)[-1] / SHARD)
    assert {name: value.dtype for name, value in before.items()} == {
        name: value.dtype for name, value in after.items()
    }
    assert torch.int32 in {value.dtype for value in after.values()}


def other_texts(data: Dataset) -> Dataset:
    train = dataclasses.replace(data["train"], titles=["something else", *data["train"].titles[1:]])
    return dataclasses.replace(data, splits={**data.splits, "train": train})


def other_targets(data: Dataset) -> Dataset:
    targets = data["train"].targets.copy()
    targets.indices[0] = (targets.indices[0] + 1) % targets.shape[1]
    train = dataclasses.replace(data["train"], targets=targets)
    return dataclasses.replace(data, splits={**data.splits, "train": train})


def other_filters(data: Dataset) -> Dataset:
    train = dataclasses.replace(data["train"], filters=data["train"].filters[:0])
    return dataclasses.replace(data, splits={**data.splits, "train": train})


def other_label_texts(data: Dataset) -> Dataset:
    labels = LabelSet(data.labels.ids, ["changed", *data.labels.titles[1:]])
    return dataclasses.replace(data, labels=labels)


def fewer_labels(data: Dataset) -> Dataset:
    labels = LabelSet(data.labels.ids[:-1], data.labels.titles[:-1])
    train = Split(data["train"].titles, data["train"].targets[:, :-1].tocsr())
    return Dataset(labels, {"train": train})


CHANGES = [other_texts, other_targets, other_filters, other_label_texts, fewer_labels]


@pytest.mark.parametrize("change", CHANGES)
def test_a_run_is_not_continued_on_other_data(change, stopped, tiny_data):
    before = outcome(stopped)
    with pytest.raises(errors.RunError, match="made with other data"):
        fit(change(tiny_data), stopped, resume=True)
    assert outcome(stopped) == before


def test_another_test_split_is_no_other_data(stopped, whole, tiny_data):
    splits = {"train": tiny_data["train"]}
    fit(dataclasses.replace(tiny_data, splits=splits), stopped, resume=True)
    assert outcome(stopped) == whole


def test_settings_of_a_resumed_run_must_be_readable(stopped, tiny_data):
    (stopped / "config.json").write_text(json.dumps(["no settings"]))
    with pytest.raises(errors.RunError, match="holds no settings"):
        fit(tiny_data, stopped, resume=True)
