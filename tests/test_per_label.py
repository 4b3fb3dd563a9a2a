"""Scores of single labels and F1 of label sets, against scikit-learn on the same predictions."""

import csv
import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score, precision_recall_fscore_support

import umpteen
from umpteen.errors import ConfigError, DataError
from umpteen.metrics.hits import find_hits
from umpteen.metrics.per_label import label_scores
from umpteen.types import TopK


@pytest.fixture(scope="module")
def model(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


def indicator(rows, n_labels):
    found = np.zeros((len(rows), n_labels), int)
    for query, row in enumerate(rows):
        found[query, [label for label in row if label >= 0]] = 1
    return found


def test_counts_are_those_of_scikit_learn():
    rng = np.random.default_rng(4)
    truth = (rng.random((37, 11)) < 0.25).astype(int)
    rows = np.argsort(rng.random((37, 11)), axis=1)[:, :4]
    rows[rng.random(rows.shape) < 0.3] = -1
    scores = np.where(rows >= 0, 0.5, -np.inf).astype(np.float32)
    found = label_scores(find_hits(TopK(rows, scores), sp.csr_matrix(truth)))
    expected = precision_recall_fscore_support(
        truth, indicator(rows, 11), average=None, zero_division=np.nan
    )
    assert found.precision == pytest.approx(expected[0], nan_ok=True)
    assert found.recall == pytest.approx(expected[1], nan_ok=True)
    assert found.f1 == pytest.approx(expected[2], nan_ok=True)
    assert found.support.tolist() == expected[3].tolist()


def sets_of(model, data):
    """Truth and label sets of the test split, as a user gets them."""
    test = data["test"]
    top = model.predict(test.texts(), 20, threshold="auto", exclude=test.filters)
    return test.filtered_targets().toarray() > 0, indicator(top.rows, len(data.labels))


def test_an_evaluation_has_the_scores_of_the_labels_above_the_threshold(model, tiny_data):
    found = umpteen.evaluate(model, tiny_data, metrics=["P@1"]).per_label
    assert found.head == "ensemble"
    assert "probability" in found.rule
    truth, predicted = sets_of(model, tiny_data)
    assert predicted.any()
    _, _, f1, support = precision_recall_fscore_support(
        truth, predicted, average=None, zero_division=0
    )
    rows = list(found.rows())
    ids = tiny_data.labels.ids
    assert {row[0] for row in rows} == {
        ids[label] for label in np.flatnonzero(truth.any(0) | predicted.any(0))
    }
    for label_id, _, _, own, _, _, _, value in rows:
        label = tiny_data.labels.row(label_id)
        assert own == support[label]
        assert value == pytest.approx(100 * f1[label])
    assert [row[3] for row in rows] == sorted((row[3] for row in rows), reverse=True)


def test_f1_of_label_sets_is_that_of_scikit_learn(model, tiny_data):
    names = ["MicroF1", "P@1", "MacroF1", "F1", "F1@3"]
    found = umpteen.evaluate(model, tiny_data, metrics=names)
    truth, predicted = sets_of(model, tiny_data)
    values = found["ensemble"].values
    assert list(values) == names
    judged = truth.any(axis=0)
    expected = {
        "MicroF1": f1_score(truth, predicted, average="micro"),
        "MacroF1": f1_score(truth[:, judged], predicted[:, judged], average="macro"),
        "F1": f1_score(truth, predicted, average="samples", zero_division=0),
    }
    for name, value in expected.items():
        assert values[name] == pytest.approx(100 * value), name
    assert values["MicroF1"] == pytest.approx(found.sets["auto"]["micro_f1"])
    assert list(found["dual"].values) == ["P@1", "F1@3"]  # it has no probabilities


def test_sets_of_a_head_without_probabilities_are_refused(model, tiny_data):
    with pytest.raises(ConfigError, match="Write MicroF1@5 for the first 5 labels"):
        umpteen.evaluate(model, tiny_data, head="dual", metrics=["MicroF1"])


def test_without_probabilities_the_first_five_count_as_predicted(model, tiny_data):
    found = umpteen.evaluate(model, tiny_data, head="dual", metrics=["P@5"])
    assert found.per_label.rule == "the first 5 labels of each text"
    assert found.per_label.scores.predicted.sum() == 5 * len(tiny_data["test"])
    right = found.per_label.scores.right.sum()
    assert found["dual"].values["P@5"] == pytest.approx(100 * right / (5 * len(tiny_data["test"])))


def test_labels_the_run_does_not_know_have_a_line_too(model, tmp_path):
    file = tmp_path / "other.jsonl"
    known = model.labels.ids[0]
    file.write_text(f'{{"text": "a", "labels": ["{known}", "brand new"]}}\n')
    found = umpteen.evaluate(model, file, metrics=["P@1"])
    (row,) = (row for row in found.per_label.rows() if row[0] == "brand new")
    assert row[3:5] == (1, 0)
    assert math.isnan(row[5])
    assert row[6:] == (0.0, 0.0)


@pytest.mark.parametrize(("name", "separator"), [("labels.csv", ","), ("labels.TSV", "\t")])
def test_the_file_has_a_line_for_each_label(name, separator, model, tiny_data, tmp_path):
    found = umpteen.evaluate(model, tiny_data, metrics=["P@1"]).per_label
    n = found.write(tmp_path / name)
    with (tmp_path / name).open(newline="") as handle:
        lines = list(csv.DictReader(handle, delimiter=separator))
    assert len(lines) == n == len(list(found.rows()))
    for line, row in zip(lines, found.rows(), strict=True):
        assert line["id"] == row[0]
        assert int(line["support"]) == row[3]
        assert line["f1"] == f"{row[7]:.2f}"
        assert (line["precision"] == "") == (row[4] == 0)


def test_another_ending_is_refused(model, tiny_data, tmp_path):
    found = umpteen.evaluate(model, tiny_data, metrics=["P@1"]).per_label
    with pytest.raises(DataError, match=r"written as \.csv or \.tsv"):
        found.write(tmp_path / "labels.xlsx")
