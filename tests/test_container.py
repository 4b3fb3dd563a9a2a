"""The Dockerfile: what it copies and installs exists, and its commands are accepted."""

import importlib.util
import json
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPEC = importlib.util.spec_from_file_location("container_steps", ROOT / "tools/container_steps.py")
steps = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(steps)
BUILD, FINAL = steps.stages((ROOT / "Dockerfile").read_text("utf-8"))


def test_instructions_are_read_over_several_lines():
    found = steps.instructions('# a comment\nFROM base AS one\nRUN a \\\n && b\n\ncmd ["c"]\n')
    assert found == [("FROM", "base AS one"), ("RUN", "a && b"), ("CMD", '["c"]')]


def test_what_is_copied_and_installed_exists():
    copied = [word for name, words in BUILD if name == "COPY" for word in words.split()[:-1]]
    assert {"pyproject.toml", "src", "requirements-serve.lock"} <= set(copied)
    assert all((ROOT / word).exists() for word in copied)
    ignored, *sent = (ROOT / ".dockerignore").read_text("utf-8").split()
    assert (ignored, sorted(sent)) == ("*", sorted(f"!{word}" for word in copied))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "serve" in project["optional-dependencies"]
    # Files that the build of the package reads must be there when it runs.
    assert {project["readme"]} <= set(copied)


def test_only_files_with_locked_hashes_are_installed(tmp_path):
    """pip takes the lock for the Python of the image; without an index of torch nothing starts."""
    import subprocess

    (run,) = [words for name, words in BUILD if name == "RUN"]
    installs = [part.split() for part in run.split(" && ") if "/pip install" in part]
    assert ["--require-hashes" in words for words in installs] == [True, False]
    assert {"--no-deps", "--no-build-isolation"} <= set(installs[1])
    assert "requirements-serve.lock" in installs[0]
    (version,) = {lines[0][1].split()[0] for lines in (BUILD, FINAL)}
    python = version.removeprefix("python:").removesuffix("-slim")
    lock = (ROOT / "requirements-serve.lock").read_text("utf-8").split("\n")
    assert lock[0].startswith("# Written by make lock; files for Linux x86_64, Python ")
    assert lock[0].endswith(f" {python}.{lock[0].rstrip('.').rpartition('.')[2]}.")
    command = run.replace("python -m venv", "true").replace("/opt/umpteen/bin/pip", "echo")
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, env={}
    )
    assert done.returncode != 0
    assert "TORCH_INDEX" in done.stderr
    assert not done.stdout


def test_the_service_is_started_by_a_user_without_rights_and_accepts_its_options():
    from umpteen.cli.serve import serve

    lines = dict(FINAL)
    assert lines["USER"] == "umpteen"
    assert f"--uid {steps.USER}" in lines["RUN"]
    program, command, *words = json.loads(lines["ENTRYPOINT"])
    assert (program, command) == ("umpteen", "serve")
    context = serve.make_context("serve", [*words, *json.loads(lines["CMD"])])
    assert str(context.params["port"]) == steps.PORT == lines["EXPOSE"]
    assert context.params["host"] == "0.0.0.0"


def test_the_health_check_fails_without_a_service():
    import subprocess
    import sys

    python, *words = steps.health_command(dict(FINAL)["HEALTHCHECK"])
    assert python == "python"
    closed = [word.replace(f":{steps.PORT}/", ":1/") for word in words]
    assert closed != words
    assert subprocess.run([sys.executable, "-S", *closed], capture_output=True).returncode != 0
