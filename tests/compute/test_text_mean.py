import pytest
import torch

from umpteen.compute.text_mean import text_mean
from umpteen.extras import installed

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize(("lengths", "width"), [([1], 5), ([1, 2, 9, 9, 40], 300), ([7] * 31, 64)])
def test_it_equals_the_mean_of_each_text(fused, lengths, width):
    if fused and not installed("triton"):
        pytest.skip("the kernel needs triton")
    torch.manual_seed(0)
    dtype = torch.float32 if fused else torch.float64
    hidden = torch.randn(sum(lengths), width, device=DEVICE, dtype=dtype, requires_grad=True)
    counts = torch.tensor(lengths)
    texts = torch.repeat_interleave(torch.arange(len(lengths)), counts).int().to(DEVICE)
    offsets = torch.cat([torch.zeros(1), counts.cumsum(0)]).int().to(DEVICE)
    shares = 1 / counts.to(DEVICE, dtype)
    found = text_mean(hidden, texts, offsets, shares, fused=fused)
    expected = torch.stack([part.mean(dim=0) for part in hidden.split(lengths)])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    above = torch.randn_like(found)
    one = torch.autograd.grad(found, hidden, above)[0]
    torch.testing.assert_close(one, torch.autograd.grad(expected, hidden, above)[0])
