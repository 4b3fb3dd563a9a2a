"""train, evaluate, predict, score and index, one after the other, as a user calls them."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from small_runs import SETTINGS

from umpteen.cli import main

pytestmark = pytest.mark.processes

FLAGS = [f"--set={setting}" for setting in SETTINGS]


def call(*arguments, stdin=None):
    result = CliRunner().invoke(main, [str(part) for part in arguments], input=stdin)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def run(tiny_data_folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("pipeline") / "run"
    call("train", tiny_data_folder, "--out", place, "--device", "cpu", *FLAGS)
    return place


@pytest.fixture(scope="module")
def test_texts(tiny_data_folder):
    lines = (tiny_data_folder / "test.jsonl").read_text("utf-8").split("\n")
    return [json.loads(line)["text"] for line in lines if line]


@pytest.mark.parametrize("head", ["dual", "classifier", "combined"])
def test_scores_of_predictions_are_those_of_evaluate(
    head, run, tiny_data_folder, test_texts, tmp_path
):
    evaluated = json.loads(call("evaluate", run, tiny_data_folder, "--head", head, "--json").stdout)
    texts = "".join(text + "\n" for text in test_texts)
    predicted = call("predict", run, "-k", "100", "--head", head, stdin=texts).stdout
    (tmp_path / "predictions.jsonl").write_text(predicted, "utf-8")
    scored = call("score", tmp_path / "predictions.jsonl", tiny_data_folder, "--json")
    metrics = json.loads(scored.stdout)["metrics"]
    assert metrics == pytest.approx(evaluated["heads"][head], abs=1e-6)
    assert len(metrics) >= 10


def test_filters_count_the_same_in_evaluate_and_score(tiny_data, tmp_path):
    from umpteen.data.convert import save_dataset

    save_dataset(tiny_data, tmp_path / "data", to="lf-json")
    data, run = tmp_path / "data", tmp_path / "run"
    call("train", data, "--out", run, "--device", "cpu", *FLAGS, "--set=train.epochs=2")
    evaluated = json.loads(call("evaluate", run, data, "--head", "combined", "--json").stdout)
    texts = "".join(text + "\n" for text in tiny_data["test"].texts())
    predicted = call("predict", run, "-k", "100", stdin=texts).stdout
    scored = json.loads(call("score", "-", data, "--json", stdin=predicted).stdout)
    assert scored["filter_pairs"] == 1
    assert scored["metrics"] == pytest.approx(evaluated["heads"]["combined"], abs=1e-6)


@pytest.mark.parametrize("name", ["jsonl", "lf-json", "xc-text", "npz", "csv"])
def test_data_of_any_format_can_be_trained_on_and_evaluated(name, tiny_data, tmp_path):
    from umpteen.data.convert import save_dataset

    save_dataset(tiny_data, tmp_path / "data", to=name)
    call("train", tmp_path / "data", "--out", tmp_path / "run", *FLAGS, "--set=train.epochs=1")
    found = json.loads(call("evaluate", tmp_path / "run", tmp_path / "data", "--json").stdout)
    assert found["n"] == 20


def test_a_real_process_reads_stdin_and_keeps_talk_out_of_stdout(run):
    program = [sys.executable, "-c", "from umpteen.cli import main; main()"]
    done = subprocess.run(
        [*program, "predict", str(run), "-k", "2"],
        input="red apple\nnaïve 日本\n".encode(),
        capture_output=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    lines = [json.loads(line) for line in done.stdout.decode().splitlines()]
    assert [line["text"] for line in lines] == ["red apple", "naïve 日本"]
    assert all(len(line["labels"]) == 2 for line in lines)


def test_a_reader_that_goes_away_is_no_error(run, tmp_path):
    (tmp_path / "texts.txt").write_text("red apple\n" * 3000)
    program = f'"{sys.executable}" -c "from umpteen.cli import main; main()"'
    done = subprocess.run(
        f'{program} predict "{run}" "{tmp_path / "texts.txt"}" | head -n 1',
        shell=True,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert json.loads(done.stdout)["text"] == "red apple"
    assert "Traceback" not in done.stderr
