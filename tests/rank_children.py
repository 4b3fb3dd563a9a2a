"""A job of several ranks for tests: forks one process per rank and waits for all of them.

Started as a script by ``on_ranks``: it has imported torch and never used it, so that each rank is a
real process that costs no import of its own. Usage: FILE FUNCTION WORLD FOLDER, where
FUNCTION(ranks, FOLDER) of FILE is called on every rank.
"""

import importlib.util
import os
import socket
import subprocess
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).parent


def on_ranks(file, function, world, folder, *, patience=120.0, seconds=300) -> list[int]:
    """Call a function of a file on ``world`` ranks; the exit codes, what was said in FOLDER/*.said.

    A code below 0 is minus the signal that ended the rank.
    """
    import umpteen

    source = str(Path(umpteen.__file__).parent.parent)
    path = os.pathsep.join([source, str(HERE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, __file__, file, function, str(world), str(folder), str(patience)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr
    return [int(code) for code in done.stdout.split()]


def said(folder) -> str:
    """What all ranks said."""
    return "\n".join(file.read_text() for file in sorted(Path(folder).glob("*.said")))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def child(work, rank, world, port, folder, patience) -> None:
    import torch

    from umpteen.compute.sharding import start_ranks

    out = os.open(Path(folder) / f"{world}-{rank}.said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_RANK=str(rank),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    code = 1
    try:
        ranks = start_ranks(torch.device("cpu"), patience=patience)
        work(ranks, Path(folder))
        ranks.close()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(file, function, world, folder, patience) -> None:
    spec = importlib.util.spec_from_file_location("rank_work", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # its imports, once for every rank
    port, processes = free_port(), []
    for rank in range(int(world)):
        process = os.fork()
        if process == 0:
            work = getattr(module, function)
            child(work, rank, int(world), port, folder, float(patience))
        processes.append(process)
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    print(*codes)


if __name__ == "__main__":
    main(*sys.argv[1:])
