"""streamed_update against streamed_loss and a separate step; bfloat16 factors; named summaries."""

import numpy as np
import pytest
import torch

from compute.streaming.test_label_blocks import (
    ALL,
    UNDRAWN,
    B,
    D,
    L,
    assert_same,
    dense,
    far,
    in_turn,
    make_case,
    on_gpu,
    parts,
    parts_that_draw_all,
)  # fmt: skip
from umpteen.compute.streaming import explicit_gradients
from umpteen.compute.streaming.label_blocks import streamed_loss, streamed_update
from umpteen.compute.streaming.label_products import (
    BlockGradient,
    descend,
    multiply,
    sum_over_labels,
)
from umpteen.errors import UmpteenError
from umpteen.objectives import OBJECTIVES
from umpteen.registry import resolve
from umpteen.types import Positives, ScoreSummary

every_pair = pytest.mark.parametrize(("objective", "reduction"), ALL)
NAMED = [
    name for name in OBJECTIVES if hasattr(resolve(OBJECTIVES, name, kind="objective"), "summary")
]
named_pairs = pytest.mark.parametrize(
    ("objective", "reduction"), [pair for pair in ALL if pair[0] in NAMED]
)


class Unnamed:
    """The same objective without its summary's name: it takes the way that any objective can."""

    def __init__(self, base):
        self.row_stats, self.merge, self.loss = base.row_stats, base.merge, base.loss


def updated(objective, reduction, case, *, rate, seed=3, step=streamed_update, **options):
    """Loss, gradients by queries and scale, and the labels after a step of plain descent."""
    queries, labels, scale, positives, ignored = case
    base, weigh = parts(objective, reduction)
    table = labels.detach().clone()
    torch.manual_seed(seed)
    loss = step(
        base, weigh, queries, table, positives, descend(table, rate),
        scale=scale, ignored=ignored, **options,
    )  # fmt: skip
    return loss.detach(), *torch.autograd.grad(3 * loss, (queries, scale)), table


def separately(objective, reduction, case, *, rate, weight=1.0, seed=3, **options):
    queries, labels, scale, positives, ignored = case
    base, weigh = parts(objective, reduction)
    torch.manual_seed(seed)
    loss = weight * streamed_loss(
        Unnamed(base) if hasattr(base, "summary") else base, weigh, queries, labels, positives,
        scale=scale, ignored=ignored, **options,
    )  # fmt: skip
    by_query, by_label, by_scale = torch.autograd.grad(loss, (queries, labels, scale))
    return loss.detach(), 3 * by_query, 3 * by_scale, labels.detach() - rate * by_label


@in_turn("forward_and_size", [(1.0, 4), (1.0, 100), (0.4, 6)])
def test_an_update_in_blocks_is_the_loss_and_then_a_step(objective, reduction, forward_and_size):
    forward, size = forward_and_size
    options = {"rate": 0.3, "weight": 0.7, "forward": forward, "block_size": size}
    case = make_case(20)
    assert_same(
        [updated(objective, reduction, case, **options),
         separately(objective, reduction, case, **options)]
    )  # fmt: skip


