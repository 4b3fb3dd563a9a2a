"""``umpteen suggest``: texts to label next, ready to be corrected and added."""

import json
import shutil

import pytest

import umpteen
from umpteen.suggestions import suggest


def found(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_suggestions_are_those_of_the_library(umpteen_command, tiny_run, tiny_data, tmp_path):
    texts = list(tiny_data["test"].texts())
    file = tmp_path / "texts.csv"
    rows = ["key,text", *(f"r{n},{text}" for n, text in enumerate(texts))]
    file.write_text("\n".join(rows) + "\n")
    made = umpteen_command("suggest", tiny_run, file, "-n", 5, "--id-column", "key")
    model = umpteen.Predictor.load(tiny_run, device="cpu")
    expected = suggest(model, texts, 5)
    records = found(made)
    assert [record["id"] for record in records] == [f"r{each.position}" for each in expected]
    assert [record["gain"] for record in records] == [round(each.gain, 4) for each in expected]
    assert "5 texts of 20 to label next" in made.stderr


def test_suggestions_can_be_corrected_and_added(umpteen_command, tiny_run, tiny_data, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    lines = "\n".join(tiny_data["test"].texts())
    out = tmp_path / "next.jsonl"
    made = umpteen_command("suggest", run, "-", "-n", 3, "--out", out, stdin=lines)
    assert made.exit_code == 0, made.stderr
    assert made.stdout == ""
    records = [json.loads(line) for line in out.read_text().splitlines()]
    for record in records:
        record["labels"] = record["labels"] or [record["candidates"][0]["id"]]
    out.write_text("".join(json.dumps(record) + "\n" for record in records))
    added = umpteen_command("examples", "add", run, out)
    assert added.exit_code == 0, added.stderr
    assert "added 3 examples" in added.stderr


def test_empty_texts_are_left_out_and_counted(umpteen_command, tiny_run, tmp_path):
    file = tmp_path / "texts.csv"
    file.write_text("id,text\nA,\nB,red apple\nC,  \nD,old river\n")
    made = umpteen_command("suggest", tiny_run, file, "-n", 4)
    assert {record["id"] for record in found(made)} == {"B", "D"}
    assert "2 texts of 4 to label next; 2 empty texts left out" in made.stderr


def test_an_empty_file_gives_nothing(umpteen_command, tiny_run):
    assert found(umpteen_command("suggest", tiny_run, "-", stdin="")) == []


@pytest.mark.parametrize("flags", [("-n", "0"), ("no-such-file.csv",)])
def test_wrong_usage_exits_with_2(flags, umpteen_command, fails, tiny_run):
    fails(umpteen_command("suggest", tiny_run, *flags, stdin="x"), code=2)


def test_a_run_without_an_ensemble_is_a_sentence(umpteen_command, fails, trained):
    said = fails(umpteen_command("suggest", trained, "-", stdin="red apple\n"))
    assert "umpteen fit-ensemble" in said
