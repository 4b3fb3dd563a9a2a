"""Scores of added labels equal those of a vectorizer that is rebuilt from scratch."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.ranking.encoded_changes import from_padded, padded
from umpteen.ranking.lexical import growing_columns
from umpteen.ranking.lexical.added_labels import AddedTerms
from umpteen.ranking.lexical.growing_columns import GrowingColumns
from umpteen.ranking.lexical.ranker_training import SCALE
from umpteen.ranking.lexical.sparse_topk import top_k_of_rows
from umpteen.ranking.lexical.vectorizer import Vectorizer

RNG = np.random.default_rng(6)
TEXTS = [f"{a} {b}" for a in ("red", "green", "blue", "old") for b in ("fox", "cat", "owl")] * 3
ADDED = ["red fox", "unheard zebra", "zebra zebra fox", "", "old", "brand new", "new zebra owl"]
QUERIES = ["red fox", "zebra", "unheard-of zebra in red", "old new owl", "", "nothing known"]


def reference(vectorizer, added, queries):
    """Cosines by dictionaries, with new words of the largest idf."""
    idf = dict(zip(vectorizer.words, vectorizer.idf.tolist(), strict=False))
    rare = float(vectorizer.idf.max())
    n = len(vectorizer.words)
    pairs = {
        (vectorizer.words[key // n], vectorizer.words[key % n]): float(vectorizer.idf[n + j])
        for j, key in enumerate(vectorizer.pairs.tolist())
    }
    new = {word for text in added for word in text.replace("-", " ").split()} - set(idf)

    def vector(text):
        words = text.replace("-", " ").split()
        values = {}
        for word in set(words):
            if word in idf or word in new:
                values[word] = (1 + np.log(words.count(word))) * idf.get(word, rare)
        for pair in zip(words, words[1:], strict=False):
            if pair in pairs:
                values[pair] = pairs[pair]
        length = np.sqrt(sum(v * v for v in values.values())) or 1.0
        return {f: v / length for f, v in values.items()}

    own = [vector(text) for text in added]
    asked = [vector(text) for text in queries]
    return np.array([[SCALE * sum(v * b.get(f, 0) for f, v in a.items()) for b in own]
                     for a in asked])  # fmt: skip


@pytest.mark.parametrize("growth", [2, 16])
@pytest.mark.parametrize("sizes", [[7], [1] * 7, [3, 0, 1, 2, 1]])
def test_scores_equal_the_reference_however_labels_arrive(sizes, growth, monkeypatch):
    monkeypatch.setattr(growing_columns, "GROWTH", growth)
    vectorizer = Vectorizer.fit(TEXTS)
    added, start = AddedTerms(vectorizer), 0
    for size in sizes:
        added = added.extended(ADDED[start : start + size])
        start += size
        found = added.product(QUERIES).toarray()
        expected = reference(vectorizer, ADDED[:start], QUERIES).reshape(len(QUERIES), start)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert len(added) == 7
    raw = vectorizer.transform_raw(QUERIES)
    np.testing.assert_array_equal(added.product(QUERIES, raw).toarray(), found)
    rows = np.array([[0, 6, -1, 2]] * len(QUERIES))
    wanted = np.where(rows >= 0, found[:, [0, 6, 0, 2]], 0)
    np.testing.assert_allclose(added.look_up(QUERIES, rows), wanted, rtol=1e-6)
    assert top_k_of_rows(added.product(QUERIES), 1)[0][1, 0] == 2  # "zebra zebra fox"


def test_a_value_does_not_change_when_others_are_built_on_it():
    vectorizer = Vectorizer.fit(TEXTS)
    base = AddedTerms(vectorizer).extended(ADDED[:2])
    before = base.product(QUERIES).toarray()
    first = base.extended(["nothing at all", "unheard"])
    second = base.extended(["zebra known", "red"])
    np.testing.assert_array_equal(base.product(QUERIES).toarray(), before)
    for value, texts in ((first, ["nothing at all", "unheard"]), (second, ["zebra known", "red"])):
        expected = reference(vectorizer, [*ADDED[:2], *texts], QUERIES)
        np.testing.assert_allclose(value.product(QUERIES).toarray(), expected, rtol=1e-5, atol=1e-5)


def test_no_labels_and_an_empty_vocabulary():
    none = AddedTerms(Vectorizer.fit(TEXTS))
    assert none.product(QUERIES).shape == (6, 0)
    assert none.extended([]) is none
    empty = AddedTerms(Vectorizer.fit([])).extended(["zebra"])
    assert empty.product(["zebra", "fox"]).toarray().ravel() == pytest.approx([SCALE, 0.0])


def test_growing_columns_multiply_like_one_matrix_in_few_segments():
    columns, rows = GrowingColumns(), []
    for number in range(300):
        width = 20 + number // 10
        row = sp.random(1, width, 0.2, format="csr", dtype=np.float32, random_state=number)
        columns = columns.extended(row)
        rows.append(np.pad(row.toarray(), ((0, 0), (0, 60 - width))))
    queries = sp.random(7, 60, 0.3, format="csr", dtype=np.float32, random_state=1)
    expected = queries.toarray() @ np.concatenate(rows).T
    np.testing.assert_allclose(columns.product(queries).toarray(), expected, atol=1e-6)
    assert len(columns) == 300
    assert len(columns.segments) <= 4


def test_postings_of_a_term_are_bounded():
    columns = GrowingColumns(max_postings=2)
    rows = sp.csr_matrix(np.array([[0.1], [0.4], [0.3], [0.2]], np.float32))
    for row in rows:
        columns = columns.extended(row)
    found = columns.product(sp.csr_matrix(np.ones((1, 1), np.float32))).toarray()
    np.testing.assert_allclose(found, [[0, 0.4, 0.3, 0]])


@pytest.mark.parametrize("sizes", [[7], [3, 2, 2]])
def test_a_restored_value_scores_and_grows_like_the_saved_one(sizes):
    vectorizer = Vectorizer.fit(TEXTS)
    saved, start = AddedTerms(vectorizer), 0
    for size in sizes:
        saved = saved.extended(ADDED[start : start + size])
        start += size
    arrays = padded(saved.rows)
    rows = from_padded(arrays, vectorizer.size + len(saved.words))
    restored = AddedTerms.restored(vectorizer, saved.words, rows)
    for one, other in (
        (saved, restored),
        (saved.extended(["quagga"]), restored.extended(["quagga"])),
    ):
        np.testing.assert_allclose(
            other.product([*QUERIES, "quagga"]).toarray(),
            one.product([*QUERIES, "quagga"]).toarray(),
            rtol=1e-6,
        )
