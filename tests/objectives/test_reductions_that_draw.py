"""Reductions that draw positives, against independent expressions of DEXML's losses in float64."""

import numpy as np
import pytest
import torch

from umpteen.compute.streaming.label_blocks import streamed_loss
from umpteen.config.schema import LossConfig
from umpteen.errors import ConfigError
from umpteen.objectives.base import block_loss
from umpteen.objectives.bidirectional import bidirectional_loss
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.objectives.reductions import (
    OneOfPositives,
    SomeOfPositives,
    mean_of_positives,
    one_of_positives,
    with_options,
)
from umpteen.objectives.soft_top_k import SoftTopK
from umpteen.objectives.softmax import Softmax
from umpteen.training.factories import build_losses
from umpteen.types import Positives


def places_by_bisection(scores, k, alpha):
    """log p of every label with p = sigmoid(alpha (s + t)) and sum p = k, in NumPy float64."""
    low, high = -scores.max() - 10 / alpha, -scores.min() + 10 / alpha
    for _ in range(200):
        middle = (low + high) / 2
        total = (1 / (1 + np.exp(-alpha * (scores + middle)))).sum()
        low, high = (middle, high) if total < k else (low, middle)
    return -np.logaddexp(0, -alpha * (scores + middle))


def one_row(n, targets=None):
    targets = torch.ones(n, dtype=torch.float64) if targets is None else targets
    return Positives(torch.zeros(n, dtype=torch.int64), torch.arange(n), targets)


def test_a_perfect_ranking_with_more_positives_than_places_costs_next_to_nothing():
    # 22 positives at a cosine of 0.9, 400 labels at 0.4, k = 5, scores over 0.05, alpha = 2.
    scores = np.concatenate([np.full(22, 0.9), np.full(400, 0.4)]) / 0.05
    kept = np.concatenate([scores[:5], scores[22:]])  # five drawn, 17 masked
    expected = -places_by_bisection(kept, 5, 2.0)[:5].mean()
    held = torch.from_numpy(scores).unsqueeze(0)
    drawn = block_loss(SoftTopK(k=5), SomeOfPositives(k=5), held, one_row(22))
    shared = block_loss(SoftTopK(k=5), mean_of_positives, held, one_row(22))
    assert drawn.item() == pytest.approx(expected, rel=1e-9)
    assert drawn < 0.01
    assert shared > 1.4  # 22 positives that share five places


@pytest.mark.parametrize("seed", range(3))
def test_soft_top_k_of_drawn_positives_is_the_definition_with_the_others_masked(seed):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(3, 37)) * 3
    rows = np.repeat(np.arange(3), [11, 4, 7])
    cols = np.concatenate([rng.choice(37, n, replace=False) for n in (11, 4, 7)])
    positives = Positives(
        torch.from_numpy(rows), torch.from_numpy(cols), torch.ones(22, dtype=torch.float64)
    )
    torch.manual_seed(seed)
    drawn = SomeOfPositives(k=5)(positives, 3).numpy() > 0
    expected = []
    for row in range(3):
        mine, kept = cols[rows == row], cols[(rows == row) & drawn]
        there = np.setdiff1d(np.arange(37), np.setdiff1d(mine, kept))
        log_places = places_by_bisection(scores[row, there], 5, 2.0)
        expected.append(-log_places[np.searchsorted(there, kept)].mean())
    torch.manual_seed(seed)
    loss = block_loss(SoftTopK(k=5), SomeOfPositives(k=5), torch.from_numpy(scores), positives)
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-9)
    assert [drawn[rows == row].sum() for row in range(3)] == [5, 4, 5]


def test_draws_of_k_are_without_repetition_and_in_proportion_to_the_targets():
    targets = torch.tensor([0.2, 1.0, 0.5], dtype=torch.float64)
    n = 20000
    many = Positives(
        torch.arange(n).repeat_interleave(3), torch.arange(3).repeat(n), targets.repeat(n)
    )
    torch.manual_seed(3)
    drawn = SomeOfPositives(k=2)(many, n).view(n, 3) > 0
    assert (drawn.sum(dim=1) == 2).all()
    t = targets / targets.sum()
    # Label j is left out when the two others are drawn, in one order or the other.
    out = [t[a] * t[b] / (1 - t[a]) + t[b] * t[a] / (1 - t[b]) for a, b in ((1, 2), (0, 2), (0, 1))]
    torch.testing.assert_close(
        1 - drawn.double().mean(dim=0), torch.stack(out), rtol=0, atol=0.02
    )  # five deviations


