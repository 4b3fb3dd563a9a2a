"""``umpteen rerank``, and what the stage adds to the other commands."""

import json
import shutil

import pytest

import umpteen


@pytest.fixture(scope="module")
def reranked(umpteen_command, tiny_run, tiny_data_folder, tmp_path_factory):
    place = shutil.copytree(tiny_run, tmp_path_factory.mktemp("rerank") / "run")
    made = umpteen_command(
        "rerank", place, tiny_data_folder, "--candidates", 8, "--epochs", 3, "--keep", "always",
        "--device", "cpu", "--json",
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    return place, json.loads(made.stdout)


def test_the_document_has_both_rows_the_test_and_the_cost(reranked):
    _, found = reranked
    assert found["used"] is True
    assert set(found["before"]) == set(found["after"]) >= {"P@1", "PSP@5", "ECE", "micro-F1"}
    assert 0 <= found["p_value"] <= 1
    assert found["cost"]["fixed_ms"] >= 0
    assert found["decided_on"] >= 24


def test_other_commands_use_and_name_it(umpteen_command, reranked, tiny_data_folder):
    run, _ = reranked
    shown = umpteen_command("evaluate", run, tiny_data_folder, "--device", "cpu")
    assert "re-ranking (features): the best 8 candidates" in shown.stderr
    one = umpteen_command("predict", run, "--explain", "--budget-ms", 1e6, stdin="red apple\n")
    assert "Re-ranking 8 candidates of a text" in one.stderr
    first = json.loads(one.stdout)["labels"][0]
    assert "reranker" in json.dumps(first)
    plain = umpteen_command("predict", run, "--explain", "--without", "reranker", stdin="red\n")
    assert "reranker" not in plain.stdout


def test_measuring_alone_changes_nothing(umpteen_command, tiny_run, tiny_data_folder, tmp_path):
    run = shutil.copytree(tiny_run, tmp_path / "run")
    before = (run / "ensemble" / "ensemble.json").read_bytes()
    made = umpteen_command(
        "rerank", run, tiny_data_folder, "--candidates", 5, "--epochs", 1, "--keep", "never",
        "--device", "cpu",
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    assert "without re-ranking" in made.stdout
    assert "not used" in made.stderr
    assert (run / "ensemble" / "ensemble.json").read_bytes() == before
    assert not list((run / "ensemble").glob("reranker-*"))
    assert umpteen.Predictor.load(run, device="cpu").reranking is None


def test_an_encoder_belongs_to_the_cross_encoder(umpteen_command, fails, run, tiny_data_folder):
    said = fails(umpteen_command("rerank", run, tiny_data_folder, "--encoder", "x"))
    assert "--kind cross-encoder" in said
    fails(umpteen_command("rerank", run, tiny_data_folder, "--kind", "cross-encoder"))


def test_a_run_without_an_ensemble_is_refused(umpteen_command, fails, run, tiny_data_folder):
    shutil.rmtree(run / "ensemble", ignore_errors=True)
    said = fails(umpteen_command("rerank", run, tiny_data_folder, "--device", "cpu"))
    assert "umpteen fit-ensemble" in said


def test_a_budget_without_the_stage_is_refused(umpteen_command, fails, tiny_run):
    said = fails(umpteen_command("predict", tiny_run, "--budget-ms", 3, stdin="red\n"))
    assert "umpteen rerank" in said
