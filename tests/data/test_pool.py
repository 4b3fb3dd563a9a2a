import functools

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from umpteen.data.dataset import drop_pairs, targets_from_rows
from umpteen.data.pool import Pool, PoolBuilder
from umpteen.data.pool_on_device import DeviceDraws, DevicePoolBuilder
from umpteen.types import Positives

NO_FILTERS = np.zeros((0, 2), np.int64)


def as_numpy(pool):
    """The pool with NumPy arrays, wherever it was made."""
    pairs = pool.positives
    arrays = (pool.labels, pairs.rows, pairs.cols, pairs.targets, pool.ignored)
    labels, *of_pairs, ignored = (torch.as_tensor(array).cpu().numpy() for array in arrays)
    text = None if pool.text is None else as_numpy(pool.text)
    return Pool(labels, pool.n_text, Positives(*of_pairs), ignored, text)


class OnDevice:
    """A device builder that hands its pools out on the host."""

    def __init__(self, device, targets, filters, **options):
        self._pools = DevicePoolBuilder(targets, filters, torch.device(device), **options)

    def build(self, *args):
        return as_numpy(self._pools.build(*args))


BUILDERS = {
    "numpy": PoolBuilder,
    "torch": functools.partial(OnDevice, "cpu"),
    "cuda": functools.partial(OnDevice, "cuda"),
}
"""The laws below hold for each."""
without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(
    scope="module",
    params=["numpy", "torch", pytest.param("cuda", marks=[pytest.mark.gpu, without_gpu])],
)
def make(request):
    return BUILDERS[request.param]


@pytest.fixture
def builder(make):
    def built(rows, n_labels, filters=NO_FILTERS, **options):
        settings_ = {"positives_per_query": 2, "negatives_per_query": 2, **options}
        return make(targets_from_rows(rows, n_labels), np.asarray(filters), **settings_)

    return built


def rng(seed=0):
    return np.random.default_rng(seed)


def pairs_of(positives):
    return set(zip(positives.rows.tolist(), positives.cols.tolist(), strict=True))


def test_a_hard_negative_that_is_anothers_positive_is_a_positive_of_the_other(builder):
    pools = builder([[0], [1, 2]], 5, positives_per_query=1)
    for seed in range(5):
        pool = pools.build(np.array([0, 1]), rng(seed), np.array([[2, 4], [3, 4]]))
        labels = pool.labels.tolist()
        assert 2 in labels  # brought in by query 0
        assert (1, labels.index(2)) in pairs_of(pool.positives)
        assert (0, labels.index(2)) not in pairs_of(pool.positives)


def test_a_label_drawn_by_one_query_is_a_positive_of_every_query_that_has_it(builder):
    rows = [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [4]]
    pools = builder(rows, 6, positives_per_query=1, negatives_per_query=0)
    pool = pools.build(np.arange(3), rng(1))
    found = pairs_of(pool.positives)
    for query, relevant in enumerate(rows):
        for place, label in enumerate(pool.labels.tolist()):
            assert ((query, place) in found) == (label in relevant)


def test_a_filtered_label_is_neither_positive_nor_negative(make):
    targets = targets_from_rows([[0, 1], [1]], 4)
    filters = np.array([[0, 1], [1, 3], [1, 0]])
    pools = make(
        drop_pairs(targets, filters), filters, positives_per_query=2, negatives_per_query=1
    )
    pool = pools.build(np.array([1, 0]), rng(), np.array([[3], [-1]]))  # 1 mines what it filters
    assert pool.labels.tolist() == [0, 1, 3]
    assert pairs_of(pool.positives) == {(0, 1), (1, 0)}
    assert sorted(map(tuple, pool.ignored.tolist())) == [(0, 0), (0, 2), (1, 1)]


def test_padding_of_mined_negatives_never_becomes_a_label(builder):
    pools = builder([[0], [1]], 4, negatives_per_query=3)
    mined = np.array([[-1, -1, 2, -1], [-1, -1, -1, -1]], np.int32)
    for seed in range(10):
        pool = pools.build(np.array([0, 1]), rng(seed), mined)
        # In particular the last label (row 3), where an index of -1 would point.
        assert pool.labels.tolist() == [0, 1, 2]


