"""ModernBERT on packed tokens: its own modules without padding, attention within each text.

Layers alternate between attention to the whole text and to a window around each token. Positions
are rotations of queries and keys, so there is no table of positions. DeBERTa stays padded: its
attention adds products of every token's query and key with vectors of relative positions, two more
matrices for each text and head that no packed kernel of torch computes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from umpteen.compute.group_attention import group_attention
from umpteen.compute.precision import at_least_float32
from umpteen.compute.text_mean import text_mean
from umpteen.model.packed_layout import PackedLayout

WINDOWED = "sliding_attention"


@dataclass(frozen=True)
class ModernForm:
    """A ModernBERT network, and what a layout is made from."""

    network: Any
    heads: int
    window: int
    """Tokens on each side that a windowed layer attends to."""
    padding = None
    max_positions = sys.maxsize

    @property
    def word(self) -> nn.Embedding:
        """The table of token vectors."""
        found: nn.Embedding = self.network.embeddings.tok_embeddings
        return found


def modern_form(network: nn.Module) -> ModernForm | None:
    """Return a ModernBERT network for packed tokens; None for any other network."""
    kind = type(network)
    if kind.__name__ != "ModernBertModel" or not kind.__module__.startswith("transformers."):
        return None
    config: Any = network.config
    return ModernForm(network, config.num_attention_heads, config.sliding_window)


def encode_modern(
    form: ModernForm, layout: PackedLayout, *, pooling: str, training: bool, fused: bool
) -> Tensor:
    """Encode texts; the vectors equal those of the network's own padded forward pass.

    Args:
        form: The network.
        layout: Of the B texts, from ``lay_out_packed``.
        pooling: ``mean``, ``first`` or ``last``.
        training: Whether dropouts drop.
        fused: Whether a Triton kernel sums the tokens of a text.

    Returns:
        (B, width), float32 at least.
    """
    network = form.network
    x = network.embeddings(input_ids=layout.ids)  # (N, width)
    kinds = {layer.attention_type for layer in network.layers}
    rotations = {kind: network.rotary_emb(x, layout.places, kind) for kind in kinds}
    masks = {WINDOWED: _window(form, layout.longest, x.device)}
    for layer in network.layers:
        kind = layer.attention_type
        x = x + _attend(form, layer, x, layout, rotations[kind], masks.get(kind), training)
        x = x + layer.mlp(layer.mlp_norm(x))
    x = network.final_norm(x)
    ends = {"first": layout.offsets[:-1], "last": layout.offsets[1:] - 1}.get(pooling)
    if ends is None:
        x = at_least_float32(x)
        shares = layout.offsets.diff().to(x.dtype).reciprocal()
        vectors = text_mean(x, layout.texts, layout.offsets, shares, fused=fused)
    else:
        vectors = at_least_float32(x.index_select(0, ends))
    return vectors if layout.back is None else vectors[layout.back]


def _attend(
    form: ModernForm,
    layer: Any,
    x: Tensor,
    layout: PackedLayout,
    rotation: tuple[Tensor, Tensor],
    mask: Tensor | None,
    training: bool,
) -> Tensor:
    """Return what the attention of a layer adds to each token, (N, width)."""
    own = layer.attn
    query, key, value = own.Wqkv(layer.attn_norm(x)).chunk(3, dim=1)  # (N, heads * size) each
    context = group_attention(
        _rotated(query, form.heads, rotation),
        _rotated(key, form.heads, rotation),
        value,
        layout.groups,
        heads=form.heads,
        rate=own.attention_dropout if training else 0.0,
        bias=mask,
    )
    added: Tensor = own.out_drop(own.Wo(context))
    return added


def _rotated(vectors: Tensor, heads: int, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate the halves of each head's vectors by the angles of the token's position."""
    cos, sin = (each.unsqueeze(1) for each in rotation)  # (N, 1, size)
    wide = at_least_float32(vectors).unflatten(1, (heads, -1))  # (N, heads, size)
    one, two = wide.chunk(2, dim=2)
    turned = torch.cat((-two, one), dim=2)
    return (wide * cos + turned * sin).flatten(1).to(vectors.dtype)


def _window(form: ModernForm, longest: int, device: torch.device) -> Tensor | None:
    """Return 0 within the window and -inf outside, (heads, T, T); None where all texts fit it."""
    if longest <= form.window + 1:
        return None
    places = torch.arange(longest, device=device)
    outside = (places[None, :] - places[:, None]).abs() > form.window
    mask = torch.zeros(longest, longest, device=device).masked_fill_(outside, -torch.inf)
    return mask.expand(form.heads, -1, -1)
