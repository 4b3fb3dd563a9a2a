"""Two passes against the exact index, plainly and with kernels; ties, exclusions and odd sizes."""

import numpy as np
import pytest
import torch

from umpteen.errors import ConfigError
from umpteen.index import groups as plain
from umpteen.index.exact import ExactIndex
from umpteen.index.groups import best_spans, groups_of, plain_span_maxima
from umpteen.index.recall import recall
from umpteen.index.two_pass import FIRST_PASSES, TwoPass, best_groups, drop_pairs_

CUDA = torch.cuda.is_available()
DEVICES = [
    "cpu",
    "interpreter",
    pytest.param(
        "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not CUDA, reason="needs a CUDA device")]
    ),
]


@pytest.fixture(params=DEVICES)
def build(request):
    """A function from vectors to an index with a first pass: plain, interpreted or on a GPU."""
    if request.param == "interpreter":
        pytest.importorskip("triton")
        if CUDA:
            pytest.skip("the interpreter is for machines without a GPU")

    def make(vectors, first_pass="bfloat16", **options):
        place = "cuda" if request.param == "cuda" else "cpu"
        index = ExactIndex.build(vectors, device=place, first_pass=first_pass, **options)
        index.two_pass.kernels = request.param != "cpu"
        return index

    return make


def unit(seed, n, dim):
    vectors = np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def integers(seed, n, dim, spread=2):
    """Products of these are exact in any order of summing, and ties are everywhere."""
    return np.random.default_rng(seed).integers(-spread, spread + 1, (n, dim)).astype(np.float32)


@pytest.mark.parametrize("first_pass", FIRST_PASSES)
@pytest.mark.parametrize(("n_labels", "dim", "k"), [(1, 3, 1), (129, 70, 5), (1031, 33, 200)])
def test_real_vectors_give_the_exact_rows(build, first_pass, n_labels, dim, k):
    vectors, queries = unit(0, n_labels, dim), unit(1, 5, dim)
    wanted = ExactIndex.build(vectors).search(queries, k)
    found = build(vectors, first_pass).search(queries, k)
    assert np.array_equal(found.rows, wanted.rows)
    # Both are summed in float32, in another order; terms are at most one.
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_ties_exclusions_and_retired_labels_give_the_exact_answer(build, dtype):
    vectors, queries = integers(2, 700, 5), integers(3, 7, 5)
    rng = np.random.default_rng(4)
    # One query loses nearly all, one a whole group, the others a few; some pairs come twice.
    many = np.stack([np.full(690, 2), rng.permutation(700)[:690]], axis=1)
    group = np.stack([np.full(8, 4), np.arange(3, 128, 16)], axis=1)
    few = np.stack([rng.integers(0, 7, 60), rng.integers(0, 700, 60)], axis=1)
    exclude = rng.permutation(np.concatenate([many, group, few, few[:9]]))
    allowed = rng.random(700) < 0.8
    exact = ExactIndex.build(vectors).search(queries, 30, exclude=exclude, allowed=allowed)
    found = build(vectors, dtype=dtype).search(queries, 30, exclude=exclude, allowed=allowed)
    assert np.array_equal(found.rows, exact.rows)
    assert np.array_equal(found.scores, exact.scores)


def test_equal_vectors_come_in_row_order(build):
    vectors = np.repeat(unit(5, 40, 16), 10, axis=0)
    found = build(vectors).search(unit(6, 3, 16), 25)
    assert np.array_equal(found.rows, ExactIndex.build(vectors).search(unit(6, 3, 16), 25).rows)
    assert (np.diff(found.rows[:, :20].reshape(3, 2, 10), axis=2) == 1).all()


def test_more_than_all_labels_pads(build):
    found = build(unit(7, 50, 8)).search(unit(8, 2, 8), 60, exclude=np.array([[1, 3]]))
    assert (found.rows >= 0).sum(axis=1).tolist() == [50, 49]
    assert np.isneginf(found.scores[1, 49:]).all()


def test_a_query_that_is_no_number_is_refused(build):
    with pytest.raises(ValueError, match="queries hold NaN"):
        build(unit(9, 300, 8)).search(np.full((2, 8), np.nan, np.float32), 3)


