"""A command in a process of its own that is killed at a chosen moment.

``forks`` calls ``attend`` with a job: ``arguments`` of the command line, ``folder`` to watch,
``errors`` (a file for what is said), ``threads`` for torch (1 unless given), and at most one of

- ``kill_at``: SIGKILL just before the n-th time the child opens, renames, makes or removes
  something in the folder (counted from 1), which reaches every gap between two writes;
- ``kill_after_seconds``: SIGKILL from outside;
- ``signal`` with ``signal_at``: that signal from outside, just before the n-th such time; the child
  stands still until it was sent, so that it cannot come too late.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

from forks import code_of, forked

WATCHED = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}


def watch(folder: str, kill_at: int | None, signal_at: int | None) -> list[str]:
    """Note every event below a folder; die before number ``kill_at``, halt before ``signal_at``."""
    events: list[str] = []

    def hook(event, arguments):
        if event not in WATCHED or not str(arguments[0]).startswith(folder):
            return
        events.append(f"{event} {str(arguments[0])[len(folder) :]}")
        if len(events) == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if len(events) == signal_at:
            os.kill(os.getpid(), signal.SIGSTOP)

    sys.addaudithook(hook)
    return events


def child(job: dict) -> None:
    """Run the command; never returns."""
    import click
    import torch

    from umpteen.cli import main

    torch.set_num_threads(job.get("threads", 1))
    code = 3
    errors = os.open(job["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 2)
    os.dup2(errors, 1)
    events = watch(job["folder"], job.get("kill_at"), job.get("signal_at"))
    try:
        main(job["arguments"], standalone_mode=True)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except (Exception, KeyboardInterrupt, click.Abort):
        traceback.print_exc()
    Path(job["errors"] + ".events").write_text("\n".join(events))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def attend(job: dict) -> None:
    """Start the command, send what the job asks for, and write how it ended beside ``errors``."""
    process = forked(child, job)
    if "kill_after_seconds" in job:
        time.sleep(job["kill_after_seconds"])
        os.kill(process, signal.SIGKILL)
    if "signal" in job:
        os.waitid(os.P_PID, process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        os.kill(process, job["signal"])
        os.kill(process, signal.SIGCONT)
    Path(job["errors"] + ".code").write_text(str(code_of(process)))
