import torch

from umpteen.objectives.base import block_loss
from umpteen.objectives.bce import BinaryCrossEntropy
from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
from umpteen.objectives.reductions import mean_of_positives, one_of_positives, sum_of_positives
from umpteen.objectives.triplet import Triplet
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


def test_pol_keeps_one_positive_of_every_row_that_has_one():
    rows = torch.tensor([0, 3, 3, 0, 3, 4, 0])
    positives = Positives(rows, torch.arange(7), torch.rand(7) * 0.9 + 0.1)
    seen = torch.zeros(7)
    for _ in range(60):
        weights = one_of_positives(positives, 6)
        totals = torch.zeros(6).index_add(0, rows, weights * positives.targets)
        torch.testing.assert_close(totals, torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0, 0.0]))
        assert (weights > 0).sum() == 3
        seen += weights > 0
    assert (seen > 0).all()


def test_pol_draws_in_proportion_to_the_targets():
    targets = torch.tensor([0.1, 0.6, 0.3, 1.0])
    n = 20000
    many = Positives(
        torch.arange(n).repeat_interleave(4), torch.arange(4).repeat(n), targets.repeat(n)
    )
    torch.manual_seed(8)
    shares = (one_of_positives(many, n).view(n, 4) > 0).double().mean(dim=0)
    torch.testing.assert_close(shares, (targets / 2).double(), rtol=0, atol=0.02)  # 5 deviations


def test_pol_draws_again_with_the_seed_and_otherwise_not():
    many = Positives(torch.zeros(50, dtype=torch.long), torch.arange(50), torch.ones(50))
    draws = []
    for seed in (1, 1, 2, 3, 4):
        torch.manual_seed(seed)
        draws.append(one_of_positives(many, 1).argmax().item())
    assert draws[0] == draws[1]
    assert len(set(draws)) > 1


def test_the_mean_over_draws_is_the_mean_of_positives():
    scores = torch.randn(3, 5, dtype=torch.float64)
    positives = Positives(
        torch.tensor([0, 0, 2]), torch.tensor([1, 4, 2]), torch.tensor([1.0, 0.25, 0.5]).double()
    )
    for objective in (DecoupledSoftmax(), BinaryCrossEntropy(), Triplet(2.0)):
        drawn = {}
        for seed in range(40):
            torch.manual_seed(seed)
            pick = one_of_positives(positives, 3)[0].item() > 0
            torch.manual_seed(seed)
            drawn[pick] = block_loss(objective, one_of_positives, scores, positives)
        mean = 0.8 * drawn[True] + 0.2 * drawn[False]
        expected = block_loss(objective, mean_of_positives, scores, positives)
        torch.testing.assert_close(mean, expected)
