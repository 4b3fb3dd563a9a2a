import numpy as np
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


def test_harder_negatives_pull_more_by_a_softmax_that_is_differentiated():
    """NGAME: u = softmax(s / 0.1) over the negatives within the margin."""
    loss, gradient = run(Triplet(0.5), 1.0, 1.05, 0.95, 0.0)
    s = torch.tensor([1.0, 1.05, 0.95], dtype=torch.float64, requires_grad=True)
    expected = (torch.softmax(s[1:] / 0.1, 0) * (0.5 + s[1:] - s[0])).sum()
    expected.backward()
    assert loss == pytest.approx(expected.item())
    assert gradient == pytest.approx([*s.grad.tolist(), 0.0], abs=1e-6)


def test_negatives_outside_the_margin_may_share_the_weight():
    """NGAME's first stage: the logits are s / 0.1 within the margin and 0 outside, of m = 3."""
    loss, gradient = run(Triplet(0.3, 3, outside_margin="zero"), 0.5, 0.4, 0.25, 0.1, 0.05)
    s = torch.tensor([0.5, 0.4, 0.25, 0.1], dtype=torch.float64, requires_grad=True)
    violations = torch.relu(0.3 + s[1:] - s[0])
    logits = s[1:] / 0.1 * (violations > 0)
    assert logits.detach().tolist()[2] == 0
    expected = (torch.softmax(logits, 0) * violations).sum()
    expected.backward()
    assert loss == pytest.approx(expected.item())
    assert gradient == pytest.approx([*s.grad.tolist(), 0.0], abs=1e-6)


def ngame_stage_2(scores, relevant, margin, n_positives, n_negatives):
    """The published mean over texts, hardest positives and hardest negatives, in NumPy.

    A text with fewer positives is divided by ``n_positives`` all the same.
    """
    total = 0.0
    for s, mine in zip(scores, relevant, strict=True):
        negatives = np.sort(s[~mine])[::-1][:n_negatives]
        for positive in np.sort(s[mine])[:n_positives]:
            violations = np.maximum(0, negatives - positive + margin)
            sizes = np.exp(violations) * (violations > 0)
            total += (sizes / max(sizes.sum(), 1e-300) * violations).sum()
    return total / (len(scores) * n_positives * n_negatives)


@pytest.mark.parametrize("seed", range(4))
def test_the_hardest_positives_of_ngames_second_stage(seed):
    rng = np.random.default_rng(seed)
    scores = rng.uniform(-0.2, 0.9, (5, 19))
    relevant = rng.random((5, 19)) < 0.35
    relevant[:, 0] = True
    relevant[1, 1:] = False  # one positive, fewer than three
    pairs = np.argwhere(relevant)
    positives = Positives(
        torch.from_numpy(pairs[:, 0]),
        torch.from_numpy(pairs[:, 1]),
        torch.ones(len(pairs), dtype=torch.float64),
    )
    objective = Triplet(0.2, 5, temperature=1.0, n_positives=3)
    loss = block_loss(objective, sum_of_positives, torch.from_numpy(scores), positives)
    published = ngame_stage_2(scores, relevant, 0.2, 3, 5)
    assert loss.item() / (3 * 5) == pytest.approx(published, rel=1e-12)


def test_a_dropped_positive_is_none_of_the_hardest():
    scores = torch.tensor([[0.1, 0.2, 0.3, 0.5]], dtype=torch.float64)
    three = Positives(torch.zeros(3, dtype=torch.int64), torch.arange(3), torch.ones(3).double())

    def second_alone(positives, n_rows):
        return torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)

    second_alone.drops = True
    loss = block_loss(Triplet(0.3, n_positives=1), second_alone, scores, three)
    assert loss.item() == pytest.approx(0.3 + 0.5 - 0.2)


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
    with pytest.raises(ConfigError, match="temperature is 0"):
        Triplet(temperature=0)
    with pytest.raises(ConfigError, match="n_positives is -1"):
        Triplet(n_positives=-1)
    with pytest.raises(ConfigError, match="outside_margin is 'none'"):
        Triplet(outside_margin="none")
