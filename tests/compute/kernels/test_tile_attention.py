"""The kernel runs in Triton's interpreter where there is no GPU, and compiled where there is."""

import numpy as np
import pytest
import torch
from tests.compute.plain_attention import plain_attention

from umpteen.compute.packing import tiles

pytest.importorskip("triton", reason="the kernels need triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def layout(lengths, device=DEVICE):
    offsets = np.cumsum([0, *lengths])
    cut, count = tiles(offsets)
    assert count == len(lengths)
    texts = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    there = {size: torch.from_numpy(bounds).to(device) for size, bounds in cut.items()}
    return torch.from_numpy(texts).to(device), there


def attend(fused, lengths, heads, **options):
    from umpteen.compute.kernels.tile_attention import tile_attention

    texts, cut = layout(lengths, fused.device)
    return tile_attention(fused, texts, cut, heads=heads, **options)


CASES = [
    ([1], 1, 16),
    ([1, 1, 2, 3, 5, 8, 13, 21, 32, 32], 3, 32),
    ([3, 40, 63, 64], 2, 64),
    ([2, 7, 64, 65, 90, 128], 1, 24),  # both sizes of tile, and heads that are no power of two
]


@pytest.mark.parametrize(("lengths", "heads", "size"), CASES)
def test_it_equals_plain_attention_forward_and_backward(lengths, heads, size):
    torch.manual_seed(0)
    fused = torch.randn(sum(lengths), 3 * heads * size, device=DEVICE, requires_grad=True)
    above = torch.randn(sum(lengths), heads * size, device=DEVICE)
    found = attend(fused, lengths, heads)
    (gradient,) = torch.autograd.grad(found, fused, above)
    exact = fused.detach().double().requires_grad_()
    expected = plain_attention(exact, lengths, heads)
    (expected_gradient,) = torch.autograd.grad(expected, exact, above.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-5)


def what_is_kept(lengths, heads, size, **options):
    """By looking: equal scores and values that tell the places of a text apart."""
    fused = torch.zeros(sum(lengths), 3, heads, size, device=DEVICE)
    place = torch.cat([torch.arange(n) for n in lengths])
    fused[torch.arange(len(place)), 2, :, place] = 1.0
    seen = attend(fused.flatten(1), lengths, heads, **options)
    parts = seen.view(-1, heads, size).split(lengths)
    return [(p[:, :, : len(p)] > 0).transpose(0, 1) for p in parts]


def test_dropout_is_replayed_in_backward():
    torch.manual_seed(1)
    lengths, heads, size, rate = [1, 3, 7, 12, 16, 16], 2, 16, 0.3
    options = {"rate": rate, "seed": torch.tensor([1 << 50], device=DEVICE)}
    kept = what_is_kept(lengths, heads, size, **options)
    assert 0 < torch.cat([k.flatten() for k in kept]).float().mean() < 1
    fused = torch.randn(sum(lengths), 3 * heads * size, device=DEVICE, requires_grad=True)
    above = torch.randn(sum(lengths), heads * size, device=DEVICE)
    found = attend(fused, lengths, heads, **options)
    (gradient,) = torch.autograd.grad(found, fused, above)
    exact = fused.detach().double().requires_grad_()
    expected = plain_attention(exact, lengths, heads, kept=kept, rate=rate)
    (expected_gradient,) = torch.autograd.grad(expected, exact, above.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-4, atol=1e-5)


def test_dropout_drops_its_share_anew_for_each_seed_and_head():
    lengths, heads, size = [16] * 24, 2, 16
    first, again, other = (
        torch.stack(what_is_kept(lengths, heads, size, rate=0.1, seed=torch.tensor([s])
                                 .to(DEVICE)))
        for s in (5, 5, 6)
    )  # fmt: skip
    assert torch.equal(first, again)
    n = first.numel()
    for kept in (first, other):
        assert abs(kept.float().mean().item() - 0.9) < 5 * (0.09 / n) ** 0.5
    # Independent draws agree in 0.9 * 0.9 + 0.1 * 0.1 of the places.
    pairs = [(first, other), (first[:, 0], first[:, 1]), (first[:4], first[4:8]),
             (first[..., :8], first[..., 8:]), (first[:, :, :8], first[:, :, 8:])]  # fmt: skip
    for one, two in pairs:
        agreed = (one == two).float().mean().item()
        assert abs(agreed - 0.82) < 5 * (0.82 * 0.18 / one.numel()) ** 0.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "size"), [(12, 32), (12, 64)])
def test_in_half_precision_it_is_as_near_as_torch_attention(dtype, heads, size):
    """Its error against float64 is at most 1.5 times that of torch's own attention, plus a bit."""
    torch.manual_seed(0)
    lengths = np.sort(np.random.default_rng(0).integers(1, 129, 501)).tolist()
    fused = torch.randn(sum(lengths), 3 * heads * size, device="cuda", dtype=dtype)
    above = torch.randn(sum(lengths), heads * size, device="cuda", dtype=dtype)

    def with_gradient(function, given):
        given = given.requires_grad_()
        result = function(given)
        return result, torch.autograd.grad(result, given, above.to(result.dtype))[0]

    def torch_own(given):
        parts = []
        for part in given.split(lengths):
            three = part.view(1, len(part), 3, heads, size).permute(2, 0, 3, 1, 4)
            parts.append(torch.nn.functional.scaled_dot_product_attention(*three))
        return torch.cat([p.transpose(1, 2).flatten(0, 1).flatten(1) for p in parts])

    exact = with_gradient(lambda t: plain_attention(t, lengths, heads), fused.double())
    ours = with_gradient(lambda t: attend(t, lengths, heads), fused.clone())
    theirs = with_gradient(torch_own, fused.clone())
    for a, b, c in zip(ours, theirs, exact, strict=True):
        one, two = (a - c).norm() / c.norm(), (b - c).norm() / c.norm()
        assert one < 1.5 * two + 1e-4
        assert one < 1e-2
