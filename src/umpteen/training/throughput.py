"""How long steps, refreshes and validations take, by a short trial on some texts and labels.

The trial takes real steps with a model that is thrown away; nothing is written but the tokens,
which the run itself will use. Each stage is timed on a sample and scaled by its growth law.
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
from umpteen.data.tokens import TokenStore
from umpteen.index.exact import ExactIndex
from umpteen.model.model import Model, place_model
from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.trained_examples import ones_like
from umpteen.training.build_loop import (
    BuildModel,
    build_loop,
    build_refresher,
    build_untrained_model,
)
from umpteen.training.fit_time import FIT_SECONDS, VARIANTS
from umpteen.training.loop import Loop
from umpteen.training.prepare import Prepared, prepare, training_splits
from umpteen.training.refresh_cost import SampledRefresh, sampled_refresh
from umpteen.training.selection import validated_rows
from umpteen.training.stage_log import QUIET, StageLog

WARM_STEPS = 3
MAX_STEPS = 30
MAX_SECONDS = 15.0
TRIAL_SHARE = 0.1
"""Of a time budget, for the trial's steps."""
SAMPLE = 4000
"""Texts that the trial is made on."""
FITTED = 400
"""Texts that the lexical ranker is fitted on in the trial."""
MANY_TEXTS = 50_000
"""Texts above which the time of the ensemble's fit is not estimated."""
GENEROUS = 5.0
"""Times the lexical ranker takes, for all parts of the ensemble together: one-vs-rest takes about
as long, examples are encoded, and the time of a short fit says little."""
SEARCHED = 256, 1 << 14
"""Queries and labels that the time of a validation's search is measured on."""


@dataclass(frozen=True)
class Throughput:
    """Seconds of the parts of training."""

    step: float
    steps: int
    """Of an epoch."""
    refresh: float
    validation: float
    ensemble: float = math.inf
    """Most that fitting the ensemble takes; infinite where it is not known."""

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
    log: StageLog = QUIET,
    build: BuildModel = build_untrained_model,
) -> Throughput:
    """Take some steps, refresh a sample and search a sample."""
    place = choose_device(device)
    precision = choose_precision(config.train.precision, place)
    dataset = training_splits(data, config)
    with log.stage("Building the model", announced=False):
        model, tokenizer = build(config, dataset)
    prepared = prepare(dataset, config, tokenizer, cache=cache, log=log)
    on_host = config.train.label_device == "host"
    model = place_model(model, place, labels_on_host=on_host)
    n_texts = len(prepared.queries)
    sampled = _sample(prepared, max(SAMPLE, 2 * WARM_STEPS * config.batches.size))
    loop = build_loop(
        config, sampled, model, keep_refresh=lambda refreshed, epoch: None, precision=precision
    )
    available = torch.get_num_threads()
    frugal = max(1, available // 2) if config.encoder.is_frugal else available
    what = f"Measuring the time of a step on {len(sampled.queries):,} texts"
    with log.stage(what):
        with cpu_threads(config.train.threads or available):  # as many as in the run
            refresh = _sampled_refresh(config, sampled, model, precision, n_texts, loop)
        with cpu_threads(config.train.threads or frugal):
            step, steps, first_refresh = _steps(loop, place, min(MAX_SECONDS, seconds))
    scale = n_texts / len(sampled.queries)
    refresh_seconds = first_refresh * scale if refresh is None else refresh.seconds
    validation = 0.0
    if prepared.validation is not None:
        labels = 0.0 if refresh is None else refresh.label_seconds
        n = len(validated_rows(len(prepared.validation), model.n_labels, place))
        with cpu_threads(config.train.threads or available):
            validation = labels + n * _search_seconds(model)
    with cpu_threads(available):
        ensemble = ensemble_seconds(dataset, config)
    return Throughput(step, math.ceil(steps * scale), refresh_seconds, validation, ensemble)


def ensemble_seconds(dataset: Dataset, config: RunConfig) -> float:
    """Return a generous estimate of the time to fit the ensemble; infinite for many texts.

    The lexical ranker is fitted on a sample, and its time is taken to grow with the texts. With
    many texts the fit takes whatever time it is given.
    """
    train, validation = dataset["train"], dataset.splits.get("validation")
    if not config.ensemble.lexical or validation is None or len(train) > MANY_TEXTS:
        return math.inf
    which = config.data.text
    some = train.select(np.unique(np.linspace(0, len(train) - 1, FITTED).astype(np.int64)))
    texts, label_texts = list(some.texts(which)), dataset.labels.encoder_texts(which)
    started = time.perf_counter()
    LexicalRanker.fit(texts, ones_like(some.filtered_targets()), label_texts)
    lexical = (time.perf_counter() - started) * len(train) / len(some)
    return 2.0 + GENEROUS * lexical + VARIANTS * FIT_SECONDS * len(validation)


def _sampled_refresh(
    config: RunConfig, sampled: Prepared, model: Model, precision: str, n_texts: int, loop: Loop
) -> SampledRefresh | None:
    """Refresh a sample and let the loop use it; None where the loop refreshes by itself.

    An embedding bank needs the vectors of all labels.
    """
    if loop.refresh is None or loop.bank is not None:
        return None
    targets = sampled.train.filtered_targets()
    refresher = build_refresher(config, sampled, targets, precision)
    assert refresher is not None
    found = sampled_refresh(refresher, model, n_queries=n_texts)
    loop.refresh = lambda model, epoch: found.refreshed
    return found


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


def _search_seconds(model: Model) -> float:
    """Return the time in which all labels are searched for one text, with every head.

    Vectors are drawn: the time of a product does not depend on what is in it. The combined head
    has twice the columns, and the two others together have as many.
    """
    device = model.log_scales.device
    n_queries, n_labels = SEARCHED[0], min(SEARCHED[1], model.n_labels)
    width = model.dim * len(model.heads)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(n_labels, width, generator=generator).to(device)
    queries = torch.randn(n_queries, width, generator=generator).to(device)
    index = ExactIndex.build(labels)
    index.search(queries[:8], min(100, n_labels))
    _wait(device)
    started = time.perf_counter()
    index.search(queries, min(100, n_labels))
    _wait(device)
    seconds = (time.perf_counter() - started) / n_queries
    return seconds * len(model.heads) * model.n_labels / n_labels
