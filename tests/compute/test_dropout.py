"""Dropout by cheap bits: how often, by how much, and who decides."""

import pytest
import torch

from umpteen.compute.dropout import Dropout, keep_factors


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5, 0.9])
def test_the_share_and_the_factor_are_the_rate_s(rate):
    torch.manual_seed(3)
    factors = keep_factors(torch.empty(401, 997), rate)
    dropped = (factors == 0).double().mean().item()
    spread = (rate * (1 - rate) / factors.numel()) ** 0.5
    assert abs(dropped - rate) < 6 * spread
    kept = factors[factors != 0]
    assert (kept == kept[0]).all()
    assert kept[0].item() == pytest.approx(1 / (1 - rate), rel=2e-4)


def test_neighbours_are_dropped_independently():
    torch.manual_seed(4)
    gone = keep_factors(torch.empty(400_003), 0.3) == 0
    for lag in (1, 2, 3, 4, 8):
        both = (gone[lag:] & gone[:-lag]).double().mean().item()
        assert both == pytest.approx(0.09, abs=0.003)


def test_the_seed_decides():
    drop, x = Dropout(0.4).train(), torch.ones(33, 7)
    torch.manual_seed(5)
    first, second = drop(x), drop(x)
    torch.manual_seed(5)
    assert torch.equal(drop(x), first)
    assert torch.equal(drop(x), second)
    assert not torch.equal(first, second)


def test_gradients_go_where_values_went():
    torch.manual_seed(6)
    x = torch.full((5, 3), 2.0, dtype=torch.float64, requires_grad=True)
    found = Dropout(0.5).train()(x)
    found.sum().backward()
    assert x.grad is not None
    assert found.dtype == torch.float64
    assert torch.equal(found, 2.0 * x.grad)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_nothing_and_everything_may_be_dropped(rate):
    assert torch.equal(Dropout(rate).train()(torch.ones(9)), torch.full((9,), 1.0 - rate))


def test_evaluation_drops_nothing():
    x = torch.randn(4, 4)
    assert Dropout(0.9).eval()(x) is x
