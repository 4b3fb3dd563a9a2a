"""The label side of a search: one row per label, both heads side by side."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from umpteen.compute.encoding import Tokens, encode_all
from umpteen.compute.precision import at_least_float32, autocast
from umpteen.head_names import HEADS
from umpteen.model.model import Model
from umpteen.types import Progress, Ragged

ROWS_AT_ONCE = 1 << 14
"""Labels whose neighbours' vectors are gathered at once."""


def available_heads(model: Model) -> tuple[str, ...]:
    """Return the heads that can predict, the best one last."""
    single = tuple(name for name in HEADS if name in model.heads)
    return (*single, "combined") if len(single) == 2 else single


def head_columns(model: Model, head: str) -> slice:
    """Return the columns of search vectors that a head uses; the combined head uses all.

    The inner product over all columns is the sum of the two cosines; with ``model.normalize``
    false, where there is one head, it is that head's score times its temperature.
    """
    if head == "combined" or len(model.heads) == 1:
        return slice(0, model.dim * len(model.heads))
    place = model.heads.index(head)
    return slice(place * model.dim, (place + 1) * model.dim)


def encode_texts(
    model: Model,
    tokens: Tokens,
    head: Callable[[Tensor], Tensor],
    *,
    precision: str,
    progress: Progress | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return a head's vectors of every text, (N, D).

    Only the encoder runs in the precision.

    Args:
        model: In evaluation mode.
        tokens: The texts' tokens.
        head: From encoded texts to vectors; runs in float32, as it does in training.
        precision: Of the encoder.
        progress: Called with the texts that are encoded, and all of them.
        dtype: Of the vectors.

    Returns:
        On the model's device.
    """
    device = next(model.parameters()).device

    def vectors(some: Ragged) -> Tensor:
        with autocast(precision, device):
            encoded = model.encode(some)
        return head(at_least_float32(encoded))

    return encode_all(vectors, tokens, progress=progress, dtype=dtype)


def label_search_vectors(model: Model, tokens: Tokens, *, precision: str = "fp32") -> Tensor:
    """Return [D(z_l) ; normalized label vector] of every label: (L, heads * dim), float32.

    Args:
        model: In evaluation mode.
        tokens: The labels' tokens.
        precision: Of the encoder.

    Returns:
        Where the label vectors are; on the model's device, where it has none of its own.
    """
    found: list[Tensor] = []
    if model.dual_head is not None:
        found.append(encode_texts(model, tokens, model.dual, precision=precision))
    if model.label_vectors is None:
        return found[0]
    # Written where they are to be, in blocks: of millions of labels a copy on the way is as large
    # as the label table.
    device = model.label_vectors.device
    shape = len(model.label_vectors), len(model.heads) * model.dim
    whole = torch.empty(shape, dtype=torch.float32, device=device)
    if found:
        whole[:, : model.dim] = found.pop()
    own = whole[:, -model.dim :]
    if model.label_parametrization == "free":
        theirs = model.label_vectors.detach()
    else:
        theirs = classifier_label_vectors(model, tokens, precision=precision)
    for start in range(0, len(own), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        own[rows] = normalize(theirs[rows].to(device).float(), dim=1)
    return whole


def classifier_label_vectors(model: Model, tokens: Tokens, *, precision: str = "fp32") -> Tensor:
    """Return what the classifier scores every label with, (L, dim) float32.

    Free vector, text and graph.
    """
    assert model.label_vectors is not None
    if model.label_parametrization == "free":
        return at_least_float32(model.label_vectors.detach().to(model.log_scales.device))
    texts = encode_texts(model, tokens, lambda encoded: encoded, precision=precision)
    blocks = []
    with torch.no_grad():
        for some in torch.arange(len(texts), device=texts.device).split(ROWS_AT_ONCE):
            near = texts[model.get_buffer("graph_rows")[some].long()] if model.neighbours else None
            blocks.append(model.label_rows(some) + model.text_part(some, texts[some], near))
    return torch.cat(blocks)


def query_search_vectors(model: Model, tokens: Tokens, *, precision: str = "fp32") -> Tensor:
    """Return [D(x) ; normalized C(x)] of every text: (N, heads * dim), float32."""
    return encode_texts(model, tokens, model.search_vectors, precision=precision)
