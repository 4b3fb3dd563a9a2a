"""An index that grows: the results of one exact index at every size, and versions that stay."""

import math
import threading

import numpy as np
import pytest
import torch

from umpteen.extras import installed
from umpteen.index import growing
from umpteen.index.exact import ExactIndex
from umpteen.index.growing import GrowingIndex, index_of_block, merged
from umpteen.types import TopK

WIDTH = 7


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(growing, "TAIL_ROWS", 5)
    monkeypatch.setattr(growing, "LEVEL_RATIO", 2)


def vectors_of(n, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.standard_normal((n, WIDTH)).astype(np.float32))


def grown(vectors, sizes, **options):
    """An index that got its vectors in parts of these sizes, the last as large as needed."""
    index, start = GrowingIndex(WIDTH, **options), 0
    for size in sizes:
        index = index.extended(vectors[start : start + size])
        start += size
    return index.extended(vectors[start:])


def assert_same(found, wanted):
    np.testing.assert_array_equal(found.rows, wanted.rows)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n", [1, 4, 5, 6, 11, 26, 83, 129])
@pytest.mark.parametrize("parts", ["ones", "threes", "whole", "mixed"])
def test_results_are_those_of_one_exact_index(n, parts):
    vectors, queries = vectors_of(n), vectors_of(6, seed=1)
    sizes = {
        "ones": [1] * n,
        "threes": [3] * (n // 3),
        "whole": [n],
        "mixed": [1, 13, 2, 1, 0, 5],
    }
    index = grown(vectors, sizes[parts])
    assert len(index) == n
    torch.testing.assert_close(index.vectors, vectors, rtol=0, atol=0)
    for k in (1, 3, n + 2):
        assert_same(index.search(queries, k), ExactIndex(vectors).search(queries, k))


@pytest.mark.parametrize("n", [3, 23, 71])
def test_rows_that_are_not_allowed_are_not_returned(n):
    vectors, queries = vectors_of(n), vectors_of(5, seed=2)
    index = grown(vectors, [1] * n)
    for share in (0.0, 0.5, 1.0):
        allowed = np.random.default_rng(3).random(n) < share
        found = index.search(queries, 4, allowed=allowed)
        assert_same(found, ExactIndex(vectors).search(queries, 4, allowed=allowed))
        assert allowed[found.rows[found.rows >= 0]].all()


def test_equal_vectors_come_in_the_order_of_rows():
    vectors = torch.ones(17, WIDTH)
    found = grown(vectors, [1] * 17).search(torch.ones(1, WIDTH), 17)
    np.testing.assert_array_equal(found.rows, [np.arange(17)])


def test_an_empty_index_finds_nothing():
    index = GrowingIndex(WIDTH)
    found = index.search(vectors_of(3), 2)
    assert (found.rows == -1).all()
    assert np.isneginf(found.scores).all()
    assert index.vectors.shape == (0, WIDTH)
    assert index.extended(vectors_of(0)) is index


def test_earlier_versions_stay_as_they_were():
    vectors, queries = vectors_of(47), vectors_of(4, seed=1)
    versions, results = [GrowingIndex(WIDTH)], []
    for row in range(47):
        versions.append(versions[-1].extended(vectors[row : row + 1]))
        results.append(versions[-1].search(queries, 9))
    for size, (version, result) in enumerate(zip(versions[1:], results, strict=True), 1):
        assert len(version) == size
        assert_same(version.search(queries, 9), result)
        assert_same(result, ExactIndex(vectors[:size]).search(queries, 9))


def test_two_continuations_of_one_version_do_not_meet():
    start, ours, theirs = vectors_of(8), vectors_of(9, seed=1), vectors_of(12, seed=2)
    base = grown(start, [1] * 8)
    one, two = base.extended(ours), base.extended(theirs)
    torch.testing.assert_close(one.vectors, torch.cat([start, ours]), rtol=0, atol=0)
    torch.testing.assert_close(two.vectors, torch.cat([start, theirs]), rtol=0, atol=0)
    torch.testing.assert_close(base.vectors, start, rtol=0, atol=0)


def test_two_threads_can_extend_different_versions():
    start = vectors_of(6)
    base, ends, failures = grown(start, [1] * 6), {}, []
    own = {seed: vectors_of(120, seed=seed) for seed in (1, 2)}

    def extend(seed):
        try:
            index = base
            for row in range(120):
                index = index.extended(own[seed][row : row + 1])
                size = 6 + row + 1
                wanted = torch.cat([start, own[seed][: row + 1]])
                assert len(index) == size
                assert torch.equal(index.vectors, wanted)
            ends[seed] = index
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=extend, args=(seed,)) for seed in own]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    queries = vectors_of(3, seed=9)
    for seed, index in ends.items():
        wanted = ExactIndex(torch.cat([start, own[seed]]))
        assert_same(index.search(queries, 10), wanted.search(queries, 10))


