import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from umpteen.objectives.base import block_loss
from umpteen.objectives.bce import BinaryCrossEntropy
from umpteen.objectives.reductions import sum_of_positives
from umpteen.types import Positives


def dense(targets):
    rows, cols = torch.nonzero(targets, as_tuple=True)
    return Positives(rows, cols, targets[rows, cols])


def test_it_sums_over_labels_and_averages_over_queries():
    scores = torch.randn(4, 9, dtype=torch.float64)
    targets = (torch.rand(4, 9) < 0.4).double()
    targets[:, 0] = 0.3  # soft, and no row is without a positive
    expected = binary_cross_entropy_with_logits(scores, targets, reduction="none").sum(1).mean()
    loss = block_loss(BinaryCrossEntropy(), sum_of_positives, scores, dense(targets))
    torch.testing.assert_close(loss, expected)


def test_twice_the_labels_is_twice_the_loss():
    scores = torch.randn(3, 4, dtype=torch.float64)
    targets = torch.eye(3, 4, dtype=torch.float64)
    once = block_loss(BinaryCrossEntropy(), sum_of_positives, scores, dense(targets))
    scores, targets = torch.cat([scores, scores], 1), torch.cat([targets, targets], 1)
    twice = block_loss(BinaryCrossEntropy(), sum_of_positives, scores, dense(targets))
    torch.testing.assert_close(twice, 2 * once)


@pytest.mark.parametrize("score", [10.0, 18.0, 40.0])
def test_a_positive_that_is_nearly_learned_keeps_its_small_loss_in_float32(score):
    # softplus(s) - s would be rounding noise here, and exactly zero from 17 on.
    scores = torch.full((1, 1), score, requires_grad=True)
    loss = block_loss(BinaryCrossEntropy(), sum_of_positives, scores, dense(torch.ones(1, 1)))
    loss.backward()
    exact = torch.nn.functional.softplus(torch.tensor(-score, dtype=torch.float64))
    torch.testing.assert_close(loss.double().detach(), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(
        scores.grad[0, 0].double(),
        -torch.sigmoid(torch.tensor(-score, dtype=torch.float64)),
        rtol=1e-5,
        atol=0,
    )
