"""``train``: from a data set to a run folder, from the start or from a checkpoint."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import umpteen
from umpteen import config as configs
from umpteen.build import (
    DEFAULT_PRESET,
    build_encoder,
    build_losses,
    build_model,
    load_config,
    resolve_open_settings,
)
from umpteen.compute.precision import choose_device, choose_precision
from umpteen.config import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.data.pool import PoolBuilder
from umpteen.data.samplers import step_seed
from umpteen.errors import ConfigError, RunError, TrainingStopped
from umpteen.files import atomic_file, clear_leftovers, read_json, write_json
from umpteen.metrics import parse_all
from umpteen.model.model import Model
from umpteen.model.storage import Reading, load_model, save_model
from umpteen.predictor import Predictor
from umpteen.runs import UNTRAINED, RunFolder
from umpteen.training.batch import BatchMaker
from umpteen.training.checkpoint import Checkpoints
from umpteen.training.interrupts import interrupts
from umpteen.training.loop import Loop, LossWatch, StepInfo
from umpteen.training.optim import Optimizers
from umpteen.training.prepare import (
    Prepared,
    all_texts,
    default_cache,
    prepare,
    source_rows,
    training_splits,
)
from umpteen.training.refresh import Refresher
from umpteen.training.reporters import Reporter, Silent, StepLog
from umpteen.training.selection import Selection

N_EXAMPLES = 1000


def train(
    data: Dataset,
    *,
    out: str | Path,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    config: RunConfig | None = None,
    device: str = "auto",
    resume: bool = False,
    reporters: Sequence[Reporter] = (),
    cache: str | Path | None = None,
) -> Predictor:
    """Train a model and write a run folder.

    Args:
        data: The data; only its train and validation splits are read. Where it has no validation
            split, a part of train is held out.
        out: The run folder to make, or with ``resume`` to continue.
        preset: A preset's name or a TOML file; the frugal default if left out.
        overrides: ``section.key=value`` strings laid over the preset.
        config: The settings themselves, instead of preset and overrides.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Continue the run in ``out`` from its newest checkpoint, with its own settings.
        reporters: Told of progress.
        cache: Where token stores are kept; by default the user's cache folder.

    Returns:
        A predictor with the best model by validation (the last one without validation).

    Raises:
        ConfigError: If a setting is wrong.
        RunError: If ``out`` is in the way, or cannot be resumed.
        TrainingStopped: If the loss is no longer finite, or memory ran out.
    """
    folder = RunFolder(out)
    if resume:
        if config is not None or preset is not None or overrides:
            raise ConfigError("a resumed run keeps its own settings; leave preset and --set out")
        settings = configs.from_mapping(folder.read_settings(), source=str(folder.config))
    else:
        folder.require_empty()
        settings = config or load_config(preset or DEFAULT_PRESET, overrides)
        settings = resolve_open_settings(settings)
    parse_all([settings.validation.select])  # a misspelt metric should not wait for an epoch
    session = _Session(folder, settings, device=device, reporters=list(reporters))
    try:
        session.set_up(data, resume=resume, cache=Path(cache) if cache else default_cache())
    except Exception:
        if not resume:
            folder.take_back_settings()
        raise
    session.train()
    return Predictor.load(folder.path, device=device)


class _Session:
    """One call of ``train``: the parts of the loop and what is done with its ticks."""

    def __init__(
        self, folder: RunFolder, settings: RunConfig, *, device: str, reporters: list[Reporter]
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.device = choose_device(device)
        self.precision = choose_precision(settings.train.precision, self.device)
        self.reporters = reporters or [Silent()]

    def say(self, text: str) -> None:
        for reporter in self.reporters:
            reporter.say(text)

    # -- setting up ---------------------------------------------------------------------------

    def set_up(self, data: Dataset, *, resume: bool, cache: Path) -> None:
        settings = self.settings
        dataset = training_splits(data, settings)
        for place in (self.folder.path, self.folder.models, self.folder.checkpoints):
            clear_leftovers(place)
        # A run that was killed before its first checkpoint starts again with its own settings.
        resume = resume and self._begun()
        if resume:
            model, tokenizer, _ = load_model(self.folder.model("best"))
            model.train()
        else:
            self._write_config(data)  # first, so that a kill from here on can be resumed
            model, tokenizer = self._new_model(dataset)
        self.data = prepare(dataset, settings, tokenizer, cache=cache, say=self.say)
        self.model = model.to(self.device)
        self.reading = Reading(
            settings.data.text, settings.data.max_tokens, dataset.labels.fingerprint
        )
        self.checkpoints = Checkpoints(
            self.folder.checkpoints, data_fingerprint=self.data.fingerprint
        )
        self.loop = self._loop(self.data, self.model)
        self.loop.watch = LossWatch(source_rows=lambda rows: source_rows(data, settings)[rows])
        self.selection = Selection(
            folder=self.folder,
            model=self.model,
            data=self.data,
            reading=self.reading,
            rules=settings.validation,
            n_epochs=settings.train.epochs,
            precision=self.precision,
        )
        if resume:
            place = self.checkpoints.restore(self.loop)
            self.say(f"continuing from {place} (epoch {self.loop.position.epoch + 1})")
        else:
            self._write_start(data)
        log = StepLog(self.folder.steps, last_step=self.loop.position.step)
        self.step_log = log
        self.reporters = [*self.reporters, log]

    def _new_model(self, dataset: Dataset) -> tuple[Model, Any]:
        settings = self.settings
        generator = torch.Generator().manual_seed(step_seed(settings.seed, 0, (5,)))
        texts = all_texts(dataset, settings.data.text)
        # Layers draw their first weights from torch's own generator: seeded, then given back.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(step_seed(settings.seed, 0, (6,)))
            encoder, tokenizer = build_encoder(settings.encoder, texts, generator=generator)
            return build_model(settings, encoder, len(dataset.labels)), tokenizer

    def _begun(self) -> bool:
        file = self.folder.path / "models.json"
        names = read_json(file, error=RunError).values() if file.is_file() else ()
        trained = any(Path(name).name != UNTRAINED for name in names)
        return trained or any(self.folder.checkpoints.glob("step-*"))

    def _loop(self, data: Prepared, model: Model) -> Loop:
        s = self.settings
        train = data.dataset["train"]
        targets = train.filtered_targets()
        pools = PoolBuilder(
            targets,
            train.filters,
            positives_per_query=s.pool.positives,
            negatives_per_query=s.pool.negatives,
            most_labels=s.pool.most_labels,
            extra_positives=s.pool.extra_positives,
        )
        refresher = Refresher(
            data.queries,
            data.labels,
            targets,
            train.filters,
            cluster_size=s.batches.cluster_size or s.batches.size,
            negatives_kept=s.pool.negatives * s.batches.refresh_epochs,
            seed=s.seed,
            precision=self.precision,
        )
        assert s.train.lr_encoder is not None
        assert s.train.lr_heads is not None
        return Loop(
            model=model,
            optimizers=Optimizers(
                model,
                lr_encoder=s.train.lr_encoder,
                lr_heads=s.train.lr_heads,
                lr_labels=s.train.lr_labels,
                weight_decay=s.train.weight_decay,
            ),
            losses=build_losses(s.loss),
            maker=BatchMaker(
                data.queries, data.labels, pools, seed=s.seed, encode_labels="dual" in model.heads
            ),
            refresh=refresher if s.batches.clustered or s.pool.negatives else None,
            keep_refresh=self.checkpoints.keep_refresh,
            n_queries=len(data.queries),
            batch_size=s.batches.size,
            n_epochs=s.train.epochs,
            refresh_epochs=s.batches.refresh_epochs,
            first_refresh=s.batches.first_refresh,
            clustered=s.batches.clustered,
            warmup=s.train.warmup,
            clip_norm=s.train.clip_norm,
            precision=self.precision,
            seed=s.seed,
        )

    def _write_start(self, data: Dataset) -> None:
        """Label vectors from texts, then everything a resume needs, before the first step."""
        if self.model.label_vectors is not None and self.settings.model.label_init == "text":
            _start_from_texts_(self.model, self.data, self.precision)
        self.folder.models.mkdir(exist_ok=True)
        # Counts of the user's whole train split: what was held out still says how frequent.
        self.folder.write_labels(data.labels, data.label_counts)
        start = self.folder.models / UNTRAINED
        save_model(start, self.model, self.data.tokenizer, self.reading)
        self.folder.point(best=start, last=start)
        self._write_examples()
        self._write_config(data, fingerprint=self.data.fingerprint)
        self.checkpoints.save(self.loop)  # last: where there is one, the rest is there too

    def _write_config(self, data: Dataset, *, fingerprint: str | None = None) -> None:
        self.folder.path.mkdir(parents=True, exist_ok=True)
        write_json(
            self.folder.config,
            {
                "umpteen": umpteen.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "device": str(self.device),
                "data": {"name": data.name, "fingerprint": fingerprint},
                "labels": data.labels.fingerprint,
                "config": configs.to_json(self.settings),
            },
        )

    def _write_examples(self) -> None:
        name = "validation" if "validation" in self.data.dataset else "train"
        split, labels = self.data.dataset[name], self.data.dataset.labels
        rows = np.sort(
            np.random.default_rng([self.settings.seed, 7]).permutation(len(split))[:N_EXAMPLES]
        )
        chosen = split.select(rows)
        truth = chosen.filtered_targets()
        with (
            atomic_file(self.folder.examples) as temporary,
            temporary.open("w", encoding="utf-8") as out,
        ):
            for row, text in enumerate(chosen.texts(self.settings.data.text)):
                own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
                filtered = chosen.filters[chosen.filters[:, 0] == row, 1]
                line = {
                    "text": text,
                    "labels": [labels.ids[label] for label in own],
                    "filtered": [labels.ids[label] for label in filtered],
                    "split": name,
                }
                out.write(json.dumps(line, ensure_ascii=False) + "\n")

    # -- training -----------------------------------------------------------------------------

    def train(self) -> None:
        at = self.loop.position
        for reporter in self.reporters:
            reporter.start(self.settings.train.epochs, self.loop.epochs_done())
        try:
            self._take_steps()
        except TrainingStopped as error:
            raise TrainingStopped(
                f"{error}; the last good checkpoint is {self.checkpoints.last_good}, but --resume "
                "would meet the same again: start a new run with smaller learning rates "
                "(train.lr_encoder, train.lr_heads, train.lr_labels) or with train.clip_norm"
            ) from error
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise TrainingStopped(
                f"the memory of {self.device} is too small for step {at.step + 1}; start a new run "
                f"with a smaller batches.size (it is {self.settings.batches.size}), "
                "pool.most_labels or data.max_tokens, or continue with --resume where more is "
                f"free; the last good checkpoint is {self.checkpoints.last_good}"
            ) from error
        except KeyboardInterrupt:
            place = self.checkpoints.last_good
            self.say(f"stopped; the last good checkpoint is {place}; continue with --resume")
            raise
        finally:
            for reporter in self.reporters:
                reporter.close()
        if at.epoch < self.settings.train.epochs:
            self.say(f"stopped after epoch {at.epoch}: no better validation for a while")
        if at.history:
            best = max(at.history, key=lambda entry: entry["value"])
            self.say(f"best model: epoch {best['epoch']}")

    def _take_steps(self) -> None:
        at = self.loop.position
        if self.selection.patience_over(at):
            return
        with interrupts() as interrupted:
            saved = time.monotonic()
            for tick in self.loop.ticks():
                self._report(tick.finished)
                if tick.epoch_done:
                    self._epoch_done()
                overdue = time.monotonic() - saved >= self.settings.train.checkpoint_seconds
                finished = at.epoch == self.loop.n_epochs or self.selection.patience_over(at)
                if overdue or finished or interrupted.is_set():
                    self._save_checkpoint()
                    saved = time.monotonic()
                if interrupted.is_set() and not finished:
                    raise KeyboardInterrupt
                if finished:
                    return

    def _report(self, infos: list[StepInfo]) -> None:
        epoch = self.loop.epochs_done()
        for info in infos:
            for reporter in self.reporters:
                reporter.step(info, epoch)

    def _save_checkpoint(self) -> None:
        # A loss still under way may not be finite; it must be known before weights are kept.
        self._report(self.loop.watch.drain())
        if not all(bool(weights.isfinite().all()) for weights in self.model.parameters()):
            raise TrainingStopped(
                f"a weight is no longer finite after step {self.loop.position.step}"
            )
        self.step_log.flush()
        self.checkpoints.save(self.loop)

    def _epoch_done(self) -> None:
        at = self.loop.position
        result = self.selection.epoch_done(at)
        if result is not None:
            metrics, best = result
            for reporter in self.reporters:
                reporter.validation(at.epoch, metrics, best=best)


def _start_from_texts_(model: Model, data: Prepared, precision: str) -> None:
    from umpteen.compute.encoding import encode_all
    from umpteen.compute.precision import autocast

    assert model.label_vectors is not None
    device = model.label_vectors.device
    was_training = model.training
    model.eval()
    with autocast(precision, device):
        vectors = encode_all(lambda t: model.classifier(model.encode(t).float()), data.labels)
    model.label_vectors.data.copy_(torch.nn.functional.normalize(vectors, dim=1))
    model.train(was_training)
