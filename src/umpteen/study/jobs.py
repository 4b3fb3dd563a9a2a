"""A study's runs in several processes at once. What a run does is not known here."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from umpteen.study.definition import Run, Study
from umpteen.study.running import run_each


def run_at_once(
    study: Study,
    out: str | Path,
    runs: Sequence[Run],
    jobs: int,
    *,
    device: str = "auto",
    log: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Run ``run_each`` in several processes.

    Each of which is handed the next run when it is free.

    Processes end with this one, however it ends: a run that was under way then continues when the
    same command is given again.

    Returns:
        A sentence for each run that failed, be it because its process ended before its time.
    """
    context = multiprocessing.get_context("spawn")
    workers: dict[Any, SpawnProcess] = {}
    for _ in range(min(jobs, len(runs))):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_work, args=(theirs, study, str(out), list(runs), device), daemon=True
        )
        process.start()
        theirs.close()  # or its end would not be noticed
        workers[ours] = process
    try:
        return _listen(workers, runs, log)
    finally:
        for process in workers.values():
            process.terminate()
            process.join()


def _listen(
    workers: dict[Any, SpawnProcess], runs: Sequence[Run], log: Callable[[str], None]
) -> list[str]:
    """Distribute runs over processes and forward their log lines until all have ended."""
    failed: list[str] = []
    numbers = iter(range(len(runs)))
    at_work: dict[Any, int | None] = dict.fromkeys(workers)
    while at_work:
        ready: list[Any] = wait(list(at_work))
        for connection in ready:
            try:
                kind, text = connection.recv()
                if kind == "next":
                    at_work[connection] = next(numbers, None)
                    connection.send(at_work[connection])
            except (EOFError, ConnectionError):
                number = at_work.pop(connection)
                workers[connection].join()
                if number is not None:
                    code = workers[connection].exitcode
                    failed.append(f"{runs[number].name}: its process ended with code {code}")
                continue
            if kind == "failed":
                failed.append(text)
            elif kind == "log":
                log(text)
    left = [runs[number].name for number in numbers]
    return failed + [f"{name}: no process was left to run it" for name in left]


def _work(parent: Connection, study: Study, out: str, runs: Sequence[Run], device: str) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def handed() -> Iterator[tuple[int, Run]]:
        while True:
            parent.send(("next", ""))
            number = parent.recv()
            if number is None:
                return
            yield number + 1, runs[number]

    def log(text: str) -> None:
        parent.send(("log", text))

    for sentence in run_each(study, out, handed(), len(runs), device=device, log=log):
        parent.send(("failed", sentence))


def _end_with_parent() -> None:
    """Wait for the end of the process that started this one, and end at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
