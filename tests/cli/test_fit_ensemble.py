"""``umpteen fit-ensemble``, and what an ensemble adds to the other commands."""

import json
import shutil
from dataclasses import replace

import pytest
from scipy.sparse import csr_matrix

import umpteen
from umpteen.data.convert import save_dataset
from umpteen.data.dataset import Dataset
from umpteen.data.labels import LabelSet

FITTED = ["--set=ensemble.min_queries=5", "--device", "cpu"]


@pytest.fixture(scope="module")
def fitted(umpteen_command, trained, tiny_data_folder, tmp_path_factory):
    place = shutil.copytree(trained, tmp_path_factory.mktemp("ensemble") / "run")
    made = umpteen_command("fit-ensemble", place, tiny_data_folder, *FITTED, "--json")
    assert made.exit_code == 0, made.stderr
    fields = {"scorers", "tail_boost", "P@1", "PSP@5", "ECE", "micro-F1", "contributions"}
    assert fields <= set(json.loads(made.stdout)[0])
    return place


@pytest.fixture
def own(fitted, tmp_path):
    return shutil.copytree(fitted, tmp_path / "run")


def answers(result) -> list[dict]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def widened(targets, n):
    return csr_matrix(
        (targets.data, targets.indices, targets.indptr), shape=(len(targets.indptr) - 1, n)
    )


@pytest.mark.parametrize("command", ["fit-ensemble", "rerank"])
def test_data_with_other_labels_is_refused(umpteen_command, own, tiny_data, tmp_path, command):
    labels, before = tiny_data.labels, sorted(own.rglob("*"))
    titles = list(labels.titles)
    turned = LabelSet(labels.ids[::-1], titles[::-1])
    more = LabelSet([*labels.ids, "new"], [*titles, "a new label"])
    for name, other, found in [("turned", turned, "row 1 is 'L39', in the run 'L00'"),
                               ("more", more, "row 41 is 'new', in the run missing")]:  # fmt: skip
        n = len(other)
        splits = {
            name: replace(part, targets=widened(part.targets, n))
            for name, part in tiny_data.splits.items()
        }
        save_dataset(Dataset(other, splits, name=name), tmp_path / name, to="jsonl")
        result = umpteen_command(command, own, tmp_path / name, "--device", "cpu")
        assert result.exit_code == 1
        assert found in result.stderr
        assert "Traceback" not in result.stderr
    assert sorted(own.rglob("*")) == before


def test_the_table_has_a_row_for_each_combination(umpteen_command, own, tiny_data_folder):
    result = umpteen_command("fit-ensemble", own, tiny_data_folder, *FITTED)
    assert result.exit_code == 0, result.stderr
    assert "dual classifier knn lexical" in result.stdout
    assert "dual classifier " in result.stdout
    assert "contributions: " in result.stderr
    assert "Calibration error" in result.stderr


def test_other_settings_cannot_be_changed(umpteen_command, own, tiny_data_folder, fails):
    result = umpteen_command("fit-ensemble", own, tiny_data_folder, "--set=train.epochs=3")
    assert "only examples.* and ensemble.*" in fails(result)


def test_predictions_have_probabilities_and_explained(umpteen_command, fitted):
    (plain,) = answers(umpteen_command("predict", fitted, "-k", "3", stdin="red apple\n"))
    (told,) = answers(umpteen_command("predict", fitted, "--explain", "-k3", stdin="red apple\n"))
    assert [label["id"] for label in plain["labels"]] == [label["id"] for label in told["labels"]]
    assert all(0 <= label["score"] <= 1 for label in plain["labels"])
    scores = told["labels"][0]["scores"]
    assert {"dual", "classifier", "knn", "lexical_ranker", "lexical_knn"} <= set(scores)
    assert {"dual", "classifier", "knn", "lexical"} <= set(told["labels"][0]["contributions"])
    (less,) = answers(
        umpteen_command("predict", fitted, "--without", "knn", "-k", "3", stdin="red apple\n")
    )
    assert less["labels"] != plain["labels"]


