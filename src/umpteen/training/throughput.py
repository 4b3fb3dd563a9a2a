"""How long steps, refreshes and validations take, by a short trial, and the epochs that fit a time.

The trial takes real steps with a model that is thrown away; nothing is written but the tokens,
which the run itself will use.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import torch

from umpteen.build import is_frugal
from umpteen.compute.precision import choose_device, choose_precision
from umpteen.compute.threads import cpu_threads
from umpteen.config import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.data.special_tokens import tokens_in_chunks
from umpteen.evaluation import evaluate
from umpteen.model.model import Model, place_model
from umpteen.model.storage import TextConfig
from umpteen.model.vectors import label_search_vectors
from umpteen.predictor import Predictor
from umpteen.training.build import build_loop, build_untrained_model
from umpteen.training.loop import Loop
from umpteen.training.prepare import Prepared, prepare, training_splits

WARM_STEPS = 3
MAX_STEPS = 30
MAX_SECONDS = 15.0
ROOM = 0.95
"""Of a budget that is planned for; the rest is for saving and for a machine that is not alone."""


@dataclass(frozen=True)
class Throughput:
    """Seconds of the parts of training."""

    step: float
    steps: int
    """Of an epoch."""
    refresh: float
    validation: float

    def epoch(self, *, refresh_epochs: int, every_epochs: int) -> float:
        """Return seconds of an epoch, with its share of refreshes and validations."""
        others = self.refresh / refresh_epochs + self.validation / every_epochs
        return self.steps * self.step + others


def epochs_within(throughput: Throughput, config: RunConfig, seconds: float) -> int:
    """Return the most epochs that fit the seconds.

    At least one and at most those of the settings.
    """
    each = throughput.epoch(
        refresh_epochs=config.batches.refresh_epochs, every_epochs=config.validation.every_epochs
    )
    return max(1, min(config.train.epochs, int(seconds / max(each, 1e-9))))


def within_budget(
    config: RunConfig,
    throughput: Throughput,
    *,
    minutes: float,
    spent: float,
    user_keys: Collection[str] = (),
) -> tuple[RunConfig, str]:
    """Return the settings with as many epochs as fit a budget, and the reason.

    Args:
        config: With the most epochs that are wanted.
        throughput: Of this machine.
        minutes: The whole budget; what fitting the ensemble may take is set aside.
        spent: Seconds of it that are gone.
        user_keys: Keys that the user has set. Unless ``ensemble.seconds`` is among them, the
            ensemble gets what all the wanted epochs leave over.

    Returns:
        Settings whose learning rates come down to zero within the budget.
    """
    aside = config.ensemble.seconds if config.ensemble.enabled != "off" else 0.0
    left = ROOM * 60 * minutes - spent
    epochs = epochs_within(throughput, config, left - aside)
    train = dataclasses.replace(config.train, epochs=epochs)
    over = left - epochs * throughput.epoch(
        refresh_epochs=config.batches.refresh_epochs, every_epochs=config.validation.every_epochs
    )
    if aside and epochs == config.train.epochs and "ensemble.seconds" not in user_keys:
        aside = max(aside, over)
    ensemble = config.ensemble
    if aside:
        ensemble = dataclasses.replace(ensemble, seconds=aside)
    reason = (
        f"train.epochs {epochs}: {1000 * throughput.step:.0f} ms a step, "
        f"{throughput.steps} steps an epoch, "
        f"{throughput.refresh:.1f} s a refresh and {throughput.validation:.1f} s a validation; "
        f"{spent:.0f} s of {minutes:g} minutes are gone and {aside:.0f} s kept for the ensemble"
    )
    return dataclasses.replace(config, train=train, ensemble=ensemble), reason


def measure_throughput(data: Dataset, config: RunConfig, *, device: str, cache: Path) -> Throughput:
    """Take some steps and validate once.

    Args:
        data: The data.
        config: The run's settings, with open ones filled in; its first stage counts.
        device: ``auto``, ``cpu`` or ``cuda``.
        cache: Where token stores are kept.

    Returns:
        The throughput.
    """
    place = choose_device(device)
    precision = choose_precision(config.train.precision, place)
    dataset = training_splits(data, config)
    model, tokenizer = build_untrained_model(config, dataset)
    prepared = prepare(dataset, config, tokenizer, cache=cache, log=lambda text: None)
    on_host = config.train.label_device == "host"
    model = place_model(model, place, labels_on_host=on_host)
    loop = build_loop(
        config,
        prepared,
        model,
        keep_refresh=lambda refreshed, epoch: None,
        precision=precision,
    )
    available = torch.get_num_threads()
    frugal = max(1, available // 2) if is_frugal(config.encoder) else available
    with cpu_threads(config.train.threads or frugal):
        step, steps, refresh = _steps(loop, place)
    if prepared.validation is None:
        return Throughput(step, steps, refresh, 0.0)
    started = time.perf_counter()
    with cpu_threads(config.train.threads or available):
        _validate(model, prepared, config, precision)
    return Throughput(step, steps, refresh, time.perf_counter() - started)


def _steps(loop: Loop, device: torch.device) -> tuple[float, int, float]:
    ticks = loop.ticks()
    started = time.perf_counter()
    taken = 0
    for _ in ticks:
        taken += 1
        if taken == 1:
            _wait(device)
            first, steps = time.perf_counter(), loop.n_batches
        if taken == WARM_STEPS + 1:
            _wait(device)
            warm = time.perf_counter()
        late = time.perf_counter() - first > MAX_SECONDS
        if taken > WARM_STEPS + 1 and (taken >= MAX_STEPS or late):
            break
    ticks.close()  # type: ignore[attr-defined]
    _wait(device)
    now = time.perf_counter()
    if taken > WARM_STEPS + 1:
        step = (now - warm) / (taken - WARM_STEPS - 1)
    else:  # a run of a few steps
        step = (now - first) / max(taken - 1, 1)
    return step, steps, max(0.0, first - started - step)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _validate(model: Model, data: Prepared, config: RunConfig, precision: str) -> None:
    model.eval()
    vectors = label_search_vectors(model, data.labels, precision=precision)
    kept = tokens_in_chunks(data.tokenizer, config.data.max_tokens, config.data.chunks)
    labels = data.dataset.labels
    text_config = TextConfig(config.data.text, kept, labels.fingerprint)
    counts = data.dataset.label_counts
    predictor = Predictor(
        model, data.tokenizer, text_config, labels, vectors, counts, low_memory=True
    )
    evaluate(
        predictor, data.dataset, split="validation", metrics=["nDCG@5"], tokens=data.validation
    )
