from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.cli.data import ELSEWHERE
from umpteen.data.formats import FORMATS, load_dataset

TRAIN = [
    {"id": "q1", "text": "red fruit", "labels": ["apple", "cherry"]},
    {"id": "q2", "text": "", "labels": ["apple"]},
    {"id": "q3", "text": "nothing\nknown", "labels": []},
]


def run(*words, stdin=None):
    return CliRunner().invoke(main, ["data", *map(str, words)], input=stdin)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "fruit"
    path.mkdir()
    (path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in TRAIN))
    (path / "test.jsonl").write_text(json.dumps({**TRAIN[0], "labels": ["cherry"]}))
    return path


def test_check_counts_and_warns_with_file_and_line(folder):
    result = run("check", folder)
    assert result.exit_code == 0
    assert "fruit: jsonl, 2 labels" in result.stdout
    assert f"warning: {folder}/train.jsonl, line 2: empty text" in result.stderr
    assert f"warning: {folder}/train.jsonl, line 3: no labels" in result.stderr


def test_check_as_json(folder):
    result = run("check", folder, "--json")
    found = json.loads(result.stdout)
    assert found["ok"] is True
    assert found["format"] == "jsonl"
    assert found["labels"] == 2
    assert found["splits"]["train"] == {"queries": 3, "positives": 3, "filter_pairs": 0}
    assert len(found["warnings"]) == 2


def test_check_says_where_there_is_nothing_to_train_on(folder):
    (folder / "train.jsonl").rename(folder / "train.json")
    result = run("check", folder)
    assert result.exit_code == 0, result.stderr
    assert "can be measured on, not trained: there is no train split" in result.stderr


def test_check_says_one_sentence_and_exits_with_1(folder):
    (folder / "train.jsonl").write_text('{"text": "x", "labels": ["a", "a"]}\n')
    result = run("check", folder)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "train.jsonl, line 1: label 'a' is there twice" in result.stderr


def test_check_reads_standard_input():
    result = run("check", "-", stdin='{"text": "", "labels": ["a"]}\n')
    assert result.exit_code == 0
    assert "standard input, line 1: empty text" in result.stderr


def test_check_takes_a_format_by_name(folder):
    assert run("check", folder, "--format", "jsonl").exit_code == 0
    result = run("check", folder, "--format", "jsnl")
    assert result.exit_code == 1
    assert "Did you mean 'jsonl'?" in result.stderr


def test_stats_print_counts_and_the_picture(folder):
    result = run("stats", folder)
    assert result.exit_code == 0
    assert "propensity a 0.55, b 1.5" in result.stdout
    assert "labels with fewer than 5 training queries: 100.0%; without any: 0" in result.stdout
    assert "1 head" in result.stdout
    assert "5 tail" in result.stdout
    assert "#" in result.stdout


def test_stats_as_json_and_plot(folder, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "labels.svg"
    result = run("stats", folder, "--json", "--plot", picture)
    found = json.loads(result.stdout)
    assert found["splits"]["train"]["positives"] == 3
    assert found["labels"]["queries_per_label"]["max"] == 2
    assert picture.read_text().startswith("<?xml")


def test_stats_refuse_a_picture_of_another_kind_as_wrong_usage(folder):
    assert run("stats", folder, "--plot", "a.gif").exit_code == 2


def test_a_missing_extra_is_called_by_its_package(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = run("stats", folder, "--plot", tmp_path / "x.png")
    assert result.exit_code == 1
    assert "matplotlib is not installed" in result.stderr


def test_stats_of_data_without_train_have_no_picture(folder):
    (folder / "train.jsonl").unlink()
    result = run("stats", folder)
    assert result.exit_code == 0
    assert "head" not in result.stdout
    assert run("stats", folder, "--plot", folder / "x.png").exit_code == 1


@pytest.mark.parametrize("to", FORMATS)
def test_convert_says_what_is_lost_and_writes_the_rest(folder, to, tmp_path):
    if to == "parquet":
        pytest.importorskip("pyarrow")
    result = run("convert", folder, tmp_path / "new" / "out", "--to", to)
    assert result.exit_code == 0, result.stderr
    lossy = to in ("xc-text", "npz")
    assert ("cannot hold: label ids" in result.stderr) == lossy
    assert ("line breaks" in result.stderr) == lossy
    got, data = load_dataset(tmp_path / "new" / "out"), load_dataset(folder)
    assert got.name == "fruit"
    assert (got["train"].targets != data["train"].targets).nnz == 0
    if not lossy:
        assert got.labels == data.labels
        assert got["train"].ids == ["q1", "q2", "q3"]


def test_convert_refuses_to_overwrite_and_leaves_nothing_behind(folder, tmp_path):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    result = run("convert", folder, folder, "--to", "csv")
    assert result.exit_code == 1
    assert "exists already" in result.stderr
    (folder / "test.jsonl").write_text("{")
    assert run("convert", folder, tmp_path / "out", "--to", "csv").exit_code == 1
    (folder / "test.jsonl").write_bytes(before[folder / "test.jsonl"])
    assert run("convert", folder, tmp_path / "out", "--to", "nothing").exit_code == 1
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["fruit"]


def test_other_commands_work_when_build_is_not_there(folder, monkeypatch):
    monkeypatch.setitem(ELSEWHERE, "build", "umpteen.cli.not_there")
    assert run("check", folder).exit_code == 0
    result = run("--help")
    assert result.exit_code == 0
    assert "build" not in result.stdout.split("Commands:")[1].split()
    assert run("build").exit_code == 2


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from umpteen.cli.data import data\n"
        "data.get_command(None, 'check')\n"
        "print([m for m in ('numpy', 'scipy', 'torch', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
