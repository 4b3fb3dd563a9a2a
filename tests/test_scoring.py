import gzip
import io
import json

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen import scoring
from umpteen.data.dataset import Dataset, Propensity, Split, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import ConfigError, DataError
from umpteen.scoring import read_predictions, score
from umpteen.types import TopK

LABELS = LabelSet([f"l{i}" for i in range(6)], [f"label {i}" for i in range(6)])


def split_of(rows, filters=(), n_labels=6):
    pairs = np.array(filters, np.int64).reshape(-1, 2)
    return Split([""] * len(rows), targets_from_rows(rows, n_labels), filters=pairs)


def topk_of(rows, scores=None):
    rows = np.array(rows, np.int64)
    if scores is None:
        scores = np.where(rows >= 0, -np.arange(rows.shape[1]), -np.inf)
    return TopK(rows, np.array(scores, np.float32))


def scored(topk, split, metrics, counts=None, n_train=50, propensity=None):
    counts = np.array([9, 5, 3, 2, 1, 0]) if counts is None else counts
    return score(
        topk,
        split,
        label_counts=counts,
        n_train=n_train,
        propensity=propensity or Propensity(),
        metrics=metrics,
    )


def test_values_are_percent_in_the_order_asked_for():
    report = scored(topk_of([[0, 1], [2, 3]]), split_of([[0], [4]]), ["R@2", "P@1", "P@2"])
    assert report.values == {"R@2": 50.0, "P@1": 50.0, "P@2": 25.0}
    assert list(report.values) == ["R@2", "P@1", "P@2"]
    assert report.n == 2


def test_filtered_pairs_leave_truth_and_predictions():
    # Label 0 is filtered for query 0: its place goes to label 3, and it is no longer a positive.
    split = split_of([[0, 3], [0]], filters=[(0, 0)])
    report = scored(topk_of([[0, 3, 1], [0, 3, 1]]), split, ["P@1", "R@1", "P@2"])
    assert report.values == {"P@1": 100.0, "R@1": 100.0, "P@2": 50.0}
    assert report.n_filters == 1


def test_a_filtered_label_never_wins_over_negative_scores():
    split = split_of([[3]], filters=[(0, 0)])
    topk = topk_of([[0, 3]], [[-0.1, -0.9]])
    assert scored(topk, split, ["P@1"]).values["P@1"] == 100.0


def test_a_query_emptied_by_filters_counts_as_zero_and_is_reported():
    report = scored(topk_of([[0], [1]]), split_of([[0], [1]], filters=[(0, 0)]), ["P@1", "PSP@1"])
    assert report.values["P@1"] == 50.0
    assert report.values["PSP@1"] == pytest.approx(100.0)  # it adds nothing to either mean
    assert report.n_without_positives == 1


def test_ties_are_settled_by_the_smaller_row_whatever_the_index_returned():
    split = split_of([[1]])
    for rows in ([[4, 1]], [[1, 4]]):
        assert scored(topk_of(rows, [[0.5, 0.5]]), split, ["P@1"]).values["P@1"] == 100.0


def test_propensities_come_from_the_counts_given():
    topk, split = topk_of([[0], [0]]), split_of([[0], [4]])
    counts = np.array([40, 1, 1, 1, 1, 1])
    report = scored(topk, split, ["PSP@1"], counts, 100, Propensity(0.6, 2.6))
    c = (np.log(100) - 1) * 3.6**0.6
    head, tail = 1 + c * 42.6**-0.6, 1 + c * 3.6**-0.6
    assert report.values["PSP@1"] == pytest.approx(100 * head / (head + tail))
    assert report.as_json()["propensity"] == {"a": 0.6, "b": 2.6}


def test_counts_larger_than_the_training_data_are_refused():
    with pytest.raises(DataError, match="same training split"):
        scored(topk_of([[0]]), split_of([[0]]), ["P@1"], np.array([9, 0, 0, 0, 0, 0]), n_train=8)


def test_the_five_bins_add_up_to_precision_at_five():
    rng = np.random.default_rng(2)
    truth = sp.csr_matrix(rng.random((31, 40)) < 0.2, dtype=np.float32)
    rows = np.argsort(rng.random((31, 40)), axis=1)[:, :8]
    report = scored(topk_of(rows), Split([""] * 31, truth), ["P@5"], rng.integers(0, 50, 40))
    assert len(report.bins) == 5
    assert sum(report.bins) == pytest.approx(report.values["P@5"])


def test_every_unknown_metric_is_named():
    with pytest.raises(ConfigError, match=r"(?s)'X@1'.*'psp@1'"):
        scored(topk_of([[0]]), split_of([[0]]), ["X@1", "psp@1"])


def test_the_report_is_plain_json():
    report = scored(topk_of([[0, 1]]), split_of([[0]]), scoring.DEFAULT_METRICS)
    again = json.loads(json.dumps(report.as_json()))
    assert list(again["metrics"]) == list(scoring.DEFAULT_METRICS)
    assert {"metrics", "propensity", "n", "bins", "filter_pairs", "width"} <= set(again)


