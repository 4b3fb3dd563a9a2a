"""Tables with a column of 0 and 1 per label: found or named, in files and data frames."""

from __future__ import annotations

import json

import pytest

from umpteen import Dataset
from umpteen.data.formats import load_dataset
from umpteen.data.formats.table_options import TableOptions
from umpteen.errors import DataError

ROWS = [
    ("a1", "you fool", 1, 0, 0),
    ("a2", "have a nice day", 0, 0, 0),
    ("a3", "damn you", 1, 1, 0),
    ("a4", "bloody hell", 0, 1, 0),
]
NAMES = ["id", "comment_text", "toxic", "obscene", "threat"]
LABELS = ["toxic", "obscene", "threat"]
WANTED = [["toxic"], [], ["toxic", "obscene"], ["obscene"]]


def labels_of(data):
    ids, targets = data.labels.ids, data["train"].targets
    return [[ids[label] for label in targets[row].indices] for row in range(targets.shape[0])]


def csv_file(folder, rows=ROWS, names=NAMES, name="rows.csv"):
    file = folder / name
    lines = [",".join(names), *(",".join(map(str, row)) for row in rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def frame(rows=ROWS):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(rows, columns=NAMES)


def test_columns_are_found_in_a_csv_file_and_said(tmp_path):
    data = load_dataset(csv_file(tmp_path))
    assert data.labels.ids == LABELS  # the last one has no text: it is a label none the less
    assert labels_of(data) == WANTED
    assert data["train"].ids == ["a1", "a2", "a3", "a4"]
    said = data.notes[0]
    assert "labels from 3 columns of 0 and 1 (toxic, obscene, threat)" in said
    assert "'damn you' -> toxic | obscene" in said


@pytest.mark.parametrize(
    ("yes", "no"), [("1.0", "0.0"), ("True", "False"), ("TRUE", "FALSE"), (1, "")]
)
def test_cells_as_programs_write_them(yes, no, tmp_path):
    rows = [(*row[:2], *(yes if cell else no for cell in row[2:])) for row in ROWS]
    assert labels_of(load_dataset(csv_file(tmp_path, rows))) == WANTED


def test_they_are_found_in_parquet_jsonl_and_data_frames(tmp_path):
    table = frame()
    assert labels_of(Dataset.from_pandas(table)) == WANTED
    assert labels_of(Dataset.from_pandas(table.astype(dict.fromkeys(LABELS, bool)))) == WANTED
    pytest.importorskip("pyarrow")
    table.to_parquet(tmp_path / "rows.parquet")
    assert labels_of(load_dataset(tmp_path / "rows.parquet")) == WANTED
    lines = "".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in ROWS)
    (tmp_path / "rows.jsonl").write_text(lines)
    assert labels_of(load_dataset(tmp_path / "rows.jsonl")) == WANTED


def test_columns_that_are_named_are_the_labels(tmp_path):
    two = TableOptions(label_columns=("toxic", "Threat"))
    data = load_dataset(csv_file(tmp_path), options=two)
    assert data.labels.ids == ["toxic", "threat"]
    assert labels_of(data) == [["toxic"], [], ["toxic"], []]
    same = Dataset.from_pandas(frame(), label_column=["toxic", "threat"])
    assert labels_of(same) == labels_of(data)
    with pytest.raises(DataError, match=r"found the columns id, .*none is named 'rude'"):
        load_dataset(csv_file(tmp_path), options=TableOptions(label_columns=("toxic", "rude")))


def test_a_column_with_a_known_name_comes_first(tmp_path):
    rows = [(*row[:2], row[2], row[3], "x;y") for row in ROWS]
    data = load_dataset(csv_file(tmp_path, rows, [*NAMES[:4], "tags"]))
    assert data.labels.ids == ["x", "y"]


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["text", "price"], [("a b", 1), ("c d", 0)]),  # one column may be anything
        (["text", "votes", "stars"], [("a b", 1, 3), ("c d", 0, 5)]),
        (["text", "red", "blue"], [("a b", 0, 0), ("c d", 0, 0)]),
    ],
)
def test_other_columns_are_not_taken_for_labels(names, rows, tmp_path):
    with pytest.raises(DataError, match="none has a name that is known for labels"):
        load_dataset(csv_file(tmp_path, rows, names))


def test_another_value_further_down_is_an_error_with_its_place(tmp_path):
    rows = [("a b", 1, 0)] * 150 + [("c d", 2, 0)]
    file = csv_file(tmp_path, rows, ["text", "red", "blue"])
    with pytest.raises(DataError, match=r"line 152, column 'red': holds '2'; expected 0 or 1"):
        load_dataset(file)


def test_splits_share_the_columns(tmp_path):
    csv_file(tmp_path, ROWS[:3], name="train.csv")
    csv_file(tmp_path, ROWS[3:], name="test.csv")
    data = load_dataset(tmp_path)
    assert data.labels.ids == LABELS
    assert data["test"].targets.toarray().tolist() == [[0, 1, 0]]


# -- one label in a cell, in several columns --------------------------------------------------

CELLS = [("a", "red", ""), ("b", "green", "red"), ("c", "", ""), ("d", "1", "blue")]
IN_CELLS = [["red"], ["red", "green"], [], ["1", "blue"]]


@pytest.mark.parametrize(
    "names", [("label1", "label2"), ("Tag_1", "Tag_2"), ("topic 1", "topic 2")]
)
def test_numbered_columns_of_labels_are_found_and_said(names, tmp_path):
    data = load_dataset(csv_file(tmp_path, CELLS, ["text", *names]))
    assert [sorted(row) for row in labels_of(data)] == [sorted(row) for row in IN_CELLS]
    assert f"labels from 2 columns, one in a cell ({', '.join(names)})" in data.notes[0]


def test_columns_with_a_label_in_each_cell_can_be_named(tmp_path):
    file = csv_file(tmp_path, CELLS, ["text", "main", "other"])
    with pytest.raises(DataError, match="none has a name that is known for labels"):
        load_dataset(file)
    data = load_dataset(file, options=TableOptions(label_columns=("main", "other")))
    assert data.labels.ids == ["red", "green", "1", "blue"]
    assert data["train"].targets.nnz == 5


def test_numbered_columns_of_0_and_1_stay_labels_of_their_own(tmp_path):
    rows = [("a", 0, 1), ("b", 1, 1)]
    data = load_dataset(csv_file(tmp_path, rows, ["text", "label1", "label2"]))
    assert data.labels.ids == ["label1", "label2"]
