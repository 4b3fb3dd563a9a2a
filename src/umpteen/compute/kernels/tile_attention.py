"""Attention among the tokens of short packed texts, as Triton kernels: whole texts in each tile.

A program takes one tile and one head: it holds all queries, keys and values there are for its
texts, so nothing is looped over, nothing summed between programs, and backward needs no more than
what forward read. Imported only where Triton is at hand.
"""

# Types of a kernel's arguments are the compiler's to find.
# ruff: noqa: ANN001, ANN202
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from umpteen.compute.kernels.random_bits import drop_threshold, kept


@triton.jit
def _probabilities(
    start, fused, texts, rows, columns, inside, stop, scale,
    HEADS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Load queries, keys and values of one tile and head and compute the (TILE, TILE) softmax.

    Places behind the tile's last token belong to text -1: they attend to each other only.
    """
    places = start + rows[:, None].to(tl.int64) * (3 * HEADS * SIZE) + columns[None, :]
    queries = tl.load(fused + places, mask=inside, other=0.0)
    keys = tl.load(fused + places + HEADS * SIZE, mask=inside, other=0.0)
    values = tl.load(fused + places + 2 * HEADS * SIZE, mask=inside, other=0.0)
    text = tl.load(texts + rows, mask=rows < stop, other=-1)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
    scores = tl.where(text[:, None] == text[None, :], scores, float("-inf"))
    powers = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    return queries, keys, values, powers / tl.sum(powers, axis=1)[:, None]


@triton.jit
def _forward(
    fused, texts, tiles, out, seed, scale, threshold, grow,
    HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    DROP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tile, head = program // HEADS, program % HEADS
    stop = tl.load(tiles + tile + 1)
    rows = tl.load(tiles + tile) + tl.arange(0, TILE)
    columns = tl.arange(0, BLOCK)
    inside = (rows < stop)[:, None] & (columns < SIZE)[None, :]
    _, _, values, shares = _probabilities(
        head * SIZE, fused, texts, rows, columns, inside, stop, scale, HEADS, SIZE
    )
    if DROP:
        keep = kept(
            tl.load(seed) + TILE, program * TILE + tl.arange(0, TILE), TILE, TILE, threshold
        )
        shares = tl.where(keep, shares * grow, 0.0)
    context = tl.dot(shares.to(values.dtype), values, input_precision="ieee")
    places = rows[:, None].to(tl.int64) * (HEADS * SIZE) + head * SIZE + columns[None, :]
    tl.store(out + places, context.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward(
    fused, texts, tiles, gradient, result, seed, scale,
    threshold, grow,
    HEADS: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
    DROP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tile, head = program // HEADS, program % HEADS
    stop = tl.load(tiles + tile + 1)
    rows = tl.load(tiles + tile) + tl.arange(0, TILE)
    columns = tl.arange(0, BLOCK)
    inside = (rows < stop)[:, None] & (columns < SIZE)[None, :]
    queries, keys, values, shares = _probabilities(
        head * SIZE, fused, texts, rows, columns, inside, stop, scale, HEADS, SIZE
    )
    places = rows[:, None].to(tl.int64) * (HEADS * SIZE) + head * SIZE + columns[None, :]
    above = tl.load(gradient + places, mask=inside, other=0.0)
    to_shares = tl.dot(above, tl.trans(values), input_precision="ieee")
    used = shares
    if DROP:
        keep = kept(
            tl.load(seed) + TILE, program * TILE + tl.arange(0, TILE), TILE, TILE, threshold
        )
        used = tl.where(keep, shares * grow, 0.0)
        to_shares = tl.where(keep, to_shares * grow, 0.0)
    to_values = tl.dot(tl.trans(used.to(above.dtype)), above, input_precision="ieee")
    to_scores = shares * (to_shares - tl.sum(shares * to_shares, axis=1)[:, None]) * scale
    to_scores = to_scores.to(queries.dtype)
    to_queries = tl.dot(to_scores, keys, input_precision="ieee")
    to_keys = tl.dot(tl.trans(to_scores), queries, input_precision="ieee")
    kind = result.dtype.element_ty
    places = rows[:, None].to(tl.int64) * (3 * HEADS * SIZE) + head * SIZE + columns[None, :]
    tl.store(result + places, to_queries.to(kind), mask=inside)
    tl.store(result + places + HEADS * SIZE, to_keys.to(kind), mask=inside)
    tl.store(result + places + 2 * HEADS * SIZE, to_values.to(kind), mask=inside)


def attention_forward(
    fused: Tensor, texts: Tensor, tiles: dict[int, Tensor], *, heads: int, rate: float,
    seed: Tensor | None,
) -> Tensor:  # fmt: skip
    """Return the forward pass of ``tile_attention`` without a graph.

    The same seed drops the same.
    """
    out = fused.new_empty(len(fused), fused.shape[1] // 3)
    for grid, arguments, sizes in _launches(tiles, fused, heads, rate):
        where, size, *numbers = arguments
        _forward[grid](fused, texts, where, out, texts if seed is None else seed,
                       *numbers, HEADS=heads, SIZE=size, DROP=rate > 0, **sizes)  # fmt: skip
    return out


def attention_backward(
    gradient: Tensor, fused: Tensor, texts: Tensor, tiles: dict[int, Tensor], *, heads: int,
    rate: float, seed: Tensor | None,
) -> Tensor:  # fmt: skip
    """Return the gradient by ``fused``, from the same arguments and the gradient by the result."""
    gradient = gradient.contiguous()
    result = torch.empty_like(fused)
    for grid, arguments, sizes in _launches(tiles, fused, heads, rate):
        where, size, *numbers = arguments
        _backward[grid](fused, texts, where, gradient, result, texts if seed is None else seed,
                        *numbers, HEADS=heads, SIZE=size, DROP=rate > 0, **sizes)  # fmt: skip
    return result


class _TileAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, fused: Tensor, texts: Tensor, tiles: dict[int, Tensor], heads: int, rate: float,
        seed: Tensor | None,
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(fused, texts, *([] if seed is None else [seed]))
        ctx.tiles, ctx.heads, ctx.rate = tiles, heads, rate
        return attention_forward(fused, texts, tiles, heads=heads, rate=rate, seed=seed)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        fused, texts, *seeds = ctx.saved_tensors
        result = attention_backward(
            gradient, fused, texts, ctx.tiles,
            heads=ctx.heads, rate=ctx.rate, seed=seeds[0] if seeds else None,
        )  # fmt: skip
        return result, None, None, None, None, None


def _launches(tiles: dict[int, Tensor], fused: Tensor, heads: int, rate: float) -> Any:
    """Return launch settings for each size of tile.

    The grid, the arguments both kernels share, and its constants.
    """
    size = fused.shape[1] // (3 * heads)
    block = max(16, 1 << (size - 1).bit_length())  # the next power of two
    for tile, where in tiles.items():
        arguments = (where, size, size**-0.5, drop_threshold(rate), 1.0 / (1.0 - rate))
        warps = {"num_warps": 4 if tile <= 64 else 8}
        yield ((len(where) - 1) * heads,), arguments, {"BLOCK": block, "TILE": tile, **warps}


def tile_attention(
    fused: Tensor,
    texts: Tensor,
    tiles: dict[int, Tensor],
    *,
    heads: int,
    rate: float = 0.0,
    seed: Tensor | None = None,
) -> Tensor:
    """Attend from every token to the tokens of its own text.

    Equals, for the T tokens of each text and each head, with (T, size) queries, keys and values:
    ``dropout(softmax(queries @ keys.T / sqrt(size))) @ values``, the softmax in float32.

    Args:
        fused: (N, 3 * heads * size), all queries, then keys, then values of a token; contiguous.
        texts: (N,) int32, which text a token belongs to.
        tiles: Where tiles start and the last one stops, int32, by the most tokens of such a tile
            (a power of two, 16 at least). A text lies in one tile; together they hold every token.
        heads: Number of heads.
        rate: Share of the attention that is dropped.
        seed: (1,) int64 on the device, with a rate above 0. The same seed drops the same.

    Returns:
        (N, heads * size), in the input's dtype.
    """
    if rate == 0:
        seed = None
    context: Tensor = _TileAttention.apply(fused.contiguous(), texts, tiles, heads, rate, seed)
    return context
