"""The lock file and the bill of materials: complete, pinned and reproducible."""

import json
import re
import runpy
import subprocess
import sys
import sysconfig
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"([A-Za-z0-9._-]+)==(\S+) --hash=sha256:[0-9a-f]{64}")


LOCKS = {
    "requirements.lock": {
        "extras": "dev,docs",
        "least": 100,
        "has": ("torch", "numpy", "click", "pytest", "fastapi", "triton"),
        "lacks": (),
    },
    # The container: what builds the package, and nothing of tests or training.
    "requirements-serve.lock": {
        "extras": "serve",
        "least": 20,
        "has": ("torch", "numpy", "click", "fastapi", "setuptools"),
        "lacks": ("pytest", "transformers", "triton"),
    },
}


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(text, pattern):
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "-"))]
    found = [pattern.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return {normal(match[1]): match[2] for match in found}


@pytest.mark.parametrize(("lock", "some"), LOCKS.items())
def test_every_locked_package_has_a_hash_and_the_tested_version(lock, some):
    locked = pinned((ROOT / lock).read_text("utf-8"), LINE)
    constraints = pinned(
        (ROOT / "constraints.txt").read_text("utf-8"), re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
    )
    assert set(some["has"]) <= set(locked)
    assert not set(some["lacks"]) & set(locked)
    assert not [name for name in locked if name.startswith(("nvidia-", "cuda-"))]
    assert locked["torch"].endswith("+cpu")
    own = {name: version.removesuffix("+cpu") for name, version in locked.items()}
    differing = {n: (v, constraints.get(n)) for n, v in own.items() if constraints.get(n) != v}
    assert not differing, "run make lock, or pin these in constraints.txt"


def test_both_locks_take_the_same_files():
    lines = [set((ROOT / lock).read_text("utf-8").splitlines()) for lock in LOCKS]
    assert lines[1] < lines[0], "run make lock"


@pytest.mark.parametrize(("lock", "some"), LOCKS.items())
def test_the_lock_has_all_that_the_extras_of_its_install_need(lock, some):
    """What the extras that `make lock` installs and their packages require must be in it."""
    from packaging.requirements import Requirement

    locked = pinned((ROOT / lock).read_text("utf-8"), LINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    installed = {normal(each.name): each for each in distributions()}
    here = {"sys_platform": "linux", "platform_system": "Linux", "python_version": "3.11"}
    todo = [(Requirement(line), ("",)) for line in project["dependencies"]]
    todo += [(Requirement(f"umpteen[{some['extras']}]"), ("",))]
    seen, missing = set(), set()
    while todo:
        wanted, given = todo.pop()
        holds = [
            wanted.marker is None or wanted.marker.evaluate(here | {"extra": e}) for e in given
        ]
        name, asked = normal(wanted.name), tuple(sorted(wanted.extras))
        if not any(holds) or (name, asked) in seen:
            continue
        seen.add((name, asked))
        if name == "umpteen":
            todo += [(Requirement(line), ("",)) for extra in asked for line in extras[extra]]
            continue
        if name not in locked:
            missing.add(name)
        elif name in installed:
            lines = installed[name].requires or ()
            todo += [(Requirement(line), ("", *asked)) for line in lines]
    assert len(seen) > some["least"]
    assert not missing, "run make lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_names_no_place_to_download_from(lock):
    assert "://" not in (ROOT / lock).read_text("utf-8")


def test_continuous_integration_installs_from_the_lock():
    assert "LOCKED=1 make test" in (ROOT / ".ci" / "run").read_text("utf-8")
    for target in ("demo", "dev", "docs"):
        command = ["make", "-n", "-B", f".venv/{target}-installed", "LOCKED=1"]
        lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        installs = [part for part in re.split("&&|\n", lines) if "/pip install" in part]
        assert ["--require-hashes" in part for part in installs] == [True, False]
        assert "-r requirements.lock" in installs[0]
        assert "--no-deps" in installs[1]
        assert "--no-build-isolation" in installs[1]


def test_the_lock_is_made_of_a_report_of_pip():
    lock_lines = runpy.run_path(str(ROOT / "tools" / "lock.py"))["lock_lines"]

    def item(name, **info):
        return {"metadata": {"name": name, "version": "1.0"}, "download_info": info}

    hashed = {"archive_info": {"hashes": {"sha256": "ab" * 32}}}
    report = {"install": [item("b", **hashed), item("A", **hashed), item("umpteen", url="x")]}
    assert lock_lines(report) == [f"{n}==1.0 --hash=sha256:{'ab' * 32}" for n in ("A", "b")]
    with pytest.raises(ValueError, match="c 1.0 comes without a SHA-256"):
        lock_lines({"install": [item("c", archive_info={})]})
    with pytest.raises(ValueError, match="torch 1.0, which is not the CPU build"):
        lock_lines({"install": [item("torch", **hashed)]})


@pytest.fixture(scope="module")
def bill():
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "sbom.py"], capture_output=True, text=True, check=True
    )
    again = subprocess.run(
        [sys.executable, ROOT / "tools" / "sbom.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == again.stdout
    return json.loads(done.stdout)


def test_the_bill_lists_every_installed_package(bill):
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", bill["serialNumber"])
    # Not what other tests put on the path, such as the packages inside setuptools.
    places = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    installed = {normal(each.metadata["Name"]) for each in distributions(path=list(places))}
    listed = {normal(each["name"]) for each in bill["components"]}
    assert listed | {"umpteen"} == installed
    assert bill["metadata"]["component"]["name"] == "umpteen"
    for each in bill["components"]:
        assert each["purl"].startswith("pkg:pypi/")
        assert each["version"]


def test_the_bill_says_which_package_needs_which(bill):
    refs = {each["bom-ref"] for each in [bill["metadata"]["component"], *bill["components"]]}
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert set(needs) == refs
    assert all(set(on) <= refs for on in needs.values())
    own = needs[bill["metadata"]["component"]["bom-ref"]]
    assert any(ref.startswith("pkg:pypi/numpy@") for ref in own)
