"""The query side of a model as one network: padded tokens in, search vectors out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from umpteen.errors import ConfigError
from umpteen.model.model import Model
from umpteen.model.pooling import POOLINGS
from umpteen.predictor import Predictor


class QueryNetwork(nn.Module):
    """A transformer, its pooling and the heads; equals ``Model.query_vectors`` on padded tokens.

    Args:
        model: With a transformer as encoder.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        encoder: Any = model.encoder
        self.network, self.pooling, self.tail = encoder.network, encoder.pooling, encoder.tail

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Map ids and mask (B, T) int64 to (B, heads * dim)."""
        hidden = self.network(input_ids=ids, attention_mask=mask)[0]
        vectors = POOLINGS[self.pooling](hidden, mask.bool())
        if self.tail is not None:
            vectors = self.tail(vectors)
        return self.model.search_vectors(vectors)


def query_network(predictor: Predictor) -> QueryNetwork:
    """Return the query side of a predictor, on the CPU.

    Raises:
        ConfigError: If the encoder is no transformer, or reads texts in chunks.
    """
    model = predictor.model
    if model.encoder.kind != "transformer":
        raise ConfigError(
            f"the encoder is of the kind {model.encoder.kind!r}; transformers without chunks can "
            "be exported as a network"
        )
    return QueryNetwork(model.to(torch.device("cpu")).eval()).eval()