@named_pairs
def test_queries_without_positives_move_no_label(objective, reduction):
    queries, labels, scale, _, _ = make_case(21)
    nobody = Positives(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    case = queries, labels, scale, nobody, None
    loss, by_query, _, table = updated(objective, reduction, case, rate=1.0, block_size=5)
    assert loss == 0
    assert not by_query.any()
    assert torch.equal(table, labels.detach())
    none = queries, labels[:0], scale, nobody, None
    assert updated(objective, reduction, none, rate=1.0)[0] == 0


@named_pairs
def test_a_query_all_of_whose_labels_are_positive_or_ignored_is_finite(objective, reduction):
    queries, labels, scale, _, _ = make_case(22)
    cols = np.arange(L)
    full = Positives(np.full(L, 2), cols, np.ones(L))
    rest = np.column_stack([np.full(L, 4), cols])
    case = queries, labels, scale, full, rest
    options = {"rate": 0.1, "block_size": 6}
    assert_same(
        [updated(objective, reduction, case, **options),
         separately(objective, reduction, case, **options)]
    )  # fmt: skip


@in_turn("forward", [1.0, 0.4])
def test_absent_pairs_move_no_label_among_scores_far_below_zero(objective, reduction, forward):
    case = far(make_case(29))
    queries, labels, scale, positives, ignored = case
    base, weigh = parts(objective, reduction)
    options = {"rate": 0.3, "weight": 0.7, "forward": forward, "block_size": 6}
    loss, by_query, by_scale, table = updated(objective, reduction, case, **options)
    torch.manual_seed(3)
    exact = 0.7 * dense(base, weigh, queries, labels, positives, scale, ignored, forward)
    given = torch.autograd.grad(exact, (queries, scale, labels))
    theirs = exact.detach(), 3 * given[0], 3 * given[1], labels.detach() - 0.3 * given[2]
    assert_same([(loss, by_query, by_scale, table), theirs], atol=1e-9)


def test_queries_that_need_no_gradient_get_none():
    queries, labels, _, positives, _ = make_case(23)
    base, weigh = parts("bce", "pal")
    table = labels.detach().clone()
    loss = streamed_update(
        base, weigh, queries.detach(), table, positives, descend(table, 0.1), block_size=4
    )
    assert not loss.requires_grad
    assert not torch.equal(table, labels)


class Crowded:
    """A summary that runs out of memory on wide blocks, or once in the middle of a pass."""

    def __init__(self, base, most):
        self.base, self.most, self.copies = base, most, base.copies
        self.merge = base.merge

    def check(self, scores):
        if len(scores) > self.most:
            raise torch.OutOfMemoryError("as if")

    def summarise(self, scores):
        return self.base.summarise(scores)

    def slopes_(self, scores, *rest):
        self.check(scores)
        return self.base.slopes_(scores, *rest)

    def summarise_and_slopes_(self, scores, *rest):
        self.check(scores)
        return self.base.summarise_and_slopes_(scores, *rest)


@pytest.mark.parametrize("objective", NAMED)
def test_memory_that_runs_out_between_blocks_updates_no_label_twice(objective, monkeypatch, caplog):
    case, options = make_case(24), {"rate": 0.3, "block_size": 9}
    expected = separately(objective, "pal", case, **options)
    for name, functions in explicit_gradients.PLAIN.items():
        monkeypatch.setitem(explicit_gradients.PLAIN, name, Crowded(functions, 9))
    once = iter([False, True])  # the second block is too much, the first was done

    def check(self, scores):
        if len(scores) > 5 and next(once, False):
            raise torch.OutOfMemoryError("as if")

    monkeypatch.setattr(Crowded, "check", check)
    assert_same([updated(objective, "pal", case, **options), expected])
    assert "going on with 5 labels at once" in caplog.text


def test_an_update_that_runs_out_of_memory_is_not_repeated():
    queries, labels, _, positives, _ = make_case(25)
    base, weigh = parts("bce", "pal")
    seen = []

    def apply(rows, gradient):
        seen.append(rows)
        raise torch.OutOfMemoryError("as if")

    with pytest.raises(
        UmpteenError, match=r"updating 4 labels at once does not fit .*pool.memory_mib"
    ):
        streamed_update(base, weigh, queries, labels, positives, apply, block_size=4)
    assert seen == [slice(0, 4)]


@in_turn("forward", [1.0, 0.5], UNDRAWN)
def test_factors_in_bfloat16_are_rounded_once_and_add_up_in_float32(objective, reduction, forward):
    queries, labels, _, positives, ignored = make_case(26, dtype=torch.float32)
    base, weigh = parts(objective, reduction)
    loss = streamed_loss(
        base, weigh, queries, labels, positives,
        ignored=ignored, forward=forward, block_size=4, precision="bf16",
    )  # fmt: skip
    found = torch.autograd.grad(loss, (queries, labels))
    rounded = [v.detach().bfloat16().double().requires_grad_() for v in (queries, labels)]
    exact = dense(base, weigh, *rounded, positives, 1.0, ignored, forward)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)  # scores are float32
    for mine, theirs in zip(found, torch.autograd.grad(exact, rounded), strict=True):
        assert mine.dtype == torch.float32
        # The gradient by scores is rounded too, by 2^-9 of each of its terms at most.
        atol = 2**-8 * float(theirs.abs().max())
        torch.testing.assert_close(mine.double(), theirs, rtol=2**-8, atol=atol)


