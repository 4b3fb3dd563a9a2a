"""Run the steps of the Dockerfile without docker: build, start as its user, check its health.

    python tools/container_steps.py RUN [--packages SITE_PACKAGES]

The build stage's COPY and RUN lines are executed in a temporary folder in the place of ``/``, with
the address in ``TORCH_INDEX``. With ``--packages`` dependencies come from an existing environment
and only umpteen itself is built and installed, which needs no index. The ENTRYPOINT is then started
on a free port, as the user of the image where this program runs as root and others may run its
Python, with a run folder without write permission, and the HEALTHCHECK is run until it succeeds.
The base image is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PORT = "8000"
SECONDS = 300
USER = 10001


def instructions(text: str) -> list[tuple[str, str]]:
    """The lines of a Dockerfile as (NAME, argument), continued lines joined, comments left out."""
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").split("\n")
    parts = (line.strip().partition(" ") for line in joined)
    return [(name.upper(), " ".join(argument.split())) for name, _, argument in parts]


def stages(text: str) -> list[list[tuple[str, str]]]:
    """The instructions of each stage; each begins with its FROM."""
    found: list[list[tuple[str, str]]] = []
    for name, argument in instructions(text):
        if name == "FROM":
            found.append([])
        found[-1].append((name, argument))
    return found


def health_command(argument: str) -> list[str]:
    """The command of a HEALTHCHECK, which begins with its options."""
    return json.loads(argument[argument.index("[") :])


def build(stage: list[tuple[str, str]], place: Path, packages: Path | None) -> None:
    """Execute the COPY and RUN lines of a stage below a folder."""
    folder = place
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if packages is not None:
        environment |= {"PYTHONPATH": str(packages), "PIP_NO_INDEX": "1"}
    for name, argument in stage:
        if name == "WORKDIR":
            folder = place / argument.lstrip("/")
            folder.mkdir(parents=True)
        elif name == "COPY":
            *sources, target = argument.split()
            for source in sources:
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy2
                copied = folder / target / (source if target.startswith(".") else "")
                copy(ROOT / source, copied)
        elif name == "RUN":
            (place / "opt").mkdir(exist_ok=True)
            parts = argument.replace("/opt/", f"{place}/opt/").split(" && ")
            locked = [part for part in parts if "--require-hashes" in part and packages]
            command = " && ".join(part for part in parts if part not in locked)
            subprocess.run(["sh", "-ec", command], cwd=folder, env=environment, check=True)


def can_be_another_user() -> bool:
    """Whether this is root, and the user of the image may run this interpreter."""
    program = Path(sys.executable).resolve()
    reachable = all(folder.stat().st_mode & 0o001 for folder in program.parents)
    if not reachable:
        sys.stdout.write(f"As the present user: others may not run {program}.\n")
    return os.geteuid() == 0 and reachable


def serve(stage: list[tuple[str, str]], place: Path, run: Path, packages: Path | None) -> None:
    """Start the service of the last stage, wait until it is healthy, predict, and end it."""
    lines = dict(stage)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    variables = dict(word.split("=", 1) for word in shlex.split(lines["ENV"]))
    path = variables["PATH"].replace("/opt/", f"{place}/opt/")
    environment = {**variables, "PATH": path.replace("$PATH", os.environ["PATH"])}
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    words = [word.replace(PORT, port) for word in json.loads(lines["ENTRYPOINT"])]
    check = [word.replace(PORT, port) for word in health_command(lines["HEALTHCHECK"])]
    words[0] = shutil.which(words[0], path=environment["PATH"]) or words[0]
    check[0] = shutil.which(check[0], path=environment["PATH"]) or check[0]
    as_user = {"user": USER, "group": USER, "extra_groups": []} if can_be_another_user() else {}
    service = subprocess.Popen([*words, str(run)], cwd="/", env=environment, **as_user)
    try:
        until = time.monotonic() + SECONDS
        while subprocess.run(check, env=environment, capture_output=True, **as_user).returncode:
            if service.poll() is not None or time.monotonic() > until:
                raise SystemExit("the service did not become healthy")
            time.sleep(1)
        body = json.dumps({"texts": ["a text"], "k": 1}).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/predict", body, {"Content-Type": "application/json"}
        )
        answer = urllib.request.urlopen(request, timeout=60).read().decode()
        sys.stdout.write(f"{answer}\n")
    finally:
        service.terminate()
        sys.stdout.write(f"The service ended with {service.wait(60)}.\n")


def main() -> None:
    """Build and serve in a temporary folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--packages", type=Path, help="site-packages with all dependencies")
    given = parser.parse_args()
    first, last = stages((ROOT / "Dockerfile").read_text("utf-8"))
    with tempfile.TemporaryDirectory(prefix="umpteen-container-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        build(first, place, given.packages)
        run = shutil.copytree(given.run, place / "run" / "model")
        for each in (run, *run.rglob("*")):
            each.chmod(0o555 if each.is_dir() else 0o444)
        serve(last, place, run, given.packages)


if __name__ == "__main__":
    main()
