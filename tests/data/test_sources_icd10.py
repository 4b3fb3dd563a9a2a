"""The ICD-10-CM data set, built from the real package."""

import numpy as np
import pytest
from icd10_data import build, build_anew, needs_codes

from umpteen.data.sources.assembly import text_key
from umpteen.errors import ConfigError

LONG_CODE = "Displaced fracture of triquetrum [cuneiform] bone, left wrist"  # S62.112

pytestmark = needs_codes


@pytest.fixture(scope="module")
def data():
    return build()


@pytest.fixture(scope="module")
def table():
    import simple_icd_10_cm

    return simple_icd_10_cm


def labels_of(data, text):
    for split in (data["train"], data["test"]):
        keys = [text_key(title) for title in split.titles]
        if text_key(text) in keys:
            columns = split.targets[keys.index(text_key(text))].indices
            return sorted(data.labels.ids[column] for column in columns)
    raise AssertionError(f"{text!r} is no query")


@pytest.mark.parametrize(
    ("term", "codes"),
    [
        ("Nosebleed", ["R04", "R04.0"]),  # an inclusion term
        ("glandular fever", ["B27"]),  # an "includes" note
        ("cardiac infarction", ["I21", "I22"]),  # a note of two codes
        ("expressive language disorder", ["F80", "F80.1"]),  # equals its label, so train only
        ("'intestinal flu' [viral gastroenteritis]", ["A08"]),  # named by an "excludes" note
        ("Fracture of wrist NOS", ["S62", "S62.1"]),  # of S62.10, deeper than the labels
        ("current child sexual abuse", ["T74", "T74.2", "T76", "T76.2"]),  # two codes at once
    ],
)
def test_a_term_has_its_codes_and_the_codes_above(data, term, codes):
    assert labels_of(data, term) == codes


def test_only_terms_that_training_has_not_seen_are_tested(data):
    train = {text_key(title) for title in data["train"].titles}
    test = [text_key(title) for title in data["test"].titles]
    assert len(set(test)) == len(test)
    assert not train & set(test)
    described = {text_key(title) for title in data.labels.titles}
    assert not described & set(test)


def test_every_code_up_to_the_depth_can_be_answered(data, table):
    assert data.label_counts.min() >= 1
    assert all(data.labels.titles)
    assert {len(label.replace(".", "")) for label in data.labels.ids} == {3, 4}
    for label in ("I21.9", "W19", "A01.0", "S52.5"):
        assert data.labels.titles[data.labels.row(label)] == table.get_description(label)
    # a code with the words of the code above it counts as that one
    assert "T48.5X" not in build(depth=5).labels.rows
    assert len(data["train"]) > 10_000
    assert len(data["test"]) > 2_000


def test_labels_are_closed_upwards(data, table):
    """Whoever has I21.0 has I21: checked through the package's own ancestors."""
    rows = data.labels.rows
    for split in (data["train"], data["test"]):
        for row in np.linspace(0, len(split) - 1, 301).astype(int):
            found = set(split.targets[row].indices.tolist())
            for label in list(found):
                above = table.get_parent(data.labels.ids[label])
                assert above not in rows or rows[above] in found


def test_the_same_seed_builds_the_same_data(data):
    again = build_anew()
    assert again.labels.fingerprint == data.labels.fingerprint
    for name in ("train", "test"):
        assert again[name].titles == data[name].titles
        assert (again[name].targets != data[name].targets).nnz == 0
    other = build(seed=7)
    assert other["test"].titles != data["test"].titles


def test_options_change_the_labels():
    tall = build(top="chapter", depth=3)
    assert {"9", "I20-I25", "I21"} <= set(tall.labels.ids)
    assert labels_of(tall, "Nosebleed") == ["18", "R00-R09", "R04"]
    bare = build(descriptions="none")
    described = [text_key(title) for title in bare.labels.titles]
    for title, row in zip(bare["train"].titles, bare["train"].targets, strict=True):
        assert text_key(title) not in [described[column] for column in row.indices]
    deep = build(descriptions="deeper")
    assert labels_of(deep, LONG_CODE) == ["S62", "S62.1"]
    with pytest.raises(AssertionError, match="no query"):
        labels_of(bare, LONG_CODE)


def test_an_unknown_option_value_is_an_error():
    with pytest.raises(ConfigError, match="3 to 7"):
        build(depth=2)
    with pytest.raises(ConfigError, match="category, block, chapter"):
        build(top="roof")
    with pytest.raises(ConfigError, match="own, deeper, all, none"):
        build(descriptions="some")
