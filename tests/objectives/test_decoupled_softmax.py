import pytest
import torch

from umpteen.objectives.base import block_loss
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.objectives.reductions import mean_of_positives, sum_of_positives
from umpteen.objectives.softmax import Softmax
from umpteen.types import Positives


@pytest.mark.parametrize("reduction", [mean_of_positives, sum_of_positives])
def test_it_equals_softmax_when_each_row_has_one_positive(reduction):
    scores = torch.randn(7, 5, dtype=torch.float64)
    targets = torch.rand(7, dtype=torch.float64) * 0.9 + 0.1
    positives = Positives(torch.arange(7), torch.tensor([4, 0, 2, 2, 1, 3, 4]), targets)
    torch.testing.assert_close(
        block_loss(DecoupledSoftmax(), reduction, scores, positives),
        block_loss(Softmax(), reduction, scores, positives),
    )


def test_a_positive_does_not_feel_the_other_positives():
    positives = Positives(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.ones(2))
    for height in (-3.0, 0.0, 50.0):
        scores = torch.tensor([[0.0, height, 1.0]], requires_grad=True)
        block_loss(DecoupledSoftmax(), sum_of_positives, scores, positives).backward()
        expected = -torch.sigmoid(torch.tensor(1.0))  # it competes with the one negative alone
        torch.testing.assert_close(scores.grad[0, 0], expected)


def test_a_row_of_positives_alone_has_nothing_to_lose():
    scores = torch.randn(1, 3, requires_grad=True)
    positives = Positives(torch.zeros(3, dtype=torch.long), torch.arange(3), torch.ones(3))
    loss = block_loss(DecoupledSoftmax(), mean_of_positives, scores, positives)
    loss.backward()
    assert loss == 0
    assert torch.equal(scores.grad, torch.zeros(1, 3))
