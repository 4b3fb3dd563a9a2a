"""``umpteen data augment`` and ``data stats --label``."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.rows import augment
from umpteen.data.dataset import hold_out_validation
from umpteen.data.formats import load_dataset


def run(*words):
    return CliRunner().invoke(main, ["data", *map(str, words)])


@pytest.mark.parametrize("to", ["jsonl", "lf-json"])
def test_the_written_data_is_what_training_would_see(tiny_data_folder, tmp_path, to):
    result = run("augment", tiny_data_folder, tmp_path / "out", "--delta", "0.3", "--to", to)
    assert result.exit_code == 0, result.output
    assert "40 label texts as training rows" in result.stderr
    assert result.stdout == ""
    read, before = load_dataset(tmp_path / "out"), load_dataset(tiny_data_folder)
    held = hold_out_validation(before, share=0.03, max_queries=2000, seed=17)
    expected = augment(held["train"], before.labels, options=GraphOptions(delta=0.3))
    assert list(read["train"].titles) == list(expected.split.titles)
    np.testing.assert_array_equal(read["train"].targets.toarray(), expected.split.targets.toarray())
    assert list(read["validation"].titles) == list(held["validation"].titles)
    assert list(read["test"].titles) == list(before["test"].titles)


def test_label_rows_alone_and_a_share_from_the_tail(tiny_data_folder, tmp_path):
    words = ("--rows", "only", "--share", "0.5", "--order", "tail", "--method", "self")
    result = run("augment", tiny_data_folder, tmp_path / "out", *words)
    assert result.exit_code == 0, result.output
    found = load_dataset(tmp_path / "out")["train"]
    assert len(found) == 20
    assert (found.targets.getnnz(axis=1) == 1).all()


def test_synonyms_are_written_as_copies_of_queries(tiny_data_folder, tmp_path):
    pytest.importorskip("wordllama")
    words = ("--method", "synonyms", "--word-share", "1")
    result = run("augment", tiny_data_folder, tmp_path / "out", *words)
    assert result.exit_code == 0, result.output
    found = load_dataset(tmp_path / "out")["train"]
    half = len(found) // 2
    assert len(found) == 2 * half
    assert (found.targets[:half] != found.targets[half:]).nnz == 0
    assert not set(found.titles[:half]) & set(found.titles[half:])


def test_what_a_format_cannot_hold_is_said(tiny_data_folder, tmp_path):
    result = run("augment", tiny_data_folder, tmp_path / "out", "--to", "csv")
    assert result.exit_code == 0
    assert "measure runs on" in result.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--method", "gandalv"), "'gandalv'; it must be one of gandalf, glas, self, walks, syn"),
        (("--method", "mixup"), "it must be one of gandalf, glas, self, walks, synonyms"),
        (("--share", "2"), "augment.share must be between 0 and 1, not 2.0"),
        (("--method", "walks", "--walk-steps", "0"), "augment.walk_steps must be above 0"),
        (("--restart", "1.5"), "augment.restart must be between 0 and 1"),
        (("--max-positives", "-3"), "augment.max_positives must be"),
        (("--validation-share", "2"), "validation.share must be"),
        (("--to", "pdf"), "format 'pdf' is not known"),
    ],
)
def test_wrong_choices_are_one_sentence_and_nothing_is_written(
    tiny_data_folder, tmp_path, words, says
):
    result = run("augment", tiny_data_folder, tmp_path / "out", *words)
    assert result.exit_code == 1
    assert says in result.stderr
    assert not (tmp_path / "out").exists()


def test_stats_show_the_neighbours_of_a_label(tiny_data_folder):
    as_json = json.loads(run("stats", tiny_data_folder, "--label", "L03", "--json", "-n", 3).stdout)
    assert as_json["id"] == "L03"
    assert len(as_json["neighbours"]) <= 3
    lines = run("stats", tiny_data_folder, "--label", "L03").stdout.splitlines()
    assert lines[0].startswith("tiny river (")
    assert run("stats", tiny_data_folder, "--label", "nobody").exit_code == 1
