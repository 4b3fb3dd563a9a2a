"""Word vectors equal a plain count of words and pairs."""

import dataclasses
import json
import math
from collections import Counter

import numpy as np
import pytest

from umpteen.answers import words as module
from umpteen.answers.words import Words
from umpteen.errors import RunError

TEXTS = [
    "Red apple, red apple pie",
    "green apple_tart",
    "the red RIVER",
    "",
    "apple pie and red river",
    "Río grande: apple pie",
    "never again\x00never again",
]


def plain(text):
    """Words and pairs of a text, by hand."""
    found, word = [], ""
    for sign in text.lower() + " ":
        if sign.isalnum():
            word += sign
        elif word:
            found.append(word)
            word = ""
    return found, list(zip(found, found[1:], strict=False))


def plain_vectors(texts, least=2):
    counts = [Counter([*own, *pairs]) for own, pairs in map(plain, texts)]
    seen = Counter(feature for count in counts for feature in count)
    kept = {feature for feature, n in seen.items() if n >= least}
    rows = []
    for count in counts:
        row = {
            f: (1 + math.log(n)) * (math.log((1 + len(texts)) / (1 + seen[f])) + 1)
            for f, n in count.items()
            if f in kept
        }
        length = math.sqrt(sum(v * v for v in row.values())) or 1.0
        rows.append({f: v / length for f, v in row.items()})
    return rows


def named(words, vectors):
    names = list(words.words)
    n = len(names)
    pairs = [(names[key // n], names[key % n]) for key in words.pairs.tolist()]
    names = [*names, *pairs]
    return [
        {names[c]: v for c, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)}
        for row in vectors
    ]


@pytest.mark.parametrize("at_once", [1, 2, 8192])
def test_vectors_equal_a_count_by_hand(at_once, monkeypatch):
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", at_once)
    words = Words.learn(TEXTS)
    found = named(words, words.vectors(TEXTS))
    expected = plain_vectors(TEXTS)
    assert [set(row) for row in found] == [set(row) for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        for feature, value in wanted.items():
            assert row[feature] == pytest.approx(value, rel=1e-5)
    assert any(isinstance(feature, tuple) for row in found for feature in row)


def test_a_pair_does_not_reach_across_texts_or_unknown_words():
    words = Words.learn(["a b", "a b", "b c", "b c"])
    size = len(words.words)
    pairs = words.vectors(["a x b", "a", "b"])[:, size:]
    assert pairs.nnz == 0
    assert words.vectors(["a b"])[:, size:].nnz == 1


def test_long_texts_have_no_pairs_unless_asked():
    long = [" ".join(f"w{i}" for i in range(100))] * 3
    assert len(Words.learn(long).pairs) == 0
    assert len(Words.learn(long, pairs=True).pairs) == 99
    assert len(Words.learn(long, pairs=True, most=7).pairs) == 7


def test_the_heaviest_words_of_a_long_text_are_kept_and_the_row_has_length_one():
    texts = [" ".join(f"w{i}" for i in range(n)) for n in range(1, 30)]
    whole = Words.learn(texts, pairs=False)
    short = dataclasses.replace(whole, longest=7)
    for row, cut in zip(whole.vectors(texts), short.vectors(texts), strict=True):
        assert cut.nnz == min(row.nnz, 7)
        assert cut.multiply(cut).sum() == pytest.approx(1.0 if cut.nnz else 0.0, rel=1e-5)
        kept = set(cut.indices.tolist())
        lost = [v for c, v in zip(row.indices, row.data, strict=True) if c not in kept]
        held = [v for c, v in zip(row.indices, row.data, strict=True) if c in kept]
        assert max(lost, default=0) <= min(held, default=1)


def test_unknown_words_and_no_text_are_empty():
    words = Words.learn(TEXTS)
    assert words.vectors(["zzz"]).nnz == 0
    assert words.vectors([]).shape == (0, words.size)
    assert Words.learn([]).size == 0


def test_what_is_saved_is_what_is_read(tmp_path):
    words = Words.learn(TEXTS)
    words.save(tmp_path)
    again = Words.load(tmp_path)
    assert again.longest == words.longest
    (tmp_path / "words.json").write_text(json.dumps(list(words.words)))
    assert Words.load(tmp_path).longest > 10**9
    np.testing.assert_array_equal(again.vectors(TEXTS).toarray(), words.vectors(TEXTS).toarray())


@pytest.mark.parametrize("name", ["words.json", "pairs.npy", "rarity.npy"])
@pytest.mark.parametrize("content", [None, b"", b"[1, 1]"])
def test_a_damaged_vocabulary_is_a_sentence(name, content, tmp_path):
    Words.learn(TEXTS).save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError):
        Words.load(tmp_path)


def test_a_grown_vocabulary_sees_new_words_and_the_others_as_before():
    words = Words.learn(TEXTS)
    assert words.grown([" ".join(words.words).upper()]) is words
    grown = words.grown(["Zebra zebra", "unheard"])
    assert grown.size == words.size + 2
    assert named(grown, grown.vectors(TEXTS)) == [
        pytest.approx(row, rel=1e-6) for row in named(words, words.vectors(TEXTS))
    ]
    assert named(grown, grown.vectors(["zebra"])) == [{"zebra": pytest.approx(1.0)}]
    assert grown.grown(["unheard zebra"]) is grown
    assert Words.learn([]).grown(["zebra"]).vectors(["zebra"]).nnz == 1
