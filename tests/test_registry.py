"""Tables of parts: rows of umpteen, and rows of installed packages through entry points."""

import json
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner
from forks import fork, run_command
from small_runs import SETTINGS

from umpteen.cli import main
from umpteen.data.formats import FORMATS
from umpteen.errors import ConfigError
from umpteen.index import INDEXES
from umpteen.metrics import METRICS, parse
from umpteen.model import ENCODERS
from umpteen.objectives import OBJECTIVES
from umpteen.ranking import RETRIEVERS
from umpteen.registry import Registry, resolve

ROOT = Path(__file__).parents[1]
SCRATCH = ROOT / "tests" / "scratch_package"
ADDED = {
    "umpteen.objectives": (OBJECTIVES, "focal"),
    "umpteen.metrics": (METRICS, "MAP"),
    "umpteen.indexes": (INDEXES, "int8"),
    "umpteen.encoders": (ENCODERS, "plain_mean"),
    "umpteen.formats": (FORMATS, "pairs"),
    "umpteen.retrievers": (RETRIEVERS, "shared_words"),
}
every_table = pytest.mark.parametrize("group", ADDED)


def install(place, points, name="scratch-parts"):
    """Write what an installer writes about a package: its name and entry points."""
    about = place / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(points)
    return place


def code_of(page, file):
    """The code of a page of the guide, which is installed as it stands there."""
    text = (ROOT / "docs" / "guide" / "extend" / page).read_text("utf-8")
    return re.search(rf"<!-- file: {file} -->\n```python\n(.*?)```", text, re.S)[1]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """A folder as of installed packages, with the scratch package in it."""
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(SCRATCH / "scratch_parts", place / "scratch_parts")
    pairs = code_of("data-format.md", "my_formats.py")
    (place / "scratch_parts" / "pairs.py").write_text(pairs, "utf-8")
    words = code_of("retriever.md", "shared_words.py")
    (place / "scratch_parts" / "shared_words.py").write_text(words, "utf-8")
    return install(place, (SCRATCH / "entry_points.txt").read_text())


@pytest.fixture
def installed(site, monkeypatch):
    forget_scratch_parts()  # collecting doctests may have imported it from its own folder
    monkeypatch.syspath_prepend(str(site))
    yield site
    forget_scratch_parts()


def forget_scratch_parts():
    for name in [name for name in sys.modules if name.startswith("scratch_parts")]:
        del sys.modules[name]


@every_table
def test_an_installed_package_adds_a_row(installed, group):
    table, name = ADDED[group]
    assert table.group == group
    assert list(table)[: len(table.own)] == list(table.own)
    assert name in table
    assert name not in table.own
    assert "scratch_parts" in repr(resolve(table, name, kind="part"))


@every_table
def test_without_the_package_there_is_no_row(group):
    table, name = ADDED[group]
    assert name not in table
    assert list(table) == list(table.own)
    assert len(table) == len(table.own)


def test_nothing_is_imported_until_it_is_used(installed):
    for table, _ in ADDED.values():
        assert len(dict(table)) == len(table) == len(table.own) + 1
    assert "scratch_parts" not in sys.modules
    assert str(parse("MAP@3")) == "MAP@3"
    assert "scratch_parts.average_precision" in sys.modules
    assert "scratch_parts.focal" not in sys.modules


def test_a_name_that_exists_already_is_refused(tmp_path, monkeypatch):
    install(tmp_path, "[umpteen.metrics]\nP = json:dumps\n", "twice")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"'P' is there twice .*json:dumps \(twice\) and .*Preci"):
        parse("P@1")
    assert str(parse("R@1")) == "R@1"


def test_a_name_of_two_packages_is_refused(tmp_path, monkeypatch):
    for n in (1, 2):
        install(tmp_path / str(n), f"[umpteen.metrics]\nX = json:dump{n}\n", f"package-{n}")
        monkeypatch.syspath_prepend(str(tmp_path / str(n)))
    with pytest.raises(ConfigError, match=r"package-\d\) and .*package-\d\); uninstall one"):
        parse("X")


def test_the_same_package_found_twice_is_one(tmp_path, monkeypatch):
    for n in (1, 2):  # as of an editable install beside a wheel
        install(tmp_path / str(n), "[umpteen.metrics]\nX = decimal:Decimal\n", "same")
        monkeypatch.syspath_prepend(str(tmp_path / str(n)))
    assert METRICS["X"] == "decimal:Decimal"


