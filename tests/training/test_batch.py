import threading

import numpy as np

from umpteen.data.dataset import targets_from_rows
from umpteen.data.pool import PoolBuilder
from umpteen.data.tokens import TokenStore
from umpteen.training.batch import BatchMaker, join
from umpteen.types import Ragged

N, L = 30, 20


def store(n, first):
    lengths = np.arange(n) % 4 + 1
    ids = np.concatenate([np.full(m, first + i) for i, m in enumerate(lengths)])
    return TokenStore(ids.astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]))


def maker(*, seed=1, encode_labels=True, extra=0):
    rows = [[i % L, (i * 7 + 3) % L, (i * 3 + 1) % L] for i in range(N)]
    pools = PoolBuilder(
        targets_from_rows(rows, L),
        np.zeros((0, 2), np.int64),
        positives_per_query=1,
        negatives_per_query=2,
        extra_positives=extra,
    )
    made = BatchMaker(store(N, 0), store(L, 100), pools, seed=seed, encode_labels=encode_labels)
    made.negatives = np.random.default_rng(0).integers(0, L, (N, 6)).astype(np.int32)
    return made


def texts(tokens):
    return [tokens.ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:])]  # noqa: B905


def same(first, second):
    return (
        np.array_equal(first.queries, second.queries)
        and np.array_equal(first.pool.labels, second.pool.labels)
        and texts(first.tokens) == texts(second.tokens)
    )


def test_tokens_are_the_queries_then_the_pool_labels_that_have_text():
    queries = np.array([7, 2, 19])
    batch = maker(extra=2).make(queries, step=4)
    assert batch.pool.n_text < len(batch.pool.labels)
    wanted = [[q] * (q % 4 + 1) for q in queries.tolist()]
    wanted += [[100 + r] * (r % 4 + 1) for r in batch.pool.labels[: batch.pool.n_text].tolist()]
    assert texts(batch.tokens) == wanted


def test_without_a_dual_head_no_label_text_is_read():
    batch = maker(encode_labels=False).make(np.array([7, 2]), step=4)
    assert len(batch.tokens) == 2


def test_a_batch_is_a_pure_function_of_seed_step_and_queries():
    queries = np.arange(12)
    first = maker().make(queries, step=4)
    again = maker()
    again.make(np.arange(20), step=1)  # what was made before does not matter
    assert same(first, again.make(queries, step=4))
    assert not same(first, maker().make(queries, step=5))
    assert not same(first, maker(seed=2).make(queries, step=4))


def test_hard_negatives_follow_their_queries():
    made = maker()
    made.negatives = np.where(np.arange(N)[:, None] == 11, 17, -1)
    with_it = made.make(np.array([3, 11]), step=0).pool.labels
    assert 17 in with_it
    without = made.make(np.array([3, 12]), step=0).pool.labels
    assert set(without.tolist()) <= {3, 4, 10, 12, 7, 17}  # own positives alone
    assert len(without) <= 2


def test_batches_made_ahead_equal_batches_made_one_by_one_from_any_start():
    plan = [np.arange(i, i + 5) for i in range(0, 25, 5)]
    for start in (0, 1, 4, 5):
        ahead = list(maker().make_ahead(plan, start=start, first_step=10 + start))
        assert len(ahead) == len(plan) - start
        for offset, batch in enumerate(ahead):
            assert same(batch, maker().make(plan[start + offset], step=10 + start + offset))


def test_a_consumer_may_stop_in_the_middle_and_leaves_no_thread_behind():
    before = threading.active_count()
    batches = maker().make_ahead([np.arange(3)] * 9, start=0, first_step=0)
    next(batches)
    assert threading.active_count() > before
    batches.close()
    assert threading.active_count() == before


def test_join_puts_the_second_texts_behind_the_first():
    first = Ragged(np.array([1, 2, 3]), np.array([0, 1, 3]))
    second = Ragged(np.array([4]), np.array([0, 1]))
    assert texts(join(first, second)) == [[1], [2, 3], [4]]
