"""The kernels of packed encoders one by one, beside the plain expressions."""

from __future__ import annotations

import statistics

import numpy as np
import torch

from bench.common.timing import is_cuda, peak_gib, reset_peak, seconds


def timed(step, *, repeats: int, device: torch.device) -> tuple[float, float]:
    """Median milliseconds and peak GiB of a step that is waited for, after some to warm up."""
    for _ in range(3 if is_cuda(device) else 1):
        step()
    reset_peak(device)
    took = seconds(step, repeats=repeats, device=device)
    return 1000 * statistics.median(took), peak_gib(device)


def make_texts(n: int, seed: int = 0):
    from umpteen.types import Ragged

    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(4, 21, n))])
    return Ragged(rng.integers(1000, 30000, offsets[-1]).astype(np.int32), offsets)


def piece_rows(n: int, repeats: int, device: torch.device) -> list[dict]:
    """Each kernel beside its expression, forward and backward, with dropout where it has one."""
    from torch.nn.functional import dropout, gelu, layer_norm, linear

    from umpteen.compute.group_attention import group_attention
    from umpteen.compute.kernels.fused_feed_forward import feed_forward
    from umpteen.compute.kernels.fused_norm import add_norm
    from umpteen.compute.kernels.tile_attention import tile_attention
    from umpteen.model.packed_layout import make_layout

    tokens, rows = make_texts(n), []
    tiled = make_layout(tokens, device, in_tiles=True)
    grouped = make_layout(tokens, device, in_tiles=False)
    count, seed = len(tokens.ids), torch.tensor([7], device=device)

    def random(*shape, half=True):
        dtype = torch.bfloat16 if half else torch.float32
        return torch.randn(*shape, device=device, dtype=dtype).mul_(0.05).requires_grad_()

    for heads, size in ((12, 64), (12, 32)):
        width = heads * size
        fused, x, y = random(count, 3 * width), random(count, width), random(count, width)
        up, up_bias, down = random(4 * width, width), random(4 * width), random(width, 4 * width)
        bias, weight, shift = (random(width, half=False) for _ in range(3))

        def norm(total, weight=weight, shift=shift, width=width):
            return layer_norm(total.float(), (width,), weight, shift, 1e-12).bfloat16()

        def feeding(x=x, up=up, up_bias=up_bias, down=down, bias=bias, norm=norm):
            inner = gelu(linear(x, up, up_bias))
            return norm(dropout(linear(inner, down, bias.bfloat16()), 0.1) + x)

        # A norm that leaves its input as it is: the block makes that again from here.
        ones, zeros = torch.ones(width, device=device), torch.zeros(width, device=device)
        rows_of = torch.zeros(count, device=device), torch.ones(count, device=device)
        made_of = ((x.detach(), *rows_of), ones, zeros)
        rest = {"eps": 1e-12, "rate": 0.1, "seed": seed}
        attending = {"heads": heads, "rate": 0.1}
        pieces = {
            "attention": (
                lambda fused=fused, o=attending: tile_attention(
                    fused, tiled.texts, tiled.tiles, seed=seed, **o
                ),
                lambda fused=fused, o=attending: group_attention(
                    *fused.chunk(3, 1), grouped.groups, **o
                ),
            ),
            "norm": (
                lambda x=x, y=y, b=bias, w=weight, s=shift, o=rest: add_norm(
                    x, b, y, w, s, dtype=torch.bfloat16, **o
                )[0],
                lambda x=x, y=y, b=bias, norm=norm: norm(dropout(x + b.bfloat16(), 0.1) + y),
            ),
            "feed-forward": (
                lambda x=x, u=up, v=up_bias, d=down, b=bias, w=weight, s=shift, m=made_of, o=rest:
                feed_forward(x, u, v, d, b, w, s, made_of=m, **o)[0],
                feeding,
            ),
        }  # fmt: skip
        above = torch.randn(count, width, device=device, dtype=torch.bfloat16)
        leaves = (fused, x, y, up, up_bias, down, bias, weight, shift)

        def step(function, above=above, leaves=leaves) -> None:
            for leaf in leaves:
                leaf.grad = None
            function().backward(above)

        for piece, ways in pieces.items():
            for how, function in zip(("kernel", "plain"), ways, strict=True):
                took, peak = timed(lambda f=function, s=step: s(f), repeats=repeats, device=device)
                work = f"{piece}, {heads} x {size}"
                rows.append({"work": work, "code": how, "ms": took, "peak_gib": peak})
    return rows