def test_a_package_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    install(tmp_path, "[umpteen.indexes]\nbroken = not_there.at_all:Index\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=r"index 'broken' cannot be loaded from 'not_there\.at"):
        resolve(INDEXES, "broken", kind="index")


def test_an_unknown_name_lists_added_rows_too(installed):
    with pytest.raises(ConfigError, match="Known: .*int8.*Did you mean 'int8'"):
        resolve(INDEXES, "int88", kind="index")


def test_a_nested_name_is_found():
    assert resolve({"x": "json:JSONDecoder.decode"}, "x", kind="part").__name__ == "decode"


def test_a_table_is_read_as_a_mapping():
    table = Registry("umpteen.nothing", {"a": "x:y"})
    assert dict(table) == {"a": "x:y"}
    assert table.get("b") is None


def test_a_row_is_added_in_this_process():
    table = Registry("umpteen.nothing", {"a": "x:y"})
    table.add("b", "x:z")
    table.add("b", "x:z")
    assert dict(table) == {"a": "x:y", "b": "x:z"}
    with pytest.raises(ConfigError, match="'a' is there already: x:y"):
        table.add("a", "x:z")


CONTRACTS = {
    "contracts/test_objectives.py": "focal",
    "contracts/test_metrics.py": "MAP",
    "contracts/test_indexes.py": "int8",
    "contracts/test_encoders.py": "plain_mean",
    "compute/streaming/test_label_blocks.py": "focal",
}
MAY_SKIP = {"contracts/test_encoders.py", "compute/streaming/test_label_blocks.py"}
"""Laws of encoders with a plan, and of devices that this machine may lack."""


def run_contracts(site, *arguments):
    """Run pytest with an installed package, in a process of its own."""
    sys.path.insert(0, site)
    sys.exit(pytest.main([*arguments]))


@pytest.mark.slow
def test_parts_of_another_package_keep_the_contracts(site, tmp_path):
    """A loss, a metric, an index and an encoder written from the guide pass unchanged."""
    report, said = tmp_path / "report.xml", tmp_path / "said.txt"
    with said.open("w") as out:
        code = fork(
            __file__, "run_contracts", str(site), *(f"{ROOT}/tests/{file}" for file in CONTRACTS),
            "-k", " or ".join(dict.fromkeys(CONTRACTS.values())), "-q", "-p", "no:cacheprovider",
            "-p", "no:xdist", f"--rootdir={ROOT}", f"--junitxml={report}", out=out.fileno(),
        ).wait()  # fmt: skip
    assert code == 0, said.read_text()[-3000:]
    cases = ElementTree.parse(report).getroot().findall(".//testcase")
    for file, name in CONTRACTS.items():
        module = "tests." + file.removesuffix(".py").replace("/", ".")
        own = [case for case in cases if case.get("classname").startswith(module)]
        own = [case for case in own if name in case.get("name")]
        assert len(own) >= 10, file
        assert file in MAY_SKIP or not any(case.find("skipped") is not None for case in own), file


@pytest.mark.slow
def test_commands_take_parts_of_another_package(installed, tiny_data_folder, tmp_path):
    """Train, evaluate, index and predict with nothing but names, then load the run again."""
    run = tmp_path / "run"
    changes = [*SETTINGS, "encoder.name=plain_mean", "loss.dual=focal", "ensemble.enabled=auto",
               "ensemble.min_queries=5", "train.epochs=2", "validation.select=MAP@3"]  # fmt: skip
    flags = [f"--set={change}" for change in changes]

    def call(*arguments, **options):
        done = CliRunner().invoke(main, list(map(str, arguments)), **options)
        assert done.exit_code == 0, done.stderr
        return done

    call("train", tiny_data_folder, "--out", run, "--device", "cpu", *flags)
    assert json.loads((run / "models.json").read_text())
    call("index", run, "--kind", "int8")
    found = call("evaluate", run, tiny_data_folder, "--metrics", "MAP@3,P@1", "--json")
    assert set(json.loads(found.stdout)["heads"]["dual"]) == {"MAP@3", "P@1"}
    line = json.loads(call("predict", run, "-k", "3", "--explain", input="red apple\n").stdout)
    assert "shared_words" in line["labels"][0]["scores"]
    # Without the package the run is refused with a sentence.
    (tmp_path / "texts.txt").write_text("red apple\n")
    code, printed = run_command("predict", run, tmp_path / "texts.txt", file=tmp_path / "said.txt")
    assert code == 1
    assert "unknown encoder 'plain_mean'" in printed
    assert "Traceback" not in printed
