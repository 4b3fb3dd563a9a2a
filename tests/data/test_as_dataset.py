"""Data as Python callers give it becomes a data set, or a sentence."""

import logging

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from umpteen.data.as_dataset import as_dataset
from umpteen.errors import DataError

TEXTS = ["red apple", "green pear", "apple and pear"]
LISTS = [["apple", "red"], ["pear"], ["apple", "pear"]]
FRAME = pd.DataFrame({"text": TEXTS, "labels": ["apple;red", "pear", "apple;pear"]})
MATRIX = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 0]])
CLASSES = ["apple", "pear", "red"]


def labels_of(data):
    split = data["train"]
    assert list(split.texts()) == TEXTS
    return [sorted(data.labels.ids[row] for row in line.indices) for line in split.targets]


@pytest.mark.parametrize(
    "given",
    [
        (FRAME,),
        (FRAME.to_dict("list"),),
        (pl.from_pandas(FRAME),),
        (pa.Table.from_pandas(FRAME),),
        (FRAME.assign(labels=LISTS),),
        (pl.DataFrame({"text": TEXTS, "labels": LISTS}),),
        (FRAME.rename(columns={"labels": "answers"}), "answers"),
        (TEXTS, LISTS),
        (tuple(TEXTS), tuple(map(tuple, LISTS))),
        (iter(TEXTS), LISTS),
        (FRAME["text"], FRAME["labels"]),
        (FRAME["text"].set_axis([5, 3, 1]), pd.Series(LISTS, index=[9, 8, 7])),
        (np.array(TEXTS), np.array(FRAME["labels"])),
        (pl.Series(TEXTS), pl.Series(LISTS)),
        (pa.array(TEXTS), pa.array(LISTS)),
        (TEXTS, pd.DataFrame(MATRIX, columns=CLASSES)),
    ],
    ids=lambda given: "-".join(type(each).__name__ for each in given),
)
def test_values_of_many_kinds_are_the_same_data(given):
    assert labels_of(as_dataset(*given)) == LISTS


@pytest.mark.parametrize(
    "matrix", [MATRIX, MATRIX.astype(bool), MATRIX.tolist(), sp.csr_matrix(MATRIX)]
)
@pytest.mark.parametrize("classes", [CLASSES, np.array(CLASSES)])
def test_an_indicator_matrix_is_read_by_its_classes(matrix, classes):
    data = as_dataset(TEXTS, matrix, classes=classes)
    assert labels_of(data) == LISTS
    assert data.labels.ids == CLASSES


def test_paths_and_data_sets_are_read(tiny_data_folder, tiny_data):
    for place in (tiny_data_folder, str(tiny_data_folder)):
        assert as_dataset(place).labels.ids == tiny_data.labels.ids
    assert as_dataset(tiny_data) is tiny_data


def test_columns_are_named(tmp_path):
    frame = FRAME.rename(columns={"text": "body", "labels": "answers"})
    frame["more"] = "x"
    options = {"text_column": "body", "label_column": "answers", "separator": ";"}
    frame.to_csv(tmp_path / "data.csv", index=False)
    for given in (frame, tmp_path / "data.csv"):
        assert labels_of(as_dataset(given, **options)) == LISTS
    whole = as_dataset(frame, **(options | {"separator": "none"}))
    assert "apple;red" in whole.labels.ids


def test_label_texts_are_taken():
    names = {"apple": "an apple", "pear": "a pear", "red": "red things"}
    for given in ((TEXTS, LISTS), (FRAME,), (FRAME["text"], FRAME["labels"])):
        data = as_dataset(*given, label_texts=names)
        assert dict(zip(data.labels.ids, data.labels.titles, strict=True)) == names


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ((TEXTS,), {}, r"texts are given without labels; .* train\(texts, labels\)"),
        ((TEXTS, LISTS[:2]), {}, "3 train texts but labels for 2"),
        ((TEXTS, ["a", "b"]), {}, "3 texts but labels for 2"),
        ((TEXTS, [1.5, 2, 3]), {}, "labels must be a list for each text, got 1.5"),
        ((TEXTS, "apple"), {}, "labels must be a list for each text, got one string"),
        ((TEXTS, MATRIX), {}, "give the labels of the columns as classes="),
        ((TEXTS, MATRIX), {"classes": ["a"]}, "3 columns, but classes has 1 name"),
        ((["a", 2], [["x"], ["y"]]), {}, r"data\[1\] is int, not text"),
        (([["a"], ["b"]], [["x"], ["y"]]), {}, r"data\[0\] is a list"),
        ((None,), {}, "data is None; pass"),
        ((b"data",), {}, "data is bytes"),
        ((FRAME, LISTS), {}, "labels is given, but it has its own"),
        ((FRAME,), {"classes": CLASSES}, "classes is given, but they belong"),
        ((FRAME,), {"label_texts": ["a"]}, "must be a mapping from id to text"),
        ((FRAME,), {"label_column": "tags"}, "tags"),
        ((TEXTS, LISTS), {"text_column": "text"}, "texts and labels have no columns"),
        ((TEXTS, LISTS), {"separator": ";"}, "the labels are lists or a matrix"),
        (("nowhere.csv",), {}, "nowhere.csv"),
    ],
)
def test_what_does_not_fit_is_a_sentence(given, options, sentence):
    with pytest.raises(DataError, match=sentence):
        as_dataset(*given, **options)


def test_a_data_set_takes_no_options(tiny_data):
    for options in ({"label_texts": {"a": "b"}}, {"separator": ";"}, {"classes": ["a"]}):
        with pytest.raises(DataError, match="is given, but"):
            as_dataset(tiny_data, **options)


def test_how_a_table_was_read_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="umpteen"):
        as_dataset(TEXTS, [["apple", "apple"], ["pear"], ["pear"]])
    assert "twice in a row, kept once" in caplog.text


def test_known_labels_decide_how_cells_are_separated():
    frame = pd.DataFrame({"text": TEXTS, "labels": ["salt, fine", "pepper", "salt, fine"]})
    data = as_dataset(frame, known_labels=["salt, fine", "pepper"])
    assert sorted(data.labels.ids) == ["pepper", "salt, fine"]


@pytest.mark.parametrize(
    "labels", [[3, 1, 3], (3, 1, 3), np.array([3, 1, 3]), pd.Series([3, 1, 3])]
)
def test_a_number_for_each_text_is_its_label(labels):
    data = as_dataset(TEXTS, labels)
    assert labels_of(data) == [["3"], ["1"], ["3"]]


def test_a_file_without_a_label_column_names_the_argument(tmp_path):
    (tmp_path / "a.csv").write_text("text,answer\nx,a\n", encoding="utf-8")
    with pytest.raises(DataError, match="label_column="):
        as_dataset(tmp_path / "a.csv")
