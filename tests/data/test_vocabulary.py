"""Vocabularies: names in a language with fallback, deprecated labels, other names, broader ones."""

from __future__ import annotations

import gzip
import sys

import numpy as np
import pytest

from umpteen.data.dataset import Dataset
from umpteen.data.formats import load_dataset
from umpteen.data.vocabulary import read_vocabulary, with_vocabulary
from umpteen.errors import DataError, MissingExtra

TURTLE = """
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix ex: <http://example.org/> .
ex:fruit a skos:Concept ; skos:prefLabel "fruit"@en, "Obst"@de ; skos:notation "634" .
ex:cherry a skos:Concept ; skos:prefLabel "cherry"@en-GB, "Kirsche"@de ;
    skos:altLabel "sweet cherry"@en, "gean"@en, "Kirschen"@de, "Prunus avium" ;
    skos:broader ex:fruit, ex:plant .
ex:plum a skos:Concept ; skos:prefLabel "Pflaume"@de .
ex:leaf a skos:Concept ; rdfs:label "leaf" .
ex:named a skos:Concept .
ex:old a skos:Concept ; skos:prefLabel "old fruit"@en ; owl:deprecated true .
ex:current a skos:Concept ; skos:prefLabel "current"@en ; owl:deprecated false .
ex:scheme a skos:ConceptScheme ; skos:prefLabel "a scheme"@en .
"""
EX = "http://example.org/"


@pytest.fixture
def turtle(tmp_path):
    pytest.importorskip("rdflib")
    (tmp_path / "words.ttl").write_text(TURTLE, "utf-8")
    return tmp_path / "words.ttl"


def texts(vocabulary):
    labels = vocabulary.labels
    return {i.removeprefix(EX): t for i, t in zip(labels.ids, labels.titles, strict=True)}


def test_names_are_in_the_language_or_the_next_best(turtle):
    english = read_vocabulary(turtle, "en")
    assert texts(english) == {
        "fruit": "fruit", "cherry": "cherry", "plum": "Pflaume", "leaf": "leaf", "named": "named",
        "current": "current",
    }  # fmt: skip
    german = read_vocabulary(turtle, "de")
    assert texts(german)["cherry"] == "Kirsche"
    assert texts(german)["current"] == "current"
    assert english.notes == (
        "1 deprecated concept left out",
        "3 labels without a name in 'en': another name is used",
    )


def test_other_names_are_the_content_and_relations_the_metadata(turtle):
    labels = read_vocabulary(turtle, "en").labels
    cherry, fruit = labels.row(EX + "cherry"), labels.row(EX + "fruit")
    assert labels.contents[cherry] == "gean; sweet cherry; Prunus avium"
    assert labels.encoder_texts()[cherry] == "cherry gean; sweet cherry; Prunus avium"
    assert labels.metadata[cherry] == {"broader": [EX + "fruit", EX + "plant"]}
    assert labels.metadata[fruit] == {"notation": "634"}
    assert read_vocabulary(turtle, "de").labels.contents[cherry] == "Kirschen; Prunus avium"


def test_without_a_language_the_most_frequent_one_is_used_and_named(turtle):
    found = read_vocabulary(turtle)
    assert (found.language, found.languages) == ("de", ("de", "en", "en-GB"))
    assert found.notes[-1] == "label texts in 'de'; choose with --language de|en|en-GB"


def test_an_unknown_language_is_refused_with_those_there_are(turtle):
    with pytest.raises(DataError, match=r"words\.ttl: no label has a name in 'fr'.*de, en, en-GB"):
        read_vocabulary(turtle, "fr")


