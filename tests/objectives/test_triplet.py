import pytest
import torch

from umpteen.errors import ConfigError
from umpteen.objectives.base import block_loss
from umpteen.objectives.reductions import sum_of_positives
from umpteen.objectives.triplet import Triplet
from umpteen.types import Positives

FIRST = Positives(torch.tensor([0]), torch.tensor([0]), torch.ones(1))


def run(objective, *scores):
    leaf = torch.tensor([scores], requires_grad=True)
    loss = block_loss(objective, sum_of_positives, leaf, FIRST)
    loss.backward()
    return loss.item(), leaf.grad[0].tolist()


def test_a_lead_of_the_margin_costs_nothing():
    assert run(Triplet(0.5), 2.0, 1.5, -1.0) == (0.0, [0.0, 0.0, 0.0])


def test_only_negatives_within_the_margin_count():
    loss, gradient = run(Triplet(0.5, softmax_weighted=False), 1.0, 1.25, 0.75, 0.0)
    assert loss == pytest.approx((0.75 + 0.25) / 2)
    assert gradient == [-1.0, 0.5, 0.5, 0.0]


def test_harder_negatives_pull_more_by_a_softmax_that_is_a_constant():
    loss, gradient = run(Triplet(0.5), 1.0, 1.25, 0.75, 0.0)
    shares = torch.softmax(torch.tensor([0.75, 0.25]), 0).tolist()
    assert loss == pytest.approx(shares[0] * 0.75 + shares[1] * 0.25)
    assert gradient == pytest.approx([-1.0, *shares, 0.0])


def test_no_more_than_the_hardest_count():
    _, gradient = run(Triplet(5.0, 2, softmax_weighted=False), 0.0, 1.0, 3.0, 2.0)
    assert gradient == [-1.0, 0.0, 0.5, 0.5]


def test_other_positives_are_no_negatives():
    scores = torch.tensor([[0.0, 9.0, -9.0]])
    both = Positives(torch.tensor([0, 0]), torch.tensor([0, 1]), torch.ones(2))
    assert block_loss(Triplet(), sum_of_positives, scores, both) == 0


def test_options_out_of_range_are_refused():
    with pytest.raises(ConfigError, match="margin is -0.1"):
        Triplet(-0.1)
    with pytest.raises(ConfigError, match="n_negatives is 0"):
        Triplet(n_negatives=0)
