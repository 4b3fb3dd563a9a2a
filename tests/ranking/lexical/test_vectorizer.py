"""Tf-idf vectors equal a plain count of words and pairs."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest

from umpteen.errors import RunError
from umpteen.ranking.lexical import vectorizer as module
from umpteen.ranking.lexical.vectorizer import Vectorizer

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
    """Words and pairs of a text, one character at a time."""
    found, word = [], ""
    for sign in text.lower() + " ":
        if sign.isalnum():
            word += sign
        elif word:
            found.append(word)
            word = ""
    return found, list(zip(found, found[1:], strict=False))


def plain_vectors(texts, min_texts=2):
    counts = [Counter([*own, *pairs]) for own, pairs in map(plain, texts)]
    seen = Counter(feature for count in counts for feature in count)
    kept = {feature for feature, n in seen.items() if n >= min_texts}
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


def named(vectorizer, vectors):
    names = vectorizer.words
    n = len(names)
    pairs = [(names[key // n], names[key % n]) for key in vectorizer.pairs.tolist()]
    names = [*names, *pairs]
    return [
        {names[c]: v for c, v in zip(row.indices.tolist(), row.data.tolist(), strict=True)}
        for row in vectors
    ]


@pytest.mark.parametrize("at_once", [1, 2, 8192])
def test_vectors_equal_a_plain_count(at_once, monkeypatch):
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", at_once)
    vectorizer = Vectorizer.fit(TEXTS)
    found = named(vectorizer, vectorizer.transform(TEXTS))
    expected = plain_vectors(TEXTS)
    assert [set(row) for row in found] == [set(row) for row in expected]
    for row, wanted in zip(found, expected, strict=True):
        for feature, value in wanted.items():
            assert row[feature] == pytest.approx(value, rel=1e-5)
    assert any(isinstance(feature, tuple) for row in found for feature in row)


@pytest.mark.parametrize("at_once", [2, 8192])
def test_reading_once_gives_the_same_as_fit_and_transform(at_once, monkeypatch):
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", at_once)
    vectorizer, raw = Vectorizer.fit_transform(TEXTS)
    apart = Vectorizer.fit(TEXTS)
    assert vectorizer.fingerprint == apart.fingerprint
    assert len(vectorizer.pairs)
    expected = apart.transform_raw(TEXTS)
    np.testing.assert_array_equal(raw.toarray(), expected.toarray())
    np.testing.assert_array_equal(vectorizer.cut(raw).toarray(), apart.transform(TEXTS).toarray())
    assert Vectorizer.fit_transform([])[1].shape == (0, 0)


def test_vectors_equal_those_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [text.replace("\x00", " ") for text in TEXTS]
    theirs = TfidfVectorizer(
        sublinear_tf=True, ngram_range=(1, 2), min_df=2, token_pattern=r"[^\W_]+"
    )
    expected = theirs.fit_transform(texts).toarray()
    ours = Vectorizer.fit(texts)
    found = ours.transform(texts).toarray()
    names = ours.words
    n = len(names)
    names = [*names, *(f"{names[key // n]} {names[key % n]}" for key in ours.pairs.tolist())]
    order = [theirs.vocabulary_[name] for name in names]
    assert sorted(order) == list(range(expected.shape[1]))
    np.testing.assert_allclose(found, expected[:, order], rtol=1e-5, atol=1e-7)


def test_a_pair_does_not_span_texts_or_unknown_words():
    vectorizer = Vectorizer.fit(["a b", "a b", "b c", "b c"])
    size = len(vectorizer.words)
    assert vectorizer.transform(["a x b", "a", "b"])[:, size:].nnz == 0
    assert vectorizer.transform(["a b"])[:, size:].nnz == 1


def test_long_texts_have_no_pairs_unless_requested():
    long = [" ".join(f"w{i}" for i in range(100))] * 3
    assert len(Vectorizer.fit(long).pairs) == 0
    assert len(Vectorizer.fit(long, pairs=True).pairs) == 99
    assert len(Vectorizer.fit(long, pairs=True, max_pairs=7).pairs) == 7


def test_the_largest_terms_of_a_long_text_are_kept_and_rows_have_length_one():
    texts = [" ".join(f"w{i}" for i in range(n)) for n in range(1, 30)]
    whole = Vectorizer.fit(texts, pairs=False)
    short = dataclasses.replace(whole, max_terms=7)
    np.testing.assert_array_equal(
        whole.cut(whole.transform_raw(texts), 7).toarray(), short.transform(texts).toarray()
    )
    for row, cut in zip(whole.transform(texts), short.transform(texts), strict=True):
        assert cut.nnz == min(row.nnz, 7)
        assert cut.multiply(cut).sum() == pytest.approx(1.0 if cut.nnz else 0.0, rel=1e-5)
        kept = set(cut.indices.tolist())
        lost = [v for c, v in zip(row.indices, row.data, strict=True) if c not in kept]
        held = [v for c, v in zip(row.indices, row.data, strict=True) if c in kept]
        assert max(lost, default=0) <= min(held, default=1)


def test_unknown_words_and_no_texts_give_empty_rows():
    vectorizer = Vectorizer.fit(TEXTS)
    assert vectorizer.transform(["zzz"]).nnz == 0
    assert vectorizer.transform(["zzz"]).shape == (1, vectorizer.size)
    assert vectorizer.transform([]).shape == (0, vectorizer.size)
    assert Vectorizer.fit([]).size == 0
    assert Vectorizer.fit([]).transform(["a"]).shape == (1, 0)


def test_one_text_equals_a_batch():
    vectorizer = Vectorizer.fit(TEXTS)
    together = vectorizer.transform(TEXTS).toarray()
    alone = np.concatenate([vectorizer.transform([text]).toarray() for text in TEXTS])
    np.testing.assert_allclose(alone, together, rtol=1e-6)


def test_a_saved_vectorizer_gives_the_same_vectors(tmp_path):
    vectorizer = Vectorizer.fit(TEXTS, max_terms=3)
    vectorizer.save(tmp_path)
    again = Vectorizer.load(tmp_path)
    assert again.max_terms == 3
    np.testing.assert_array_equal(
        again.transform(TEXTS).toarray(), vectorizer.transform(TEXTS).toarray()
    )


@pytest.mark.parametrize("name", ["words.json", "pairs.npy", "idf.npy"])
@pytest.mark.parametrize("content", [None, b"", b"[1, 1]"])
def test_damage_raises_run_error(name, content, tmp_path):
    Vectorizer.fit(TEXTS).save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError):
        Vectorizer.load(tmp_path)
