"""Convolutions of several widths over token vectors, attention across them, pooled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from umpteen.model.encoder import length_groups, pad, to_device
from umpteen.model.frugal.bag import WEIGHTS
from umpteen.types import Ragged


class ConvolutionEncoder(nn.Module):
    """Token vectors seen through windows of several widths, which then attend to each other.

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
        """Ragged tokens of B texts to (B, dim)."""
        lengths = np.diff(tokens.offsets)
        order = np.argsort(lengths, kind="stable")
        device = self.table.device
        parts = [
            self._padded(*(to_device(a, device) for a in pad(tokens, order[group], pad_id=0)))
            for group in length_groups(lengths[order])
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return torch.cat(parts)[to_device(back, device)]  # (B, dim)

    def _padded(self, ids: Tensor, mask: Tensor) -> Tensor:
        # Padding points at the text's own first token, so that no other row gets a gradient.
        ids = torch.where(mask, ids, ids[:, :1])
        vectors = nn.functional.embedding(ids, self.table, sparse=True)  # (b, T, D)
        real = mask.unsqueeze(-1).to(vectors.dtype)
        vectors = vectors * real
        mean = vectors.sum(dim=1) / real.sum(dim=1)  # (b, D)
        turned = self.dropout(vectors).transpose(1, 2)  # (b, D, T)
        n_tokens = ids.shape[1]
        # A window that ends at a position sees it and the tokens before it; none is cut off.
        views = torch.stack(
            [window(turned)[:, :, :n_tokens].transpose(1, 2) for window in self.windows], dim=2
        )  # (b, T, W, channels)
        weights = torch.softmax(
            self.attention_query(views) @ views.transpose(2, 3) * self.channels**-0.5, dim=-1
        )  # (b, T, W, W)
        views = torch.relu(views + weights @ views)
        pooled = views.masked_fill(~mask[:, :, None, None], 0.0).amax(dim=1)  # (b, W, channels)
        return mean + self.mix(self.dropout(pooled.flatten(1)))

    def row_parameters(self) -> list[nn.Parameter]:
        """The token vectors."""
        return [self.table]

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the weights."""
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / WEIGHTS)
        return {
            "channels": self.channels,
            "widths": list(self.widths),
            "dropout": self.dropout.p,
        }

    @classmethod
    def load(cls, folder: Path, options: dict[str, Any]) -> Self:
        """Read what ``save`` wrote."""
        tensors = load_file(folder / WEIGHTS)
        encoder = cls(tensors["table"], **options)
        encoder.load_state_dict(tensors)
        return encoder
