"""``train``: from a data set to a run folder, from the start or from a checkpoint."""

from __future__ import annotations

import contextlib
import json
import platform
import signal
import threading
import time
from collections.abc import Iterator, Sequence
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
from umpteen.evaluation import evaluate
from umpteen.files import atomic_file, read_json, write_json
from umpteen.model.model import Model
from umpteen.model.storage import Reading, load_model, save_model
from umpteen.model.vectors import label_search_vectors
from umpteen.predictor import Predictor
from umpteen.runs import RunFolder
from umpteen.training.batch import BatchMaker
from umpteen.training.checkpoint import Checkpoints
from umpteen.training.loop import Loop, StepInfo
from umpteen.training.optim import Optimizers
from umpteen.training.prepare import Prepared, all_texts, default_cache, prepare, training_splits
from umpteen.training.refresh import Refresher
from umpteen.training.reporters import Reporter, Silent, StepLog

VALIDATION_METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@5", "R@100")
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
        settings = configs.from_mapping(
            read_json(folder.require().config, error=RunError)["config"], source=str(folder.config)
        )
    else:
        if folder.path.exists() and any(folder.path.iterdir()):
            raise RunError(
                f"{folder.path} is not empty; continue the run in it with --resume, or name another"
            )
        settings = config or load_config(preset or DEFAULT_PRESET, overrides)
        settings = resolve_open_settings(settings)
    session = _Session(folder, settings, device=device, reporters=list(reporters))
    session.set_up(data, resume=resume, cache=Path(cache) if cache else default_cache())
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
        if resume:
            model, tokenizer, _ = load_model(self.folder.model("best"))
            model.train()
        else:
            generator = torch.Generator().manual_seed(step_seed(settings.seed, 0, (5,)))
            texts = all_texts(dataset, settings.data.text)
            encoder, tokenizer = build_encoder(settings.encoder, texts, generator=generator)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(step_seed(settings.seed, 0, (6,)))
                model = build_model(settings, encoder, len(dataset.labels))
        self.data = prepare(dataset, settings, tokenizer, cache=cache, say=self.say)
        self.model = model.to(self.device)
        self.reading = Reading(
            settings.data.text, settings.data.max_tokens, dataset.labels.fingerprint
        )
        self.checkpoints = Checkpoints(
            self.folder.checkpoints, data_fingerprint=self.data.fingerprint
        )
        self.loop = self._loop(self.data, self.model)
        if resume:
            place = self.checkpoints.restore(self.loop)
            self.say(f"continuing from {place} (epoch {self.loop.position.epoch + 1})")
        else:
            self._write_start(data)
        log = StepLog(self.folder.steps, last_step=self.loop.position.step)
        self.step_log = log
        self.reporters = [*self.reporters, log]

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
        self.folder.path.mkdir(parents=True, exist_ok=True)
        self.folder.models.mkdir(exist_ok=True)
        # Counts of the user's whole train split: what was held out still says how frequent.
        self.folder.write_labels(data.labels, data.label_counts)
        start = self.folder.models / "epoch-0000"
        save_model(start, self.model, self.data.tokenizer, self.reading)
        self.folder.point(best=start, last=start)
        self.checkpoints.save(self.loop)
        self._write_examples()
        write_json(
            self.folder.config,
            {
                "umpteen": umpteen.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "device": str(self.device),
                "data": {"name": data.name, "fingerprint": self.data.fingerprint},
                "labels": self.reading.label_fingerprint,
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
        stopped_early = False
        for reporter in self.reporters:
            reporter.start(self.settings.train.epochs, self._epochs_done())
        try:
            with _interrupts() as interrupted:
                saved = time.monotonic()
                for tick in () if self._patience_over() else self.loop.ticks():
                    self._report(tick.finished)
                    if tick.epoch_done:
                        self._epoch_done()
                    overdue = time.monotonic() - saved >= self.settings.train.checkpoint_seconds
                    if tick.epoch_done or overdue or interrupted.is_set():
                        self._save_checkpoint()
                        saved = time.monotonic()
                    if interrupted.is_set():
                        raise KeyboardInterrupt
                    if self._patience_over():
                        stopped_early = True
                        break
        except TrainingStopped as error:
            raise TrainingStopped(f"{error}; {self._how_to_continue()}") from error
        except torch.OutOfMemoryError as error:
            raise TrainingStopped(
                f"the GPU's memory is too small for step {at.step + 1}; use a smaller batches.size, "
                f"pool.most_labels or data.max_tokens ({self._how_to_continue()})"
            ) from error
        except KeyboardInterrupt:
            self.say(f"stopped; {self._how_to_continue()}")
            raise
        finally:
            for reporter in self.reporters:
                reporter.close()
        self._finish()
        if stopped_early:
            self.say(f"stopped after epoch {at.epoch}: no better validation for a while")

    def _how_to_continue(self) -> str:
        place = self.checkpoints.newest()
        return f"the last good checkpoint is {place}; continue with --resume"

    def _epochs_done(self) -> float:
        at = self.loop.position
        return at.epoch + (at.batch / len(self.loop.plan()) if at.batch else 0.0)

    def _report(self, infos: list[StepInfo]) -> None:
        if not infos:
            return
        epoch = self._epochs_done()
        for info in infos:
            for reporter in self.reporters:
                reporter.step(info, epoch)

    def _save_checkpoint(self) -> None:
        # A loss still under way may not be finite; it must be known before weights are kept.
        self._report(self.loop.watch.drain())
        self.step_log.flush()
        self.checkpoints.save(self.loop)

    def _epoch_done(self) -> None:
        at = self.loop.position
        every = self.settings.validation.every_epochs
        last = at.epoch == self.settings.train.epochs
        if self.data.validation is None or (at.epoch % every and not last):
            if last:
                place = self._save_model()
                self.folder.point(last=place, **({} if self.data.validation else {"best": place}))
            return
        predictor = self._predictor()
        result = evaluate(
            predictor,
            self._with_all_counts(),
            split="validation",
            metrics=VALIDATION_METRICS,
            tokens=self.data.validation,
        ).as_json()["heads"]
        select = self.settings.validation.select
        value = result[predictor.heads[-1]][select]
        best = not at.history or value > max(entry["value"] for entry in at.history)
        at.history.append({"epoch": at.epoch, "step": at.step, "value": value, "heads": result})
        if best or last:
            place = self._save_model(predictor)
            self.folder.point(**({"best": place} if best else {}), last=place)
        write_json(self.folder.metrics, {"select": select, "validation": at.history})
        for reporter in self.reporters:
            reporter.validation(at.epoch, result, best=best)

    def _with_all_counts(self) -> Dataset:
        return self.data.dataset

    def _predictor(self) -> Predictor:
        was_training = self.model.training
        self.model.eval()
        vectors = label_search_vectors(self.model, self.data.labels, precision=self.precision)
        self.model.train(was_training)
        self.model.eval()
        return Predictor(
            self.model,
            self.data.tokenizer,
            self.reading,
            self.data.dataset.labels,
            vectors,
            self.data.dataset.label_counts,
        )

    def _save_model(self, predictor: Predictor | None = None) -> Path:
        predictor = predictor or self._predictor()
        place = self.folder.models / f"epoch-{self.loop.position.epoch:04d}"
        vectors = torch.as_tensor(predictor._vectors).cpu().numpy()
        save_model(place, self.model, self.data.tokenizer, self.reading, vectors=vectors)
        return place

    def _patience_over(self) -> bool:
        patience = self.settings.validation.patience
        history = self.loop.position.history
        if not patience or len(history) <= patience:
            return False
        best = max(range(len(history)), key=lambda place: history[place]["value"])
        return len(history) - 1 - best >= patience

    def _finish(self) -> None:
        history = self.loop.position.history
        if history:
            best = max(history, key=lambda entry: entry["value"])
            self.say(f"best model: epoch {best['epoch']}")


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


@contextlib.contextmanager
def _interrupts() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM set an event instead of stopping in the middle of a step."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def note(number: int, frame: Any) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
