"""Data of other programs: fastText, Hugging Face datasets, and vectors without text."""

from __future__ import annotations

import json

import pytest

from umpteen.data.convert import save_dataset
from umpteen.data.dataset import Dataset
from umpteen.data.formats import find_format, load_dataset
from umpteen.data.formats.table_options import TableOptions
from umpteen.errors import ConfigError, DataError


def labels_of(data, split="train"):
    ids, targets = data.labels.ids, data[split].targets
    return [[ids[label] for label in targets[row].indices] for row in range(targets.shape[0])]


FASTTEXT = (
    "__label__sauce __label__cheese How much does potato starch affect a cheese sauce ?\n"
    "__label__food-safety Dangerous pathogens\n"
    "\n"
    "What is\tthe name __label__food-safety of this cut\n"
)


def test_fasttext_is_read(tmp_path):
    (tmp_path / "cooking.train").write_text(FASTTEXT)
    assert find_format(tmp_path / "cooking.train")[0] == "fasttext"
    data = load_dataset(tmp_path / "cooking.train")
    assert labels_of(data) == [["sauce", "cheese"], ["food-safety"], ["food-safety"]]
    assert data["train"].titles[1:] == ["Dangerous pathogens", "What is the name of this cut"]


def test_a_folder_of_fasttext_files_has_splits(tmp_path):
    for name in ("train.txt", "valid.txt", "test.txt"):
        (tmp_path / name).write_text(FASTTEXT)
    assert list(load_dataset(tmp_path).splits) == ["train", "validation", "test"]
    with pytest.raises(ConfigError, match="format 'fasttext' is not known"):
        save_dataset(load_dataset(tmp_path), tmp_path / "out", "fasttext")
    with pytest.raises(DataError, match="--label-column is for tables"):
        load_dataset(tmp_path, options=TableOptions(label_column="x"))


@pytest.fixture(scope="module")
def hub():
    pytest.importorskip("pyarrow")
    return pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def classes(hub):
    features = hub.Features(
        {"text": hub.Value("string"), "label": hub.ClassLabel(names=["neg", "pos", "mixed"])}
    )
    rows = {"text": [f"text {i}" for i in range(25)], "label": [i % 3 for i in range(25)]}
    return hub.Dataset.from_dict(rows, features=features)


EXPECTED = [[["neg", "pos", "mixed"][i % 3]] for i in range(25)]


@pytest.mark.parametrize("shards", [1, 3])
def test_what_save_to_disk_writes_is_read(classes, shards, tmp_path):
    classes.save_to_disk(tmp_path / "data", num_shards=shards)
    assert find_format(tmp_path / "data")[0] == "hugging-face"
    data = load_dataset(tmp_path / "data")
    assert data["train"].titles == classes["text"][:]
    assert labels_of(data) == EXPECTED


def test_the_splits_of_a_dict_are_read(hub, classes, tmp_path):
    parts = {"train": classes, "test": classes.select([3, 4]), "unsupervised": classes}
    hub.DatasetDict(parts).save_to_disk(tmp_path / "data")
    data = load_dataset(tmp_path / "data")
    assert {name: len(split) for name, split in data.splits.items()} == {"train": 25, "test": 2}
    assert labels_of(data, "test") == [["neg"], ["pos"]]


def test_lists_of_classes_become_names_on_disk_in_parquet_and_in_memory(hub, tmp_path):
    names = hub.ClassLabel(names=["x", "y", "z"])
    lists = getattr(hub, "List", None) or hub.Sequence
    features = hub.Features({"text": hub.Value("string"), "tags": lists(names)})
    rows = {"text": ["a", "b", "c"], "tags": [[0, 1], [], [2, 0]]}
    given = hub.Dataset.from_dict(rows, features=features)
    given.save_to_disk(tmp_path / "disk")
    given.to_parquet(tmp_path / "train.parquet")
    for data in (
        load_dataset(tmp_path / "disk"),
        load_dataset(tmp_path / "train.parquet"),
        Dataset.from_hf(given),
    ):
        assert sorted(map(sorted, labels_of(data))) == [[], ["x", "y"], ["x", "z"]]


