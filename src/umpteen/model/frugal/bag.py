"""A bag of token vectors with a residual block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from umpteen.compute.dropout import Dropout
from umpteen.compute.token_means import token_means
from umpteen.model.encoder import to_device
from umpteen.model.frugal.base import FrugalEncoder
from umpteen.types import Ragged


class BagEncoder(FrugalEncoder):
    """The weighted mean of trainable token vectors, then a residual block.

    h = m + W2 relu(W1 m), with m the mean of the text's token vectors, each scaled by a trainable
    weight of its token.

    What it is for: short text on a CPU; trains in minutes and answers in well under a millisecond.
    When to take its neighbour: where word order matters (names, phrases) ``convolution``; with a
    GPU ``transformer``.
    Cost: one vector addition per token and two small products per text; a step touches only the
    vectors of the tokens it saw.
    Source: the base model of the Astec family (Dahiya et al., DeepXML, 2021).

    Args:
        table: (V, D) first token vectors.
        hidden: Width of the residual block; 0 leaves it out.
        dropout: On the mean, while training.
    """

    kind = "bag"

    def __init__(self, table: Tensor, *, hidden: int = 512, dropout: float = 0.1) -> None:
        super().__init__()
        self.dim = table.shape[1]
        self.table = nn.Parameter(table.clone())
        self.weights = nn.Parameter(torch.zeros(len(table), 1))
        self.dropout = Dropout(dropout)
        self.hidden = hidden
        if hidden:
            self.inner = nn.Linear(self.dim, hidden)
            self.outer = nn.Linear(hidden, self.dim)
            nn.init.zeros_(self.outer.weight)  # starts as the plain mean of the vectors
            nn.init.zeros_(self.outer.bias)

    def forward(self, tokens: Ragged) -> Tensor:
        """Encode ragged tokens of B texts, (B, dim)."""
        device = self.table.device
        ids = to_device(tokens.ids, device).long()
        offsets = to_device(tokens.offsets, device)
        mean = self.dropout(token_means(self.table, self.weights, ids, offsets))  # (B, dim)
        if not self.hidden:
            return mean
        inner = torch.relu(self.inner(mean))
        return mean + self.outer(inner)

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the token vectors and their weights."""
        return [self.table, self.weights]

    def options(self) -> dict[str, Any]:
        """Return what the constructor needs beside the table, as JSON values."""
        return {"hidden": self.hidden, "dropout": self.dropout.p}