def test_a_summary_that_nobody_knows_is_named():
    queries, labels, _, positives, _ = make_case(28)
    base, weigh = parts("softmax", "pal")
    base.summary = ScoreSummary("mean", over_positives=True, linear=True)
    with pytest.raises(UmpteenError, match="summary is 'mean'; it may be logsumexp or softplus"):
        streamed_loss(base, weigh, queries, labels, positives)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_a_block_gradient_is_multiplied_written_or_added(kind):
    torch.manual_seed(0)
    slopes, queries = torch.randn(5, B).to(kind), torch.randn(B, D).to(kind)
    gradient = BlockGradient(slopes, queries)
    exact = slopes.double() @ queries.double()
    near = {"rtol": 1e-2, "atol": 1e-2} if kind == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for values in (kind, torch.float32):
        torch.testing.assert_close(gradient.dense(values).double(), exact, **near)
        table = torch.ones(5, D, dtype=values)
        gradient.add_to_(table, -0.5)
        torch.testing.assert_close(table.double(), 1 - 0.5 * exact, **near)
        gradient.write_to_(table)
        torch.testing.assert_close(table.double(), exact, **near)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("n_labels", [2048, 5003])
def test_products_on_a_gpu_add_up_in_float32(n_labels):
    torch.manual_seed(0)
    slopes = torch.randn(n_labels, 37, device="cuda").bfloat16()
    block = torch.randn(n_labels, 24, device="cuda").bfloat16()
    exact = slopes.double().T @ block.double()
    # Sums of some thousand exact products: float32 keeps 1e-5 of them, bfloat16 would keep 4e-3.
    near = {"rtol": 1e-5, "atol": 1e-3}
    torch.testing.assert_close(
        sum_over_labels(slopes, block, torch.float32).double(), exact, **near
    )
    found = multiply(slopes.T, block, torch.float32)
    torch.testing.assert_close(found.double(), exact, **near)
    transposed = slopes.T.contiguous().T
    found = sum_over_labels(transposed, block, torch.float32)
    torch.testing.assert_close(found.double(), exact, **near)


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize(
    ("objective", "reduction"), [pair for pair in ALL if pair[0] in NAMED and pair[1] != "pol"]
)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_on_a_gpu_bfloat16_stays_near_float64_and_an_update_never_waits(objective, reduction, kind):
    case = make_case(27, n_queries=45, n_labels=5003, share=0.001)
    queries, labels, scale, positives, ignored = case
    rounded = [v.detach().bfloat16().double().requires_grad_() for v in (queries, labels)]
    base, weigh = parts_that_draw_all(objective, reduction)
    exact = dense(base, weigh, *rounded, positives, 1.0, ignored, 1.0)
    by_query, by_label = torch.autograd.grad(exact, rounded)
    given = rounded[0].detach().float().cuda().requires_grad_()
    table = rounded[1].detach().to("cuda", kind)
    wrote = torch.zeros(table.shape, device="cuda", dtype=kind)
    torch.cuda.set_sync_debug_mode("error")
    try:
        loss = streamed_update(
            base, weigh, given, table, positives,
            lambda rows, gradient: gradient.write_to_(wrote[rows]),
            ignored=ignored, block_size=2100, precision="bf16",
        )  # fmt: skip
        (found,) = torch.autograd.grad(loss, given)
        again = streamed_loss(
            base, weigh, given, table.requires_grad_(), positives,
            ignored=ignored, block_size=2100, precision="bf16",
        )  # fmt: skip
        both = torch.autograd.grad(again, (given, table))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    # Factors are exact here, scores float32; slopes are rounded by 2^-9 of themselves, and so is
    # a gradient that is kept in bfloat16.
    for value in (loss, again):
        torch.testing.assert_close(value.cpu().double(), exact.detach(), rtol=1e-5, atol=1e-6)
    for mine, theirs in (
        (found, by_query),
        (both[0], by_query),
        (wrote, by_label),
        (both[1], by_label),
    ):
        atol = 2**-8 * float(theirs.abs().max())
        torch.testing.assert_close(mine.cpu().double(), theirs, rtol=2**-7, atol=atol)