def test_objects_in_memory_are_read_through_selection_and_order(hub, classes):
    order = [20, 3, 11]
    data = Dataset.from_hf(hub.DatasetDict({"train": classes.select(order), "test": classes}))
    assert data["train"].titles == [f"text {i}" for i in order]
    assert labels_of(data) == [EXPECTED[i] for i in order]
    assert labels_of(data, "test") == EXPECTED


def test_parquet_files_named_as_on_the_hub_are_read(classes, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    classes.select(range(10)).to_parquet(folder / "train-00000-of-00002.parquet")
    classes.select(range(10, 25)).to_parquet(folder / "train-00001-of-00002.parquet")
    classes.select([0]).to_parquet(folder / "test-00000-of-00001.parquet")
    data = load_dataset(tmp_path)
    assert labels_of(data) == EXPECTED
    assert labels_of(data, "test") == [["neg"]]


def test_a_part_of_a_split_that_lacks_a_column_is_named(classes, tmp_path):
    classes.to_parquet(tmp_path / "train-00000-of-00002.parquet")
    text = classes.column_names[0]
    classes.remove_columns(text).to_parquet(tmp_path / "train-00001-of-00002.parquet")
    with pytest.raises(DataError, match=f"00001-of-00002.parquet: column '{text}' is missing"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("state.json", "{}", "expected file names in '_data_files'"),
        ("state.json", '{"_data_files": [{"filename": "../a.arrow"}]}', "expected file names"),
        ("state.json", '{"_data_files": [{"filename": "no.arrow"}]}', "no.arrow: the file cannot"),
        ("data-00000-of-00001.arrow", "junk", "cannot be read as Arrow"),
        ("dataset_dict.json", '{"splits": ["a"]}', "found the splits a; expected one of train"),
        ("dataset_dict.json", '{"splits": ["../x"]}', "found the splits ../x; expected one of"),
        ("dataset_dict.json", "[]", "expected an object with a list 'splits'"),
    ],
)
def test_damaged_folders_are_named(classes, file, content, says, tmp_path):
    classes.save_to_disk(tmp_path / "data")
    (tmp_path / "data" / file).write_text(content)
    with pytest.raises(DataError, match=says):
        load_dataset(tmp_path / "data")


def test_a_cut_arrow_file_is_named(classes, tmp_path):
    classes.save_to_disk(tmp_path / "data")
    file = tmp_path / "data" / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:-600])
    with pytest.raises(DataError, match="data: the data cannot be read|cannot be read as Arrow"):
        load_dataset(tmp_path / "data")


@pytest.mark.parametrize(
    "content",
    ["1 3:0.5 10:1\n-1 2:1\n", "2 5 3\n0,2 1:0.3 4:1.5\n1 0:1\n", "0:1.0 7:2\n", "1,2 5:1e-3\n"],
)
@pytest.mark.parametrize("inside", [False, True])
def test_vectors_without_texts_are_answered_with_what_is_needed(content, inside, tmp_path):
    (tmp_path / "vectors.txt").write_text(content)
    with pytest.raises(DataError, match="holds numbers of features .SVMlight.*umpteen reads texts"):
        load_dataset(tmp_path if inside else tmp_path / "vectors.txt")


def test_other_files_get_a_short_sentence(tmp_path):
    (tmp_path / "notes.md").write_text("some words\n")
    with pytest.raises(DataError, match="is a file in none of the known formats") as error:
        load_dataset(tmp_path / "notes.md")
    assert len(str(error.value).replace(str(tmp_path), "")) < 200
    (tmp_path / "packages.csv").write_text("text,labels\nx,a\n")
    with pytest.raises(DataError, match=r"Name the file itself: .*packages\.csv"):
        load_dataset(tmp_path)
    (tmp_path / "more.json").write_text(json.dumps([{"text": "x"}]))
    with pytest.raises(DataError, match="found more.json, notes.md, packages.csv; looked for"):
        load_dataset(tmp_path)


def test_a_streamed_data_set_is_named(classes):
    with pytest.raises(DataError, match="train is a streamed data set; load it whole"):
        Dataset.from_hf(classes.to_iterable_dataset())


def test_a_workbook_is_answered_with_what_to_do(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04 and more")
    with pytest.raises(DataError, match=r"a.xlsx is a workbook of a spreadsheet; save .* as CSV"):
        load_dataset(tmp_path / "a.xlsx")
