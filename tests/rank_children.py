"""Jobs of several ranks for tests: one process forks a job, and the job one process per rank.

``on_ranks`` starts this file as a script, once, and sends it a JSON job per line. It has imported
torch, with what torch puts off until there is something to differentiate or to optimize, and never
used it: each rank is a real process that costs no import of its own.
"""

import contextlib
import functools
import importlib.util
import json
import os
import random
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).parent
IMPORTS = (
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "pytest",
    "umpteen.training.run",
)
"""Done once, for every rank."""


def on_ranks(
    file, function, world, folder, *, patience=120.0, seconds=300, imports=()
) -> list[int]:
    """Call a function of a file on ``world`` ranks; the exit codes, what was said in FOLDER/*.said.

    FUNCTION(ranks, FOLDER) is called on every rank. A code below 0 is minus the signal that ended
    the rank; SIGALRM ends those that are not done after ``seconds``. Modules that ranks would
    ``imports`` anyway can be named, so that it is done once.
    """
    job = {
        "work": [str(file), function, int(world), str(folder), float(patience), int(seconds)],
        "environment": {**os.environ, "OMP_NUM_THREADS": "1"},
        "imports": list(imports),
    }
    parent = _parent()
    parent.stdin.write(json.dumps(job) + "\n")
    parent.stdin.flush()
    code = json.loads(parent.stdout.readline())
    assert code == 0, (code, said(folder))
    return json.loads((Path(folder) / "codes.json").read_text())


@functools.cache
def _parent() -> subprocess.Popen:
    """The process that starts jobs; it ends with this one, as its stdin does."""
    import umpteen

    source = str(Path(umpteen.__file__).parent.parent)
    path = os.pathsep.join([source, str(HERE), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


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


def forked(work, *given) -> int:
    """The id of a process that calls a function and ends with code 0, or 1 if it raises."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work(*given)
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def code_of(process) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


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


def one_job(work, environment) -> None:
    file, function, world, folder, patience, seconds = work
    speak_to(Path(folder) / "job.said")
    os.environ.clear()
    os.environ.update(environment)
    spec = importlib.util.spec_from_file_location("rank_work", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # its imports, once for every rank
    given = world, free_port(), Path(folder), patience, seconds
    processes = [forked(one_rank, getattr(module, function), rank, *given) for rank in range(world)]
    codes = [code_of(process) for process in processes]
    (Path(folder) / "codes.json").write_text(json.dumps(codes))


def main() -> None:
    """Do jobs until stdin ends."""
    for name in IMPORTS:
        importlib.import_module(name)
    os.fsync = os.fstat  # nobody cuts the power here, and files need not be waited for
    for line in sys.stdin:
        job = json.loads(line)
        for name in job["imports"]:
            importlib.import_module(name)
        print(code_of(forked(one_job, job["work"], job["environment"])), flush=True)


if __name__ == "__main__":
    main()
