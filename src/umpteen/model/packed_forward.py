"""The forward pass of a BERT-like network on packed tokens: no padding in any matrix product.

The sum that runs through the layers is kept in the dtype of computation (bfloat16 under autocast),
norms are reckoned in float32. With Triton on a GPU the fused kernels of ``compute/`` run, elsewhere
torch's own operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp import is_autocast_available
from torch.nn.functional import dropout, embedding, gelu, layer_norm, linear

from umpteen.compute.cast_weights import cast_weights
from umpteen.compute.group_attention import group_attention
from umpteen.compute.precision import at_least_float32
from umpteen.compute.text_mean import text_mean
from umpteen.errors import UmpteenError
from umpteen.extras import installed
from umpteen.model.packed import Form, Layer
from umpteen.model.packed_layout import PackedLayout, make_layout
from umpteen.model.packed_modern import ModernForm, encode_modern
from umpteen.types import Ragged

if TYPE_CHECKING:
    from umpteen.compute.kernels.fused_attention import Dropouts, MadeOf

LONGEST_HEAD = 128  # what a tile's kernel keeps of a head
FEW_TOKENS = 256  # of a call on a CPU for which weights are kept in blocks
MAX_READY = 1 << 27  # weights of which a copy is kept for that: 512 MiB


def lay_out_packed(
    form: Form | ModernForm, tokens: Ragged, *, fused: bool | None = None
) -> PackedLayout:
    """Return what ``encode_packed`` needs of the tokens, on the network's device.

    Args:
        form: The network.
        tokens: Ragged tokens of B texts of at least one token each.
        fused: Whether the Triton kernels will run; None to decide by device.

    Raises:
        UmpteenError: If a text is longer than the network's table of positions.
    """
    longest = int(np.diff(tokens.offsets).max())
    if longest > form.max_positions:
        raise too_long(longest, form.max_positions)
    device = form.word.weight.device
    if isinstance(form, ModernForm):
        return make_layout(tokens, device, in_tiles=False)
    fits = form.bias is None and form.width // form.heads <= LONGEST_HEAD
    in_tiles = _runs_kernels(fused, device) and fits
    return make_layout(tokens, device, in_tiles=in_tiles)


def too_long(tokens: int, positions: int) -> UmpteenError:
    """Return the error for a text that has more tokens than the network has positions."""
    return UmpteenError(
        f"a text has {tokens} tokens, and the encoder has positions for {positions}; use a smaller "
        "data.max_tokens"
    )


def encode_packed(
    form: Form | ModernForm,
    layout: PackedLayout,
    *,
    pooling: str,
    training: bool,
    fused: bool | None = None,
) -> Tensor:
    """Encode texts; the vectors equal those of the network's own padded forward pass.

    Equal texts are encoded once; with dropout they share one draw.

    Args:
        form: The network.
        layout: Made of the B texts by ``lay_out_packed``.
        pooling: ``"mean"``, ``"first"`` or ``"last"``.
        training: Whether dropouts drop.
        fused: As the plan was made.

    Returns:
        (B, width), float32 at least.
    """
    if isinstance(form, ModernForm):
        kernels = _runs_kernels(fused, form.word.weight.device)
        return encode_modern(form, layout, pooling=pooling, training=training, fused=kernels)
    vectors = _encode_different(form, layout, pooling=pooling, training=training, fused=fused)
    return vectors if layout.back is None else vectors[layout.back]


def encode_tokens(
    form: Form, layout: PackedLayout, *, training: bool, fused: bool | None = None
) -> Tensor:
    """Return (N, width) vectors of the tokens of the M different texts of a layout."""
    return _encode_different(form, layout, pooling="none", training=training, fused=fused)


def _encode_different(
    form: Form, layout: PackedLayout, *, pooling: str, training: bool, fused: bool | None = None
) -> Tensor:
    """Encode the M different texts of a layout, (M, width); see ``encode_packed``."""
    device = form.word.weight.device
    fused = _runs_kernels(fused, device)
    dtype = form.word.weight.dtype
    casting = is_autocast_available(device.type) and torch.is_autocast_enabled(device.type)
    if casting:
        dtype = torch.get_autocast_dtype(device.type)
    starts = {"first": layout.offsets[:-1], "last": layout.offsets[1:] - 1}.get(pooling)
    uncast = torch.autocast(device.type, enabled=False) if casting else nullcontext()
    # Kernels start on the current device, which need not be the network's.
    there = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with uncast, there:
        run = _fused if fused else _plain
        if not fused and _are_few(form, layout, dtype, training):
            run = _few
        hidden = run(form, layout, dtype, training, starts)
        if starts is None and pooling == "mean":
            summed = torch.promote_types(dtype, torch.float32)
            shares = layout.offsets.diff().to(summed).reciprocal()
            return text_mean(hidden, layout.texts, layout.offsets, shares, fused=fused)
        return at_least_float32(hidden)


def _runs_kernels(fused: bool | None, device: torch.device) -> bool:
    return (device.type == "cuda" and installed("triton")) if fused is None else fused


def _embedded(form: Form, layout: PackedLayout) -> tuple[Tensor, Tensor]:
    """Return vectors of tokens, and those of their positions with that of the first token type."""
    word = embedding(layout.ids, form.word.weight, form.word.padding_idx)
    table = form.position.weight[form.first_position : form.first_position + layout.longest]
    if form.kind is not None:
        table = table + form.kind.weight[0]
    return word, embedding(layout.places, table)


def _projected(form: Form, x: Tensor) -> Tensor:
    """Return tokens' vectors in the layers' width."""
    if form.project is None:
        return x
    return linear(x, form.project.weight.to(x.dtype), form.project.bias.to(x.dtype))


def _plain(
    form: Form, layout: PackedLayout, dtype: torch.dtype, training: bool, starts: Tensor | None
) -> Tensor:
    """Run all layers with torch's operations."""
    word, position = _embedded(form, layout)
    x = dropout(_norm(word + position, form.norm, dtype), form.rate, training)
    x = _projected(form, x)
    bias = None if form.bias is None else form.bias(layout.longest)
    for i, layer in enumerate(form.layers):
        weights = _weights(layer, dtype)
        query, query_bias, key, key_bias, value, value_bias, *others = weights
        context = group_attention(
            linear(x, query, query_bias),
            linear(x, key, key_bias),
            linear(x, value, value_bias),
            layout.groups,
            heads=form.heads,
            rate=layer.attention_rate if training else 0.0,
            bias=bias,
        )
        if starts is not None and i == len(form.layers) - 1:  # the others are not used
            context, x = context.index_select(0, starts), x.index_select(0, starts)
        output, output_bias, up, up_bias, down, down_bias = others
        added = dropout(linear(context, output, output_bias), layer.context_rate, training)
        x = _norm(added + x, layer.attention_norm, dtype)
        inner = gelu(linear(x, up, up_bias))
        added = dropout(linear(inner, down, down_bias), layer.output_rate, training)
        x = _norm(added + x, layer.output_norm, dtype)
    return x


