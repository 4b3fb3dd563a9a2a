import pytest
import torch

from umpteen.errors import ConfigError
from umpteen.objectives.base import block_loss
from umpteen.objectives.reductions import mean_of_positives, one_of_positives, sum_of_positives
from umpteen.objectives.soft_top_k import SoftTopK
from umpteen.types import Positives

NOTHING = float("-inf")


def positives_at(*pairs, targets=None):
    rows, cols = zip(*pairs, strict=True)
    weights = targets or [1.0] * len(pairs)
    return Positives(torch.tensor(rows), torch.tensor(cols), torch.tensor(weights).double())


def places(objective, scores, positives):
    """p of every candidate, at the threshold that prepare found and one Newton step polished."""
    t = objective.prepare(lambda f, merge: merge(f(scores).unsqueeze(0)), positives, len(scores))
    stats = objective.row_stats(scores, positives, t)
    t = objective._polish(stats[:, :3], stats[:, 3], objective._places(positives, stats[:, 0]))
    return torch.sigmoid(objective.alpha * (scores + t.unsqueeze(1)))


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("spread", [0.0, 0.1, 5.0, 60.0])
def test_the_probabilities_add_up_to_k(k, spread):
    torch.manual_seed(1)
    scores = torch.randn(9, 41, dtype=torch.float64) * spread - 3
    p = places(SoftTopK(k), scores, positives_at((0, 0)))
    torch.testing.assert_close(
        p.sum(dim=1), torch.full((9,), float(k)).double(), rtol=1e-11, atol=0
    )


def test_the_gradient_is_that_of_finite_differences():
    torch.manual_seed(2)
    scores = torch.randn(4, 13, dtype=torch.float64) * 3
    scores[1, 3:6] = NOTHING
    found = positives_at((0, 0), (0, 12), (1, 2), (3, 7), (3, 8), targets=[1.0, 0.3, 0.5, 1.0, 0.2])
    alive = ~torch.isneginf(scores)
    for objective in (SoftTopK(3), SoftTopK("positives"), SoftTopK(12, alpha=0.5)):
        for reduction in (mean_of_positives, sum_of_positives):
            assert torch.autograd.gradcheck(
                lambda s, o=objective, r=reduction: block_loss(
                    o, r, torch.full_like(scores, NOTHING).masked_scatter(alive, s), found
                ),
                scores[alive].clone().requires_grad_(),
            )


def test_a_row_with_no_more_candidates_than_places_costs_nothing():
    for cols, k in ((5, 5), (5, 7), (1, 1)):
        scores = torch.randn(2, cols, dtype=torch.float64, requires_grad=True)
        loss = block_loss(SoftTopK(k), mean_of_positives, scores, positives_at((0, 0), (1, 0)))
        loss.backward()
        assert loss == 0
        assert torch.equal(scores.grad, torch.zeros_like(scores))


def test_k_of_positives_counts_each_row_s_own_and_not_the_dropped_ones():
    torch.manual_seed(3)
    scores = torch.randn(2, 9, dtype=torch.float64)
    found = positives_at((0, 1), (0, 2), (0, 3), (1, 8), targets=[0.2, 1.0, 0.4, 0.9])
    p = places(SoftTopK("positives"), scores, found)
    torch.testing.assert_close(p.sum(dim=1), torch.tensor([3.0, 1.0]).double())
    torch.manual_seed(4)
    loss = block_loss(SoftTopK("positives"), one_of_positives, scores, found)
    torch.manual_seed(4)
    kept = [i for i, w in enumerate(one_of_positives(found, 2).tolist()) if w]
    left = scores.clone()
    gone = [i for i in range(4) if i not in kept]
    left[found.rows[gone], found.cols[gone]] = NOTHING
    single = Positives(found.rows[kept], found.cols[kept], torch.ones(2).double())
    torch.testing.assert_close(loss, block_loss(SoftTopK(1), sum_of_positives, left, single))


@pytest.mark.parametrize("gap", [20.0, 60.0])
def test_a_clear_edge_keeps_its_threshold_in_float32(gap):
    # All p round to 0 or 1, so that sum p = k for every t in the gap, and the loss of the positive
    # below it depends on which is taken. Exactly: 2 e^-(g + t) = 3 e^t, so t = -g/2 + ln(2/3) / 2.
    scores = torch.tensor([[gap, gap, 0.0, 0.0, 0.0]], requires_grad=True)
    positives = Positives(torch.tensor([0]), torch.tensor([4]), torch.ones(1))
    loss = block_loss(SoftTopK(2, alpha=1.0), sum_of_positives, scores, positives)
    loss.backward()
    t = -gap / 2 + torch.tensor(2 / 3).log() / 2
    torch.testing.assert_close(loss.detach(), -t, rtol=1e-4, atol=0)
    # half of the slope lies on the two above, half on the three below
    expected = torch.tensor([[1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6 - 1]])
    torch.testing.assert_close(scores.grad, expected, rtol=1e-3, atol=1e-5)


def test_a_positive_that_is_nearly_in_keeps_its_small_loss_in_float32():
    scores = torch.tensor([[12.0, -12.0, -12.0]])
    positives = Positives(torch.tensor([0]), torch.tensor([0]), torch.ones(1))
    loss = block_loss(SoftTopK(1), sum_of_positives, scores, positives)
    exact = block_loss(SoftTopK(1), sum_of_positives, scores.double(), positives_at((0, 0)))
    assert exact > 0
    torch.testing.assert_close(loss.double(), exact, rtol=1e-4, atol=0)


@pytest.mark.parametrize("options", [{"k": 0}, {"k": 2.5}, {"k": "five"}, {"k": True}])
def test_a_k_that_is_no_number_of_places_is_refused(options):
    with pytest.raises(ConfigError, match="integer of 1 or more, or 'positives'"):
        SoftTopK(**options)


def test_an_alpha_of_zero_is_refused():
    with pytest.raises(ConfigError, match="alpha is 0"):
        SoftTopK(alpha=0)
