"""The kernels run in Triton's interpreter where there is no GPU, and compiled where there is."""

import pytest
import torch
from torch.nn.functional import gelu, layer_norm, linear

pytest.importorskip("triton", reason="the kernels need triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inputs(count, width, inner, dtype=torch.float32):
    torch.manual_seed(count)
    shapes = [(count, width), (inner, width), (inner,), (width, inner), (width,), (width,),
              (width,)]  # fmt: skip
    sizes = [1.0, width**-0.5, 1.0, inner**-0.5, 1.0, 1.0, 1.0]
    halves = [True, True, True, True, False, False, False]
    return [
        (torch.randn(shape, device=DEVICE) * size).to(dtype if half else torch.float32)
        .requires_grad_()
        for shape, size, half in zip(shapes, sizes, halves, strict=True)
    ]  # fmt: skip


def feed_forward(x, *others, **options):
    """The block behind a norm that leaves its input as it is, to be made again from there."""
    from umpteen.compute.kernels import fused_feed_forward

    ones, zeros = torch.ones_like(others[-1]), torch.zeros_like(others[-1])
    mean, inverse = torch.zeros(len(x), device=DEVICE), torch.ones(len(x), device=DEVICE)
    made_of = ((x.detach(), mean, inverse), ones, zeros)
    return fused_feed_forward.feed_forward(x, *others, made_of=made_of, **options)[0]


def plain(x, up, up_bias, down, down_bias, weight, shift, *, kept=1.0):
    added = linear(gelu(linear(x, up, up_bias)), down, down_bias) * kept
    return layer_norm(added + x, x.shape[1:], weight, shift, 1e-5)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("count", "width", "inner"), [(1, 16, 20), (67, 24, 130), (33, 40, 257)])
def test_it_equals_the_plain_block(count, width, inner, keep, monkeypatch):
    from umpteen.compute.kernels import fused_feed_forward

    monkeypatch.setattr(fused_feed_forward, "KEEP_INNER", keep)
    monkeypatch.setattr(fused_feed_forward, "STRIPES", 2)  # so that one has several rounds to go

    given = inputs(count, width, inner)
    above = torch.randn(count, width, device=DEVICE)
    found = feed_forward(*given, eps=1e-5)
    gradients = torch.autograd.grad(found, given, above)
    exact = [t.detach().double().requires_grad_() for t in given]
    expected = plain(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-5)
    wanted = torch.autograd.grad(expected, exact, above.double())
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=2e-4)


def test_dropout_is_replayed_in_backward():
    from umpteen.compute.kernels.fused_norm import norm_forward

    given = inputs(50, 24, 60)
    options = {"eps": 1e-5, "rate": 0.25, "seed": torch.tensor([9 << 45], device=DEVICE)}
    ones, zeros = torch.ones(50, 24, device=DEVICE), torch.zeros(50, 24, device=DEVICE)
    _, (total, *_) = norm_forward(
        ones, None, zeros, ones[0], zeros[0], dtype=torch.float32, **options
    )
    assert 0.5 < (total > 0).float().mean() < 0.95
    found, expected = feed_forward(*given, **options), plain(*given, kept=total)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=2e-5)
    above = torch.randn(50, 24, device=DEVICE)
    for one, other in zip(torch.autograd.grad(found, given, above),
                          torch.autograd.grad(expected, given, above), strict=True):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_in_bfloat16_it_is_near_the_exact_block():
    """Within 2% of the norm of result and gradients: some roundings of 2 ** -9 one on another."""
    given = inputs(4001, 384, 1536, torch.bfloat16)
    above = torch.randn(4001, 384, device=DEVICE)
    found = feed_forward(*given, eps=1e-5)
    exact = [t.detach().double().requires_grad_() for t in given]
    expected = plain(*exact)
    pairs = [(found, expected)]
    pairs += zip(torch.autograd.grad(found, given, above.bfloat16()),
                 torch.autograd.grad(expected, exact, above.double()), strict=True)  # fmt: skip
    for one, other in pairs:
        assert (one - other).norm() < 0.02 * other.norm()