def _are_few(form: Form, layout: PackedLayout, dtype: torch.dtype, training: bool) -> bool:
    """Return whether products are so small that packing the weights would dominate."""
    weight = form.word.weight
    plain = weight.device.type == "cpu" and weight.dtype == dtype == torch.float32
    if training or torch.is_grad_enabled() or not plain or len(layout.ids) > FEW_TOKENS:
        return False
    return sum(m.weight.numel() for layer in form.layers for m in layer.linears) <= MAX_READY


def _few(
    form: Form, layout: PackedLayout, dtype: torch.dtype, training: bool, starts: Tensor | None
) -> Tensor:
    """Run all layers for few tokens on a CPU. Equals ``_plain`` without dropout, up to rounding."""
    word, position = _embedded(form, layout)
    x = _projected(form, _norm(word + position, form.norm, dtype))
    bias = None if form.bias is None else form.bias(layout.longest)
    last = len(form.layers) - 1
    for i, (layer, ready) in enumerate(zip(form.layers, form.ready(form.layers), strict=True)):
        together, output, up, down = ready
        query, key, value = together(x).chunk(3, dim=1)
        context = group_attention(query, key, value, layout.groups, heads=form.heads, bias=bias)
        if starts is not None and i == last:
            context, x = context.index_select(0, starts), x.index_select(0, starts)
        x = _norm(output(context).add_(x), layer.attention_norm, dtype)
        x = _norm(down(up(x, gelu=True)).add_(x), layer.output_norm, dtype)
    return x


def _weights(layer: Layer, dtype: torch.dtype) -> Sequence[Tensor]:
    """Return weight and bias of the six products, in the dtype of computation."""
    own = [p for module in layer.linears for p in (module.weight, module.bias)]
    return own if own[0].dtype == dtype else cast_weights([[p] for p in own], dtype)


def _norm(x: Tensor, norm: nn.LayerNorm, dtype: torch.dtype) -> Tensor:
    x = at_least_float32(x)
    weight, bias = norm.weight.to(x.dtype), norm.bias.to(x.dtype)
    return layer_norm(x, norm.normalized_shape, weight, bias, norm.eps).to(dtype)