def test_a_data_set_from_lists_can_be_scored():
    data = Dataset.from_lists(["a", "b"], [["x"], ["y"]], test_texts=["c"], test_labels=[["y"]])
    report = score(
        topk_of([[1, 0]]),
        data["test"],
        label_counts=data.label_counts,
        n_train=len(data["train"]),
        propensity=data.propensity,
    )
    assert report.values["P@1"] == 100.0


# --- reading predictions --------------------------------------------------------------------------


def read(text, n, pack=False):
    raw = text if isinstance(text, bytes) else text.encode()
    return read_predictions(io.BytesIO(gzip.compress(raw) if pack else raw), LABELS, n, name="p")


GOOD = '{"labels": ["l3", "l1"]}\n{"labels": []}\n{"labels": [{"id": "l0", "score": -0.5}]}\n'


@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize("text", [GOOD, GOOD.rstrip("\n"), "\ufeff" + GOOD])
def test_lines_become_rows_with_vacant_places(text, pack):
    topk, unknown = read(text, 3, pack)
    assert topk.rows.tolist() == [[3, 1], [-1, -1], [0, -1]]
    assert topk.ids == [["l3", "l1"], [], ["l0"]]
    assert unknown == 0


def test_the_order_of_the_line_counts_even_where_scores_are_equal():
    line = '{"text": "t", "labels": [{"id": "l4", "score": 1}, {"id": "l2", "score": 1}]}'
    topk, _ = read(line, 1)
    assert scored(topk, split_of([[4]]), ["P@1"]).values["P@1"] == 100.0


def test_an_unknown_id_is_a_miss_in_its_place():
    topk, unknown = read('{"labels": ["who", "l2", 77]}', 1)
    assert unknown == 2
    assert scored(topk, split_of([[2]]), ["P@1", "MRR"]).values == {"P@1": 0.0, "MRR": 50.0}


def test_whole_numbers_are_ids_too():
    labels = LabelSet(["7", "16777217"], ["a", "b"])
    topk, _ = read_predictions(io.BytesIO(b'{"labels": [16777217, 7]}'), labels, 1)
    assert topk.rows.tolist() == [[1, 0]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"labels": ["l1", "l1"]}', "'l1' is there twice"),
        ('{"labels": ["who", "who"]}', "'who' is there twice"),
        ('{"labels": [1, "1"]}', "'1' is there twice"),
        ('{"labels": ["l1"', "not JSON"),
        ("", "an empty line"),
        ('["l1"]', "expected an object with a list"),
        ('{"label": ["l1"]}', "expected an object with a list"),
        ('{"labels": "l1"}', "expected an object with a list"),
        ('{"labels": [1.5]}', "expected a label id"),
        ('{"labels": [true]}', "expected a label id"),
        ('{"labels": [null]}', "expected a label id"),
        ('{"labels": [{"score": 1}]}', "expected a label id"),
        ('{"labels": ["l1", {"id": "l2", "score": 1}]}', "mixed"),
        ('{"labels": [{"id": "l1", "score": "high"}]}', "finite score"),
        ('{"labels": [{"id": "l1", "score": NaN}]}', "finite score"),
        (f'{{"labels": [{{"id": "l1", "score": 1{"0" * 400}}}]}}', "finite score"),
        ('{"labels": [{"id": "l1", "score": 1}, {"id": "l2", "score": 2}]}', "scores rise"),
    ],
)
def test_a_damaged_line_is_named(line, message):
    with pytest.raises(DataError, match=f"^p, line 2: .*{message}"):
        read('{"labels": []}\n' + line + "\n", 2)


def test_bytes_that_are_not_utf8_are_named():
    with pytest.raises(DataError, match="^p, line 1: not UTF-8"):
        read(b'{"labels": ["\xff"]}', 1)


@pytest.mark.parametrize("n", [0, 2, 4])
def test_a_wrong_number_of_lines_is_told(n):
    with pytest.raises(DataError, match=f"^p: 3 lines for {n} text"):
        read(GOOD, n)


def test_a_cut_gzip_file_is_told():
    packed = gzip.compress(GOOD.encode() * 50)
    for damaged in (packed[: len(packed) // 2], packed[:-6], packed[:20] + b"xx" + packed[22:]):
        with pytest.raises(DataError, match="^p.*(damaged|JSON|UTF-8)"):
            read_predictions(io.BytesIO(damaged), LABELS, 150, name="p")


def test_one_endless_line_does_not_eat_the_memory(monkeypatch):
    monkeypatch.setattr(scoring, "MAX_PLACES", 5)
    with pytest.raises(DataError, match="3 lines of up to 2 labels are too many"):
        read(GOOD, 3)


def test_the_handle_stays_the_callers():
    handle = io.BytesIO(GOOD.encode())
    read_predictions(handle, LABELS, 3)
    assert not handle.closed
