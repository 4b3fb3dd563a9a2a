from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from hard_disks import no_room

from umpteen.cli import main
from umpteen.cli.data import ELSEWHERE
from umpteen.data.formats import FORMATS, load_dataset
from umpteen.registry import resolve

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
    assert len(found["warnings"]) == 3


def test_check_says_where_there_is_nothing_to_train_on(folder):
    (folder / "train.jsonl").rename(folder / "other.jsonl")
    result = run("check", folder)
    assert result.exit_code == 0, result.stderr
    assert "can be measured on, not trained: there is no train split" in result.stderr


def test_check_says_one_sentence_and_exits_with_1(folder):
    (folder / "train.jsonl").write_text('{"text": "x", "labels": [1.5]}\n')
    result = run("check", folder)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "train.jsonl, line 1, column 'labels': a label is a number" in result.stderr


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
    assert "constants of PSP: A 0.55, B 1.5" in result.stdout
    assert "labels with fewer than 5 training texts: 100.0%; without any: 0" in result.stdout
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
    holds = resolve(FORMATS, to, kind="format").HOLDS
    assert ("cannot hold: label ids" in result.stderr) == (to in ("xc-text", "npz"))
    assert ("line breaks" in result.stderr) == (to in ("xc-text", "npz", "annif-tsv"))
    got, data = load_dataset(tmp_path / "new" / "out"), load_dataset(folder)
    assert got.name == "fruit"
    assert (got["train"].targets != data["train"].targets).nnz == 0
    if "label ids" in holds:
        assert got.labels == data.labels
    assert got["train"].ids == (["q1", "q2", "q3"] if "query ids" in holds else None)


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


ROWS = 'Name,Blurb,Kind\n1,red stone fruit,"red,fruit"\n2,long fruit,"fruit,yellow"\n3,sky,blue\n'


@pytest.mark.parametrize("command", ["check", "stats", "convert"])
def test_columns_are_named_on_every_command(command, tmp_path):
    file = tmp_path / "fruit.csv"
    file.write_text(ROWS)
    rest = [tmp_path / "out", "--to", "jsonl"] if command == "convert" else []
    result = run(command, file, *rest)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"umpteen: {file}: found the columns Name, Blurb, Kind; none")
    result = run(command, file, *rest, "--label-column", "Kind", "--text-column", "Blurb")
    assert result.exit_code == 0, result.stderr
    assert "text from 'Blurb', labels from 'Kind'; labels separated by commas" in result.stderr
    assert "'red stone fruit' -> red | fruit" in result.stderr
    assert result.stderr.count(" -> ") == 3
    if command == "convert":
        assert load_dataset(tmp_path / "out").labels.ids == ["red", "fruit", "yellow", "blue"]


def test_a_wrong_option_of_a_table_is_one_sentence(tmp_path):
    (tmp_path / "a.csv").write_text(ROWS)
    result = run("check", tmp_path / "a.csv", "--delimiter", "::")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "the delimiter '::' has 2 characters" in result.stderr


def test_split_writes_a_new_folder_and_refuses_an_old_one(tmp_path):
    file = tmp_path / "a.csv"
    rows = "".join(f'text {i},"l{i % 5},m{i % 3}"\n' for i in range(60))
    file.write_text(f"text,labels\n{rows}")
    result = run("split", file, tmp_path / "out", "--test", "0.2", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["test"] == {"queries": 12, "labels": 8}
    data = load_dataset(tmp_path / "out")
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 48, "test": 12}
    before = (tmp_path / "out" / "test.jsonl").read_bytes()
    result = run("split", file, tmp_path / "out")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "exists already" in result.stderr
    assert (tmp_path / "out" / "test.jsonl").read_bytes() == before
    result = run("split", tmp_path / "out", tmp_path / "again")
    assert "has a test split already" in result.stderr
    assert not (tmp_path / "again").exists()


def test_check_warns_about_leaks_and_repeats(folder):
    (folder / "test.jsonl").write_text(json.dumps({**TRAIN[0], "labels": ["new"]}))
    found = json.loads(run("check", folder, "--json").stdout)
    assert any("are also in train (leakage; row 1)" in each for each in found["warnings"])
    assert any("1 label without a training text (new)" in each for each in found["warnings"])


def test_check_counts_rows_of_an_array_and_lines_of_lines(tmp_path):
    rows = [{"text": "x", "labels": ["a"]}, {"text": "", "labels": ["a"]}]
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert "a.json, row 2: empty text" in run("check", tmp_path / "a.json").stderr
    assert "a.jsonl, line 2: empty text" in run("check", tmp_path / "a.jsonl").stderr


@pytest.mark.parametrize(
    "command", [["convert", "--to", "csv"], ["convert", "--to", "parquet"], ["augment"]]
)
def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    command, umpteen_command, fails, tiny_data_folder, tmp_path
):
    if "parquet" in command:
        pytest.importorskip("pyarrow")
    name, *flags = command
    with no_room(200):
        said = fails(umpteen_command("data", name, tiny_data_folder, tmp_path / "out", *flags))
    assert "could not be written" in said
    assert "make room, then repeat the command" in said
    assert not list(tmp_path.iterdir())