def test_a_sample_of_one_is_pol_and_a_large_one_is_the_even_mean():
    targets = torch.rand(9, dtype=torch.float64) * 0.9 + 0.1
    torch.manual_seed(4)
    one = one_of_positives(one_row(9, targets), 1)
    torch.manual_seed(4)
    assert torch.equal(SomeOfPositives(k=1)(one_row(9, targets), 1), one)
    even = SomeOfPositives(k=9)(one_row(9, targets), 1) * targets
    torch.testing.assert_close(even, torch.full((9,), 1 / 9, dtype=torch.float64))
    many = Positives(torch.tensor([2, 0, 2]), torch.tensor([1, 1, 0]), torch.ones(3))
    torch.testing.assert_close(SomeOfPositives(k=7)(many, 4), mean_of_positives(many, 4))


def make_batch(seed=0, *, n_queries=7, n_labels=29, dim=5):
    rng = np.random.default_rng(seed)
    relevant = rng.random((n_queries, n_labels)) < 0.25
    relevant[:, 0] = True
    rows, cols = np.nonzero(relevant)
    queries = torch.from_numpy(rng.normal(size=(n_queries, dim))).requires_grad_()
    labels = torch.from_numpy(rng.normal(size=(n_labels, dim))).requires_grad_()
    return queries, labels, Positives(rows, cols, np.ones(len(rows))), relevant


def softmax_of_one_drawn(queries, labels, positives, weights):
    """DEXML's softmax: -log softmax over all labels at the drawn positive, mean over queries."""
    log_shares = torch.log_softmax(queries @ labels.T, dim=1)
    drawn = weights.numpy() > 0
    rows, cols = positives.rows[drawn], positives.cols[drawn]
    assert len(rows) == len(queries)
    return -log_shares[rows, cols].mean()


def as_tensors(positives):
    return Positives(*map(torch.from_numpy, (positives.rows, positives.cols, positives.targets)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("block_size", [None, 1, 4, 13])
def test_competing_softmax_is_the_softmax_over_all_labels(seed, block_size):
    queries, labels, positives, _ = make_batch(seed)
    reduction = OneOfPositives(competing=True)
    torch.manual_seed(seed)
    weights = reduction(as_tensors(positives), len(queries))
    expected = softmax_of_one_drawn(queries, labels, positives, weights)
    wanted = torch.autograd.grad(expected, [queries, labels])
    torch.manual_seed(seed)
    if block_size is None:
        loss = block_loss(Softmax(), reduction, queries @ labels.T, as_tensors(positives))
    else:
        loss = streamed_loss(
            Softmax(), reduction, queries, labels, positives, block_size=block_size
        )
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-13)
    for found, right in zip(torch.autograd.grad(loss, [queries, labels]), wanted, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("streamed", [False, True])
def test_softmax_differs_from_decoupled_softmax_where_positives_compete(streamed):
    queries, labels, positives, _ = make_batch(5)

    def loss(objective, reduction):
        torch.manual_seed(1)
        if streamed:
            return streamed_loss(objective, reduction, queries, labels, positives, block_size=6)
        return block_loss(objective, reduction, queries @ labels.T, as_tensors(positives))

    decoupled = loss(DecoupledSoftmax(), one_of_positives)
    torch.testing.assert_close(loss(Softmax(), one_of_positives), decoupled)
    competing = OneOfPositives(competing=True)
    torch.testing.assert_close(loss(DecoupledSoftmax(), competing), decoupled)
    assert loss(Softmax(), competing) > decoupled + 0.1


def test_competing_positives_compete_in_both_directions():
    queries, labels, positives, _ = make_batch(6)
    scores = queries @ labels.T
    reduction = OneOfPositives(competing=True)
    torch.manual_seed(2)
    both = bidirectional_loss(Softmax(), reduction, 0.4, scores, as_tensors(positives))
    torch.manual_seed(2)
    there = block_loss(Softmax(), reduction, scores, as_tensors(positives))
    back = block_loss(Softmax(), reduction, scores.T, as_tensors(positives).transposed())
    torch.testing.assert_close(both, 0.4 * there + 0.6 * back)


def test_settings_choose_the_options_of_a_reduction():
    losses = build_losses(LossConfig(reduction="k-sample", reduction_options={"k": 3}))
    assert losses.reduction == SomeOfPositives(k=3)
    losses = build_losses(LossConfig(reduction="pol", reduction_options={"competing": True}))
    assert losses.reduction == OneOfPositives(competing=True)
    with pytest.raises(ConfigError, match="reduction_options: k is no option"):
        with_options(mean_of_positives, {"k": 3})
    with pytest.raises(ConfigError, match=r"reduction_options: many is no .*\(k, competing\)"):
        with_options(SomeOfPositives(), {"many": 3})
    with pytest.raises(ConfigError, match="k is 0"):
        with_options(SomeOfPositives(), {"k": 0})
