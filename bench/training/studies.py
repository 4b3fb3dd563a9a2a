"""Runs of several studies side by side on one GPU, in the order given, until a deadline.

    python -m bench training studies FILE.toml[:TEXT,..] ... --out WORK --path NAME=PLACE ..
        [--light FILE.toml[:TEXT,..] ..] [--jobs 6] [--light-jobs 4] [--threads 2]
        [--seconds 560] [--done bench/studies/done] [--collect FOLDER] [--mps]
    python -m bench training studies --unpack FOLDER --out bench/studies/done

Each FILE is a study of `umpteen study`; TEXT keeps the runs with this in their name. `@best` in the
place of TEXT keeps the further seeds of the switch that is best on validation (micro-F1 of the
ensemble) by its first seed; they wait for these. Runs start in the order of the files. `--light`
runs (frugal encoders) have processes of their own, so that they fill the gaps of the others. A row
is printed as a run ends. At the deadline all processes end; what is done stays in WORK,
and the same command continues with the rest. Runs whose results are kept in the folder `--done`
are left out. With `--collect` every result and the values of its test texts are also written to
FOLDER as the run ends, in few files; `--unpack` writes these where `umpteen study --draw` reads
them. Runs share the GPU, so their seconds say nothing about their cost.
"""

from __future__ import annotations

import argparse
import atexit
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from bench.common import options
from bench.common.results import facts, print_facts
from bench.common.tables import Table
from bench.training.collection import Collection, unpack

BEST = "@best"
WAIT = -1
COLUMNS = ("P@1", "P@5", "PSP@1", "PSP@5", "RP@5", "nDCG@5", "micro-F1")


@dataclass(frozen=True)
class Job:
    """One run, and the folder of its study."""

    study: Any
    run: Any
    out: Path
    rivals: tuple[Any, ...] = ()
    """Runs of the first seed, of which that with the same switch must be the best."""
    kept: Path | None = None
    """Where earlier results of the study are."""

    def is_due(self) -> bool | None:
        """Whether the run is wanted; None while a rival has no result yet."""
        from umpteen.files import read_json

        found = {}
        for rival in self.rivals:
            files = [result_file(place, rival) for place in (self.out, self.kept) if place]
            file = next((file for file in files if file.is_file()), None)
            if file is None:
                return None
            found[rival.switch.name] = read_json(file)["ensemble"]["micro-F1"]
        return not found or max(found, key=lambda name: found[name]) == self.run.switch.name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="*", metavar="FILE.toml[:TEXT,..]")
    parser.add_argument("--light", nargs="*", default=[], metavar="FILE.toml[:TEXT,..]")
    parser.add_argument("--out", type=Path, required=True, help="folder of runs and results")
    parser.add_argument("--path", nargs="*", default=[], metavar="NAME=PLACE")
    parser.add_argument("--jobs", type=int, default=6, help="runs at the same time")
    parser.add_argument("--light-jobs", type=int, default=4, help="light runs beside them")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of each run")
    parser.add_argument("--seconds", type=float, default=560.0, help="the deadline")
    parser.add_argument("--done", type=Path, help="leave out runs with a result in FOLDER/STUDY")
    parser.add_argument("--collect", type=Path, help="write results here too, in few files")
    parser.add_argument("--unpack", type=Path, help="write collected results to --out; no runs")
    parser.add_argument("--mps", action="store_true", help="let processes share the GPU (MPS)")
    options.add_settings(parser)
    options.add_device(parser)


def result_file(out: Path, run: Any) -> Path:
    """Where a run's result is kept."""
    from umpteen.study import outcomes

    return outcomes.result_file(out, run)


def jobs_of(
    files: list[str],
    places: dict[str, str],
    out: Path,
    settings: list[str],
    done: Path | None = None,
) -> list[Job]:
    """The runs of some studies, in the order of the files, each once."""
    import dataclasses

    from umpteen.study.definition import read_study

    found = []
    for named in files:
        file, _, texts = named.partition(":")
        study, stem = read_study(file, places), Path(file).stem
        folder, kept = out / stem, done and done / stem
        runs = [
            dataclasses.replace(run, settings=(*run.settings, *settings)) for run in study.runs()
        ]
        if texts == BEST:
            own = [run for run in runs if run.source.name == study.sources[0].name]
            rivals = tuple(run for run in own if run.seed == study.seeds[0])
            further = [run for run in own if run.seed != study.seeds[0]]
            further.sort(key=lambda run: run.seed)
            found += [Job(study, run, folder, rivals, kept) for run in further]
            continue
        for run in runs:
            if not texts or any(text in run.name for text in texts.split(",")):
                found.append(Job(study, run, folder, kept=kept))
    left: dict[tuple[Path, str], Job] = {}
    for job in found:
        if job.kept is None or not result_file(job.kept, job.run).is_file():
            left.setdefault((job.out, job.run.name), job)
    return list(left.values())


