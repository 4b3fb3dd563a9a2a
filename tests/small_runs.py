"""Small runs for tests: settings, a shortcut to train, what a run came to, and parts that fail."""

import hashlib
import json
import math
from pathlib import Path

import torch

from umpteen.objectives.decoupled_softmax import DecoupledSoftmax

SETTINGS = (
    "encoder.table=random",
    "encoder.dim=16",
    "model.dim=16",
    "batches.size=20",
    "batches.refresh_epochs=2",
    "pool.negatives=2",
    "train.epochs=4",
    "validation.share=0.15",
    "ensemble.enabled=off",  # it would train a model for each fold of such small data
)


SHARD = "shard-00001-of-00001.safetensors"
"""The tensors of a checkpoint that one rank wrote."""


def fit(data, out, *changes, **options):
    """Train with the small settings and the given changes."""
    from umpteen.training.run import train

    overrides = () if options.get("resume") else (*SETTINGS, *changes)
    return train(data, out=out, overrides=overrides, device="cpu", **options)


def steps(run) -> list[dict]:
    """The step log without its clock."""
    lines = [json.loads(line) for line in (Path(run) / "steps.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in line if name != "seconds"} for line in lines]


def outcome(run) -> dict:
    """All that a run came to: every byte of its models, its metrics and its losses."""
    run = Path(run)
    names = json.loads((run / "models.json").read_text())
    files = {
        f"{which}: {file.relative_to(run / place)}": hashlib.sha256(file.read_bytes()).hexdigest()
        for which, place in names.items()
        for file in sorted((run / place).rglob("*"))
        if file.is_file()
    }
    metrics = run / "metrics.json"
    history = json.loads(metrics.read_text()) if metrics.is_file() else None
    return {"models": names, "files": files, "metrics": history, "steps": steps(run)}


def checkpoints(run) -> list[Path]:
    """The checkpoint folders, oldest first."""
    return sorted((Path(run) / "checkpoints").glob("step-*"))


class NanAfter(DecoupledSoftmax):
    """Ten finite losses (five steps in two directions), then NaN."""

    finite = 10

    def loss(self, stats, positive_scores, positives, weights):
        rows = super().loss(stats, positive_scores, positives, weights)
        self.finite -= 1
        return rows if self.finite >= 0 else rows * math.nan


class NanGradient(DecoupledSoftmax):
    """Losses that stay finite while the gradients do not."""

    def loss(self, stats, positive_scores, positives, weights):
        rows = super().loss(stats, positive_scores, positives, weights)
        return rows + 0.0 * (positive_scores.sum() * 0.0).sqrt()


class OutOfMemory(DecoupledSoftmax):
    """Four finite losses (two steps), then no memory."""

    finite = 4

    def row_stats(self, scores, positives):
        self.finite -= 1
        if self.finite < 0:
            raise torch.OutOfMemoryError("out of memory")
        return super().row_stats(scores, positives)


class StopAt:
    """A reporter that behaves like Ctrl-C as a step is reported, before its checkpoint."""

    def __init__(self, step: int) -> None:
        self.at = step
        self.said: list[str] = []

    def log(self, text):
        self.said.append(text)

    def start(self, n_epochs, epoch):
        pass

    def step(self, info, epoch):
        if info.step == self.at:
            raise KeyboardInterrupt

    def validation(self, epoch, metrics, *, best):
        pass

    def close(self):
        pass


def stop_at(step, data, out, *changes) -> list[str]:
    """Train with a checkpoint after every step, up to a step that is lost; what was said."""
    import pytest

    reporter = StopAt(step)
    with pytest.raises(KeyboardInterrupt):
        fit(data, out, "train.checkpoint_seconds=0", *changes, reporters=[reporter])
    return reporter.said
