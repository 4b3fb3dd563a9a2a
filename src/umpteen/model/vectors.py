"""The label side of a search: one row per label, both heads side by side."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from umpteen.compute.encoding import Tokens, encode_all
from umpteen.compute.precision import autocast
from umpteen.model.model import Model

HEAD_NAMES = {"de": "dual", "clf": "classifier"}
"""What users call a head, and what the model calls it."""


def available_heads(model: Model) -> tuple[str, ...]:
    """The heads a prediction can be asked of, the best one last."""
    single = tuple(name for name, part in HEAD_NAMES.items() if part in model.heads)
    return (*single, "combined") if len(single) == 2 else single


def head_columns(model: Model, head: str) -> slice:
    """The columns of search vectors that a head uses; the combined head uses all.

    The inner product over all columns is the sum of the two cosines.
    """
    if head == "combined" or len(model.heads) == 1:
        return slice(0, model.dim * len(model.heads))
    place = model.heads.index(HEAD_NAMES[head])
    return slice(place * model.dim, (place + 1) * model.dim)


def label_search_vectors(model: Model, tokens: Tokens, *, precision: str = "fp32") -> Tensor:
    """[D(z_l) ; normalized label vector] of every label: (L, heads * dim), float32.

    Args:
        model: In evaluation mode.
        tokens: The labels' tokens.
        precision: Of the encoder.

    Returns:
        On the model's device.
    """
    device = next(model.parameters()).device
    parts = []
    if model.dual_head is not None:
        with autocast(precision, device):
            parts.append(encode_all(lambda t: model.dual(model.encode(t).float()), tokens))
    if model.label_vectors is not None:
        parts.append(normalize(model.label_vectors.detach(), dim=1))
    return torch.cat(parts, dim=1)


def query_search_vectors(model: Model, tokens: Tokens, *, precision: str = "fp32") -> Tensor:
    """[D(x) ; normalized C(x)] of every text: (N, heads * dim), float32."""
    device = next(model.parameters()).device
    with autocast(precision, device):
        return encode_all(model.query_vectors, tokens)
