"""streamed_loss over labels that several processes hold, against one that holds them all."""

import numpy as np
import pytest
import torch
from rank_children import on_ranks, said

from compute.streaming.test_label_blocks import ALL, Crowded, dense, far, make_case, parts
from umpteen.compute.distributed.sharding import Shards
from umpteen.compute.streaming.label_blocks import streamed_loss, streamed_update
from umpteen.compute.streaming.label_products import descend
from umpteen.errors import LabelMismatch
from umpteen.objectives.reductions import OneOfPositives, mean_of_positives, one_of_positives
from umpteen.objectives.softmax import Softmax
from umpteen.types import Positives

pytestmark = [pytest.mark.slow, pytest.mark.processes]
SEED = 3
FORWARDS = (1.0, 0.3, 0.0)


def on_this_rank(ranks, objective, reduction, case, *, bounds=None, **options):
    """Loss, and gradients by this rank's queries and labels and by scale, the last one summed."""
    queries, labels, scale, positives, ignored = case
    shards = Shards(ranks, ranks.bounds(len(labels)) if bounds is None else np.array(bounds))
    of_batch, of_labels = ranks.shard(len(queries)), shards.own
    own = queries.detach()[of_batch.start : of_batch.stop].clone().requires_grad_()
    held = labels.detach()[of_labels.start : of_labels.stop].clone().requires_grad_()
    scale = scale.detach().clone().requires_grad_()
    # Ranks draw other numbers before they come here, as they do for dropout.
    torch.manual_seed(SEED + 100 * ranks.rank)
    loss = streamed_loss(
        objective, reduction, ranks.gather_rows(own, ranks.bounds(len(queries))), held, positives,
        scale=scale, ignored=ignored, shards=shards, **options,
    )  # fmt: skip
    (2.5 * loss).backward()
    return loss.detach(), own.grad, held.grad, ranks.sum_(scale.grad), of_batch, of_labels


def check(ranks, objective, reduction, case, *, forward, reference=None, atol=1e-12, **options):
    queries, labels, scale, positives, ignored = case
    mine = on_this_rank(ranks, objective, reduction, case, forward=forward, **options)
    torch.manual_seed(SEED)
    base = reference or objective
    whole = dense(base, reduction, queries, labels, positives, scale, ignored, forward)
    by_query, by_label, by_scale = torch.autograd.grad(2.5 * whole, (queries, labels, scale))
    of_batch, of_labels = mine[4:]
    theirs = (
        whole.detach(),
        by_query[of_batch.start : of_batch.stop],
        by_label[of_labels.start : of_labels.stop],
        by_scale,
    )
    for one, other in zip(mine[:4], theirs, strict=True):
        assert torch.isfinite(one).all()
        torch.testing.assert_close(one, other, rtol=1e-10, atol=atol)


def check_update(ranks, objective, reduction, case, *, forward, atol=1e-12):
    """Labels that are changed at once, against a step after the loss of all of them."""
    queries, labels, scale, positives, ignored = case
    shards = Shards(ranks, ranks.bounds(len(labels)))
    own = slice(shards.own.start, shards.own.stop)
    table = labels.detach()[own].clone()
    given = queries.detach().clone().requires_grad_()
    torch.manual_seed(SEED + 100 * ranks.rank)
    loss = streamed_update(
        objective, reduction, given, table, positives, descend(table, 0.2),
        weight=0.7, scale=scale, ignored=ignored, shards=shards, forward=forward, block_size=3,
    )  # fmt: skip
    (part,) = torch.autograd.grad(loss, given)
    torch.manual_seed(SEED)
    whole = 0.7 * dense(objective, reduction, queries, labels, positives, scale, ignored, forward)
    by_query, by_label = torch.autograd.grad(whole, (queries, labels))
    moved = (labels - 0.2 * by_label).detach()[own]
    found = loss.detach(), ranks.sum_(part), table
    for one, other in zip(found, (whole.detach(), by_query, moved), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=atol)


def laws(ranks, base, weigh, number, forward):
    """What must hold of an objective, a reduction and a direction, as functions."""
    case, low = make_case(number), far(make_case(number))
    # Two labels and two queries: with three ranks, one has nothing at all.
    few = make_case(number + 50, n_queries=2, n_labels=2, share=0.5)
    # Every label of every shard is a positive, once.
    eye = Positives(np.arange(23), np.arange(23), np.ones(23))
    everyone = (*make_case(number + 70, n_queries=23)[:3], eye, None)

    def same(case, **options):
        return lambda: check(ranks, base, weigh, case, forward=forward, **options)

    def same_update(case, **options):
        return lambda: check_update(ranks, base, weigh, case, forward=forward, **options)

    return [
        same(case),
        same((*case[:4], None), block_size=5),
        same(few),
        same_update(few),
        same(everyone, block_size=4),
        # A mask of -100 would be the best score.
        same(low, block_size=3, atol=1e-9),
        same_update(low, atol=1e-9),
        same_update(case),
        same(case, block_size=3),
    ]


def every_case(ranks, folder):
    """Each objective with each reduction in each direction.

    Every pair meets the last two laws, each in one direction, and in each direction one of the
    others, which take turns: every objective meets them all.
    """
    for number, (objective, reduction) in enumerate(ALL):
        base, weigh = parts(objective, reduction)
        for place, forward in enumerate(FORWARDS):
            *others, plain_update, plain = laws(ranks, base, weigh, number, forward)
            others[(len(FORWARDS) * number + place) % len(others)]()
            if number % len(FORWARDS) == place:
                plain()
            if (number + 1) % len(FORWARDS) == place:
                plain_update()
            print(objective, reduction, forward, flush=True)
    uneven = [0, 20, 23] if ranks.world == 2 else [0, 0, 22, 23]
    check(ranks, Softmax(), mean_of_positives, make_case(7), forward=0.4, bounds=uneven)


def out_of_memory_on_one(ranks, folder):
    """Only the last rank runs out of memory; nobody else must notice."""
    for in_backward in (False, True):
        last = ranks.rank == ranks.world - 1
        crowded = Crowded(3 if last else 1000, in_backward=in_backward)
        for reduction in (mean_of_positives, one_of_positives, OneOfPositives(competing=True)):
            check(
                ranks, crowded, reduction, make_case(12),
                forward=0.5, block_size=20, reference=Softmax(),
            )  # fmt: skip


def wrong_number_of_vectors(ranks, folder):
    queries, labels, _, positives, _ = make_case(1)
    shards = Shards(ranks, ranks.bounds(len(labels)))
    with pytest.raises(LabelMismatch, match=f"rank {ranks.rank} gives 23 label vectors"):
        streamed_loss(Softmax(), mean_of_positives, queries, labels, positives, shards=shards)


def all_of_it(ranks, folder):
    every_case(ranks, folder)
    out_of_memory_on_one(ranks, folder)
    wrong_number_of_vectors(ranks, folder)


@pytest.mark.parametrize("world", [3])
def test_ranks_that_share_the_labels_have_loss_and_gradients_of_one(world, tmp_path):
    """Every objective and reduction, both directions, filters, odd sizes, float64."""
    codes = on_ranks(__file__, "all_of_it", world, tmp_path)
    assert codes == [0] * world, said(tmp_path)
    assert said(tmp_path).count("\n") >= 3 * len(ALL) * world