def test_all_positives_are_drawn_when_there_are_no_more_than_beta(builder):
    pools = builder([[0, 4], [3]], 5, negatives_per_query=0)
    assert pools.build(np.array([0, 1]), rng()).labels.tolist() == [0, 3, 4]


def test_beta_distinct_positives_are_drawn_and_each_has_its_chance(builder):
    pools = builder([list(range(9))], 9, positives_per_query=4, negatives_per_query=0)
    seen = np.zeros(9, int)
    for seed in range(200):
        labels = pools.build(np.array([0]), rng(seed)).labels
        assert len(labels) == 4
        seen[labels] += 1
    assert seen.min() > 50  # 89 expected, with a deviation of 7
    assert seen.max() < 130


def test_eta_distinct_negatives_are_drawn_and_each_has_its_chance(builder):
    pools = builder([[0]], 10, negatives_per_query=3)
    mined = np.array([[1, 2, 3, -1, 4, 5, 6, -1, 7, 8]])
    seen = np.zeros(10, int)
    for seed in range(200):
        labels = pools.build(np.array([0]), rng(seed), mined).labels
        assert len(labels) == 4
        seen[labels] += 1
    assert seen[0] == 200
    assert seen[9] == 0
    assert seen[1:9].min() > 40  # 75 expected, with a deviation of 7
    assert seen[1:9].max() < 110


def test_the_cap_keeps_positives_first_and_then_the_most_wanted(builder):
    # Positives 0 (three queries), 1 and 2 (one each); negatives 5 (wanted twice) and 6 (once).
    rows = [[0], [0, 1], [0, 2]]
    mined = np.array([[5, 6], [5, -1], [-1, -1]])

    def labels(cap):
        pools = builder(rows, 7, max_labels=cap)
        pool = pools.build(np.arange(3), rng(), mined)
        return pool.labels.tolist()

    assert labels(1) == [0]
    assert labels(2) == [0, 1]  # 1 and 2 are wanted as much: the smaller row
    assert labels(3) == [0, 1, 2]
    assert labels(4) == [0, 1, 2, 5]
    assert labels(5) == labels(0) == [0, 1, 2, 5, 6]


def test_a_pool_is_filled_up_with_labels_of_which_each_has_its_chance(builder):
    pools = builder([[3], [3, 5]], 12, min_labels=5, filters=[[0, 5], [1, 7]])
    seen, others = np.zeros(12, int), set()
    for seed in range(300):
        pool = pools.build(np.arange(2), rng(seed), np.array([[9], [-1]]))
        labels = pool.labels.tolist()
        assert len(labels) == pool.n_text == 5
        assert {3, 5, 9} <= set(labels)
        seen[labels] += 1
        others.add(tuple(set(labels) - {3, 5, 9}))
        # Whoever brought a label in, it is what the data says of it.
        places = {label: place for place, label in enumerate(labels)}
        assert pairs_of(pool.positives) == {(0, places[3]), (1, places[3]), (1, places[5])}
        ignored = {(0, places[5])} | ({(1, places[7])} if 7 in places else set())
        assert set(map(tuple, pool.ignored.tolist())) == ignored
    rest = np.delete(seen, [3, 5, 9])
    assert rest.min() > 40  # 67 expected, with a deviation of 7
    assert rest.max() < 95
    assert len({tuple(sorted(pair)) for pair in others}) == 36  # every pair of nine


@pytest.mark.parametrize("least", [7, 200])
def test_a_pool_is_filled_up_with_all_there_are_and_no_more(builder, least):
    pools = builder([[0]], 7, min_labels=least)
    assert pools.build(np.array([0]), rng()).labels.tolist() == list(range(7))


def test_a_pool_that_is_large_enough_is_not_filled(builder):
    plain, filled = (builder([[0, 1, 2]], 9, min_labels=n) for n in (0, 2))
    for seed in range(5):
        one, other = (p.build(np.array([0]), rng(seed)) for p in (plain, filled))
        assert one.labels.tolist() == other.labels.tolist()


def test_extra_positives_stand_behind_the_labels_with_text(builder):
    pools = builder(
        [list(range(6)), [5, 6, 7]],
        8,
        positives_per_query=1,
        negatives_per_query=0,
        extra_positives=2,
    )
    for seed in range(20):
        pool = pools.build(np.array([0, 1]), rng(seed))
        text, extra = pool.labels[: pool.n_text].tolist(), pool.labels[pool.n_text :].tolist()
        assert text == sorted(text)
        assert extra == sorted(extra)
        assert not set(text) & set(extra)
        assert 1 <= pool.n_text <= 2
        assert len(extra) <= 4
        assert len(set(text + extra) & {5, 6, 7}) == 3  # query 1 has three, and 1 + 2 are drawn


