"""The laws of a label index, run over every row of the table (and every kind of faiss index)."""

import numpy as np
import pytest
import torch

from umpteen.errors import ConfigError, MissingExtra, RunError, UmpteenError
from umpteen.index import INDEXES
from umpteen.index.base import LabelIndex
from umpteen.index.exact import ExactIndex
from umpteen.index.recall import recall
from umpteen.registry import resolve

# Beside each table row with its defaults, the options that take other paths through its code.
MORE = [
    ("exact", {"memory_bytes": 5000}),
    ("exact", {"dtype": "bfloat16"}),
    ("exact", {"first_pass": "bfloat16"}),
    ("exact", {"first_pass": "float8", "memory_bytes": 5000}),
    ("faiss", {"factory": "IVF16,Flat", "nprobe": 6}),
    ("faiss", {"factory": "HNSW16", "ef_search": 40}),
    ("faiss", {"factory": "HNSW16_SQ8,RFlat", "ef_search": 40}),
    ("faiss", {"factory": "IVF8,SQ8"}),
    ("faiss", {"factory": "RR12,IVF8,Flat,RFlat"}),
    ("ivfpq", {"n_lists": 8, "code_bytes": 3, "nprobe": 4, "candidates": 20}),
]
KINDS = [(name, {}) for name in INDEXES] + MORE
DIM = 12


@pytest.fixture(params=KINDS, ids=[f"{name}-{'-'.join(map(str, o.values()))}" for name, o in KINDS])
def build(request):
    """A function from vectors to an index of the kind under test."""
    name, options = request.param
    kind = resolve(INDEXES, name, kind="index")
    try:
        kind.build(np.eye(64, DIM, dtype=np.float32), **options)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    return lambda vectors: kind.build(vectors, **options)


@pytest.fixture
def score_error(build, vectors):
    """What the kind declares; the default is that of bfloat16 or 8 bits, a relative 2^-9."""
    return getattr(build(vectors), "score_error", 0.02)


def unit(rng, n):
    vectors = rng.standard_normal((n, DIM)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def vectors():
    return unit(np.random.default_rng(0), 501)


@pytest.fixture
def queries():
    return unit(np.random.default_rng(1), 23)


def check_sound(top, scores, k, tolerance):
    """Falling, no row twice, empty places last, and scores near the true products."""
    assert top.rows.shape == top.scores.shape == (len(scores), k)
    assert top.rows.dtype == np.int64
    assert top.scores.dtype == np.float32
    for rows, found, true in zip(top.rows, top.scores, scores, strict=True):
        n = int((rows >= 0).sum())
        assert (rows[:n] >= 0).all()
        assert np.isneginf(found[n:]).all()
        assert len(set(rows[:n].tolist())) == n
        assert (np.diff(found[:n]) <= 0).all()
        np.testing.assert_allclose(found[:n], true[rows[:n]], atol=tolerance)


def test_keeps_the_protocol(build, vectors):
    index = build(vectors)
    assert isinstance(index, LabelIndex)
    assert (index.n_labels, index.dim) == (501, DIM)
    assert index.describe()["kind"] in INDEXES


@pytest.mark.parametrize("k", [1, 7, 50])
def test_result_is_sorted_and_finds_most_of_the_exact_answer(
    build, score_error, vectors, queries, k
):
    index = build(vectors)
    top = index.search(queries, k)
    check_sound(top, queries @ vectors.T, k, score_error)
    assert (top.rows >= 0).all()
    assert recall(index, ExactIndex.build(vectors), queries, k) > 0.6


def test_takes_tensors_as_well_as_arrays(build, vectors, queries):
    first = build(vectors).search(queries, 5)
    second = build(torch.from_numpy(vectors)).search(torch.from_numpy(queries), 5)
    assert np.array_equal(first.rows, second.rows)


def test_k_beyond_the_labels_pads(build, score_error, queries):
    vectors = unit(np.random.default_rng(2), 67)
    top = build(vectors).search(queries, 70)
    check_sound(top, queries @ vectors.T, 70, score_error)
    assert ((top.rows >= 0).sum(axis=1) == 67).all()
    assert (top.rows[:, 67:] == -1).all()


def test_excluded_pairs_never_come_back_and_k_others_do(build, score_error, vectors, queries):
    index = build(vectors)
    rng = np.random.default_rng(3)
    # Each query loses its own best labels, from none to nearly all; some pairs are there twice.
    order = np.argsort(-(queries @ vectors.T), axis=1)
    counts = rng.integers(0, 60, len(queries))
    counts[:3] = [0, 495, 501]
    exclude = np.concatenate(
        [np.stack([np.full(n, i), order[i, :n]], axis=1) for i, n in enumerate(counts)]
    )
    exclude = rng.permutation(np.concatenate([exclude, exclude[::7]]))
    scores = queries @ vectors.T
    scores[exclude[:, 0], exclude[:, 1]] = -np.inf
    top = index.search(queries, 10, exclude=exclude)
    banned = {tuple(pair) for pair in exclude.tolist()}
    assert not {(i, r) for i, line in enumerate(top.rows.tolist()) for r in line} & banned
    check_sound(top, scores, 10, score_error)
    assert (top.rows >= 0).sum(axis=1).tolist() == np.minimum(10, 501 - counts).tolist()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.9])