@pytest.mark.parametrize(("syntax", "end"), [("xml", "rdf"), ("nt", "nt"), ("json-ld", "jsonld")])
def test_every_syntax_gives_the_same_labels_plain_or_gzip(turtle, syntax, end, tmp_path):
    import rdflib

    written = rdflib.Graph().parse(turtle).serialize(format=syntax, encoding="utf-8")
    (tmp_path / f"other.{end}").write_bytes(written)
    (tmp_path / f"packed.{end}.gz").write_bytes(gzip.compress(written))
    wanted = read_vocabulary(turtle, "en").labels
    assert read_vocabulary(tmp_path / f"other.{end}", "en").labels == wanted
    assert read_vocabulary(tmp_path / f"packed.{end}.gz", "en").labels == wanted


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.ttl", "this is no turtle <", r"a\.ttl: the file is not valid turtle"),
        ("a.rdf", "<rdf", r"a\.rdf: the file is not valid xml"),
        ("a.ttl", "", r"a\.ttl: the file has no skos:Concept"),
        ("a.doc", "", "a vocabulary is a file with one of the ends"),
        ("a.tsv", "\tname\n", r"a\.tsv, line 1: the line does not begin with an id"),
        ("a.tsv", "<x>\ta\n<x>\tb\n", r"a\.tsv, line 2: label id 'x' is there already"),
        ("a.tsv", "<x>\n", r"a\.tsv: the vocabulary has no labels"),
        ("a.csv", "uri,name\nx,y\n", r"a\.csv, line 1: found the columns uri, name"),
        ("a.csv", "uri,label_en\n,y\n", r"a\.csv, line 2: the row has no uri"),
        ("a.csv", 'uri,label_en\nx,"y\n', r"a\.csv, line 2: the fields cannot be separated"),
    ],
)
def test_damage_is_named_with_file_and_line(name, content, says, tmp_path):
    if name.endswith(("ttl", "rdf")):
        pytest.importorskip("rdflib")
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=says):
        read_vocabulary(tmp_path / name)


def test_a_vocabulary_in_another_encoding_is_named(tmp_path):
    pytest.importorskip("rdflib")
    (tmp_path / "a.ttl").write_bytes('<u> <v> "hedelmät" .'.encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.ttl: the file is not UTF-8; save the file as UTF-8"):
        read_vocabulary(tmp_path / "a.ttl")


def test_without_rdflib_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "words.ttl").write_text(TURTLE)
    monkeypatch.setitem(sys.modules, "rdflib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'umpteen\[skos\]'"):
        read_vocabulary(tmp_path / "words.ttl")


def test_tables_of_annif_have_one_or_several_languages(tmp_path):
    (tmp_path / "a.tsv").write_text(
        "\ufeff<http://x/1>\tone\n<http://x/2>\ttwo\t4.2\n<http://x/3>\n"
    )
    one = read_vocabulary(tmp_path / "a.tsv", "en")
    assert one.labels.ids == ["http://x/1", "http://x/2"]
    assert one.labels.metadata[1] == {"notation": "4.2"}
    assert one.notes == ("1 deprecated concept left out",)
    (tmp_path / "a.csv").write_text(
        'uri,notation,label_fi,label_en\nu1,,yksi,"one, 1"\nu2,7,,two\n'
    )
    english, finnish = (read_vocabulary(tmp_path / "a.csv", code) for code in ("en", "fi"))
    assert english.labels.titles == ["one, 1", "two"]
    assert finnish.labels.titles == ["yksi", "two"]


def test_any_data_set_can_take_its_labels_from_a_vocabulary(turtle):
    data = Dataset.from_lists(
        ["red", "blue", "green"],
        [[EX + "cherry", EX + "fruit"], ["Pflaume", EX + "gone"], [EX + "old"]],
    )
    found = with_vocabulary(data, read_vocabulary(turtle, "en"))
    ids = found.labels.ids
    rows = [[ids[c] for c in found["train"].targets[r].indices] for r in range(3)]
    assert [sorted(row) for row in rows] == [[EX + "cherry", EX + "fruit"], [EX + "plum"], []]
    assert found["train"].targets.dtype == np.float32
    assert found.notes[-1] == f"2 labels not in the vocabulary left out, such as {EX}gone"
    with pytest.raises(DataError, match="none of the 1 label of the data is in the vocabulary"):
        with_vocabulary(Dataset.from_lists(["a"], [["x"]]), read_vocabulary(turtle, "en"))


def test_two_names_of_one_label_are_one_label(turtle):
    data = Dataset.from_lists(["red"], [["Kirsche", EX + "cherry"]])
    found = with_vocabulary(data, read_vocabulary(turtle, "en"))
    assert found["train"].targets.sum() == 1


def test_the_language_is_that_of_the_vocabulary_in_the_folder(turtle, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "documents.tsv").write_text(f"red\t<{EX}cherry>\n")
    turtle.rename(folder / "words.ttl")
    assert "Kirsche" in load_dataset(folder).labels.titles
    assert "cherry" in load_dataset(folder, language="en").labels.titles
    with pytest.raises(DataError, match="no vocabulary is here; name one with --vocabulary"):
        load_dataset(folder / "documents.tsv", language="en")