def test_the_same_generator_gives_the_same_pool_and_another_one_another(builder):
    pools = builder([list(range(30))] * 4, 30, positives_per_query=3)
    mined = np.tile(np.arange(30), (4, 1))
    first, again, other = (pools.build(np.arange(4), rng(s), mined) for s in (3, 3, 4))
    assert np.array_equal(first.labels, again.labels)
    assert pairs_of(first.positives) == pairs_of(again.positives)
    assert not np.array_equal(first.labels, other.labels)


def test_a_batch_without_any_label_gives_an_empty_pool(builder):
    pool = builder([[], [1]], 3).build(np.array([0]), rng(), np.full((1, 2), -1))
    assert len(pool.labels) == pool.n_text == len(pool.positives) == len(pool.ignored) == 0
    assert pool.ignored.shape == (0, 2)


def test_rows_are_int64_and_targets_keep_their_weights(make):
    matrix = sp.csr_matrix(np.array([[0.25, 0, 1.0], [0, 0.5, 0]], np.float32))
    pools = make(matrix, NO_FILTERS, positives_per_query=5, negatives_per_query=0)
    pool = pools.build(np.array([1, 0]), rng())
    for rows in (pool.labels, pool.positives.rows, pool.positives.cols, pool.ignored):
        assert rows.dtype == np.int64
    found = dict(
        zip(
            zip(pool.positives.rows.tolist(), pool.positives.cols.tolist(), strict=True),
            pool.positives.targets.tolist(),
            strict=True,
        )
    )
    assert found == {(0, 1): 0.5, (1, 0): 0.25, (1, 2): 1.0}


@st.composite
def batches(draw):
    n, n_labels = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    chance = np.random.default_rng(draw(st.integers(0, 10**6)))
    relevant = chance.random((n, n_labels)) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    filtered = chance.random((n, n_labels)) < draw(st.sampled_from([0.0, 0.2]))
    mined = np.where(
        chance.random((n, 5)) < 0.3, -1, np.argsort(chance.random((n, max(5, n_labels))))[:, :5]
    )
    mined[mined >= n_labels] = -1
    queries = chance.permutation(n)[: draw(st.integers(1, n))]
    options = {
        "positives_per_query": draw(st.integers(1, 4)),
        "negatives_per_query": draw(st.integers(0, 4)),
        "max_labels": draw(st.integers(0, 6)),
        "extra_positives": draw(st.integers(0, 3)),
        "min_labels": draw(st.integers(0, 9)),
    }
    if options["max_labels"]:
        options["min_labels"] = min(options["min_labels"], options["max_labels"])
    return relevant & ~filtered, filtered, mined, queries, options


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(batches(), st.integers(0, 100))
def test_a_pool_obeys_the_definition_on_random_data(make, case, seed):
    relevant, filtered, mined, queries, options = case
    pools = make(sp.csr_matrix(relevant.astype(np.float32)), np.argwhere(filtered), **options)
    pools.build(np.arange(len(relevant)), rng(seed + 1), mined)  # must leave nothing behind
    pool = pools.build(queries, rng(seed), mined[queries])
    labels = pool.labels.tolist()
    cap, beta, eta = (
        options[k] for k in ("max_labels", "positives_per_query", "negatives_per_query")
    )
    assert len(set(labels)) == len(labels)
    assert all(0 <= label < relevant.shape[1] for label in labels)
    assert not cap or pool.n_text <= cap
    least = min(options["min_labels"], relevant.shape[1])
    assert pool.n_text >= least
    assert labels[: pool.n_text] == sorted(labels[: pool.n_text])
    expected = {
        (i, place)
        for i, query in enumerate(queries.tolist())
        for place, label in enumerate(labels)
        if relevant[query, label]
    }
    assert pairs_of(pool.positives) == expected
    assert len(pool.positives) == len(expected)
    assert sorted(map(tuple, pool.ignored.tolist())) == sorted(
        (i, place)
        for i, query in enumerate(queries.tolist())
        for place, label in enumerate(labels)
        if filtered[query, label]
    )
    wanted = relevant[queries].any(axis=0)
    assert all(wanted[label] for label in labels[pool.n_text :])
    may_be_mined = set(mined[queries].ravel().tolist()) if eta else set()
    unasked = [x for x in labels[: pool.n_text] if not wanted[x] and x not in may_be_mined]
    assert not unasked or pool.n_text == least  # no more than what the pool was filled up with
    if not cap:
        for i, query in enumerate(queries.tolist()):
            own = sum(1 for row, col in expected if row == i and col < pool.n_text)
            assert own >= min(beta, relevant[query].sum())
            mine = set(mined[query].tolist()) - {-1}
            assert len(mine & set(labels)) >= min(eta, len(mine))