def search_twice(two_pass, queries, k, **options):
    nothing = np.empty((0, 2), np.int64), np.empty(0, np.int64)
    return two_pass.search(torch.from_numpy(queries), k, *nothing, **options)


def test_sure_answers_are_exact_and_unsure_ones_are_told():
    """Scores closer than the first pass can tell apart: answers may be wrong, none silently."""
    base = unit(10, 1, 32)
    vectors = base + 0.002 * unit(11, 3000, 32)
    queries = unit(12, 40, 32) * 0.3 + base
    two_pass = TwoPass(torch.from_numpy(vectors), "bfloat16", memory_bytes=1 << 20)
    (rows, _), unsure = search_twice(two_pass, queries, 5)
    exact = ExactIndex.build(vectors).search(queries, 5)
    wrong = (rows != exact.rows).any(axis=1)
    assert wrong.any()
    assert not (wrong & ~unsure).any()
    again = ExactIndex.build(vectors, first_pass="bfloat16").search(queries, 5)
    assert np.array_equal(again.rows, exact.rows)
    loose = ExactIndex.build(vectors, first_pass="bfloat16", recheck=False).search(queries, 5)
    assert np.array_equal(loose.rows, rows)


def test_most_answers_are_sure_at_once():
    vectors, queries = unit(13, 20_000, 64), unit(14, 64, 64)
    two_pass = TwoPass(torch.from_numpy(vectors), "bfloat16", memory_bytes=1 << 26)
    _, unsure = search_twice(two_pass, queries, 10)
    assert unsure.mean() < 0.05
    _, unsure = search_twice(two_pass, queries, 10, widen=8)
    assert not unsure.any()


def test_float8_misses_next_to_nothing():
    vectors, queries = unit(15, 20_000, 64), unit(16, 64, 64)
    index = ExactIndex.build(vectors, first_pass="float8", recheck=False)
    assert recall(index, ExactIndex.build(vectors), queries, 20) > 0.998


@pytest.mark.parametrize("size", [1.0, 1e-6, 1e6])
def test_float8_does_not_mind_the_size_of_vectors(size):
    vectors, queries = unit(17, 900, 24) * np.float32(size), unit(18, 9, 24)
    exact = ExactIndex.build(vectors).search(queries, 5)
    assert np.array_equal(
        ExactIndex.build(vectors, first_pass="float8").search(queries, 5).rows, exact.rows
    )


@pytest.mark.parametrize("memory_bytes", [1, 20_000, 200_000])
def test_memory_changes_no_answer(memory_bytes):
    vectors, queries = integers(19, 500, 4), integers(20, 150, 4)
    exclude = np.stack([np.random.default_rng(21).integers(0, n, 400) for n in (150, 500)], axis=1)
    index = ExactIndex.build(vectors, memory_bytes=memory_bytes, first_pass="bfloat16")
    exact = ExactIndex.build(vectors).search(queries, 9, exclude=exclude)
    assert np.array_equal(index.search(queries, 9, exclude=exclude).rows, exact.rows)


@pytest.mark.parametrize(("n_labels", "memory_bytes"), [(513, 4_000), (788, 60_000), (256, 1)])
def test_vectors_in_few_bits_are_searched_in_place(build, n_labels, memory_bytes):
    """Beyond the memory nothing is copied, and spans are kept block by block."""
    vectors = torch.from_numpy(integers(23, n_labels, 64)).bfloat16()
    queries = integers(24, 9, 64)
    rng = np.random.default_rng(25)
    exclude = np.stack([rng.integers(0, n, 300) for n in (9, n_labels)], axis=1)
    allowed = rng.random(n_labels) < 0.9
    index = build(vectors, dtype="bfloat16", memory_bytes=memory_bytes)
    two_pass = index.two_pass
    assert two_pass.few_bits is index.vectors
    assert len(two_pass.tail) < 257
    exact = ExactIndex.build(vectors.float()).search(queries, 7, exclude=exclude, allowed=allowed)
    found = index.search(queries, 7, exclude=exclude, allowed=allowed)
    assert np.array_equal(found.rows, exact.rows)
    assert np.array_equal(found.scores, exact.scores)


