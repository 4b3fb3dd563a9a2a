from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.dataset import Dataset
from umpteen.errors import DataError


def test_lists_of_ids_become_rows_in_order_of_first_appearance():
    data = Dataset.from_lists(
        np.array(["x", "y"]),
        [["b", 3], ("a",)],
        test_texts=["z"],
        test_labels=[["new", "b"]],
    )
    assert data.labels.ids == ["b", "3", "a", "new"]
    assert data["train"].targets.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0]]
    assert data["test"].targets.toarray().tolist() == [[1, 0, 0, 1]]
    assert all(type(text) is str for text in data["train"].titles)


def test_missing_and_empty_labels_are_left_out_as_in_a_table():
    data = Dataset.from_lists(["x", "y", "z"], [["a", "", None], [float("nan"), 2], [""]])
    assert data.labels.ids == ["a", "2"]
    assert data["train"].targets.toarray().tolist() == [[1, 0], [0, 1], [0, 0]]


@pytest.mark.parametrize("label", [["a"], ("a",), {"id": "a"}, np.array([1, 2])])
def test_a_label_that_is_a_collection_is_refused(label):
    with pytest.raises(DataError, match="a label must be a string or a number, got "):
        Dataset.from_lists(["x", "y"], [["b"], [label]])


def test_label_texts_come_by_id_and_may_name_labels_nobody_has():
    data = Dataset.from_lists(["x"], [["b"]], label_texts={"a": "Apple", "b": "Banana"})
    assert data.labels.ids == ["a", "b"]
    assert data.labels.titles == ["Apple", "Banana"]


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.coo_matrix, sp.csr_array])
def test_matrices_keep_their_columns_and_stay_untouched(kind):
    matrix = kind(np.array([[0, 0.5, 0], [1, 0, 0]], np.float32))
    matrix.data[0] = 0
    stored = matrix.nnz
    with pytest.raises(DataError, match="2 texts but labels for 3|3 train texts but labels for 2"):
        Dataset.from_lists(["x", "y", "z"], matrix)
    data = Dataset.from_lists(["x", "y"], matrix, label_texts=["A", "B", "C"])
    assert data["train"].targets.toarray().tolist() == [[0, 0, 0], [1, 0, 0]]
    assert data.labels.ids == ["0", "1", "2"]
    assert matrix.nnz == stored


@pytest.mark.parametrize(
    ("texts", "labels", "says"),
    [
        ("xy", [["a"], ["b"]], "must be a list of strings, got one string"),
        (["x"], None, "without labels"),
        (["x"], "a", "must be a list for each text"),
        (["x"], ["a"], "must be a list for each text, got 'a'"),
        (["x"], [3], "must be a list for each text, got 3"),
        (["x"], [["a"], ["b"]], "1 train texts but labels for 2"),
        (["x", 3], [["a"], ["b"]], "train text 1 is int"),
        (["x"], [[]], "no train text has any label"),
        (["x"], sp.csr_matrix((1, 3)), "no train text has any label"),
        (["x"], sp.csr_matrix([[2.0]]), r"relevances in \(0, 1\]"),
        (["x"], sp.csr_matrix([[-1.0]]), r"relevances in \(0, 1\]"),
        (["x"], sp.csr_matrix([[np.nan]]), r"relevances in \(0, 1\]"),
    ],
)
def test_bad_values_have_their_sentence(texts, labels, says):
    with pytest.raises(DataError, match=says):
        Dataset.from_lists(texts, labels)


def test_splits_must_agree_on_matrices():
    matrix = sp.csr_matrix(np.eye(2, 3))
    with pytest.raises(DataError, match="with the same columns"):
        Dataset.from_lists(["x", "y"], matrix, test_texts=["z"], test_labels=[["a"]])
    with pytest.raises(DataError, match="with the same columns"):
        Dataset.from_lists(
            ["x", "y"], matrix, test_texts=["z"], test_labels=sp.csr_matrix(np.eye(1, 2))
        )
