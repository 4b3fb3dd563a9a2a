"""Everyday names: a table that fits the codes, trains, and leaves the test split alone."""

import re

import pytest
from icd10_data import build, needs_codes

from umpteen.data.sources import icd10
from umpteen.data.sources.assembly import text_key

pytestmark = needs_codes
TERMS = list(icd10.everyday_terms())


@pytest.fixture(scope="module")
def plain():
    return build(everyday=False)


@pytest.fixture(scope="module")
def data():
    return build()


def labels_of(data, split, row):
    return {data.labels.ids[column] for column in data[split].targets[row].indices}


def test_every_code_exists_and_is_a_label(plain):
    import simple_icd_10_cm as table

    assert len(TERMS) > 250
    codes = {code for _, codes in TERMS for code in codes}
    assert [code for code in codes if not table.is_valid_item(code)] == []
    assert [code for code in codes if code not in plain.labels.rows] == []
    # every chapter of diseases, injuries, causes and visits has some
    assert {code[0] for code in codes} >= set("ABCDEFGHIJKLMNOPQRSTVWXYZ")


def test_terms_are_plain_text_and_stand_once():
    keys = [text_key(term) for term, _ in TERMS]
    assert len(set(keys)) == len(keys)
    for term, codes in TERMS:
        assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9' -]*[A-Za-z0-9]", term), term
        assert "  " not in term
        assert 1 <= len(codes) <= 2


def test_all_of_them_train_with_their_codes_and_the_codes_above(plain, data):
    first = len(plain["train"])
    assert data["train"].titles[first:] == [term for term, _ in TERMS]
    for row, (term, codes) in enumerate(TERMS, start=first):
        above = {code.split(".")[0] for code in codes}
        assert labels_of(data, "train", row) == {*codes, *above}, term


def test_nothing_else_changes(plain, data):
    assert data.labels.fingerprint == plain.labels.fingerprint
    assert data["test"].ids == plain["test"].ids
    assert data["test"].titles == plain["test"].titles
    assert (data["test"].targets != plain["test"].targets).nnz == 0
    n = len(plain["train"])
    assert data["train"].ids[:n] == plain["train"].ids
    assert data["train"].titles[:n] == plain["train"].titles
    assert (data["train"].targets[:n] != plain["train"].targets).nnz == 0


def test_none_is_tested_in_the_same_words(data):
    """Whatever the seed: the tables' own "Toothache NOS" must not be known as "toothache"."""
    for built in (data, build(seed=7)):
        tested = {bag(title) for title in built["test"].titles}
        assert [term for term, _ in TERMS if bag(term) in tested] == []


def bag(text):
    """Words in any order, by hand: without plural s and "NOS"."""
    words = text.lower().replace("-", " ").replace(",", " ").split()
    return " ".join(sorted(w[:-1] if w.endswith("s") else w for w in words if w != "nos"))


def test_terms_the_tables_have_and_codes_they_lack_are_passed_over(monkeypatch, plain):
    known = ["Nosebleed", "nosebleed NOS", "ear wax", "nosebleeds ", "the fracture of wrist"]
    terms = [(term, ["I10"]) for term in known]
    terms += [("zebra stampede", ["Q99.Z"]), ("gazelle stampede", ["Q99.Z", "W55.3"])]
    monkeypatch.setattr(icd10, "everyday_terms", lambda: iter(terms))
    built = icd10.build()
    assert built["train"].titles == [*plain["train"].titles, "gazelle stampede"]
    assert labels_of(built, "train", len(plain["train"])) == {"W55", "W55.3"}
    assert built["test"].titles == plain["test"].titles


def test_terms_follow_the_depth():
    shallow = build(top="chapter", depth=3)
    row = shallow["train"].titles.index("heart attack")
    assert labels_of(shallow, "train", row) == {"9", "I20-I25", "I21"}
