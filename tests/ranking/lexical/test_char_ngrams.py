"""Character n-grams equal scikit-learn's and a plain count."""

import numpy as np
import pytest

from umpteen.errors import RunError
from umpteen.ranking.lexical import char_ngrams as module
from umpteen.ranking.lexical.char_ngrams import CharNgrams

TEXTS = ["Packet  sniffer", "packets sniffed\tfast", "", "a", "snow packing 雪雪雪", "ﬁn\x00packet"]


def plain(text, min_n, max_n):
    found = {}
    for word in text.lower().replace("\x00", " ").split():
        padded = f" {word} "
        for n in range(min_n, max_n + 1):
            for start in range(len(padded) - n + 1):
                gram = padded[start : start + n]
                found[gram] = found.get(gram, 0) + 1
    return found


@pytest.mark.parametrize("at_once", [1, 30, 1 << 20])
@pytest.mark.parametrize("sizes", [(3, 5), (3, 3), (4, 4)])
def test_vectors_equal_a_plain_count(at_once, sizes, monkeypatch):
    monkeypatch.setattr(module, "CHARACTERS_AT_ONCE", at_once)
    counts = [plain(text, *sizes) for text in TEXTS]
    names = {name for count in counts for name in count}
    with_it = {name: sum(name in count for count in counts) for name in names}
    kept = [name for name in names if with_it[name] >= 2]
    expected = np.array([[count.get(name, 0) for name in kept] for count in counts], float)
    expected = np.where(expected > 0, 1 + np.log(np.maximum(expected, 1)), 0)
    expected *= [np.log((1 + len(TEXTS)) / (1 + with_it[name])) + 1 for name in kept]
    expected /= np.maximum(np.linalg.norm(expected, axis=1, keepdims=True), 1e-30)
    ours = CharNgrams.fit(TEXTS, min_n=sizes[0], max_n=sizes[1])
    assert ours.size == len(kept)
    found = ours.transform(TEXTS).toarray()
    # Columns are in the order of hashes: compare inner products, which do not depend on it.
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-6)
    np.testing.assert_allclose(np.sort(found, axis=1), np.sort(expected, axis=1), atol=1e-6)


def test_cosines_equal_those_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["packet sniffer tool", "sniffing packets", "packed snow sniffer", "tooling packets"]
    theirs = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 4), min_df=2, sublinear_tf=True)
    expected = theirs.fit_transform(texts).toarray()
    found = CharNgrams.fit(texts, min_n=3, max_n=4).transform(texts).toarray()
    assert found.shape == expected.shape
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-6)


def test_limits_on_vocabulary_and_terms():
    texts = ["abcdefgh", "abcdefgh", "xyzxyz", "xyzxyz", "xyz"]
    few = CharNgrams.fit(texts, max_size=5)
    assert few.size == 5
    cut = CharNgrams.fit(texts, max_terms=2).transform(texts)
    assert np.diff(cut.indptr).max() == 2
    np.testing.assert_allclose(cut.multiply(cut).sum(axis=1), 1.0, rtol=1e-5)


def test_no_texts():
    assert CharNgrams.fit([]).size == 0
    assert CharNgrams.fit([]).transform(["abc"]).shape == (1, 0)
    assert CharNgrams.fit(TEXTS).transform([]).shape[0] == 0


def test_save_and_load(tmp_path):
    ours = CharNgrams.fit(TEXTS, max_n=4, max_terms=9)
    ours.save(tmp_path)
    again = CharNgrams.load(tmp_path)
    assert (again.min_n, again.max_n, again.max_terms) == (3, 4, 9)
    np.testing.assert_array_equal(again.transform(TEXTS).toarray(), ours.transform(TEXTS).toarray())


@pytest.mark.parametrize("name", ["char_ngrams.json", "char_ngrams.npy", "char_idf.npy"])
@pytest.mark.parametrize("content", [None, b"", b"[1, 1]"])
def test_damage_raises_run_error(name, content, tmp_path):
    CharNgrams.fit(TEXTS).save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RunError):
        CharNgrams.load(tmp_path)
