"""What cannot be stored is refused with a sentence, before a store is opened."""

import pytest

from umpteen.errors import DataError
from umpteen.store.checks import (
    MAX_EXAMPLE_CHARACTERS,
    MAX_ID_CHARACTERS,
    MAX_LABEL_CHARACTERS,
    NewLabel,
    check_examples,
    text_digest,
)


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        (NewLabel("", "text"), "neither may be blank"),
        (NewLabel(" ", "text"), "neither may be blank"),
        (NewLabel("x", " \n"), "neither may be blank"),
        (NewLabel("x" * (MAX_ID_CHARACTERS + 1), "text"), "id of a label has 513 characters"),
        (NewLabel("x", "t" * (MAX_LABEL_CHARACTERS + 1)), "text of a label has 20,001 characters"),
        (NewLabel("x", "t", "t" * (MAX_LABEL_CHARACTERS + 1)), "content of a label has"),
        (NewLabel("x", "ab\ud800"), "lone surrogate at character 3"),
        (NewLabel("\udfff", "t"), "lone surrogate"),
        (NewLabel(3, "text"), "must be a string, not 3"),
        (NewLabel("x", None), "must be a string, not None"),
    ],
)
def test_a_bad_label_is_refused(label, sentence):
    with pytest.raises(DataError, match=sentence):
        label.check()


@pytest.mark.parametrize(
    ("texts", "labels", "sentence"),
    [
        (["a"], [["f"], ["c"]], "found 1 text and labels for 2; give a list of label ids"),
        (["a", " "], [["f"], ["c"]], "example 2 has a blank text"),
        (["a"], [[]], "example 1 has no list of labels"),
        (["a"], ["f"], "example 1 has no list of labels"),
        (["a"], [None], "example 1 has no list of labels"),
        (["a"], [[["f"]]], "a label id of example 1 must be a string"),
        (["a", "x\ud800"], [["f"], ["f"]], "the text of example 2 contains a lone surrogate"),
        (["a"], [["f", 3]], "a label id of example 1 must be a string"),
        ([None], [["f"]], "the text of example 1 must be a string, not None"),
        (["x" * (MAX_EXAMPLE_CHARACTERS + 1)], [["f"]], "1,000,001 characters"),
    ],
)
def test_a_bad_example_is_refused(texts, labels, sentence):
    with pytest.raises(DataError, match=sentence):
        check_examples(texts, labels)


def test_label_ids_are_kept_once():
    first, second = check_examples(["a", "b"], [["x"], ["z", "y", "z"]])
    assert (first.text, first.digest, first.label_ids) == ("a", text_digest("a"), ["x"])
    assert second.label_ids == ["z", "y"]


def test_control_characters_and_any_unicode_are_accepted():
    NewLabel("\x00\x1b[31m", "\U0001f600\u2028\n").check()
    assert len(check_examples(["\x00 a"], [["x"]])) == 1
