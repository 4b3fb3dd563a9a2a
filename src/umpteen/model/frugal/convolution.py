"""Convolutions of several widths over token vectors, attention across them, pooled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from umpteen.model.encoder import to_device
from umpteen.model.frugal.base import FrugalEncoder
from umpteen.types import Ragged


class ConvolutionEncoder(FrugalEncoder):
    """Convolutions of several widths over token vectors, followed by attention.

    For each token position: one view per window width (a 1-d convolution). The views of a position
    attend to each other, are pooled over the text by their maximum, mixed, and added to the plain
    mean of the token vectors.

    What it is for: short text on a CPU where the order of words matters.
    When to take its neighbour: ``bag`` is several times faster and often as good on titles.
    Cost: sum of the widths x dim x channels multiplications per token.
    Source: the InceptionXML family (Kharbanda et al., 2023), after its idea, not its code.

    Args:
        table: (V, D) first token vectors.
        channels: Outputs of each convolution.
        widths: Window widths.
        dropout: On the token vectors and before the mix, while training.
    """

    kind = "convolution"

    def __init__(
        self,
        table: Tensor,
        *,
        channels: int = 128,
        widths: Sequence[int] = (1, 2, 3),
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.dim = table.shape[1]
        self.channels = channels
        self.widths = tuple(int(w) for w in widths)
        self.table = nn.Parameter(table.clone())
        self.windows = nn.ModuleList(
            nn.Conv1d(self.dim, channels, width, padding=width - 1) for width in self.widths
        )
        self.attention_query = nn.Linear(channels, channels, bias=False)
        self.mix = nn.Linear(channels * len(self.widths), self.dim)
        nn.init.zeros_(self.mix.weight)  # starts as the plain mean of the vectors
        nn.init.zeros_(self.mix.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Ragged) -> Tensor:
        """Encode ragged tokens of B texts, (B, dim)."""
        device = self.table.device
        lengths = np.diff(tokens.offsets)
        text = to_device(np.repeat(np.arange(len(lengths)), lengths), device)  # (T,)
        place = np.arange(int(lengths.sum())) - np.repeat(tokens.offsets[:-1], lengths)
        ids = to_device(tokens.ids, device).long()
        vectors = nn.functional.embedding(ids, self.table, sparse=True)  # (T, D)
        total = vectors.new_zeros(len(lengths), self.dim).index_add(0, text, vectors)
        mean = total / to_device(lengths, device).unsqueeze(1)  # (B, D)
        views = self._attended(self._views(self.dropout(vectors), to_device(place, device)))
        views = torch.relu(views).flatten(1)  # (T, W * channels)
        # Starting from zeros changes nothing: views are zero or more.
        pooled = views.new_zeros(len(lengths), views.shape[1]).scatter_reduce(
            0, text.unsqueeze(1).expand_as(views), views, "amax"
        )
        return mean + self.mix(self.dropout(pooled))

    def _views(self, vectors: Tensor, place: Tensor) -> Tensor:
        """Convolve (T, D) token vectors at places (T,) of their texts, (T, W, channels).

        Equals a ``conv1d`` over each text, where a window that ends at a position sees it and the
        tokens before it. One product for all windows and all their taps, whose results are moved
        to the position that sees them: texts need no padding and no window is copied.
        """
        weights = [window.get_parameter("weight") for window in self.windows]  # (channels, D, w)
        taps = torch.cat([weight.flip(2).permute(2, 0, 1).flatten(0, 1) for weight in weights])
        products = (vectors @ taps.T).unflatten(1, (-1, self.channels)).unbind(1)
        views, start = [], 0
        for width, window in zip(self.widths, self.windows, strict=True):
            view = products[start] + window.bias
            for back in range(1, width):
                earlier = nn.functional.pad(products[start + back], (0, 0, back, 0))[: len(view)]
                view = view + earlier.masked_fill((place < back).unsqueeze(1), 0.0)
            views.append(view)
            start += width
        return torch.stack(views, dim=1)

    def _attended(self, views: Tensor) -> Tensor:
        """Add to (T, W, channels) the attention of each to all of its position.

        Equals ``views + softmax(query(views) @ views.mT / sqrt(channels)) @ views``; products of so
        few rows cost a CPU more to start than to make.
        """
        queries = self.attention_query(views) * self.channels**-0.5
        found = []
        for query, view in zip(queries.unbind(1), views.unbind(1), strict=True):
            weights = torch.softmax((query.unsqueeze(1) * views).sum(dim=2), dim=1)  # (T, W)
            found.append(view + (weights.unsqueeze(2) * views).sum(dim=1))
        return torch.stack(found, dim=1)

    def options(self) -> dict[str, Any]:
        """Return what the constructor needs beside the table, as JSON values."""
        return {"channels": self.channels, "widths": list(self.widths), "dropout": self.dropout.p}
