"""One run under way: its parts set up, steps taken, checkpoints and models written."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path

import torch

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.compute.precision import choose_device, choose_precision
from umpteen.compute.threads import cpu_threads
from umpteen.config.loading import stages
from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset
from umpteen.data.samplers import step_seed
from umpteen.data.special_tokens import tokens_in_chunks
from umpteen.errors import DataError, RunError, TrainingStopped
from umpteen.files import clear_leftovers, read_json
from umpteen.log_lines import Detail
from umpteen.model.model import place_model
from umpteen.model.storage import TextConfig, load_model
from umpteen.run_folder import UNTRAINED, RunFolder
from umpteen.training import initial_files
from umpteen.training.build_loop import build_loop, build_untrained_model
from umpteen.training.checkpoint import Checkpoints
from umpteen.training.data_parallel import cut_table_, whole_table
from umpteen.training.interrupts import interrupts
from umpteen.training.label_init import init_at_random_, init_from_odds_, init_from_texts_
from umpteen.training.loop import Loop, LossWatch, StepInfo
from umpteen.training.prepare import (
    prepare,
    source_rows,
    training_splits,
)
from umpteen.training.reporters import Reporter, Silent, StepLog
from umpteen.training.resolve import ResolvedConfig
from umpteen.training.selection import Selection
from umpteen.training.stage_log import QUIET, StageLog
from umpteen.training.time_budget import StepsDeadline
from umpteen.training.warm_labels import start_new_labels_
from umpteen.training.warm_start import WarmStart
from umpteen.types import Progress


class Session:
    """One call of ``train``: the parts of the loop and what is done with its ticks."""

    def __init__(
        self,
        folder: RunFolder,
        settings: RunConfig,
        *,
        device: str,
        reporters: list[Reporter],
        ranks: Ranks = ONE_RANK,
        log: StageLog = QUIET,
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.stages = stages(settings)
        self.first_epochs = (0, *accumulate(stage.train.epochs for stage in self.stages))
        self.device = choose_device(device)
        self.precision = choose_precision(settings.train.precision, self.device)
        self.ranks = ranks
        self.reporters = reporters if reporters and ranks.first else [Silent()]
        self.log = log
        self.resolved = ResolvedConfig(settings)
        """The settings with how they came about."""
        self.warm_start: WarmStart | None = None
        """What is taken over from another run, where training starts from one."""
        self.deadline: StepsDeadline | None = None
        """When steps should be done, where there is a time budget."""

    # -- setting up ---------------------------------------------------------------------------

    def set_up(self, data: Dataset, *, resume: bool, cache: Path) -> None:
        """Make the parts, at the start or where the newest whole checkpoint stands."""
        settings = self.settings
        self.source = data
        dataset = training_splits(data, settings)
        if self.ranks.first:
            for place in (self.folder.path, self.folder.models, self.folder.checkpoints):
                clear_leftovers(place)
        # A run that was killed before its first checkpoint starts again with its own settings.
        resume = self.ranks.json_from_first(self.ranks.first and resume and self._begun())
        if resume:
            model, tokenizer, _ = load_model(self.folder.model("best"))
            model.train()
        else:
            # First, so that a kill from here on can be resumed.
            if self.ranks.first:
                initial_files.write_config(self.folder, self.resolved, data, device=self.device)
            build = self.warm_start.build_model if self.warm_start else build_untrained_model
            with self.log.stage("Building the model", announced=False):
                model, tokenizer = build(settings, dataset)
        with self.ranks.first_goes_first():  # the others find its tokens in the cache
            self.data = prepare(dataset, settings, tokenizer, cache=cache, log=self.log)
        self._require_same_data()
        cut_table_(model, self.ranks)
        self.model = place_model(
            model, self.device, labels_on_host=settings.train.label_device == "host"
        )
        self.text_config = TextConfig(
            settings.data.text,
            tokens_in_chunks(tokenizer, settings.data.max_tokens, settings.data.chunks),
            dataset.labels.fingerprint,
        )
        self.checkpoints = Checkpoints(
            self.folder.checkpoints, data_fingerprint=self.data.fingerprint, ranks=self.ranks
        )
        self.loop = self._new_loop(0)
        self.loop.loop_of_stage = self._new_loop
        self.loop.watch = LossWatch(source_rows=lambda rows: source_rows(data, settings)[rows])
        self.selection = Selection(
            folder=self.folder,
            model=self.model,
            data=self.data,
            text_config=self.text_config,
            rules=settings.validation,
            n_epochs=self.first_epochs[-1],
            precision=self.precision,
            first_epochs=self.first_epochs,
        )
        if resume:
            place = self.checkpoints.restore(self.loop)
            self.log(f"Continuing from {place} (epoch {self.loop.position.epoch + 1})")
        else:
            self._write_start(data)
        if self.ranks.first:
            self.step_log = StepLog(self.folder.steps, last_step=self.loop.position.step)
            self.reporters = [*self.reporters, self.step_log]

    def _require_same_data(self) -> None:
        if self.ranks.json_from_first(self.data.fingerprint) != self.data.fingerprint:
            raise DataError(
                f"rank {self.ranks.rank} reads other data than the first rank; "
                "give all ranks the same data and the same version of umpteen"
            )

    def _new_loop(self, stage: int) -> Loop:
        return build_loop(
            self.stages[stage],
            self.data,
            self.model,
            keep_refresh=self.checkpoints.keep_refresh,
            precision=self.precision,
            first_epoch=self.first_epochs[stage],
            ranks=self.ranks,
            log=self.log,
        )

    def _begun(self) -> bool:
        file = self.folder.path / "models.json"
        names = read_json(file, error=RunError).values() if file.is_file() else ()
        trained = any(Path(name).name != UNTRAINED for name in names)
        return trained or any(self.folder.checkpoints.glob("step-*"))

    def _write_start(self, data: Dataset) -> None:
        """Label vectors from texts, then everything a resume needs, before the first step."""
        with self.log.stage("Computing the first label vectors", announced=False):
            self._start_labels(self.settings)
            if self.warm_start is not None:
                self.warm_start.known_vectors_(self.model, self.ranks)
                self._start_new_labels(self.warm_start)
        with self.log.stage("Writing the run folder", announced=False):
            with whole_table(self.model, self.ranks, on_host=True):
                if self.ranks.first:
                    self._write_files(data)
            self.checkpoints.save(self.loop)  # last: where there is one, the rest is there too

    def _write_files(self, data: Dataset) -> None:
        # Counts of the user's whole train split: what was held out still says how frequent.
        self.folder.write_labels(data.labels, data.label_counts)
        initial_files.write_untrained(self.folder, self.model, self.data, self.text_config)
        initial_files.write_examples(self.folder, self.data, self.settings)
        initial_files.write_held_out(self.folder, self.data, self.settings)
        self._write_config()

    def _write_config(self) -> None:
        initial_files.write_config(
            self.folder,
            self.resolved,
            self.source,
            device=self.device,
            fingerprint=self.data.fingerprint,
        )

    def _start_labels(self, settings: RunConfig) -> None:
        if self.model.label_vectors is None:
            return
        # A part that is the text's already is not needed twice.
        if settings.model.label_init == "text" and self.model.label_parametrization == "free":
            init_from_texts_(self.model, self.data, precision=self.precision, ranks=self.ranks)
        elif settings.model.label_init == "odds":
            init_from_odds_(self.model, self.data)
        elif settings.model.label_init == "random":
            seed = step_seed(settings.seed, 0, (7,))
            init_at_random_(self.model, seed=seed, ranks=self.ranks)
        else:
            self.model.label_vectors.data.zero_()

    @contextlib.contextmanager
    def _known_vectors_kept(self) -> Iterator[None]:
        """Keep the vectors of labels that another run has trained, while others are started."""
        table = self.model.label_vectors
        if self.warm_start is None or not self.warm_start.trained or table is None:
            yield
            return
        rows = self.warm_start.known_rows(self.ranks).to(table.device)
        kept = table.data[rows].clone()
        yield
        table.data[rows] = kept
        self._start_new_labels(self.warm_start)

    def _start_new_labels(self, start: WarmStart) -> None:
        if start.trained:
            start_new_labels_(
                self.model,
                self.data,
                start.known >= 0,
                precision=self.precision,
                seed=self.settings.seed,
                ranks=self.ranks,
            )

    # -- training -----------------------------------------------------------------------------

    def train(self) -> None:
        """Take the steps that are left and write the models; reporters are closed in any case."""
        at = self.loop.position
        for reporter in self.reporters:
            reporter.start(self.first_epochs[-1], self.loop.epochs_done())
        try:
            self._take_steps()
            while self.loop.position.stage + 1 < len(self.stages):
                self._next_stage()
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
                "pool.max_labels or data.max_tokens, or continue with --resume where more is "
                f"free; the last good checkpoint is {self.checkpoints.last_good}"
            ) from error
        except KeyboardInterrupt:
            place = self.checkpoints.last_good
            self.log(f"Stopped; continue from {place} with --resume")
            raise
        finally:
            for reporter in self.reporters:
                reporter.close()
        if at.epoch < self.first_epochs[-1]:
            self.log(f"Stopped early after epoch {at.epoch}: validation did not improve")
        for line in self.selection.summary(at):
            self.log(line)

    def why_no_longer(self) -> str:
        """Return why a finished run trained no longer, for a run with time left."""
        epoch, n_epochs = self.loop.position.epoch, self.first_epochs[-1]
        if epoch < n_epochs:
            return f"validation did not improve after epoch {epoch} of {n_epochs}"
        if self.settings.train.max_steps:
            return f"all {self.settings.train.max_steps:,} planned steps are taken"
        return f"all {n_epochs} planned epochs are trained"

    def _next_stage(self) -> None:
        """Start the second stage; depends on the model alone, so that resuming gives the same."""
        at = self.loop.position
        stage = at.stage + 1
        self.loop.turn_to(stage)
        self.loop.refreshed = None
        at.stage, at.epoch, at.batch, at.refresh_epoch = stage, self.loop.first_epoch, 0, -1
        if "label_init" in self.settings.stage2.get("model", {}):
            with self._known_vectors_kept():
                self._start_labels(self.stages[stage])
        self.log(f"Stage {stage + 1}: {self.stages[stage].train.epochs} epochs")

    def _take_steps(self) -> None:
        at = self.loop.position
        if self.selection.patience_over(at):
            return
        available = torch.get_num_threads()
        with (
            interrupts() as interrupted,
            cpu_threads(self._threads()),
            self._steps_stage() as progress,
        ):
            saved, cost = time.monotonic(), 0.0
            for tick in self.loop.ticks():
                self._report(tick.finished)
                progress(at.step, self.loop.last_step())
                self._keep_to_budget(epoch_done=tick.epoch_done)
                if tick.epoch_done:
                    self.checkpoints.finish()
                    with cpu_threads(self.settings.train.threads or available):
                        self._epoch_done()
                # Clocks differ: the first rank's decides. Signals reach any: one is enough.
                # A large table takes long to write: at most a twentieth of the time goes there.
                pause = self.settings.train.checkpoint_seconds
                waited = time.monotonic() - saved >= (max(pause, 20 * cost) if pause else 0.0)
                overdue, stop, writing = self.ranks.highest(
                    self.ranks.first and waited, interrupted.is_set(), self.checkpoints.writing
                )
                if not writing:
                    self.checkpoints.finish()
                overdue = overdue and not (writing and pause)
                finished = at.epoch == self.loop.n_epochs or self.selection.patience_over(at)
                if overdue or finished or stop:
                    started = time.monotonic()
                    # A refresh may follow an epoch; its checkpoint must not wait for the next step.
                    self._save_checkpoint(wait=bool(finished or stop or tick.epoch_done))
                    saved = time.monotonic()
                    cost = saved - started
                if stop:  # after the last step, too: an ensemble or another trial would follow
                    raise KeyboardInterrupt
                if finished:
                    return

    def _steps_stage(self) -> AbstractContextManager[Progress]:
        """Return the stage of steps; it has no lines where a bar shows them."""
        if any(getattr(reporter, "shows_steps", False) for reporter in self.reporters):
            return contextlib.nullcontext(lambda done, total: None)
        return self.log.stage("Training, steps", announced=False)

    def _keep_to_budget(self, *, epoch_done: bool) -> None:
        """End earlier than planned where steps turn out slower than those of the trial."""
        if self.deadline is None:
            return
        step, planned = self.loop.position.step, self.loop.last_step()
        last = self.deadline.fitting(step, planned, epoch_done=epoch_done)
        if last is None:
            return
        self.loop.end_after(last)
        self.log(
            Detail(
                f"Slower than measured: ending after {last:,} steps instead of {planned:,}, "
                "to stay within the time"
            )
        )
        n_epochs = self.loop.n_epochs
        train = dataclasses.replace(self.settings.train, epochs=n_epochs, max_steps=last)
        self.settings = dataclasses.replace(self.settings, train=train)
        self.resolved = dataclasses.replace(self.resolved, config=self.settings)
        self.stages = stages(self.settings)
        self.first_epochs = (0, n_epochs)
        self.selection = dataclasses.replace(
            self.selection, n_epochs=n_epochs, first_epochs=self.first_epochs
        )
        self._write_config()  # what a resumed run keeps to

    def _threads(self) -> int:
        available = torch.get_num_threads()
        frugal = self.settings.encoder.is_frugal
        return self.settings.train.threads or (max(1, available // 2) if frugal else available)

    def _report(self, infos: list[StepInfo]) -> None:
        epoch = self.loop.epochs_done()
        for info in infos:
            for reporter in self.reporters:
                reporter.step(info, epoch)

    def _save_checkpoint(self, *, wait: bool) -> None:
        # A loss still under way may not be finite; it must be known before weights are kept.
        self._report(self.loop.watch.drain())
        self.loop.flush()
        finite = all(bool(weights.isfinite().all()) for weights in self.model.parameters())
        if any(self.ranks.highest(not finite)):
            raise TrainingStopped(
                f"a weight is no longer finite after step {self.loop.position.step}"
            )
        if self.ranks.first:
            self.step_log.flush()
        with self.log.stage("Writing a checkpoint", announced=False):
            self.checkpoints.save(self.loop, wait=wait)

    def _epoch_done(self) -> None:
        at = self.loop.position
        if not self.selection.due(at):
            return
        with self.log.stage("Validating", kind="validation", announced=False):
            result = self.selection.epoch_done(at, self.ranks)
        if result is not None:
            metrics, best = result
            for reporter in self.reporters:
                reporter.validation(at.epoch, metrics, best=best)