@pytest.mark.parametrize("n_filters", [1, 300])
def test_a_filter_pair_that_is_listed_often_is_one_pair(builder, n_filters):
    pools = builder([[0], [1]], 2, filters=[[0, 1]] * n_filters, negatives_per_query=0)
    assert pools.build(np.array([0, 1]), rng()).ignored.tolist() == [[0, 1]]


def same(first, second):
    pairs = ("rows", "cols", "targets")
    return (
        first.n_text == second.n_text
        and np.array_equal(first.labels, second.labels)
        and all(
            np.array_equal(getattr(first.positives, name), getattr(second.positives, name))
            for name in pairs
        )
        and np.array_equal(first.ignored, second.ignored)
    )


@settings(max_examples=150, deadline=None)
@given(batches(), st.integers(0, 100))
def test_the_same_draws_make_the_same_pool_on_a_device(case, seed):
    relevant, filtered, mined, queries, options = case
    weights = relevant * np.random.default_rng(seed).choice([0.25, 1.0], relevant.shape)
    given_ = (sp.csr_matrix(weights.astype(np.float32)), np.argwhere(filtered))
    host, device = (BUILDERS[name](*given_, **options) for name in ("numpy", "torch"))
    for turn in (1, 2):  # the second one finds what the first has left behind
        expected = host.build(queries, rng(seed + turn), mined[queries])
        found = device.build(queries, rng(seed + turn), mined[queries])
        assert same(found, expected)
        assert same(found.with_text, expected.with_text)
        assert (found.text is not None) == (found.n_text < len(found.labels))


def test_the_part_with_text_leaves_the_extra_labels_out(builder):
    rows = [list(range(6)), [5, 6, 7]]
    filters = [[0, 7], [1, 0]]
    pools = builder(rows, 8, filters, positives_per_query=1, extra_positives=2)
    seen = set()
    for seed in range(20):
        pool = pools.build(np.array([0, 1]), rng(seed), np.array([[6], [0]]))
        part = pool.with_text
        assert part.labels.tolist() == pool.labels[: pool.n_text].tolist()
        assert part.with_text is part
        inside = {(row, col) for row, col in pairs_of(pool.positives) if col < pool.n_text}
        assert pairs_of(part.positives) == inside
        ignored = [pair for pair in pool.ignored.tolist() if pair[1] < pool.n_text]
        assert part.ignored.tolist() == ignored
        seen.add((len(inside) < len(pool.positives), len(ignored) < len(pool.ignored)))
    assert (True, True) in seen


def test_draws_on_a_device_depend_on_the_seed_alone():
    draws = DeviceDraws(torch.device("cpu"))
    first = draws.seeded(3).random((4, 5))
    draws.random(7)
    torch.manual_seed(8)
    assert torch.equal(draws.seeded(3).random((4, 5)), first)
    assert not torch.equal(draws.seeded(4).random((4, 5)), first)
    assert first.dtype == torch.float64
    assert first.min() >= 0
    assert first.max() < 1


def test_drawing_on_a_device_touches_no_generator_of_the_caller():
    pools = DevicePoolBuilder(
        targets_from_rows([[0, 1, 2]], 3),
        NO_FILTERS,
        torch.device("cpu"),
        positives_per_query=2,
        negatives_per_query=0,
    )
    before = torch.get_rng_state()
    draws = DeviceDraws(torch.device("cpu"))
    seen = {tuple(pools.build(np.array([0]), draws.seeded(s)).labels.tolist()) for s in range(30)}
    assert seen == {(0, 1), (0, 2), (1, 2)}
    assert torch.equal(torch.get_rng_state(), before)
