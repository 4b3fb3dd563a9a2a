"""``umpteen data build`` from end to end on tiny sources."""

import inspect
import json

import pytest
from click.testing import CliRunner

from umpteen.cli.data_build import PARAMETERS, build
from umpteen.data.formats import load_dataset
from umpteen.data.sources import SOURCES, SUMMARIES, debian
from umpteen.registry import resolve

STANZA = "Package: {name}\nDepends: {needs}\nDescription: the package {name}\n\n"


@pytest.fixture
def lists(tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    stanzas = [
        STANZA.format(name=f"p{i}", needs=f"p{(i + 1) % 12}, p{(i + 5) % 12}") for i in range(12)
    ]
    (folder / "host_Packages").write_text("".join(stanzas))
    return folder


def run(*arguments):
    return CliRunner().invoke(build, [str(argument) for argument in arguments])


def test_the_written_folder_reads_back_as_what_was_built(lists, tmp_path):
    out = tmp_path / "out"
    options = ["--lists", lists, "--max-share", 1, "--seed", 3, "--test-share", 0.3]
    result = run("debian", out, *options)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert "labels per training query" in result.stderr
    built = debian.build(lists=lists, max_share=1.0, seed=3, test_share=0.3)
    read = load_dataset(out)
    assert read.name == "debian"
    assert read.propensity == built.propensity
    assert read.labels.fingerprint == built.labels.fingerprint
    for name in ("train", "test"):
        assert list(read[name].titles) == list(built[name].titles)
        assert list(read[name].ids) == list(built[name].ids)
        assert (read[name].targets != built[name].targets).nnz == 0
        assert read[name].filters.tolist() == built[name].filters.tolist()
        assert len(read[name].filters)
    assert json.loads((out / "dataset.json").read_text())["propensity"] == {"a": 0.55, "b": 1.5}
    again = tmp_path / "again"
    assert run("debian", again, *options).exit_code == 0
    for file in out.iterdir():
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_a_folder_with_something_in_it_is_left_alone(lists, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "precious").write_text("mine")
    result = run("debian", out, "--lists", lists)
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    assert "reading" not in result.stderr
    assert [path.name for path in out.iterdir()] == ["precious"]


def test_a_failed_build_leaves_nothing(tmp_path):
    result = run("debian", tmp_path / "out", "--lists", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "apt-get update" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_source_of_ones_own_may_have_a_train_split_alone(tmp_path, monkeypatch):
    (tmp_path / "own_source_of_a_test.py").write_text(
        "import umpteen\n\ndef build(log):\n"
        "    return umpteen.Dataset.from_lists(['a b', 'c'], [['x', 'y'], ['y']])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = run("own_source_of_a_test:build", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "2 train queries, 2 labels, 1.50 labels per training query" in result.stderr
    assert len(load_dataset(tmp_path / "out")["train"]) == 2


def test_an_unknown_source_is_one_sentence(tmp_path):
    result = run("icd11", tmp_path / "out")
    assert result.exit_code == 1
    assert "Did you mean 'icd10'?" in result.stderr


def test_an_option_of_another_source_is_a_usage_error(tmp_path):
    result = run("debian", tmp_path / "out", "--depth", 4)
    assert result.exit_code == 2
    assert "--depth is no option of debian" in result.stderr
    assert "--max-share" in result.stderr


def test_every_source_is_in_the_help_with_its_defaults():
    text = " ".join(run("--help").output.split())
    assert sorted(SOURCES) == sorted(SUMMARIES)
    for name in SOURCES:
        assert name in text
        for parameter in inspect.signature(
            resolve(SOURCES, name, kind="source")
        ).parameters.values():
            if parameter.name == "log":
                continue
            assert PARAMETERS[parameter.name] in text
            if parameter.default is not None:
                assert f"[default: {parameter.default}]" in text
