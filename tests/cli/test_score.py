import csv
import gzip
import json

import pytest
from click.testing import CliRunner

from umpteen.cli import main

TRAIN = [(f"text {i}", ["a"] if i % 3 else ["b", "c"]) for i in range(12)]
TEST = [("one", ["a"]), ("two", ["b", "c"]), ("three", ["c"])]
PREDICTIONS = [["a", "b"], ["c", "a"], ["a", "c"]]


@pytest.fixture
def folder(tmp_path):
    for name, rows in (("train", TRAIN), ("test", TEST)):
        lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def lines_of(predictions):
    return "".join(json.dumps({"labels": labels}) + "\n" for labels in predictions)


def run(*arguments, stdin=None):
    return CliRunner().invoke(main, ["score", *map(str, arguments)], input=stdin)


def test_json_has_metrics_constants_and_number(folder, tmp_path):
    path = tmp_path / "predictions.jsonl.gz"
    path.write_bytes(gzip.compress(lines_of(PREDICTIONS).encode()))
    result = run(path, folder, "--metrics", "P@1,R@2", "--json")
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)
    assert value["metrics"] == {"P@1": pytest.approx(200 / 3), "R@2": pytest.approx(250 / 3)}
    assert value["propensity"] == {"a": 0.55, "b": 1.5}
    assert value["n"] == 3


def test_the_table_shows_what_shaped_the_numbers(folder):
    result = run("-", folder, "--propensity", "0.6,2.6", stdin=lines_of(PREDICTIONS))
    assert result.exit_code == 0, result.output
    for part in (
        "PSnDCG@5",
        "MacroF1@5",
        "A 0.6, B 2.6",
        "in the order of each line",
        "3 test texts, at most 2 predictions each",
    ):
        assert part in result.stdout


@pytest.mark.parametrize("joined", [";".join, json.dumps])
def test_a_table_of_predictions_can_be_scored(folder, tmp_path, joined):
    path = tmp_path / "predictions.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "labels", "scores"])
        rows.writerows(["t", joined(labels), ""] for labels in PREDICTIONS)
    table = run(path, folder, "--json")
    assert table.exit_code == 0, table.output
    assert table.stdout == run("-", folder, "--json", stdin=lines_of(PREDICTIONS)).stdout
    path.write_text("text,label\na,b\n")
    said = run(path, folder).stderr
    assert "none is named 'labels'. Did you mean 'label'?" in said


def test_what_predict_writes_can_be_scored(folder):
    lines = "".join(
        json.dumps({"text": "t", "labels": [{"id": i, "text": i, "score": 0.5} for i in labels]})
        + "\n"
        for labels in PREDICTIONS
    )
    plain = run("-", folder, "--json", stdin=lines_of(PREDICTIONS))
    assert run("-", folder, "--json", stdin=lines).stdout == plain.stdout


@pytest.mark.parametrize("name", ["test.jsonl", "."])
def test_data_with_one_split_is_scored_whole(folder, name):
    both = json.loads(run("-", folder, "--json", stdin=lines_of(PREDICTIONS)).stdout)
    (folder / "train.jsonl").unlink()
    result = run("-", folder / name, "--json", stdin=lines_of(PREDICTIONS))
    assert result.exit_code == 0, result.output
    one = json.loads(result.stdout)
    assert one["n"] == 3
    assert one["metrics"]["P@1"] == both["metrics"]["P@1"]
    assert one["metrics"]["PSP@1"] != both["metrics"]["PSP@1"]  # frequencies are those of 3 texts
    assert "label frequencies for PSP are its own" in result.stderr
    table = run("-", folder / name, stdin=lines_of(PREDICTIONS)).stdout
    assert table.startswith("3 texts, at most 2 predictions each")


def test_unknown_ids_are_misses_and_told_on_stderr(folder):
    result = run("-", folder, "--metrics", "P@1", "--json", stdin=lines_of([["q"], ["c"], ["z"]]))
    assert result.exit_code == 0
    assert json.loads(result.stdout)["metrics"]["P@1"] == pytest.approx(100 / 3)
    assert "2 predicted ids not among the data's labels" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        ([], lines_of(PREDICTIONS[:2]), "standard input: 2 lines for 3 texts"),
        ([], lines_of([["a"], ["b", "b"], []]), "standard input, line 2: label id 'b' is there"),
        (["--metrics", "P@1,psp@5,X"], "", "Did you mean 'PSP@5'?"),
        (["--split", "validation"], "", "no 'validation' split"),
        (["--propensity", "-1,2"], lines_of(PREDICTIONS), "propensity constants"),
    ],
)
def test_our_errors_are_one_sentence_and_exit_one(folder, arguments, stdin, message):
    result = run("-", folder, *arguments, stdin=stdin)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_told(folder):
    result = run(folder / "nothing.jsonl", folder)
    assert result.exit_code == 1
    assert "nothing.jsonl" in result.stderr


@pytest.mark.parametrize("arguments", [["--propensity", "0.5"], ["--split", "dev"], ["--nonsense"]])
def test_wrong_usage_exits_two(folder, arguments):
    assert run("-", folder, *arguments, stdin="").exit_code == 2
