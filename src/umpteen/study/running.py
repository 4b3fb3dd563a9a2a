"""Runs a study's missing runs and keeps their results, each a JSON file of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import gc
import hashlib
import json
import resource
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import umpteen
from umpteen.compute.threads import cpu_threads
from umpteen.config.loading import load_config
from umpteen.data.augment import AUGMENTATIONS
from umpteen.data.augment.rows import row_count
from umpteen.data.dataset import Dataset
from umpteen.errors import RunError, UmpteenError
from umpteen.evaluation import evaluate
from umpteen.files import digest, read_json, write_json
from umpteen.run_folder import RunFolder
from umpteen.study.definition import Run, Study
from umpteen.study.outcomes import group_metrics, measured, result_file, trained, write_per_query
from umpteen.study.sources import LoadedSource
from umpteen.training.reporters import Reporter
from umpteen.training.resolve import resolve_open_settings
from umpteen.training.run import train
from umpteen.types import Log


def run_missing(
    study: Study,
    out: str | Path,
    *,
    device: str = "auto",
    only: str | Sequence[str] = "",
    jobs: int = 1,
    log: Log = lambda text: None,
    reporters: Callable[[], Sequence[Reporter]] = lambda: (),
) -> list[str]:
    """Make every run that has no result yet; one that was killed is continued.

    Args:
        study: The study.
        out: Its folder: ``runs/`` and ``results/``.
        device: ``auto``, ``cpu`` or ``cuda``.
        only: Make only runs whose name has this in it, or one of these.
        jobs: Runs at the same time, each in a process of its own.
        log: Called with progress lines.
        reporters: Makes reporters of a run's progress, where there is one run at a time.

    Returns:
        A sentence for each run that failed; the others went on.

    Raises:
        RunError: If another process is at work in this folder, or no run is wanted.
    """
    wanted = (only,) if isinstance(only, str) else tuple(only) or ("",)
    runs = [run for run in study.runs() if any(text in run.name for text in wanted)]
    if not runs:
        names = " or ".join(repr(text) for text in wanted)
        raise RunError(f"no run has {names} in its name; --list names them all")
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        if jobs > 1:
            from umpteen.study.jobs import run_at_once  # imports this file

            return run_at_once(study, out, runs, jobs, device=device, log=log)
        numbered = enumerate(runs, 1)
        return list(
            run_each(study, out, numbered, len(runs), device=device, log=log, reporters=reporters)
        )


def run_each(
    study: Study,
    out: str | Path,
    numbered: Iterable[tuple[int, Run]],
    total: int,
    *,
    device: str = "auto",
    log: Log = lambda text: None,
    reporters: Callable[[], Sequence[Reporter]] = lambda: (),
    loaded: LoadedSource | None = None,
) -> Iterator[str]:
    """Run some runs, given with their numbers among all; yield what failed."""
    out, loaded = Path(out), loaded or LoadedSource()
    for number, run in numbered:
        try:
            data, fingerprint = loaded.get(run.source)
            key = run_key(study, run, data, fingerprint)
            if is_done(out, run, key):
                log(f"[{number}/{total}] {run.name}: done already")
                continue
            log(f"[{number}/{total}] {run.name}")
            _run(study, run, data, out, key, device, list(reporters()))
        except UmpteenError as error:
            log(f"failed: {error}")
            yield f"{run.name}: {error}"


def run_key(study: Study, run: Run, data: Dataset, fingerprint: str) -> str:
    """Return a digest of everything that decides a run's result.

    Its whole settings, its metrics, its data and its encoder.
    """
    config = load_config(run.preset, overrides_of(study, run, data))
    about: list[Any] = [dataclasses.asdict(config), list(study.metrics), fingerprint]
    table = resolve_open_settings(config).encoder.table
    if table == "random":  # also where no table is installed, which is another result
        about[0]["encoder"]["table"] = table
    folder = Path(config.encoder.name)
    if folder.is_dir():  # by what it holds, not by where it is
        about[0]["encoder"]["name"] = ""
        about.append({file.name: digest(file) for file in folder.iterdir() if file.is_file()})
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]


def overrides_of(study: Study, run: Run, data: Dataset) -> list[str]:
    """Return the run's settings over its preset, with its seed.

    Fewer epochs where rows are added.
    """
    changes = [*run.settings, f"seed={run.seed}"]
    config = load_config(run.preset, changes)
    switched = any(setting.startswith("train.epochs") for setting in run.switch.settings)
    n = len(data["train"])
    part = config.augment
    if not study.same_steps or switched:
        return changes
    if part.method in AUGMENTATIONS:
        rows = row_count(n, len(data.labels), rows=part.rows, share=part.share)
    else:
        rows = 2 * n if part.method == "synonyms" else n
    if rows == n:
        return changes
    changes.append(f"train.epochs={max(1, round(config.train.epochs * n / rows))}")
    second = config.stage2.get("train", {}).get("epochs")
    if second:
        changes.append(f"stage2.train.epochs={max(1, round(second * n / rows))}")
    return changes


def is_done(out: Path, run: Run, key: str) -> bool:
    """Return whether the result of this very run is there."""
    file = result_file(out, run)
    return file.is_file() and read_json(file, error=RunError).get("key") == key


def _run(
    study: Study,
    run: Run,
    data: Dataset,
    out: Path,
    key: str,
    device: str,
    reporters: list[Reporter],
) -> None:
    folder = RunFolder(out / "runs" / f"{run.name}-{key}")
    options: dict[str, Any] = {"resume": True} if folder.config.is_file() else {
        "preset": run.preset, "overrides": overrides_of(study, run, data)
    }  # fmt: skip
    _forget_peak()
    model = train(
        data, out=folder.path, device=device, reporters=reporters, cache=out / "tokens", **options
    )
    on_gpu = next(model.model.parameters()).is_cuda
    config = resolve_open_settings(load_config(run.preset, run.settings))
    with cpu_threads(config.train.threads or torch.get_num_threads()):  # its own share of a CPU
        found = evaluate(model, data, split="test", metrics=study.metrics, per_query=True)
        groups = group_metrics(model, data, study.groups) if study.groups else {}
    write_per_query(out, run, found)
    write_json_in_folder(
        result_file(out, run),
        {
            "key": key,
            "data": run.source.name,
            "preset": run.preset,
            "switch": run.switch.name,
            "seed": run.seed,
            "settings": [study.as_written(each) for each in overrides_of(study, run, data)],
            "table": config.encoder.table,
            **measured(found),
            **trained(folder),
            "peak_gib": _peak_gib(on_gpu),
            "device": torch.cuda.get_device_name() if on_gpu else "cpu",
            "umpteen": umpteen.__version__,
            "torch": torch.__version__,
            **({"groups": groups} if groups else {}),
            **({"ensemble": model.ensemble.variants[0].validation} if model.ensemble else {}),
        },
    )
    if not study.keep_models:
        for place in (folder.models, folder.checkpoints, folder.path / "answers"):
            shutil.rmtree(place, ignore_errors=True)


def write_json_in_folder(file: Path, value: Any) -> None:
    """Write JSON, making the folder first."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, value)


def _forget_peak() -> None:
    """Reset the peak memory; where the system cannot, later runs include earlier ones."""
    gc.collect()  # what the run before left behind is not this one's
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_gib(on_gpu: bool) -> float:
    """Return most GPU memory in tensors, or most memory of the process, since ``_forget_peak``."""
    if on_gpu:
        return torch.cuda.max_memory_allocated() / 2**30
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder's lock; the system lets go of it however the process ends."""
    with (out / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunError(f"another process is at work in {out}; wait, or name another") from None
        yield
