"""Both directions in shared passes, against each direction for itself."""

import pytest
import torch

from umpteen.objectives import OBJECTIVES, REDUCTIONS
from umpteen.objectives.base import block_loss, logsumexp
from umpteen.objectives.bidirectional import bidirectional_logsumexp, bidirectional_loss
from umpteen.objectives.softmax import Softmax
from umpteen.registry import resolve
from umpteen.types import Positives

NOTHING = float("-inf")


def block(n=7, m=11, seed=0):
    """Scores with ignored pairs, an empty row and column, and soft positives."""
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(n, m, generator=generator, dtype=torch.float64)
    scores[torch.rand(n, m, generator=generator) < 0.1] = NOTHING
    scores[2], scores[:, 5] = NOTHING, NOTHING
    relevant = (torch.rand(n, m, generator=generator) < 0.3) & torch.isfinite(scores)
    relevant[4] = torch.isfinite(scores[4])  # a row without any negative
    relevant[0] = False
    rows, cols = relevant.nonzero(as_tuple=True)
    targets = torch.rand(len(rows), generator=generator, dtype=torch.float64).clamp(min=0.1)
    return scores.requires_grad_(), Positives(rows, cols, targets)


def loss_and_gradient(loss, scores):
    (gradient,) = torch.autograd.grad(loss, scores)
    return loss.detach(), gradient


@pytest.mark.parametrize("forward", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("reduction", sorted(REDUCTIONS))
@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_both_ways_equal_each_way_for_itself(objective, reduction, forward):
    objective = resolve(OBJECTIVES, objective, kind="objective")()
    reduction = resolve(REDUCTIONS, reduction, kind="reduction")
    scores, positives = block()
    torch.manual_seed(4)
    found = loss_and_gradient(
        bidirectional_loss(objective, reduction, forward, scores, positives), scores
    )
    torch.manual_seed(4)  # one reduction draws
    expected = torch.zeros((), dtype=torch.float64)
    if forward > 0:
        expected = expected + forward * block_loss(objective, reduction, scores, positives)
    if forward < 1:
        mirrored = positives.transposed()
        back = block_loss(objective, reduction, scores.T, mirrored)
        expected = expected + (1 - forward) * back
    expected = loss_and_gradient(expected, scores)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert torch.isfinite(found[1]).all()


@pytest.mark.parametrize("masked", [False, True])
def test_log_sum_exp_of_rows_and_columns_with_gradients(masked):
    scores, positives = block(5, 9, seed=2)
    pairs = (positives.rows, positives.cols) if masked else ()
    seen = scores.index_put(pairs, scores.new_tensor(NOTHING)) if masked else scores
    weights = torch.randn(5, dtype=torch.float64), torch.randn(9, dtype=torch.float64)

    def gradient(of_rows, of_columns):
        parts = [
            (torch.where(torch.isfinite(values), values, 0.0) * weight).sum()
            for values, weight in zip((of_rows, of_columns), weights, strict=True)
        ]
        return torch.autograd.grad(sum(parts), scores)[0]

    found = bidirectional_logsumexp(scores, *pairs)
    expected = logsumexp(seen, 1), logsumexp(seen, 0)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert (found[0] == NOTHING).any()
    assert (found[1] == NOTHING).any()
    torch.testing.assert_close(gradient(*found), gradient(*expected), rtol=1e-10, atol=1e-14)


def test_large_scores_stay_finite_in_float32():
    scores = torch.tensor([[300.0, -300.0], [0.0, 250.0]], requires_grad=True)
    positives = Positives(torch.tensor([0]), torch.tensor([1]), torch.ones(1))
    reduction = resolve(REDUCTIONS, "pal-n", kind="reduction")
    loss = bidirectional_loss(Softmax(), reduction, 0.5, scores, positives)
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * 600 + 0.5 * 550)
    assert torch.isfinite(scores.grad).all()


def test_a_subclass_with_a_summary_of_its_own_keeps_it():
    class Double(Softmax):
        def row_stats(self, scores, positives):
            return 2 * super().row_stats(scores, positives)

    scores, positives = block()
    reduction = resolve(REDUCTIONS, "pal", kind="reduction")
    found = bidirectional_loss(Double(), reduction, 0.5, scores, positives)
    there = block_loss(Double(), reduction, scores, positives)
    back = block_loss(Double(), reduction, scores.T, positives.transposed())
    torch.testing.assert_close(found, 0.5 * there + 0.5 * back)


def test_no_positives_give_a_loss_and_a_gradient_of_zero():
    scores = torch.randn(3, 4, requires_grad=True)
    nobody = torch.zeros(0, dtype=torch.int64)
    reduction = resolve(REDUCTIONS, "pal-n", kind="reduction")
    positives = Positives(nobody, nobody, torch.zeros(0))
    loss = bidirectional_loss(Softmax(), reduction, 0.5, scores, positives)
    loss.backward()
    assert loss == 0
    assert (scores.grad == 0).all()
