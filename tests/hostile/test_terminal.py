"""Control characters in labels and texts never reach a terminal."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import umpteen.cli
from umpteen.cli import main

NASTY = "\x1b]0;title\x07 \x9b31m \u202eevil\u2066 \x7f \r\b line\u2028break"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def call(*arguments, stdin=None):
    done = CliRunner().invoke(main, [str(part) for part in arguments], input=stdin)
    assert not RAW.findall(done.stdout + done.stderr), done.output
    return done


@pytest.fixture
def run(tiny_run, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    line = json.dumps({"id": f"id {NASTY}", "text": f"river {NASTY}"})
    added = call("labels", "add", run, "--file", "-", stdin=line)
    assert added.exit_code == 0, added.stderr
    return run


def test_labels_and_examples_are_listed_escaped(run):
    found = call("labels", "list", run, "--changed")
    assert r"\x1b]0;title\x07" in found.stdout
    assert r"\u202eevil" in found.stdout
    parsed = json.loads(call("labels", "list", run, "--changed", "--json").stdout)
    assert parsed["labels"][0]["text"] == f"river {NASTY}"
    example = json.dumps({"text": f"old {NASTY}", "labels": [f"id {NASTY}"]})
    assert call("examples", "add", run, "-", stdin=example).exit_code == 0
    assert r"\x9b31m" in call("examples", "list", run).stdout
    assert json.loads(call("examples", "list", run, "--json").stdout)["total"] == 1


def test_predictions_are_escaped_and_read_as_the_same_text(run):
    # No line break inside: FILE is read by lines.
    text = NASTY.replace("\r", "")
    done = call("predict", run, "-", "-k", 50, "--head", "dual", stdin=f"river {text}\n")
    line = json.loads(done.stdout)
    assert line["text"] == f"river {text}"
    assert f"river {NASTY}" in [label["text"] for label in line["labels"]]


def test_errors_with_texts_are_escaped(run):
    retired = call("labels", "retire", run, f"no {NASTY}")
    assert retired.exit_code == 1
    assert "evil" in retired.stderr


def test_data_and_its_neighbours_are_drawn_escaped(tmp_path):
    data = tmp_path / f"data {NASTY.replace('/', '')}"
    data.mkdir()
    rows = [
        {"text": f"text {n} {NASTY}", "labels": [f"a {NASTY}", f"b{n % 3} {NASTY}"]}
        for n in range(12)
    ]
    (data / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert call("data", "stats", data).exit_code == 0
    assert call("data", "check", data).exit_code == 0
    drawn = call("data", "stats", data, "--label", f"a {NASTY}")
    assert drawn.exit_code == 0, drawn.output


def test_progress_of_training_is_escaped(capsys):
    from umpteen.training.reporters import Terminal

    Terminal().log(f"Data {NASTY}")
    assert not RAW.findall(capsys.readouterr().err)


def test_only_one_file_of_the_command_line_prints():
    """Others call its functions, which escape."""
    folder = Path(umpteen.cli.__file__).parent
    printing = [
        file.name
        for file in sorted(folder.glob("*.py"))
        if re.search(r"click\.(echo|secho)\(|\bprint\(|sys\.stdout\.write", file.read_text("utf-8"))
    ]
    assert printing == ["_options.py"]
