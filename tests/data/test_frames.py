"""Tables in memory become data sets: pandas, polars, Arrow, Hugging Face, indicator matrices."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen import Dataset
from umpteen.errors import DataError

COLUMNS = {"Text": ["red shoes", "wool coat", "boots"], "Tags": ["shoes;red", "clothes", None]}
LISTS = {"text": COLUMNS["Text"], "labels": [["shoes", "red"], ["clothes"], []]}


def labels_of(data, split="train"):
    ids, targets = data.labels.ids, data[split].targets
    return [sorted(ids[label] for label in targets[row].indices) for row in range(len(data[split]))]


EXPECTED = [["red", "shoes"], ["clothes"], []]


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "dict"])
@pytest.mark.parametrize("columns", [COLUMNS, LISTS])
def test_frames_of_every_library_are_read(library, columns):
    if library == "dict":
        frame = columns
    elif library == "pyarrow":
        frame = pytest.importorskip("pyarrow").table(columns)
    else:
        frame = pytest.importorskip(library).DataFrame(columns)
    make = Dataset.from_pandas if library == "pandas" else Dataset.from_arrow
    data = make(frame)
    assert data["train"].titles == columns[next(iter(columns))]
    assert labels_of(data) == EXPECTED
    assert any("1 row without labels" in note for note in data.notes)


def test_options_choose_columns_and_splits():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "key": [7, 8],
            "head": ["a", "b"],
            "body": ["x", np.nan],
            "n": [1, 2],
            "kinds": ["u,v", "v,w"],
        },
        index=[30, 40],
    )
    data = Dataset.from_pandas(
        frame,
        text_column=["title=head", "content=body"],
        label_column="kinds",
        id_column="key",
        separator=",",
        test=frame[:1],
        label_texts={"u": "U", "v": "V", "w": "W"},
        name="mine",
    )
    assert (data["train"].titles, data["train"].contents) == (["a", "b"], ["x", ""])
    assert data["train"].ids == ["7", "8"]
    assert labels_of(data) == [["u", "v"], ["v", "w"]]
    assert labels_of(data, "test") == [["u", "v"]]
    assert data.labels.titles == ["U", "V", "W"]
    assert data.name == "mine"


def test_whole_numbers_with_holes_stay_whole():
    pandas = pytest.importorskip("pandas")
    data = Dataset.from_pandas(pandas.DataFrame({"text": ["a", "b", "c"], "label": [1, None, 2]}))
    assert data.labels.ids == ["1", "2"]
    assert labels_of(data) == [["1"], [], ["2"]]


def test_arrays_and_categories_in_cells_are_read():
    pandas = pytest.importorskip("pandas")
    cells = pandas.Series([np.array(["u", "v"]), np.array(["v"])])
    data = Dataset.from_pandas(pandas.DataFrame({"text": ["a", "b"], "labels": cells}))
    assert labels_of(data) == [["u", "v"], ["v"]]
    kinds = pandas.Series(["x", "y"], dtype="category")
    data = Dataset.from_pandas(pandas.DataFrame({"text": ["a", "b"], "labels": kinds}))
    assert labels_of(data) == [["x"], ["y"]]


def test_a_mapping_from_split_to_table_is_read():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(LISTS)
    data = Dataset.from_arrow({"train": table, "dev": table.slice(1, 1)})
    assert list(data.splits) == ["train", "validation"]
    with pytest.raises(DataError, match="split 'unsupervised' is not known"):
        Dataset.from_arrow({"train": table, "unsupervised": table})


def test_class_numbers_in_arrow_metadata_become_names():
    arrow = pytest.importorskip("pyarrow")
    features = {
        "text": {"dtype": "string", "_type": "Value"},
        "label": {"names": ["neg", "pos"], "_type": "ClassLabel"},
        "tags": {"feature": {"names": ["x", "y"], "_type": "ClassLabel"}, "_type": "List"},
    }
    metadata = {b"huggingface": json.dumps({"info": {"features": features}}).encode()}
    table = arrow.table(
        {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [], [1]]}
    ).replace_schema_metadata(metadata)
    data = Dataset.from_arrow(table)
    assert labels_of(data) == [["pos"], ["neg"], []]
    data = Dataset.from_arrow(table, label_column="tags")
    assert labels_of(data) == [["x", "y"], [], ["y"]]
    broken = table.set_column(1, "label", arrow.array([0, 1, 2]))
    with pytest.raises(DataError, match="column 'label': a class number is outside the 2 names"):
        Dataset.from_arrow(broken.replace_schema_metadata(metadata))


@pytest.mark.parametrize("value", [["a", "b"], 3, "text", np.zeros(3)])
def test_what_is_no_table_is_named(value):
    pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=f"expected a table .*, got {type(value).__name__}"):
        Dataset.from_arrow(value)


INDICATOR = [[1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    "labels",
    [np.array(INDICATOR), np.array(INDICATOR, bool), np.array(INDICATOR, float), INDICATOR],
)
def test_an_indicator_array_needs_classes(labels):
    with pytest.raises(DataError, match=r"an array of shape \(2, 3\).* as classes="):
        Dataset.from_lists(["x", "y"], labels)
    data = Dataset.from_lists(["x", "y"], labels, classes=["u", "v", "w"])
    assert labels_of(data) == [["u", "w"], ["v"]]
    assert data.labels.ids == ["u", "v", "w"]
    with pytest.raises(DataError, match="have 3 columns, but classes has 2 names"):
        Dataset.from_lists(["x", "y"], labels, classes=["u", "v"])


def test_classes_name_the_columns_of_a_sparse_matrix():
    data = Dataset.from_lists(["x", "y"], sp.csr_matrix(INDICATOR), classes=["u", "v", "w"])
    assert labels_of(data) == [["u", "w"], ["v"]]
    with pytest.raises(DataError, match="3 label columns but 1 classes"):
        Dataset.from_lists(["x", "y"], sp.csr_matrix(INDICATOR), classes=["u"])


def test_the_columns_of_an_indicator_frame_are_its_classes():
    pandas = pytest.importorskip("pandas")
    labels = pandas.DataFrame(INDICATOR, columns=["u", "v", "w"])
    assert labels_of(Dataset.from_lists(["x", "y"], labels)) == [["u", "w"], ["v"]]


def test_lists_of_numbers_are_ids_unless_they_look_like_indicators():
    assert Dataset.from_lists(["x", "y"], [[0], [1]]).labels.ids == ["0", "1"]
    assert Dataset.from_lists(["x", "y"], [[0, 1], [1, 2]]).labels.ids == ["0", "1", "2"]


def test_a_label_twice_in_a_list_is_kept_once():
    data = Dataset.from_lists(["x", "y"], [["a", "b", "a"], ["b"]])
    assert labels_of(data) == [["a", "b"], ["b"]]
    assert data.notes == ("train: 1 label twice in a row, kept once",)


def test_a_column_twice_is_refused():
    frame = pytest.importorskip("pandas").DataFrame(
        [["x", "a", "b"]], columns=["text", "label", "label"]
    )
    with pytest.raises(DataError, match="column 'label' is there twice"):
        Dataset.from_pandas(frame)


def test_one_column_is_no_table():
    with pytest.raises(DataError, match=r"one column \(Series\); expected a table"):
        Dataset.from_pandas(pytest.importorskip("pandas").Series(["x"], name="text"))


def test_errors_name_arguments_of_python():
    with pytest.raises(DataError, match="Name it with label_column="):
        Dataset.from_pandas(
            pytest.importorskip("pandas").DataFrame({"text": ["x"], "answer": ["a"]})
        )


def test_bytes_are_called_so():
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"text": arrow.array([b"x"]), "labels": [["a"]]})
    with pytest.raises(DataError, match="'text' is bytes; expected a string"):
        Dataset.from_arrow(table)


def test_iterators_are_lists_of_texts_and_labels():
    data = Dataset.from_lists(iter(["x", "y"]), (row for row in [["a"], ["b"]]))
    assert data.labels.ids == ["a", "b"]
