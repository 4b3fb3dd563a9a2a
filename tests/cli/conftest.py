"""A small run made by the command itself, and a way to call commands."""

import shutil

import pytest
from click.testing import CliRunner
from small_runs import SETTINGS

from umpteen.cli import main

FLAGS = [f"--set={setting}" for setting in SETTINGS]


@pytest.fixture(scope="session")
def umpteen_command():
    """Call the command line; ``stdout``, ``stderr`` and ``exit_code`` tell how it went."""

    def call(*arguments, stdin=None):
        return CliRunner().invoke(main, [str(part) for part in arguments], input=stdin)

    return call


@pytest.fixture(scope="session")
def trained(umpteen_command, tiny_data_folder, tmp_path_factory):
    """A finished run; copy it (``run``) before changing anything in it."""
    place = tmp_path_factory.mktemp("commands") / "run"
    made = umpteen_command("train", tiny_data_folder, "--out", place, "--device", "cpu", *FLAGS)
    assert made.exit_code == 0, made.stderr
    assert made.stdout == ""
    return place


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(scope="session")
def fails():
    """Check that a command failed with one sentence, and give that back."""

    def check(result, code: int = 1) -> str:
        assert result.exit_code == code, result.output
        assert isinstance(result.exception, SystemExit)
        assert "Traceback" not in result.output
        lines = result.stderr.strip().splitlines()
        if code == 1:
            sentence = [line for line in lines if line.startswith("umpteen: ")]
            assert len(sentence) == 1, result.stderr
            assert lines[-1] == sentence[0]
        return result.stderr

    return check
