"""The kernels run in Triton's interpreter where there is no GPU, and compiled where there is."""

import pytest
import torch
from tests.compute.kernels.test_tile_attention import layout
from tests.compute.plain_attention import plain_attention
from torch.nn.functional import layer_norm, linear

pytest.importorskip("triton", reason="the kernels need triton")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
LENGTHS = [1, 2, 5, 13, 31, 70]


def inputs(heads, size, dtype=torch.float32):
    width = heads * size
    torch.manual_seed(width)
    shapes = [(sum(LENGTHS), width), (3 * width, width), (3 * width,), (width, width), (width,),
              (width,), (width,)]  # fmt: skip
    scales = [1.0, width**-0.5, 1.0, width**-0.5, 1.0, 1.0, 1.0]
    halves = [True, True, True, True, False, False, False]
    return [
        (torch.randn(shape, device=DEVICE) * scale)
        .to(dtype if half else torch.float32)
        .requires_grad_()
        for shape, scale, half in zip(shapes, scales, halves, strict=True)
    ]


def block(x, *others, heads, remade, **drop):
    """The block; where x is to be made again, by a norm that leaves it as it is."""
    from umpteen.compute.kernels.fused_attention import Dropouts, Texts, attention_block

    texts, tiles = layout(LENGTHS)
    made_of = None
    if remade:
        ones, zeros = torch.ones_like(others[-1]), torch.zeros_like(others[-1])
        mean, inverse = torch.zeros(len(x), device=DEVICE), torch.ones(len(x), device=DEVICE)
        made_of = ((x.detach().clone(), mean, inverse), ones, zeros)
    who = Texts(texts, tiles, heads)
    return attention_block(x, *others, who, Dropouts(**drop), eps=1e-5, made_of=made_of)


def plain(x, weight, bias, output, output_bias, norm_weight, norm_shift, *, heads):
    context = plain_attention(linear(x, weight, bias), LENGTHS, heads)
    added = linear(context, output, output_bias)
    return layer_norm(added + x, x.shape[1:], norm_weight, norm_shift, 1e-5)


@pytest.mark.parametrize("remade", [False, True])
@pytest.mark.parametrize(("heads", "size"), [(1, 16), (2, 24)])
def test_it_equals_the_plain_block_forward_and_backward(heads, size, remade):
    given = inputs(heads, size)
    above = torch.randn_like(given[0])
    found, _ = block(*given, heads=heads, remade=remade)
    gradients = torch.autograd.grad(found, given, above)
    exact = [t.detach().double().requires_grad_() for t in given]
    expected = plain(*exact, heads=heads)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=2e-5)
    wanted = torch.autograd.grad(expected, exact, above.double())
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("remade", [False, True])
def test_with_dropout_it_equals_its_parts_one_after_the_other(remade):
    from umpteen.compute.kernels.fused_norm import add_norm
    from umpteen.compute.kernels.tile_attention import tile_attention

    given = inputs(2, 16)
    x, weight, bias, output, output_bias, norm_weight, norm_shift = given
    seeds = torch.tensor([[7 << 40], [11 << 41]], device=DEVICE).unbind(0)
    rates = {"attention_rate": 0.3, "rate": 0.2}
    found, kept = block(
        *given, heads=2, remade=remade, **rates, attention_seed=seeds[0], seed=seeds[1]
    )
    context = tile_attention(
        linear(x, weight, bias), *layout(LENGTHS), heads=2, rate=0.3, seed=seeds[0]
    )
    wanted, wanted_kept = add_norm(
        linear(context, output), output_bias, x, norm_weight, norm_shift,
        eps=1e-5, rate=0.2, seed=seeds[1], dtype=torch.float32,
    )  # fmt: skip
    above = torch.randn_like(x)
    pairs = [(found, wanted), *zip(kept, wanted_kept, strict=True)]
    pairs += zip(torch.autograd.grad(found, given, above),
                 torch.autograd.grad(wanted, given, above), strict=True)  # fmt: skip
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_no_more_is_kept_than_queries_keys_values_and_the_sum():
    given = inputs(2, 16)
    wide = []

    def seen(tensor):
        if tensor.ndim == 2 and len(tensor) == sum(LENGTHS):
            wide.append(tensor.shape[1] // 32)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(seen, lambda kept: kept):
        found, _ = block(*given, heads=2, remade=True)
    # Three of queries, keys and values, one sum here, and the one of the norm before.
    assert sorted(wide) == [1, 1, 3]
    assert found.requires_grad