class Crew:
    """Processes that take the next of some jobs when they are free."""

    def __init__(self, jobs: list[Job], size: int, threads: int, device: str) -> None:
        self.jobs, self._left = jobs, list(range(len(jobs)))
        self.at_work: dict[Any, int | None] = {}
        self._processes: dict[Any, Any] = {}
        context = multiprocessing.get_context("spawn")
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        for _ in range(min(size, len(jobs))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, jobs, device), daemon=True)
            process.start()
            theirs.close()
            self.at_work[ours], self._processes[ours] = None, process

    def hear(self, connection: Any) -> tuple[Job, str] | None:
        """Answer one message; return the job that ended with what went wrong, if one did."""
        try:
            said = connection.recv()
            ended, number = self.at_work[connection], self.take()
            self.at_work[connection] = None if number == WAIT else number
            connection.send(number)
        except (EOFError, ConnectionError):
            ended, said = self.at_work.pop(connection), "its process ended"
        return None if ended is None else (self.jobs[ended], said)

    def take(self) -> int | None:
        """The first job that is due, ``WAIT`` while others may become due, else nothing."""
        due = {number: self.jobs[number].is_due() for number in self._left}
        self._left = [number for number in self._left if due[number] is not False]
        ready = [number for number in self._left if due[number]]
        if not ready:
            return WAIT if self._left else None
        self._left.remove(ready[0])
        return ready[0]

    def end(self) -> list[Job]:
        """End all processes; return the runs that were under way."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.join()
        return [self.jobs[n] for n in self.at_work.values() if n is not None]


def _work(parent: Connection, jobs: list[Job], device: str) -> None:
    from umpteen.study.running import run_each
    from umpteen.study.sources import LoadedSource

    loaded, said = LoadedSource(), ""
    while True:
        parent.send(said)
        number = parent.recv()
        if number is None:
            return
        if number == WAIT:
            said = ""
            time.sleep(1)
            continue
        job = jobs[number]
        job.out.mkdir(parents=True, exist_ok=True)
        numbered = [(number + 1, job.run)]
        try:
            failed = run_each(job.study, job.out, numbered, len(jobs), device=device, loaded=loaded)
            said = "; ".join(failed)
        except KeyboardInterrupt:  # the deadline; a checkpoint is written
            return
        except Exception as error:  # one broken run must not end the others
            said = f"{type(error).__name__}: {error}"


def shared_gpu() -> str:
    """Start MPS, with which kernels of several processes run at once; say how that went."""
    program = shutil.which("nvidia-cuda-mps-control")
    if program is None:
        return "no MPS: its program is not installed"
    folder = tempfile.mkdtemp(prefix="mps-")
    names = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    try:
        subprocess.run([program, "-d"], env={**os.environ, **names}, check=True, timeout=20)
        check = "import torch; print(torch.ones(9, device='cuda').sum().item())"
        command = [sys.executable, "-c", check]
        subprocess.run(command, env={**os.environ, **names}, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"no MPS: {error}"
    os.environ.update(names)
    atexit.register(subprocess.run, [program], input=b"quit\n", timeout=20, check=False)
    return "MPS is on"


def ends(crews: list[Crew], deadline: float) -> Iterator[tuple[Job, str]]:
    """Jobs as they end, until all have or the deadline is reached."""
    while connections := {each: crew for crew in crews for each in crew.at_work}:
        ready = wait(list(connections), timeout=max(0.0, deadline - time.monotonic()))
        if not ready:
            return
        for connection in ready:
            ended = connections[connection].hear(connection)
            if ended is not None:
                yield ended


def collect(collection: Collection, job: Job) -> dict[str, Any] | None:
    """Add the result of a run to a collection and return it; None where there is none."""
    from umpteen.files import read_json
    from umpteen.study.outcomes import per_query_file

    file = result_file(job.out, job.run)
    if not file.is_file():
        return None
    result: dict[str, Any] = read_json(file)
    collection.add(job.out.name, job.run.name, result, per_query_file(job.out, job.run))
    return result


def main(args: argparse.Namespace) -> None:
    start, begun = time.monotonic(), time.time()
    if args.unpack is not None:
        print(f"{unpack(args.unpack, args.out)} runs in {args.out}")
        return
    if args.mps:
        print(shared_gpu(), flush=True)
    print_facts(facts(args.device))
    places = dict(each.split("=", 1) for each in args.path)
    crews = [
        Crew(jobs_of(files, places, args.out, args.settings, args.done), size, threads, args.device)
        for files, size, threads in [
            (args.files, args.jobs, args.threads),
            (args.light, args.light_jobs, 1),
        ]
    ]
    collection = Collection(args.collect)
    table = Table(["s", "run", "head", *COLUMNS, "epoch", "steps"])
    done = 0
    for job, failed in ends(crews, start + args.seconds):
        now, result = f"{time.monotonic() - start:.0f}", collect(collection, job)
        if failed or result is None:
            print(f"{now} s: {job.run.name} failed: {failed[:300]}", flush=True)
            continue
        done += 1
        head = list(result["heads"])[-1]
        values = dict(result["heads"][head]["metrics"])
        if result.get("sets"):
            values["micro-F1"] = result["sets"]["auto"]["micro_f1"]
        shown = [values.get(name, "") for name in COLUMNS]
        table.add(now, job.run.name, head, *shown, result["best_epoch"], result["steps"])
    for job in [each for crew in crews for each in crew.end()]:
        file = result_file(job.out, job.run)
        if file.is_file() and file.stat().st_mtime >= begun:  # it ended with the deadline
            collect(collection, job)
            done += 1
        else:
            print(f"not finished: {job.run.name}")
    total = sum(len(crew.jobs) for crew in crews)
    print(f"{done} of {total} runs in {time.monotonic() - start:.0f} s", flush=True)