@pytest.mark.parametrize("threshold", ["auto", "groups", "0.2"])
def test_a_threshold_makes_a_set(threshold, umpteen_command, fitted):
    texts = "red apple\nold river\nblue candle tiny window\n"
    every = answers(umpteen_command("predict", fitted, "-k", "40", stdin=texts))
    some = answers(
        umpteen_command("predict", fitted, "-k40", "--threshold", threshold, stdin=texts)
    )
    model = umpteen.Predictor.load(fitted)
    calibration = model.ensemble.variants[0].calibration
    for whole, part in zip(every, some, strict=True):
        assert len(part["labels"]) < len(whole["labels"])
        if threshold != "groups":
            limit = calibration.threshold if threshold == "auto" else float(threshold)
            kept = [label for label in whole["labels"] if label["score"] >= limit - 1e-6]
            assert part["labels"] == kept


def test_a_set_is_not_cut_at_ten_labels(umpteen_command, fitted):
    (whole,) = answers(umpteen_command("predict", fitted, "--threshold", "0", stdin="red\n"))
    (ten,) = answers(umpteen_command("predict", fitted, stdin="red\n"))
    assert (len(whole["labels"]), len(ten["labels"])) == (20, 10)


@pytest.mark.parametrize(
    "flags",
    [
        ["--head", "dual", "--without", "knn"],
        ["--head", "combined", "--explain"],
    ],  # fmt: skip
)
def test_flags_that_do_not_fit_the_head_are_sentences(flags, umpteen_command, fitted, fails):
    assert "ensemble" in fails(umpteen_command("predict", fitted, *flags, stdin="a\n"))


@pytest.mark.parametrize("threshold", ["1.5", "-0.1"])
def test_a_threshold_is_a_probability(threshold, umpteen_command, fitted, fails):
    result = umpteen_command("predict", fitted, f"--threshold={threshold}", stdin="a\n")
    assert "no probability" in fails(result)


def test_an_empty_text_gets_no_label_and_says_why(umpteen_command, fitted):
    (empty,) = answers(umpteen_command("predict", fitted, "--threshold=auto", stdin="  \n"))
    assert empty["labels"] == []
    assert empty["note"] == "the text is empty"


def test_thresholds_that_cannot_be_are_sentences(umpteen_command, fitted, trained, fails):
    for place, head in ((trained, []), (fitted, ["--head", "dual"])):
        result = umpteen_command("predict", place, "--threshold", "auto", *head, stdin="a\n")
        assert "threshold" in fails(result)


def test_evaluation_tells_of_sets(umpteen_command, fitted, tiny_data_folder):
    result = umpteen_command("evaluate", fitted, tiny_data_folder, "--json")
    document = json.loads(result.stdout)
    assert list(document["heads"]) == ["dual", "classifier", "combined", "ensemble"]
    assert "micro_f1" in document["sets"]["auto"]
    table = umpteen_command("evaluate", fitted, tiny_data_folder, "--head", "ensemble")
    assert table.exit_code == 0, table.stderr
    assert "micro-F1" in table.stderr
    flags = ["--head", "ensemble", "--without", "lexical", "--metrics", "P@1"]
    assert umpteen_command("evaluate", fitted, tiny_data_folder, *flags).exit_code == 0


def test_a_run_with_an_ensemble_can_be_indexed_and_reported(umpteen_command, own, tmp_path):
    made = umpteen_command("index", own, "--json")
    assert [row["head"] for row in json.loads(made.stdout)] == ["dual", "classifier", "combined"]
    page = umpteen_command("report", own, "--out", tmp_path / "page.html")
    assert page.exit_code == 0, page.stderr
    text = (tmp_path / "page.html").read_text()
    assert "Ensemble" in text
    assert "dual encoder, classifier, similar examples, exact words" in text
    assert "label frequency" in text
