import hashlib

import pytest

from umpteen.data.labels import LabelSet, join_texts
from umpteen.errors import DataError


def test_ids_rows_and_texts_go_together():
    labels = LabelSet(["x", "7"], ["an ex", ""], ["", "more"])
    assert [labels.row(i) for i in labels.ids] == [0, 1]
    assert list(labels.texts) == ["an ex", "7"]  # the id where there is no title
    assert labels.texts[-1:] == ["7"]
    assert labels.encoder_texts() == ["an ex", "more"]
    assert labels.encoder_texts("title") == ["an ex", ""]
    assert len(labels) == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((["a", "b"], ["A"]), "2 label ids but 1 label texts"),
        ((["a", "b"], ["A", "B"], ["C"]), "2 label ids but 1 label contents"),
        ((["a", "b", "a"], ["A", "B", "C"]), "'a' is there twice"),
    ],
)
def test_what_does_not_fit_together_is_an_error(arguments, says):
    with pytest.raises(DataError, match=says):
        LabelSet(*arguments)


def test_an_unknown_id_is_an_error():
    with pytest.raises(DataError, match="no label has the id 'z'"):
        LabelSet(["a"], ["A"]).row("z")


@pytest.mark.parametrize(
    "odd", ["plain", "", "caf\u00e9", "\u4e2d\u6587", "\ud800", "x" * 1023, "x" * 1024]
)
def test_the_fingerprint_is_of_sizes_and_bytes(odd):
    labels = LabelSet(["a", "b", "c"], ["apple", odd, "cherry"], ["", "green", odd])
    digest = hashlib.sha256()
    for fields in zip(labels.ids, labels.titles, labels.contents, strict=True):
        for field in fields:
            raw = field.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
    assert labels.fingerprint == digest.hexdigest()[:32]


def test_the_fingerprint_feels_order_ids_texts_and_where_fields_end():
    sets = [
        LabelSet(["a", "b"], ["A", "B"]),
        LabelSet(["b", "a"], ["B", "A"]),
        LabelSet(["a", "c"], ["A", "B"]),
        LabelSet(["a", "b"], ["A", "C"]),
        LabelSet(["a", "b"], ["A", "B"], ["", "c"]),
        LabelSet(["a", "bA"], ["", "B"]),
        LabelSet(["aA", "b"], ["", "B"]),
    ]
    assert len({labels.fingerprint for labels in sets}) == len(sets)
    assert LabelSet(("a", "b"), ("A", "B"), ["", ""]).fingerprint == sets[0].fingerprint


def test_only_title_and_all_can_be_read():
    with pytest.raises(DataError, match="'title' or 'all', not 'content'"):
        join_texts(["a"], ["b"], "content")
