"""Annif's corpora as Annif writes them: recognition, names as labels, what is left out."""

from __future__ import annotations

import pytest

from umpteen.data.formats import find_format, load_dataset
from umpteen.errors import DataError

VOCABULARY = "<http://x/a>\tapple\n<http://x/b>\tbanana\t42\n"


def labels_of(data, split="train"):
    matrix = data[split].targets
    return [[data.labels.ids[c] for c in matrix[row].indices] for row in range(matrix.shape[0])]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("d.tsv", "red fruit\t<http://x/a> <http://x/b>\nlong fruit\t<http://x/b>\n", "annif-tsv"),
        ("d.txt", "red fruit\thttp://x/a <http://x/b>\nlong fruit\t<http://x/b>\n", "annif-tsv"),
        ("d.tsv", "red fruit\thttp://x/a http://x/b\nlong fruit\t<http://x/b>\n", "annif-tsv"),
        (
            "d.csv",
            "title,text,subject_uris\nT,red fruit,<http://x/a> <http://x/b>\nU,long fruit,http://x/b\n",
            "annif-csv",
        ),
        (
            "d.jsonl",
            '{"text": "red fruit", "subjects": [{"uri": "http://x/a"}, {"label": "banana"}]}\n'
            '{"text": "long fruit", "metadata": {}, "subjects": [{"uri": "http://x/b"}]}\n',
            "annif-jsonl",
        ),
    ],
)
def test_one_file_is_recognised_and_takes_a_vocabulary(name, content, format, tmp_path):
    (tmp_path / name).write_text(content)
    (tmp_path / "words.tsv").write_text(VOCABULARY)
    assert find_format(tmp_path / name)[0] == format
    data = load_dataset(tmp_path / name, vocabulary=tmp_path / "words.tsv")
    assert list(data["train"].titles) == ["red fruit", "long fruit"]
    assert labels_of(data) == [["http://x/a", "http://x/b"], ["http://x/b"]]
    assert data.labels.titles == ["apple", "banana"]


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("train.tsv", "text\tlabels\nred\ta;b\n", "tsv"),
        ("train.csv", "text,labels\nred,a\n", "csv"),
        ("train.jsonl", '{"text": "red", "labels": ["a"]}\n', "jsonl"),
    ],
)
def test_tables_that_are_not_annifs_stay_what_they_are(name, content, format, tmp_path):
    (tmp_path / name).write_text(content)
    assert find_format(tmp_path)[0] == format
    assert find_format(tmp_path / name)[0] == format


def test_a_folder_of_documents_names_labels_by_uri_or_name(tmp_path):
    (tmp_path / "1.txt").write_text("red\nfruit\n")
    (tmp_path / "1.tsv").write_text("<http://x/a>\tapple\n<http://x/a>\tapple\n")
    (tmp_path / "2.txt").write_text("long fruit")
    (tmp_path / "2.key").write_text("banana\nno such name\n")
    (tmp_path / "3.txt").write_text("no labels")
    (tmp_path / "vocabulary.tsv").write_text(VOCABULARY)
    assert find_format(tmp_path)[0] == "annif-folder"
    data = load_dataset(tmp_path)
    assert list(data["train"].titles) == ["red\nfruit\n", "long fruit"]
    assert list(data["train"].ids) == ["1", "2"]
    assert labels_of(data) == [["http://x/a"], ["http://x/b"]]
    assert data.notes == (
        "1 label not in the vocabulary left out, such as no such name",
        "1 text file without labels left out",
    )


def test_a_label_is_there_once_however_often_a_line_has_it(tmp_path):
    (tmp_path / "d.tsv").write_text("red\t<http://x/a> <http://x/a>\n")
    assert labels_of(load_dataset(tmp_path / "d.tsv")) == [["http://x/a"]]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("d.tsv", "red\t<u>\nno tab\n", r"d\.tsv, line 2: the line has no tab"),
        ("d.csv", "text,subject_uris\na,<u>\nb,<u>,c\n", r"d\.csv, line 3: the row has 3 fields"),
        ("d.jsonl", '{"text": "a", "subjects": [{}]}\n', r"d\.jsonl, line 1: a subject has no"),
        ("d.jsonl", '{"text": 3, "subjects": []}\n', r"d\.jsonl, line 1: 'text' is a number"),
        ("d.jsonl", '{"text": "a", "subjects": 1}\n', r"line 1: 'subjects' is a number"),
        (
            "d.jsonl",
            '{"text": "a", "document_id": "1", "subjects": []}\n{"text": "b", "subjects": []}\n',
            r"line 2: some rows have 'document_id' and some do not",
        ),
    ],
)
def test_damage_is_named_with_file_and_line(name, content, says, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=says):
        load_dataset(tmp_path / name)


def test_labels_that_the_vocabulary_does_not_have_at_all_are_an_error(tmp_path):
    (tmp_path / "d.tsv").write_text("red\t<http://y/a>\n")
    (tmp_path / "words.tsv").write_text(VOCABULARY)
    with pytest.raises(DataError, match="none of the 1 label of the data is in the vocabulary"):
        load_dataset(tmp_path / "d.tsv", vocabulary=tmp_path / "words.tsv")


def test_two_vocabularies_in_a_folder_are_an_error(tmp_path):
    (tmp_path / "train.tsv").write_text("red\t<http://x/a>\n")
    for name in ("a.ttl", "b.rdf"):
        (tmp_path / name).write_text("")
    with pytest.raises(DataError, match="are both vocabularies; keep one"):
        load_dataset(tmp_path)
