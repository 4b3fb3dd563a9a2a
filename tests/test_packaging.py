"""The wheel: what is in it, and that it works away from the checkout."""

import email
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build")
pytest.importorskip("setuptools")

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    done = subprocess.run([*command, str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the wheel alone; what it depends on comes from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run(
        [*command, "--target", str(folder), str(wheel)], check=True, env=environment, cwd=folder
    )
    return folder


def call(installed, place, *arguments):
    # -P keeps the current folder off the path; the editable install must not answer instead.
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env=environment,
        cwd=place,
        capture_output=True,
        text=True,
    )


def test_the_wheel_holds_every_source_file_and_preset(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("umpteen/")}
    source = ROOT / "src"
    wanted = {
        str(file.relative_to(source))
        for file in (source / "umpteen").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {"umpteen/py.typed", "umpteen/config/presets/unidec.toml"} <= wanted
    assert inside == wanted


def test_the_metadata_says_what_the_project_says(wheel):
    archive = zipfile.ZipFile(wheel)
    name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    about = email.message_from_bytes(archive.read(name))
    assert about["Name"] == "umpteen"
    assert about["Version"] == PROJECT["version"]
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert set(about.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert any(n.endswith("licenses/LICENSE") for n in archive.namelist())
    assert "# umpteen" in about.get_payload()


def test_the_command_is_declared(wheel):
    archive = zipfile.ZipFile(wheel)
    name = next(n for n in archive.namelist() if n.endswith("entry_points.txt"))
    assert "umpteen = umpteen.cli:main" in archive.read(name).decode()


def test_the_installed_package_is_the_one_that_answers(installed, tmp_path):
    done = call(installed, tmp_path, "-c", "import umpteen; print(umpteen.__file__)")
    assert Path(done.stdout.strip()).is_relative_to(installed), done.stderr


def test_version_and_presets_work_away_from_the_checkout(installed, tmp_path):
    version = call(installed, tmp_path, "-m", "umpteen", "--version")
    assert version.stdout.strip().endswith(PROJECT["version"]), version.stderr
    presets = call(installed, tmp_path, "-m", "umpteen", "presets")
    assert "unidec-frugal" in presets.stdout, presets.stderr


def test_a_mistake_is_one_sentence_there_too(installed, tmp_path):
    done = call(installed, tmp_path, "-m", "umpteen", "predict", "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("umpteen: nowhere is not a run folder")


def test_the_script_of_the_wheel_runs(installed, tmp_path):
    script = installed / "bin" / "umpteen"
    done = call(installed, tmp_path, str(script), "--help")
    assert done.stdout.startswith("Usage: umpteen"), done.stderr
