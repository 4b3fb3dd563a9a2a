"""Real processes for tests without the cost of imports: one process imports, then forks each.

``fork`` starts this file as a script, once for each process of pytest. It imports torch, with what
torch puts off until there is something to differentiate or to optimize, and never uses it. A job
comes with its stdout and stderr over a socket; the forked process calls a function of a file.
"""

import atexit
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
IMPORTS = (
    "torch._dynamo",
    "torch.fx.experimental.symbolic_shapes",
    "pytest",
    "umpteen.cli.train",
    "umpteen.predictor",
    "umpteen.training.run",
)
"""Done once, for every process."""
LONGEST = 1 << 20
"""Bytes of a job."""


class Forked:
    """A process that ``fork`` started; has the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int, socket_of_jobs: socket.socket) -> None:
        self.pid, self.returncode, self._socket = pid, None, socket_of_jobs
        self._handle = os.pidfd_open(pid)  # it has not been waited for, so it is this process

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._handle], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self.returncode = _ask(self._socket, {"wait": self.pid})
            os.close(self._handle)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._handle, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def fork(file, function, *arguments, out=None, environment=None, imports=()) -> Forked:
    """Call a function of a file in a new process, which ends with 0, or 1 if it raises.

    Args:
        file: With the function; it is imported.
        function: Its name.
        arguments: What it is called with; values of JSON.
        out: Descriptor of stdout and stderr; those of this process without it.
        environment: All variables; those of this process and one thread without it.
        imports: Modules that are imported first, once for all processes.
    """
    job = {
        "call": [str(file), function, list(arguments)],
        "environment": environment or {**os.environ, "OMP_NUM_THREADS": "1"},
        "imports": list(imports),
    }
    ours = _process_that_forks()
    return Forked(_ask(ours, job, 2 if out is None else out), ours)


def run_command(*words, file) -> tuple[int, str]:
    """Run ``umpteen`` in a new process; its exit code and what it printed, by way of a file."""
    return run(__file__, "command", *map(str, words), file=file)


def run(source, function, *arguments, file) -> tuple[int, str]:
    """Call a function of ``source`` in a new process; its exit code and what it printed."""
    with open(file, "w+") as out:
        code = fork(source, function, *arguments, out=out.fileno()).wait()
        out.seek(0)
        return code, out.read()


def _ask(ours: socket.socket, job: dict, *descriptors: int) -> int:
    socket.send_fds(ours, [json.dumps(job).encode()], descriptors)
    return json.loads(ours.recv(LONGEST))


@cache
def _process_that_forks() -> socket.socket:
    """The socket of that process, which ends with this one, as the socket does."""
    import umpteen

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for each in (ours, theirs):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
    source = str(Path(umpteen.__file__).parent.parent)
    path = os.pathsep.join([source, str(HERE), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
    )
    theirs.close()
    atexit.register(lambda: (ours.close(), process.wait()))
    return ours


def forked(work, *given) -> int:
    """The id of a process that calls a function and ends with code 0, or 1 if it raises."""
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work(*given)
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def code_of(process) -> int:
    """The exit code of a process, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _call(job, out: int, theirs: socket.socket) -> None:
    theirs.close()
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.environ.clear()
    os.environ.update(job["environment"])
    file, function, arguments = job["call"]
    spec = importlib.util.spec_from_file_location("forked_work", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, function)(*arguments)


def main(number: str) -> None:
    """Do jobs until the socket is closed, then end the processes that are left."""
    for name in IMPORTS:
        importlib.import_module(name)
    os.fsync = os.fstat  # nobody cuts the power here, and files need not be waited for
    theirs, running = socket.socket(fileno=int(number)), set()
    theirs.set_inheritable(False)
    while True:
        message, descriptors, _, _ = socket.recv_fds(theirs, LONGEST, 1)
        if not message:
            break
        job = json.loads(message)
        if "wait" in job:
            answer = code_of(job["wait"])
            running.discard(job["wait"])
        else:
            for name in job["imports"]:
                importlib.import_module(name)
            (out,) = descriptors
            answer = forked(_call, job, out, theirs)
            running.add(answer)
            os.close(out)
        theirs.send(json.dumps(answer).encode())
    for process in running:
        os.kill(process, signal.SIGKILL)


def script(path: str, *words: str) -> None:
    """Run a script as ``python PATH`` does."""
    sys.argv = [path, *words]
    runpy.run_path(path, run_name="__main__")


def command(*words: str) -> None:
    """Run ``umpteen`` with these words, as ``python -m umpteen`` does."""
    from umpteen.cli import main as umpteen

    umpteen(list(words), prog_name="umpteen")


if __name__ == "__main__":
    main(sys.argv[1])
