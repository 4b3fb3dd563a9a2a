import math

import pytest
import torch

from umpteen.compute.optim import quantization
from umpteen.compute.optim.quantization import random_words, rounding_key


def words(n, dim, step=1, stream=0, seed=17):
    return random_words(torch.arange(n), dim, rounding_key(seed, step), stream)


def test_keys_differ_by_seed_and_step_and_fit_31_bits():
    keys = {rounding_key(seed, step) for seed in range(30) for step in range(200)}
    assert len(keys) == 6000
    assert all(0 <= key < 2**31 for key in keys)


def test_words_are_even_in_every_bit_and_independent_of_the_company():
    found = words(400, 33)
    assert found.min() >= 0
    assert found.max() < 2**32
    shares = torch.stack([((found >> bit) & 1).double().mean() for bit in range(32)])
    # 13,200 draws: a standard deviation is 0.0044, and 32 of them stay within 4.5.
    assert ((shares - 0.5).abs() < 0.02).all()
    some = torch.tensor([7, 399, 7])
    assert torch.equal(random_words(some, 33, rounding_key(17, 1), 0), found[some])


def test_words_of_rows_columns_steps_and_streams_do_not_resemble():
    base = words(200, 64).double()
    others = {
        "row": base.roll(1, 0),
        "column": base.roll(1, 1),
        "step": words(200, 64, step=2).double(),
        "stream": words(200, 64, stream=1).double(),
        "seed": words(200, 64, seed=18).double(),
    }
    for name, other in others.items():
        pair = torch.stack([base.flatten(), other.flatten()])
        # 12,800 pairs: a standard deviation of the correlation is 0.009.
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 0.04, name


@pytest.mark.parametrize("value", [1.001, -3.14159, 1e-30, 1.99999, -0.0, 65504.5])
def test_bfloat16_is_one_of_the_neighbours_and_right_on_average(value):
    exact = torch.full((400, 50), value)
    found = quantization.to_bfloat16(exact, words(400, 50)).double()
    bits = torch.tensor(value).view(torch.int32)
    low = ((bits >> 16) << 16).view(torch.float32).double()
    high = (((bits >> 16) + 1) << 16).view(torch.float32).double()
    assert set(found.unique().tolist()) <= {float(low), float(high)}
    step = abs(float(high - low))
    # The mean of 20,000 draws has a standard deviation of at most step / 2 / 141.
    assert abs(float(found.mean()) - float(exact[0, 0])) <= step * 4 / 2 / 141


def test_bfloat16_keeps_what_fits_and_what_is_not_finite():
    fits = torch.tensor([[0.0, -1.5, 2.0**-60, math.inf, -math.inf, math.nan]])
    found = quantization.to_bfloat16(fits, words(1, 6)).float()
    assert torch.equal(found.nan_to_num(nan=5.0), fits.nan_to_num(nan=5.0))


def test_means_are_at_most_a_step_off_and_right_on_average():
    torch.manual_seed(0)
    mean = torch.randn(5, 33) * torch.tensor([1e-6, 1e-2, 1.0, 30.0, 0.0]).unsqueeze(1)
    found = []
    for step in range(400):
        code, scale = quantization.encode_mean(mean, words(5, 33, step=step, stream=1))
        assert code.dtype == torch.int8
        found.append(quantization.decode_mean(code, scale))
        assert ((found[-1] - mean).abs() <= scale.unsqueeze(1) * 1.0001).all()
    average = torch.stack(found).mean(0)
    assert ((average - mean).abs() <= 4 * scale.unsqueeze(1) / 2 / 20 + 1e-12).all()
    assert not found[0][4].any()


def test_squares_are_a_code_off_and_right_on_average():
    torch.manual_seed(1)
    square = torch.randn(4, 33).square() * torch.tensor([1e-12, 1e-4, 50.0, 0.0]).unsqueeze(1)
    found = []
    for step in range(400):
        code, scale = quantization.encode_square(square, words(4, 33, step=step, stream=1))
        assert code.dtype == torch.uint8
        found.append(quantization.decode_square(code, scale))
    kept = square > scale.unsqueeze(1) * 2.0**-quantization.OCTAVES * 1.05
    assert kept.sum() > 80
    ratio = (torch.stack(found) / square)[:, kept]
    assert (ratio < 2.0 ** (quantization.STEP_OCTAVES * 1.01)).all()
    assert (ratio > 2.0 ** -(quantization.STEP_OCTAVES * 1.01)).all()
    # Half a code's width at most, over the root of 400.
    assert ((ratio.mean(0) - 1).abs() < 4 * 0.044 / 2 / 20).all()
    assert not found[0][3].any()


def test_a_square_far_below_the_largest_is_kept_above_zero():
    """A second moment of 0 under a mean that is not would make a step of any size."""
    square = torch.tensor([[1.0, 1e-9, 0.0]])
    code, scale = quantization.encode_square(square, words(1, 3, stream=1))
    found = quantization.decode_square(code, scale)
    assert found[0, 0] == 1.0
    assert torch.equal(found[0, 1:], torch.full((2,), 2.0**-quantization.OCTAVES))