def test_a_reader_is_not_disturbed_by_a_writer():
    vectors, queries = vectors_of(400), vectors_of(2, seed=1)
    base = grown(vectors[:50], [50])
    wanted, failures, done = base.search(queries, 5), [], threading.Event()

    def read():
        while not done.is_set():
            found = base.search(queries, 5)
            if not np.array_equal(found.rows, wanted.rows):
                failures.append(found)

    reader = threading.Thread(target=read)
    reader.start()
    index = base
    for row in range(50, 400):
        index = index.extended(vectors[row : row + 1])
    done.set()
    reader.join()
    assert not failures


def counted(n, size=1):
    """The index of n vectors added one by one, and the rows that all builds read."""
    built = []

    def build(vectors):
        built.append(len(vectors))
        return ExactIndex(vectors)

    index, vectors = GrowingIndex(WIDTH, build_block=build), vectors_of(n)
    copied, place = 0, 0
    for start in range(0, n, size):
        index = index.extended(vectors[start : start + size])
        now = index.vectors.data_ptr()
        copied += start if now != place else 0
        place = now
    return index, built, copied


@pytest.mark.parametrize("n", [100, 500, 3000])
def test_blocks_are_few_and_their_sizes_rise(n):
    index, _, _ = counted(n)
    sizes = [block.stop - block.start for block in index.blocks]
    assert sum(sizes) == n
    assert len(sizes) <= math.log2(n) + 2
    for larger, smaller in zip(sizes[:-1], sizes[1:], strict=True):
        assert larger > smaller
    starts = [block.start for block in index.blocks]
    np.testing.assert_array_equal(starts, np.cumsum([0, *sizes[:-1]]))


def test_single_additions_cost_logarithmically_many_copies_each():
    def work(n):
        _, built, copied = counted(n)
        assert copied <= 2 * n  # the buffer doubles
        tails = sum(size for size in built if size < growing.TAIL_ROWS)
        assert tails <= n * growing.TAIL_ROWS
        return sum(built) - tails

    sizes = (250, 1000, 4000)
    rows = [work(n) for n in sizes]
    for n, each in zip(sizes, rows, strict=True):
        assert each <= 4 * n * math.log2(n)
    # Quadratic work would grow sixteenfold.
    assert max(rows[1] / rows[0], rows[2] / rows[1]) < 8


@pytest.mark.skipif(not installed("faiss"), reason="needs faiss")
def test_large_blocks_are_searched_approximately(monkeypatch):
    monkeypatch.setattr(growing, "APPROXIMATE_ROWS", 64)
    vectors, queries = vectors_of(300), vectors_of(5, seed=1)
    assert type(index_of_block(vectors[:63])) is ExactIndex
    index = grown(vectors, [1] * 200)
    kinds = {type(block.index).__name__ for block in index.blocks}
    assert "FaissIndex" in kinds
    found, wanted = index.search(queries, 10), ExactIndex(vectors).search(queries, 10)
    common = [len(set(a) & set(b)) for a, b in zip(found.rows, wanted.rows, strict=True)]
    assert sum(common) >= 0.9 * 50
    pairs = (queries.double() @ vectors.double().T).numpy()
    exact = np.take_along_axis(pairs, found.rows, 1)
    np.testing.assert_allclose(found.scores, exact, rtol=1e-5, atol=1e-6)
    assert (np.diff(found.scores, axis=1) <= 0).all()
    rough = index.search(queries, 10, exact_scores=False)
    near = np.take_along_axis(pairs, rough.rows, 1)
    np.testing.assert_allclose(rough.scores, near, rtol=1e-2, atol=1e-2)
    assert index.search(queries, 305).rows[:, 300:].max() == -1


def test_merged_results_are_padded_and_ordered():
    tops = [
        TopK(np.array([[0, 2], [1, -1]]), np.array([[0.9, 0.5], [0.5, -np.inf]], np.float32)),
        TopK(np.array([[7], [6]]), np.array([[0.5], [0.5]], np.float32)),
    ]
    found = merged(tops, 2, 4)
    np.testing.assert_array_equal(found.rows, [[0, 2, 7, -1], [1, 6, -1, -1]])
    np.testing.assert_array_equal(found.scores[:, -1], [-np.inf, -np.inf])
    assert found.scores.dtype == np.float32
    assert merged([], 3, 2).rows.shape == (3, 2)
