"""Label lists in every form that ``umpteen start`` takes."""

import gzip
import json

import pytest

from umpteen.data.label_files import as_labels
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError

TURTLE = """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<http://x/a> a skos:Concept ; skos:prefLabel "fruit"@en, "Obst"@de .
<http://x/b> a skos:Concept ; skos:prefLabel "vehicle"@en, "Fahrzeug"@de ; skos:altLabel "car"@en .
"""


def read(tmp_path, name, content, **options):
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    labels = as_labels(file, **options)
    return list(labels.ids), labels.encoder_texts("all")


def test_python_values():
    assert as_labels({"a": "fruit"}).texts[0] == "fruit"
    assert list(as_labels(["fruit", "vehicle"]).ids) == ["fruit", "vehicle"]
    labels = LabelSet(["a"], ["fruit"])
    assert as_labels(labels) is labels


def test_plain_lines_are_names_and_empty_lines_are_left_out(tmp_path):
    ids, texts = read(tmp_path, "labels.txt", "fruit\n\nkitchen appliance\n")
    assert ids == texts == ["fruit", "kitchen appliance"]


def test_lines_of_blanks_are_no_labels(tmp_path):
    (tmp_path / "labels.txt").write_text("cherry\n   \n\t\nstone fruit\n")
    assert list(as_labels(tmp_path / "labels.txt").ids) == ["cherry", "stone fruit"]


def test_tables_with_usual_column_names(tmp_path):
    table = "code,name,description\n1,fruit,apples and pears\n2,vehicle,\n"
    expected = (["1", "2"], ["fruit apples and pears", "vehicle"])
    assert read(tmp_path, "l.csv", table) == expected
    rows = [
        {"id": "1", "text": "fruit", "content": "apples and pears"},
        {"id": "2", "text": "vehicle"},
    ]
    assert read(tmp_path, "l.jsonl", "".join(json.dumps(r) + "\n" for r in rows)) == expected


def test_the_label_list_of_a_data_folder(tmp_path):
    lines = '{"uid": "u1", "title": "fruit"}\n{"uid": "u2", "title": "vehicle"}\n'
    (tmp_path / "lbl.json.gz").write_bytes(gzip.compress(lines.encode()))
    assert list(as_labels(tmp_path).ids) == ["u1", "u2"]


def test_vocabularies(tmp_path):
    tsv = "<http://x/a>\tfruit\n<http://x/b>\tvehicle\n"
    assert read(tmp_path, "v.tsv", tsv) == (["http://x/a", "http://x/b"], ["fruit", "vehicle"])
    pytest.importorskip("rdflib")
    ids, texts = read(tmp_path, "v.ttl", TURTLE, language="de")
    assert ids == ["http://x/a", "http://x/b"]
    assert texts == ["Obst", "Fahrzeug"]
    assert read(tmp_path, "v.ttl", TURTLE, language="en")[1][1] == "vehicle car"


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("l.csv", "id,name\na,x\na,y\n", {}, "line 3: label id 'a' is there already"),
        ("l.txt", "\n", {}, "no labels"),
        ("l.csv", "id,name\na,x\n", {"language": "de"}, "leave --language out"),
    ],
)
def test_bad_files_are_named_with_line_and_reason(tmp_path, name, content, options, expected):
    with pytest.raises(DataError, match=expected):
        read(tmp_path, name, content, **options)


def test_no_labels_at_all():
    with pytest.raises(DataError, match="at least one"):
        as_labels([])
