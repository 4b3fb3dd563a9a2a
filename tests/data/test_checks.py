"""Every warning of ``umpteen data check`` appears for what it is about, and for nothing else."""

from __future__ import annotations

import pytest

from umpteen.data.checks import find_warnings
from umpteen.data.dataset import Dataset

TEXTS = [f"text number {i}" for i in range(40)]
LABELS = [[f"l{i % 8}", f"m{i % 5}"] for i in range(40)]


def warnings(texts=TEXTS, labels=LABELS, **options):
    return find_warnings(Dataset.from_lists(texts, labels, **options), max_tokens=512)


def test_good_data_has_none():
    assert warnings() == []
    assert warnings(test_texts=["another text"], test_labels=[["l0"]]) == []


def test_repeated_texts_are_counted_without_regard_to_case_and_blanks():
    said = warnings([*TEXTS, "TEXT  number 3 ", "text number 3"], [*LABELS, LABELS[3], LABELS[3]])
    assert said == ["train: 2 texts repeat another (row 41 is as row 4: 'text number 3')"]


def test_one_repeated_text_repeats_another():
    said = warnings([*TEXTS, TEXTS[3]], [*LABELS, LABELS[3]])
    assert said == ["train: 1 text repeats another (row 41 is as row 4: 'text number 3')"]


def test_the_same_text_with_other_labels_is_named():
    said = warnings([*TEXTS, TEXTS[3], TEXTS[4]], [*LABELS, ["l1"], LABELS[4][::-1]])
    assert said[0].startswith("train: 2 texts repeat another")
    assert said[1].startswith(
        "train: 1 text has different labels in different rows (first rows 4 and 41)"
    )
    assert len(said) == 2


def test_empty_texts_are_not_repeated_texts():
    assert warnings(["", " ", *TEXTS[2:]]) == []


def test_texts_of_test_in_train_are_a_leak():
    said = warnings(test_texts=["new", "Text number 7", "text number 9"], test_labels=[["l0"]] * 3)
    assert said == [
        "test: 2 of 3 texts are also in train (leakage; rows 2, 3); metrics on them say nothing "
        "about new texts"
    ]


def test_labels_that_only_test_has_are_named():
    said = warnings(test_texts=["new", "newer"], test_labels=[["l0", "z"], ["z"]])
    assert said == ["test: 1 label without a training text (z), 2 times; only the label's text can "
                    "find them"]  # fmt: skip


def test_a_label_on_most_rows_is_named():
    labels = [[*row, "all"] if i % 4 else row for i, row in enumerate(LABELS)]
    assert warnings(labels=labels) == [
        "train: label 'all' is on 75% of the rows; it is right for most texts and raises the "
        "metrics"
    ]


@pytest.mark.parametrize(
    ("mark", "option"), [(" / ", "'/'"), ("|", "'|'"), (",", "','"), ("\t", "tab")]
)
def test_labels_that_look_like_several_are_named(mark, option):
    labels = [[f"a{i % 7}{mark}b{i % 11}"] for i in range(40)]
    [said] = warnings(labels=labels)
    assert said.startswith("40 of 40 labels hold ")
    assert said.endswith(f"use --separator {option}")


def test_labels_with_texts_of_their_own_are_not_several():
    labels = [[f"a{i % 7}/b{i % 11}"] for i in range(40)]
    texts = {label: label.replace("/", " in ") for row in labels for label in row}
    assert warnings(labels=labels, label_texts=texts) == []


def test_labels_that_are_made_of_labels_are_named_at_any_frequency():
    labels = [[["history", "biography", "history;biography", "travel"][i % 4]] for i in range(40)]
    [said] = warnings(labels=labels)
    assert said.startswith("1 of 4 labels hold ';' (first: 'history;biography') and a label has 10")
    assert said.endswith("use --separator ';'")


def test_few_rows_are_looked_at_too():
    [said] = warnings(["Brot backen", "nach Rom"], [["Kochen, Essen"], ["Reisen"]])
    assert said.startswith("1 of 2 labels hold commas (first: 'Kochen, Essen')")
    assert warnings(["one", "two"], [["a/b"], ["a/c"]]) == []


def test_names_with_commas_that_are_used_often_are_fine():
    assert warnings(labels=[[["Food, drinks", "Toys, games"][i % 2]] for i in range(40)]) == []


def test_long_texts_are_counted_with_the_length_that_is_read():
    texts = [*TEXTS[:38], "word " * 384, "word " * 385]
    [said] = warnings(texts)
    assert said.startswith(
        "train: 1 of 40 texts is longer than 384 words (about 512 tokens; row 40); encoders read "
    )


def test_labels_with_blanks_between_labels_are_named():
    pairs = [
        [f"{a} {b}"] if i % 3 else [a]
        for i, (a, b) in enumerate(zip("abcdeabcde" * 4, "bcdeacdeab" * 4, strict=True))
    ]
    said = warnings(TEXTS, [[" ".join(sorted(set(row[0].split())))] for row in pairs])
    assert any("use --separator space" in line for line in said)
    names = [["deep learning"], ["machine learning"], ["learning"], ["deep water"]] * 10
    assert not any("--separator" in line for line in warnings(TEXTS, names))
