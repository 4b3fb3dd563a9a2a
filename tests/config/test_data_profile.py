"""DataProfile of a small data set, counted by hand."""

import dataclasses

import numpy as np

from umpteen.config.data_profile import profile_data
from umpteen.data.dataset import Dataset, Split, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.model.frugal.tables import train_tokenizer


def data_of(texts, rows, titles, *, ids=None, test=None):
    labels = LabelSet(ids or [f"L{i}" for i in range(len(titles))], titles)
    splits = {"train": Split(texts, targets_from_rows(rows, len(titles)))}
    if test:
        splits["test"] = Split(test, targets_from_rows([[0]] * len(test), len(titles)))
    return Dataset(labels, splits)


def facts(data, **options):
    given = {"text": "all", "tokenizer": None, "encoder": "bag"}
    return profile_data(data, **(given | {"min_validation": 50} | options))


def test_counts_are_those_of_train():
    texts = ["red apple", "a blue river of words", "red apple", "x"]
    data = data_of(texts, [[0, 1], [0], [0], [2]], ["red apple", "blue", "old", "unused"])
    found = facts(data)
    assert found.queries == 4
    assert found.validation == 0
    assert found.min_validation == 50
    assert found.spare == 2  # those of label 0 alone, which the first query keeps


def test_a_validation_split_is_noticed():
    data = data_of(["a", "b"], [[0], [0]], ["a"])
    both = dataclasses.replace(data, splits={**data.splits, "validation": data["train"]})
    assert (facts(data).validation, facts(both).validation) == (0, 2)


def test_test_queries_are_not_looked_at():
    texts, rows, titles = ["one two"] * 3, [[0]] * 3, ["a", "b"]
    seen = facts(data_of(texts, rows, titles, test=["word " * 500, "a"]))
    assert seen == facts(data_of(texts, rows, titles))


def test_words_that_are_cut_into_few_tokens_are_counted_as_words():
    texts = [f"{a}{b} {b}{a}" for a in range(40) for b in range(40)]
    data = data_of(texts, [[0]] * len(texts), ["a"])
    digits = train_tokenizer([" ".join("0123456789")], vocabulary=30)
    found = facts(data, tokenizer=digits, replaceable=True)
    numbers = {word for text in texts for word in text.split()}
    assert (found.distinct_words, found.distinct_tokens) == (len(numbers), 20)
    assert len(numbers) > 1000
    assert found.words_are_lost
    assert found.length_99 == 3  # four tokens for three words, rounded up
    kept = facts(data, tokenizer=digits)
    assert (kept.distinct_words, kept.distinct_tokens) == (0, 0)
    assert not kept.words_are_lost
    assert kept.length_99 == 8


def test_lengths_are_tokens_of_the_whole_text():
    texts = [" ".join(["word"] * n) for n in range(1, 101)]
    data = data_of(texts, [[0]] * 100, ["a"])
    assert (facts(data).length_90, facts(data).length_99) == (122, 134)  # four for three words
    tokenizer = train_tokenizer(texts, vocabulary=50)
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding(length=7)
    found = facts(data, tokenizer=tokenizer)
    plain = np.array([n * len(_one_word(tokenizer)) for n in range(1, 101)])
    assert found.length_90 == np.percentile(plain, 90, method="higher")
    assert tokenizer.truncation["max_length"] == 5  # left as it is


def _one_word(tokenizer):
    tokenizer = type(tokenizer).from_str(tokenizer.to_str())
    tokenizer.no_padding()
    return tokenizer.encode("word").ids


def test_the_length_of_a_long_text_is_taken_from_its_beginning():
    texts = [" ".join(["word"] * n) for n in (10, 4000, 20_000)]
    tokenizer = train_tokenizer(texts, vocabulary=50)
    each = len(_one_word(tokenizer))
    found = facts(data_of(texts, [[0]] * 3, ["a"]), tokenizer=tokenizer)
    assert abs(found.length_99 - 20_000 * each) <= 0.01 * 20_000 * each