def test_labels_that_are_not_allowed_never_come_back(build, score_error, vectors, queries, share):
    allowed = np.random.default_rng(4).random(501) < share
    top = build(vectors).search(queries, 20, allowed=allowed)
    check_sound(top, queries @ vectors.T, 20, score_error)
    assert allowed[top.rows[top.rows >= 0]].all()
    assert ((top.rows >= 0).sum(axis=1) == min(20, allowed.sum())).all()


def test_exclude_and_allowed_together(build, vectors, queries):
    allowed = np.zeros(501, np.bool_)
    allowed[[5, 100, 500]] = True
    exclude = np.array([[0, 5], [0, 7], [2, 500], [2, 5], [2, 100]])
    top = build(vectors).search(queries, 4, exclude=exclude, allowed=allowed)
    found = [sorted(r for r in line if r >= 0) for line in top.rows.tolist()]
    assert found[:4] == [[100, 500], [5, 100, 500], [], [5, 100, 500]]


def test_saving_and_loading_changes_nothing(build, vectors, queries, tmp_path):
    index = build(vectors)
    index.save(tmp_path / "run" / "index")
    loaded = type(index).load(tmp_path / "run" / "index")
    assert loaded.describe() == index.describe()
    before, after = index.search(queries, 9), loaded.search(queries, 9)
    assert np.array_equal(before.rows, after.rows)
    # The default block size may differ from the one built with, and so the last bits.
    np.testing.assert_allclose(before.scores, after.scores, atol=1e-6)
    assert not [path for path in tmp_path.rglob("*") if path.suffix in {".pkl", ".pt", ".pickle"}]


def test_saving_again_replaces(build, vectors, tmp_path):
    build(vectors).save(tmp_path / "index")
    build(vectors[:99]).save(tmp_path / "index")
    assert type(build(vectors)).load(tmp_path / "index").n_labels == 99


def test_missing_or_foreign_folder_is_refused(build, vectors, tmp_path):
    kind = type(build(vectors))
    with pytest.raises(RunError, match=r"index\.json is missing"):
        kind.load(tmp_path)
    (tmp_path / "index.json").write_text('{"kind": "another", "format": 1}')
    with pytest.raises(RunError, match="build the index again"):
        kind.load(tmp_path)


def test_building_twice_gives_the_same_index(build, vectors, queries):
    first, second = build(vectors).search(queries, 30), build(vectors).search(queries, 30)
    assert np.array_equal(first.rows, second.rows)
    assert np.array_equal(first.scores, second.scores)


def test_queries_do_not_depend_on_their_neighbours(build, vectors, queries):
    index = build(vectors)
    whole = index.search(queries, 8)
    for i in (0, 11, 22):
        alone = index.search(queries[i : i + 1], 8)
        # A product of another shape may round differently, in the last bits.
        np.testing.assert_allclose(alone.scores[0], whole.scores[i], atol=1e-5)


def test_no_queries(build, vectors):
    assert build(vectors).search(np.empty((0, DIM), np.float32), 3).rows.shape == (0, 3)


def test_wrong_input_is_named(build, vectors, queries):
    index = build(vectors)
    with pytest.raises(UmpteenError, match=f"{DIM} dimensions"):
        index.search(queries[:, 1:], 3)
    with pytest.raises(ConfigError, match="k is 0"):
        index.search(queries, 0)
    with pytest.raises(ValueError, match="exclude"):
        index.search(queries, 1, exclude=np.array([[0, 501]]))
    with pytest.raises(ValueError, match="queries hold NaN"):
        index.search(queries * np.nan, 1)
    with pytest.raises(UmpteenError, match="label vectors hold NaN or infinity"):
        build(np.full_like(vectors, np.inf))
