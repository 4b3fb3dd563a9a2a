"""The laws of batches, whoever makes them."""

import threading

import numpy as np
import pytest
import torch

from umpteen.data.dataset import targets_from_rows
from umpteen.data.pool import PoolBuilder
from umpteen.data.pool_on_device import DevicePoolBuilder
from umpteen.data.tokens import TokenStore
from umpteen.training.batch import THREAD_NAME, BatchMaker, join
from umpteen.training.batch_on_device import DeviceBatchMaker, _tensors, fits_device
from umpteen.types import Ragged

N, L = 30, 20


def store(n, first):
    lengths = np.arange(n) % 4 + 1
    ids = np.concatenate([np.full(m, first + i) for i, m in enumerate(lengths)])
    return TokenStore(ids.astype(np.uint16), np.concatenate([[0], np.cumsum(lengths)]))


def parts(extra):
    rows = [[i % L, (i * 7 + 3) % L, (i * 3 + 1) % L] for i in range(N)]
    options = {"positives_per_query": 1, "negatives_per_query": 2, "extra_positives": extra}
    return (targets_from_rows(rows, L), np.zeros((0, 2), np.int64)), options


def on_host(extra, **options):
    given, drawn = parts(extra)
    return BatchMaker(store(N, 0), store(L, 100), PoolBuilder(*given, **drawn), **options)


def on_device(device, *, fits=True, layout=None):
    def make(extra, **options):
        place = torch.device(device)
        given, drawn = parts(extra)
        pools = DevicePoolBuilder(*given, place, **drawn)
        bound = {"layout": layout} if fits else {"table_bytes": 7}
        return DeviceBatchMaker(store(N, 0), store(L, 100), pools, place, **options, **bound)

    return make


MAKERS = {
    "numpy": on_host,
    "torch": on_device("cpu"),
    "torch, planned": on_device("cpu", layout=len),
    "torch, tables on the host": on_device("cpu", fits=False),
    "cuda": on_device("cuda"),
    "cuda, tables on the host": on_device("cuda", fits=False),
}
without_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.gpu, without_gpu] if "cuda" in name else [])
        for name in MAKERS
    ]
)
def maker(request):
    def made(*, seed=1, encode_labels=True, extra=0):
        result = MAKERS[request.param](extra, seed=seed, encode_labels=encode_labels)
        result.negatives = np.random.default_rng(0).integers(0, L, (N, 6)).astype(np.int32)
        return result

    return made


def texts(tokens):
    assert isinstance(tokens.offsets, np.ndarray)
    ids = torch.as_tensor(tokens.ids).cpu()
    assert ids.dtype == torch.int32
    return [ids[a:b].tolist() for a, b in zip(tokens.offsets, tokens.offsets[1:])]  # noqa: B905


def rows_of(pool):
    return torch.as_tensor(pool.labels).tolist()


def same(first, second):
    return (
        np.array_equal(first.queries, second.queries)
        and rows_of(first.pool) == rows_of(second.pool)
        and texts(first.tokens) == texts(second.tokens)
    )


def test_tokens_are_the_queries_then_the_pool_labels_that_have_text(maker):
    queries = np.array([7, 2, 19])
    batch = maker(extra=2).make(queries, step=4)
    assert batch.pool.n_text < len(batch.pool.labels)
    wanted = [[q] * (q % 4 + 1) for q in queries.tolist()]
    wanted += [[100 + r] * (r % 4 + 1) for r in rows_of(batch.pool)[: batch.pool.n_text]]
    assert texts(batch.tokens) == wanted


def test_without_a_dual_head_no_label_text_is_read(maker):
    batch = maker(encode_labels=False).make(np.array([7, 2]), step=4)
    assert len(batch.tokens) == 2


def test_a_batch_is_a_pure_function_of_seed_step_and_queries(maker):
    queries = np.arange(12)
    first = maker().make(queries, step=4)
    again = maker()
    again.make(np.arange(20), step=1)  # what was made before does not matter
    assert same(first, again.make(queries, step=4))
    assert not same(first, maker().make(queries, step=5))
    assert not same(first, maker(seed=2).make(queries, step=4))


def test_hard_negatives_follow_their_queries(maker):
    made = maker()
    made.negatives = np.where(np.arange(N)[:, None] == 11, 17, -1)
    assert made.negatives.shape == (N, 1)
    with_it = rows_of(made.make(np.array([3, 11]), step=0).pool)
    assert 17 in with_it
    without = rows_of(made.make(np.array([3, 12]), step=0).pool)
    assert set(without) <= {3, 4, 10, 12, 7, 17}  # own positives alone
    assert len(without) <= 2


def test_batches_made_ahead_equal_batches_made_one_by_one_from_any_start(maker):
    plan = [np.arange(i, i + 5) for i in range(0, 25, 5)]
    for start in (0, 1, 4, 5):
        ahead = list(maker().make_ahead(plan, start=start, first_step=10 + start))
        assert len(ahead) == len(plan) - start
        for offset, batch in enumerate(ahead):
            assert same(batch, maker().make(plan[start + offset], step=10 + start + offset))


def test_a_consumer_may_stop_in_the_middle_and_leaves_no_thread_behind(maker):
    def ours():  # a GPU's library may leave threads of its own
        return [t.name for t in threading.enumerate() if t.name.startswith(THREAD_NAME)]

    batches = maker().make_ahead([np.arange(3)] * 9, start=0, first_step=0)
    next(batches)
    assert ours()
    batches.close()
    assert not ours()


def test_join_puts_the_second_texts_behind_the_first():
    first = Ragged(np.array([1, 2, 3], np.int32), np.array([0, 1, 3]))
    second = Ragged(np.array([4], np.int32), np.array([0, 1]))
    assert texts(join(first, second)) == [[1], [2, 3], [4]]


def test_without_mined_negatives_positives_alone_are_drawn(maker):
    made = maker()
    made.negatives = None
    assert made.negatives is None
    assert len(rows_of(made.make(np.array([3, 12]), step=0).pool)) <= 2


def test_tables_that_do_not_fit_the_device_change_nothing():
    negatives = np.random.default_rng(0).integers(0, L, (N, 6)).astype(np.int32)
    batches = []
    for fits in (True, False):
        made = on_device("cpu", fits=fits)(2, seed=3, encode_labels=True)
        made.negatives = negatives
        assert made._tokens.on_device == fits
        assert isinstance(made._negatives, torch.Tensor) == fits
        batches.append(made.make(np.arange(11), step=2))
    assert same(*batches)


def test_what_the_encoder_plans_comes_with_the_tokens():
    made = on_device("cpu", layout=lambda tokens: texts(tokens))(0, seed=3, encode_labels=True)
    batch = made.make(np.arange(11), step=2)
    assert batch.tokens.layout == texts(batch.tokens)
    assert len(batch.tokens.layout) == 11 + batch.pool.n_text


def test_every_tensor_of_a_batch_is_handed_over():
    batch = on_device("cpu", layout=lambda tokens: {"deep": [(torch.ones(3),)], "size": 2})(
        2, seed=3, encode_labels=True
    ).make(np.arange(11), step=2)
    assert batch.pool.text is not None
    found = list(_tensors(batch))
    assert len(found) == 11  # five of each pool, and the plan's


def test_eight_bytes_an_entry_decide_whether_targets_go_to_the_device():
    targets = targets_from_rows([[0, 1], [2]], 3)
    filters = np.array([[0, 2]])
    assert fits_device(targets, filters, table_bytes=32)
    assert not fits_device(targets, filters, table_bytes=31)
