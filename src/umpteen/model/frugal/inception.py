"""Convolutions along the embedding axis, in which the words of a text are the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from umpteen.model.encoder import to_device
from umpteen.model.frugal.base import FrugalEncoder
from umpteen.types import Ragged


class InceptionEncoder(FrugalEncoder):
    """Convolutions that slide over the dimensions of the token vectors, all words at once.

    The first ``words`` token vectors of a text attend to each other and are added to what they
    found. The (words, D) matrix is then convolved along D by filters of several widths that see
    every word; the results are pooled over neighbouring positions by their maximum, mixed, and
    added to the plain mean of the token vectors.

    What it is for: short text without a fixed order of words, as search queries.
    When to take its neighbour: ``convolution`` slides over words and takes texts of any length.
    Cost: sum of the widths x words x channels / stride multiplications per dimension.
    Source: Kharbanda et al., InceptionXML (2023), after its idea, not its code.

    Args:
        table: (V, D) first token vectors.
        words: Tokens of a text that are read; the mean has all of them.
        channels: Outputs of each convolution.
        widths: Window widths, in dimensions.
        stride: Dimensions from one window to the next.
        pooled: Neighbouring positions of which the largest is kept.
        dropout: On the token vectors and before the mix, while training.
    """

    kind = "inception"

    def __init__(
        self,
        table: Tensor,
        *,
        words: int = 32,
        channels: int = 32,
        widths: Sequence[int] = (4, 8, 16),
        stride: int = 4,
        pooled: int = 4,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.dim = table.shape[1]
        self.words, self.channels, self.stride, self.pooled = words, channels, stride, pooled
        self.widths = tuple(int(width) for width in widths)
        if max(self.widths) > self.dim:
            raise ValueError(f"windows of {max(self.widths)} do not fit {self.dim} dimensions")
        self.table = nn.Parameter(table.clone())
        self.attention_query = nn.Linear(self.dim, self.dim, bias=False)
        self.windows = nn.ModuleList(
            nn.Conv1d(words, channels, width, stride=stride) for width in self.widths
        )
        places = [(self.dim - width) // stride + 1 for width in self.widths]
        kept = sum(-(-place // pooled) for place in places)
        self.mix = nn.Linear(channels * kept, self.dim)
        nn.init.zeros_(self.mix.weight)  # starts as the plain mean of the vectors
        nn.init.zeros_(self.mix.bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Ragged) -> Tensor:
        """Encode ragged tokens of B texts, (B, dim)."""
        device = self.table.device
        lengths = np.diff(tokens.offsets)
        place = np.arange(int(lengths.sum())) - np.repeat(tokens.offsets[:-1], lengths)
        text = to_device(np.repeat(np.arange(len(lengths)), lengths), device)  # (T,)
        ids = to_device(tokens.ids, device).long()
        vectors = nn.functional.embedding(ids, self.table, sparse=True)  # (T, D)
        total = vectors.new_zeros(len(lengths), self.dim).index_add(0, text, vectors)
        mean = total / to_device(lengths, device).unsqueeze(1)
        read = to_device(np.flatnonzero(place < self.words), device)
        where = text[read], to_device(place, device)[read]
        matrix = vectors.new_zeros(len(lengths), self.words, self.dim)
        matrix = matrix.index_put(where, self.dropout(vectors[read]))
        filled = torch.zeros(matrix.shape[:2], dtype=torch.bool, device=device)
        filled[where] = True
        return mean + self.mix(self.dropout(self._views(self._attended(matrix, filled))))

    def _attended(self, matrix: Tensor, filled: Tensor) -> Tensor:
        """Add to each of (B, words, D) the attention of its word to the words of its text."""
        queries = self.attention_query(matrix) * self.dim**-0.5
        scores = queries @ matrix.transpose(1, 2)
        scores = scores.masked_fill(~filled.unsqueeze(1), torch.finfo(scores.dtype).min)
        return (matrix + torch.softmax(scores, dim=2) @ matrix) * filled.unsqueeze(2)

    def _views(self, matrix: Tensor) -> Tensor:
        """Convolve (B, words, D) along D and pool; side by side, (B, kept)."""
        views = [torch.relu(window(matrix)) for window in self.windows]
        kept = [
            nn.functional.max_pool1d(view, self.pooled, ceil_mode=True).flatten(1) for view in views
        ]
        return torch.cat(kept, dim=1)

    def options(self) -> dict[str, Any]:
        """Return what the constructor needs beside the table, as JSON values."""
        options = {"words": self.words, "channels": self.channels, "widths": list(self.widths)}
        return {**options, "stride": self.stride, "pooled": self.pooled, "dropout": self.dropout.p}
