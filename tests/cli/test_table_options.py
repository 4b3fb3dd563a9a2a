"""Columns of tables are named on every command that reads DATA."""

import csv
import json

import pytest
from small_runs import SETTINGS

from umpteen.cli import main
from umpteen.cli._table_options import OPTIONS
from umpteen.data.formats import load_dataset

FLAGS = [f"--set={setting}" for setting in [*SETTINGS, "train.epochs=1"]]
COLUMNS = ("--text-column", "Blurb", "--label-column", "Kind", "--id-column", "Key")
READ_DATA = ["train", "evaluate", "fit-ensemble", "score", "report"]
OF_DATA = ["check", "stats", "convert", "split", "augment"]


@pytest.fixture(scope="module")
def table(tiny_data_folder, tmp_path_factory):
    """The tiny data as one table with names of its own and labels separated by commas."""
    data = load_dataset(tiny_data_folder)
    file = tmp_path_factory.mktemp("table") / "products.csv"
    targets = data["train"].targets
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["Key", "Blurb", "n", "Kind"])
        for row, text in enumerate(data["train"].texts()):
            labels = [data.labels.ids[label] for label in targets[row].indices]
            rows.writerow([f"k{row}", text, row, ",".join(labels)])
    return file


@pytest.mark.parametrize("name", [*READ_DATA, *(f"data {name}" for name in OF_DATA)])
def test_every_command_that_reads_data_has_the_options(name):
    command = main
    for word in name.split():
        command = command.get_command(None, word)
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--text-column", "--label-column", "--id-column"} <= flags
    assert {"--separator", "--delimiter", "--no-header"} <= flags
    assert {"--vocabulary", "--language"} <= flags
    assert len(OPTIONS) == 8


def test_a_table_is_trained_on_and_evaluated(table, umpteen_command, tmp_path):
    run = tmp_path / "run"
    made = umpteen_command("train", table, "--out", run, "--device", "cpu", *FLAGS, *COLUMNS)
    assert made.exit_code == 0, made.stderr
    assert "labels separated by commas" in made.stderr
    assert made.stderr.count(" -> ") == 3
    assert "60 training texts" in made.stderr
    # Two rows alone do not show that commas separate labels; the labels of the run do.
    few = tmp_path / "few.csv"
    few.write_text("".join(table.read_text("utf-8").splitlines(keepends=True)[:3]), "utf-8")
    found = umpteen_command("evaluate", run, few, "--json", *COLUMNS)
    assert found.exit_code == 0, found.stderr
    document = json.loads(found.stdout)
    assert (document["n"], document["unknown_labels"]) == (2, 0)


def test_a_command_without_the_column_names_those_found(table, umpteen_command, tmp_path):
    made = umpteen_command("train", table, "--out", tmp_path / "run", *FLAGS)
    assert made.exit_code == 1
    assert f"{table}: found the columns Key, Blurb, n, Kind; none has a name" in made.stderr
    assert not (tmp_path / "run").exists()
