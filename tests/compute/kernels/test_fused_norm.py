"""The kernels run in Triton's interpreter where there is no GPU, and compiled where there is."""

import pytest
import torch
from torch.nn.functional import dropout, layer_norm

pytest.importorskip("triton", reason="the kernels need triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def inputs(count, width, dtype=torch.float32):
    torch.manual_seed(width)
    values = torch.randn(count, width, device=DEVICE).to(dtype)
    residual = torch.randn(count, width, device=DEVICE).to(dtype)
    bias, weight, shift = torch.randn(3, width, device=DEVICE).unbind(0)
    return [t.clone().requires_grad_() for t in (values, bias, residual, weight + 1, shift)]


def add_norm(*given, **options):
    from umpteen.compute.kernels import fused_norm

    return fused_norm.add_norm(*given, **options)[0]


def plain(values, bias, residual, weight, shift, *, kept=1.0, eps=1e-5):
    total = (values + bias) * kept + residual
    return layer_norm(total, total.shape[1:], weight, shift, eps)


@pytest.mark.parametrize(("count", "width"), [(1, 16), (3, 33), (97, 384), (5, 2049)])
def test_it_equals_the_plain_sum_and_norm(count, width, monkeypatch):
    from umpteen.compute.kernels import fused_norm

    monkeypatch.setattr(fused_norm, "PROGRAMS", 3)  # so that one has several rounds to go

    given = inputs(count, width)
    above = torch.randn(count, width, device=DEVICE)
    found = add_norm(*given, eps=1e-5, dtype=torch.float32)
    gradients = torch.autograd.grad(found, given, above)
    exact = [t.detach().double().requires_grad_() for t in given]
    expected = plain(*exact)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    wanted = torch.autograd.grad(expected, exact, above.double())
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=2e-4)


def test_without_a_bias_it_equals_the_plain_sum_and_norm():
    values, _, residual, weight, shift = inputs(9, 40)
    found = add_norm(values, None, residual, weight, shift, eps=1e-12, dtype=torch.float32)
    expected = plain(values, 0.0, residual, weight, shift, eps=1e-12)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    above = torch.randn_like(found)
    leaves = (values, residual, weight, shift)
    for one, other in zip(torch.autograd.grad(found, leaves, above),
                          torch.autograd.grad(expected, leaves, above), strict=True):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_the_result_can_be_made_again():
    from umpteen.compute.kernels import fused_norm

    given = inputs(37, 40)
    for rate in (0.0, 0.3):
        out, kept_back = fused_norm.add_norm(
            *given, eps=1e-5, rate=rate, seed=torch.tensor([4], device=DEVICE), dtype=torch.float32
        )
        assert not any(t.requires_grad for t in kept_back)
        torch.testing.assert_close(fused_norm.norm_again(kept_back, *given[3:]), out)


def test_dropout_is_replayed_in_backward_and_drops_its_share():
    from umpteen.compute.kernels.fused_norm import norm_forward

    given = inputs(301, 48)
    options = {"eps": 1e-5, "rate": 0.2, "seed": torch.tensor([3 << 40], device=DEVICE)}
    with torch.no_grad():
        _, (total, *_) = norm_forward(*given, dtype=torch.float32, **options)
        kept = (total - given[2]).abs() > 1e-6
    assert abs(kept.float().mean().item() - 0.8) < 5 * (0.16 / kept.numel()) ** 0.5
    above = torch.randn(301, 48, device=DEVICE)
    found = add_norm(*given, dtype=torch.float32, **options)
    expected = plain(*given, kept=kept / 0.8)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(torch.autograd.grad(found, given, above),
                          torch.autograd.grad(expected, given, above), strict=True):  # fmt: skip
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    options["seed"] = options["seed"] + 1
    assert not torch.equal(found, add_norm(*given, dtype=torch.float32, **options))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("width", [384, 768, 1024])
def test_in_bfloat16_it_is_as_near_as_torch(width):
    """Its error against float64 is at most 1.5 times that of torch's operations in bfloat16."""
    given = inputs(4001, width, torch.bfloat16)
    above = torch.randn(4001, width, device=DEVICE)
    exact = [t.detach().double().requires_grad_() for t in given]

    def torch_own(values, bias, residual, weight, shift):
        total = dropout(values + bias.bfloat16(), 0.0) + residual
        return layer_norm(total.float(), total.shape[1:], weight, shift, 1e-5).bfloat16()

    results = []
    for function, leaves in (
        (lambda *t: add_norm(*t, eps=1e-5, dtype=torch.bfloat16), given),
        (torch_own, given),
        (plain, exact),
    ):
        out = function(*leaves)
        results.append([out, *torch.autograd.grad(out, leaves, above.to(out.dtype))])
    for ours, theirs, right in zip(*results, strict=True):
        one, two = (ours - right).norm() / right.norm(), (theirs - right).norm() / right.norm()
        assert one < 1.5 * two + 1e-3
