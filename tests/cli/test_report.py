from __future__ import annotations

import pytest
from click.testing import CliRunner

from umpteen.cli import main


def report(*words):
    return CliRunner().invoke(main, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def run(tiny_data, tmp_path_factory):
    from umpteen.training.run import train

    place = tmp_path_factory.mktemp("report-command")
    small = ["encoder.table=random", "encoder.dim=16", "model.dim=16", "batches.size=16"]
    overrides = [*small, "validation.share=0.25", "train.epochs=1"]
    train(tiny_data, out=place / "run", overrides=overrides, cache=place / "cache", device="cpu")
    return place / "run"


def test_page_lies_in_the_run_and_its_path_is_said_on_stderr(run):
    result = report(run)
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert result.stderr == f"Wrote {run}/report.html\n"
    assert "not on test" in (run / "report.html").read_text("utf-8")


def test_data_and_out_are_used(run, tiny_data_folder, tmp_path):
    page = tmp_path / "page.html"
    result = report(run, "--data", tiny_data_folder, "--out", page)
    assert result.exit_code == 0, result.output
    assert "on all 20 test texts" in page.read_text("utf-8")


def test_split_without_data_is_a_usage_error(run):
    result = report(run, "--split", "test")
    assert result.exit_code == 2
    assert "need --data" in result.stderr


@pytest.mark.parametrize("make", [False, True])
def test_a_place_without_a_run_is_one_sentence(tmp_path, make):
    place = tmp_path / "nothing"
    if make:
        place.mkdir()
    result = report(place, "--data", tmp_path / "no-data")
    assert result.exit_code == 1
    assert result.stderr == (
        f"umpteen: {place} is not a run folder (no config.json); make one with umpteen train\n"
    )
