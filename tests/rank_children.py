"""Jobs of several ranks for tests: ``forks`` forks a job, and the job one process per rank.

Each rank is a real process that costs no import of its own.
"""

import contextlib
import importlib.util
import json
import os
import random
import signal
import socket
from pathlib import Path

from forks import code_of, fork, forked


def on_ranks(
    file, function, world, folder, *, patience=120.0, seconds=300, imports=()
) -> list[int]:
    """Call a function of a file on ``world`` ranks; the exit codes, what was said in FOLDER/*.said.

    FUNCTION(ranks, FOLDER) is called on every rank. A code below 0 is minus the signal that ended
    the rank; SIGALRM ends those that are not done after ``seconds``. Modules that ranks would
    ``imports`` anyway can be named, so that it is done once.
    """
    work = [str(file), function, int(world), str(folder), float(patience), int(seconds)]
    code = fork(__file__, "one_job", work, imports=imports).wait()
    assert code == 0, (code, said(folder))
    return json.loads((Path(folder) / "codes.json").read_text())


def said(folder) -> str:
    """What all ranks said."""
    return "\n".join(file.read_text() for file in sorted(Path(folder).glob("*.said")))


def free_port() -> int:
    """A port below those that systems give to whoever asks for any: it stays free."""
    while True:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", random.SystemRandom().randrange(10_000, 32_000)))
            return listener.getsockname()[1]


def speak_to(file) -> None:
    """Let this process's stdout and stderr go to a file."""
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)


def one_rank(work, rank, world, port, folder, patience, seconds) -> None:
    import torch

    from umpteen.compute.distributed.sharding import start_ranks

    speak_to(folder / f"{world}-{rank}.said")
    signal.alarm(seconds)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    ranks = start_ranks(torch.device("cpu"), patience=patience)
    work(ranks, folder)
    ranks.close()


def one_job(work) -> None:
    file, function, world, folder, patience, seconds = work
    speak_to(Path(folder) / "job.said")
    spec = importlib.util.spec_from_file_location("rank_work", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # its imports, once for every rank
    given = world, free_port(), Path(folder), patience, seconds
    processes = [forked(one_rank, getattr(module, function), rank, *given) for rank in range(world)]
    codes = [code_of(process) for process in processes]
    (Path(folder) / "codes.json").write_text(json.dumps(codes))