def _fused(
    form: Form, layout: PackedLayout, dtype: torch.dtype, training: bool, starts: Tensor | None
) -> Tensor:
    """Run all layers with the kernels."""
    from umpteen.compute.kernels.fused_attention import Dropouts, Texts, attention_block
    from umpteen.compute.kernels.fused_feed_forward import feed_forward
    from umpteen.compute.kernels.fused_norm import add_norm

    word, position = _embedded(form, layout)
    norm = form.norm
    x, _ = add_norm(word, None, position, norm.weight, norm.bias, eps=norm.eps, dtype=dtype)
    x = _projected(form, dropout(x, form.rate, training))
    weights = _joined_weights(form, dtype)
    seeds = _seeds(form, x.device) if training else [None] * (3 * len(form.layers))
    bias = None if form.bias is None else form.bias(layout.longest)
    made_of: MadeOf | None = None
    for i, layer in enumerate(form.layers):
        attending, adding, feeding = seeds[3 * i : 3 * i + 3]
        weight, weight_bias, output, up, up_bias, down = weights[6 * i : 6 * i + 6]
        drop = Dropouts()
        if training:
            drop = Dropouts(layer.attention_rate, layer.context_rate, attending, adding)
        first_only = starts is not None and i == len(form.layers) - 1
        norm = layer.attention_norm
        if layout.tiled == len(x) and not first_only:
            who = Texts(layout.texts, layout.tiles, form.heads)
            x, kept_back = attention_block(
                x, weight, weight_bias, output, layer.output.bias, norm.weight, norm.bias, who,
                drop, eps=norm.eps, made_of=made_of,
            )  # fmt: skip
        else:
            context = _attend(linear(x, weight, weight_bias), layout, form.heads, drop, bias)
            if first_only and starts is not None:  # the others are not used
                context, x = context.index_select(0, starts), x.index_select(0, starts)
            x, kept_back = add_norm(
                linear(context, output), layer.output.bias, x, norm.weight, norm.bias,
                eps=norm.eps, rate=drop.rate, seed=drop.seed, dtype=dtype,
            )  # fmt: skip
        made_of = (kept_back, norm.weight, norm.bias)
        norm = layer.output_norm
        x, kept_back = feed_forward(
            x, up, up_bias, down, layer.down.bias, norm.weight, norm.bias, made_of=made_of,
            eps=norm.eps, rate=layer.output_rate if training else 0.0, seed=feeding,
        )  # fmt: skip
        made_of = (kept_back, norm.weight, norm.bias)
    return x


def _joined_weights(form: Form, dtype: torch.dtype) -> list[Tensor]:
    """Return each layer's joined weights of queries, keys and values, and their biases.

    The others.
    """
    groups: list[list[Tensor]] = []
    for layer in form.layers:
        three = (layer.query, layer.key, layer.value)
        groups += [[m.weight for m in three], [m.bias for m in three], [layer.output.weight]]
        groups += [[layer.up.weight], [layer.up.bias], [layer.down.weight]]
    return cast_weights(groups, dtype)


def _seeds(form: Form, device: torch.device) -> Sequence[Tensor]:
    """Draw three seeds for each layer from the device's generator.

    Who sets that back gets them again.

    They stay there, 16 bytes apart, so that all look alike to the kernels' compiler.
    """
    return torch.randint(1 << 62, (3 * len(form.layers), 2), device=device).unbind(0)


def _attend(
    fused: Tensor, layout: PackedLayout, heads: int, drop: Dropouts, bias: Tensor | None
) -> Tensor:
    """Attend within short texts in tiles, and within the others with torch's kernels."""
    parts = []
    rate = drop.attention_rate
    # A split and not two slices: backward joins gradients, where slices would fill zeros and add.
    short, long = fused.split([layout.tiled, len(fused) - layout.tiled])
    if layout.tiled:
        from umpteen.compute.kernels.tile_attention import tile_attention

        seed = drop.attention_seed
        parts.append(
            tile_attention(short, layout.texts, layout.tiles, heads=heads, rate=rate, seed=seed)
        )
    if len(long):
        queries, keys, values = long.chunk(3, dim=1)
        half = fused.dtype in (torch.float16, torch.bfloat16)
        if half and fused.is_cuda and rate == 0 and bias is None:
            from torch.nn.attention.varlen import varlen_attn

            q, k, v = (t.unflatten(1, (heads, -1)) for t in (queries, keys, values))
            most = layout.longest
            context = varlen_attn(q, k, v, layout.rest, layout.rest, most, most)
            assert isinstance(context, Tensor)
            parts.append(context.flatten(1))
        else:
            groups = layout.groups
            parts.append(
                group_attention(queries, keys, values, groups, heads=heads, rate=rate, bias=bias)
            )
    return parts[0] if len(parts) == 1 else torch.cat(parts)
