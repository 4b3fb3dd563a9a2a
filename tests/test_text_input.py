"""Texts come in any container of strings; everything else is refused with what to do."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from umpteen.errors import DataError
from umpteen.text_input import as_texts

TEXTS = ["red apple", "", "ünïcödé"]
FRAME = pd.DataFrame({"body": TEXTS, "tags": ["a", "b", "c"]})


@pytest.mark.parametrize(
    "given",
    [
        TEXTS,
        tuple(TEXTS),
        iter(TEXTS),
        (text for text in TEXTS),
        dict.fromkeys(TEXTS).keys().__iter__(),
        np.array(TEXTS),
        np.array(TEXTS, object),
        FRAME["body"],
        FRAME["body"].astype("string"),
        FRAME["body"].astype("category"),
        FRAME["body"].set_axis([7, 3, 1]),
        pl.Series(TEXTS),
        pa.array(TEXTS),
        pa.chunked_array([TEXTS[:1], TEXTS[1:]]),
    ],
    ids=lambda given: f"{type(given).__module__}.{type(given).__name__}",
)
def test_containers_of_strings_are_read_in_their_order(given):
    found = as_texts(given)
    assert found == TEXTS
    assert {type(text) for text in found} == {str}


def test_a_string_is_one_text():
    assert as_texts("red apple") == ["red apple"]
    assert as_texts(np.str_("red apple")) == ["red apple"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (FRAME, r"texts is a table \(DataFrame with the columns 'body', 'tags'\); pass one column"),
        (FRAME[["body"]], r"such as table\['body'\]"),
        (pl.DataFrame({"body": TEXTS}), r"such as table\['body'\]"),
        (pa.table({"body": TEXTS}), r"such as table\['body'\]"),
        ({"body": TEXTS}, "texts is a dict; pass the texts alone"),
        (b"red apple", "texts is bytes; decode it first"),
        ([b"red apple"], r"texts\[0\] is bytes; decode it first"),
        (None, "texts is None; pass a string"),
        (["a", None], r"texts\[1\] is missing \(None\)"),
        (pd.Series(["a", float("nan")]), r"texts\[1\] is missing \(nan\)"),
        (pd.Series(["a", None], dtype="string"), r"texts\[1\] is missing \(<NA>\)"),
        (7, "texts is int, not text"),
        (3.5, "texts is float, not text"),
        (["a", 7], r"texts\[1\] is int, not text"),
        (np.array([1, 2]), r"texts\[0\] is int, not text"),
        ([["a"], ["b"]], r"texts\[0\] is a list; pass strings, one for each text"),
        (np.array([["a"], ["b"]]), r"texts has the shape \(2, 1\)"),
        (np.array("a"), r"texts has the shape \(\)"),
        ({"a", "b"}, "which has no order"),
        (Path("texts.csv"), r"texts is a path \('texts.csv'\)"),
    ],
)
def test_other_things_are_refused_with_a_sentence(given, sentence):
    with pytest.raises(DataError, match=sentence):
        as_texts(given)


def test_data_sets_are_refused_with_the_way_to_their_texts(tiny_data):
    with pytest.raises(DataError, match=r"data\['test'\].texts\(\)"):
        as_texts(tiny_data)
    with pytest.raises(DataError, match=r"split.texts\(\)"):
        as_texts(tiny_data["test"])
