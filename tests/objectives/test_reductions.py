import torch

from umpteen.objectives.reductions import mean_of_positives, sum_of_positives
from umpteen.types import Positives

POSITIVES = Positives(
    torch.tensor([0, 2, 0, 0]), torch.tensor([1, 1, 4, 0]), torch.tensor([1.0, 0.5, 0.25, 0.75])
)


def test_sum_gives_every_positive_the_weight_one():
    assert sum_of_positives(POSITIVES, 3).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_mean_makes_the_weighted_targets_of_every_row_add_up_to_one():
    weights = mean_of_positives(POSITIVES, 3)
    assert weights.tolist() == [0.5, 2.0, 0.5, 0.5]
    totals = torch.zeros(3).index_add(0, POSITIVES.rows, weights * POSITIVES.targets)
    assert totals.tolist() == [1.0, 0.0, 1.0]


def test_equal_targets_share_equally_whatever_they_are():
    soft = Positives(torch.zeros(3, dtype=torch.long), torch.arange(3), torch.full((3,), 0.2))
    shares = mean_of_positives(soft, 1) * soft.targets
    torch.testing.assert_close(shares, torch.full((3,), 1 / 3))