def test_large_tables_are_searched_by_spans_and_small_ones_by_groups():
    counts = np.zeros(600, np.int64)
    for memory_bytes, by_spans in ((1 << 20, True), (1 << 26, False)):
        two_pass = TwoPass(torch.zeros(40_000, 8), "bfloat16", memory_bytes=memory_bytes)
        assert two_pass._keeps_spans(counts, 10, 1) == by_spans
        assert not two_pass.shared


@pytest.mark.parametrize("width", [1, 3, 12, 40])
@pytest.mark.parametrize("size", [256, 768, 10_240])
def test_no_span_left_out_exceeds_what_is_said(width, size):
    queries = torch.from_numpy(integers(26, 11, 4))
    labels, bias = torch.from_numpy(integers(27, 1536, 4)), torch.zeros(1536)
    bias[300:700] = -torch.inf
    maxima = plain_span_maxima(queries, labels, bias)
    blocks = [(s, labels[s : s + size], bias[s : s + size]) for s in range(0, 1536, size)]
    chosen, left_out = best_spans(queries, blocks, width, plain_span_maxima)
    assert (chosen.diff(dim=1) > 0).all()
    rest = maxima.scatter(1, chosen, -torch.inf).amax(dim=1)
    assert (rest <= left_out).all()
    assert torch.equal(
        maxima.gather(1, chosen).sort(dim=1, descending=True).values,
        maxima.sort(dim=1, descending=True).values[:, : chosen.shape[1]],
    )
    rows = plain.members(groups_of(chosen)).flatten(1).sort(dim=1).values
    assert torch.equal(rows.unflatten(1, (-1, plain.SPAN))[:, :, 0], chosen * plain.SPAN)


def test_blocks_cover_all_queries_within_the_memory():
    two_pass = TwoPass(torch.zeros(5000, 8), "bfloat16", memory_bytes=2_000_000)
    counts = np.sort(np.random.default_rng(22).zipf(1.5, 999)).clip(max=400)
    blocks = two_pass._blocks(counts, 20, 1)
    assert [b[0] for b in blocks] == [0, *(b[1] for b in blocks[:-1])]
    assert blocks[-1][1] == 999
    for start, stop, width in blocks:
        assert width >= min(20 + counts[stop - 1], 640)
        assert (stop - start) * (5 * 640 + 704 * width) <= 2_000_000


def test_members_and_places_are_each_other_s_inverse():
    rows = torch.arange(plain.SPAN * 5)
    group, place = plain.group_and_place(rows)
    assert torch.equal(plain.members(group).gather(1, place[:, None])[:, 0], rows)
    assert torch.equal(plain.members(torch.arange(80)).flatten().sort().values, rows)


@pytest.mark.parametrize("width", [1, 3, 40, 200])
def test_no_group_left_out_exceeds_what_is_said(width):
    generator = torch.Generator().manual_seed(width)
    maxima = torch.randint(-30, 30, (11, 160), generator=generator).float()
    best = maxima.unflatten(1, (-1, plain.GROUPS_PER_SPAN)).amax(dim=2)
    groups, left_out = best_groups(maxima, best, width)
    assert (groups.diff(dim=1) > 0).all()
    rest = maxima.scatter(1, groups, -torch.inf).amax(dim=1)
    assert (rest <= left_out).all()
    assert torch.equal(
        maxima.gather(1, groups).sort(dim=1, descending=True).values,
        maxima.sort(dim=1, descending=True).values[:, : groups.shape[1]],
    )


def test_pairs_that_are_no_candidates_touch_nothing():
    groups = torch.tensor([[0, 17], [2, 5]])
    scores = torch.zeros(2, 16)
    rows = plain.members(groups).flatten(1)
    owners = torch.tensor([0, 0, 1, 1, 0])
    labels = torch.tensor([int(rows[0, 9]), int(rows[1, 3]), int(rows[1, 0]), 600, 16])
    drop_pairs_(scores, groups, (owners, labels))
    assert scores.isneginf().nonzero().tolist() == [[0, 1], [0, 9], [1, 0]]


def test_unknown_first_pass_is_named():
    with pytest.raises(ConfigError, match="first_pass 'int4' is not known. Known: bfloat16"):
        ExactIndex.build(np.ones((4, 2), np.float32), first_pass="int4")
