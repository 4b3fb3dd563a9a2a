"""How long steps, refreshes and validations take, by a short trial.

The trial takes real steps on some of the texts, with a model that is thrown away; nothing is
written but the tokens, which the run itself will use.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from umpteen.compute.precision import choose_device, choose_precision
from umpteen.compute.threads import cpu_threads
from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.data.special_tokens import tokens_in_chunks
from umpteen.data.tokens import TokenStore
from umpteen.evaluation import evaluate
from umpteen.model.model import Model, place_model
from umpteen.model.storage import TextConfig
from umpteen.model.vectors import label_search_vectors
from umpteen.predictor import Predictor
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.loop import Loop
from umpteen.training.prepare import Prepared, prepare, training_splits
from umpteen.types import Log

WARM_STEPS = 3
MAX_STEPS = 30
MAX_SECONDS = 15.0
TRIAL_SHARE = 0.1
"""Of a time budget, for the trial's steps."""
SAMPLE = 4000
"""Texts that the trial is made on; times of a refresh are extrapolated from them."""


@dataclass(frozen=True)
class Throughput:
    """Seconds of the parts of training."""

    step: float
    steps: int
    """Of an epoch."""
    refresh: float
    validation: float

    def run(
        self, epochs: float, *, refresh_epochs: int, every_epochs: int, first_refresh: int = 0
    ) -> float:
        """Return seconds of a run of so many epochs, with its refreshes and validations."""
        refreshes = math.ceil(max(0.0, epochs - first_refresh) / refresh_epochs)
        validations = max(1, math.ceil(epochs / every_epochs))
        others = refreshes * self.refresh + validations * self.validation
        return epochs * self.steps * self.step + others


def measure_throughput(
    data: Dataset,
    config: RunConfig,
    *,
    device: str,
    cache: Path,
    seconds: float = np.inf,
    log: Log = lambda text: None,
) -> Throughput:
    """Take some steps and validate once.

    Args:
        data: The data.
        config: The run's settings, with open ones filled in; its first stage counts.
        device: ``auto``, ``cpu`` or ``cuda``.
        cache: Where token stores are kept.
        seconds: Time for the trial's steps.
        log: Called with progress lines.

    Returns:
        The throughput on all texts.
    """
    place = choose_device(device)
    precision = choose_precision(config.train.precision, place)
    dataset = training_splits(data, config)
    model, tokenizer = build_untrained_model(config, dataset)
    prepared = prepare(dataset, config, tokenizer, cache=cache, log=log)
    on_host = config.train.label_device == "host"
    model = place_model(model, place, labels_on_host=on_host)
    n_texts = len(prepared.queries)
    sampled = _sample(prepared, max(SAMPLE, 2 * WARM_STEPS * config.batches.size))
    loop = build_loop(
        config,
        sampled,
        model,
        keep_refresh=lambda refreshed, epoch: None,
        precision=precision,
    )
    log(f"Measuring the time of a step on {len(sampled.queries):,} texts")
    available = torch.get_num_threads()
    frugal = max(1, available // 2) if config.encoder.is_frugal else available
    with cpu_threads(config.train.threads or frugal):
        if loop.refresh is not None and len(sampled.queries) < n_texts:
            loop.refresh(model, 0)  # what the first one loads and compiles would be multiplied
        step, steps, refresh = _steps(loop, place, min(MAX_SECONDS, seconds))
    scale = n_texts / len(sampled.queries)
    validation = 0.0
    if prepared.validation is not None:
        started = time.perf_counter()
        with cpu_threads(config.train.threads or available):
            _validate(model, prepared, config, precision)
        validation = time.perf_counter() - started
    return Throughput(step, math.ceil(steps * scale), refresh * scale, validation)


def _sample(data: Prepared, size: int) -> Prepared:
    """Return the data with some of its training texts, evenly spaced; all where it is small."""
    n = len(data.queries)
    if n <= size:
        return data
    rows = np.unique(np.linspace(0, n - 1, size).astype(np.int64))
    tokens = data.queries.take(rows)
    queries = TokenStore(tokens.ids, tokens.offsets, f"{data.queries.key} sample")
    return dataclasses.replace(data, train=data.train.select(rows), queries=queries)


def _steps(loop: Loop, device: torch.device, seconds: float) -> tuple[float, int, float]:
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
        late = time.perf_counter() - first > seconds
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
