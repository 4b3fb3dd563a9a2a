"""The two heads on top of an encoder: one for the dual encoder, one for the classifier."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import normalize

from umpteen.compute.dropout import Dropout


class DualHead(nn.Module):
    """Text vectors for comparison with other texts: normalize(dropout(tanh(linear(h)))).

    Without a projection they are normalize(dropout(h)).

    Args:
        encoder_dim: Size of encoded texts.
        dim: Size of the vectors.
        dropout: Share of their entries that is dropped while training.
        normalize: Whether they have length one; otherwise tanh alone bounds them.
        projection: Whether there is a linear layer with tanh; without one ``dim`` is
            ``encoder_dim``.
    """

    def __init__(
        self,
        encoder_dim: int,
        dim: int,
        *,
        dropout: float,
        normalize: bool = True,
        projection: bool = True,
    ) -> None:
        super().__init__()
        self.linear = _projection(encoder_dim, dim) if projection else None
        self.dropout = Dropout(dropout)
        self.normalize = normalize

    def forward(self, encoded: Tensor) -> Tensor:
        """Map (B, encoder_dim) to vectors (B, dim)."""
        if self.linear is not None:
            encoded = self.linear(encoded).tanh()
        vectors: Tensor = self.dropout(encoded)
        return normalize(vectors, dim=-1) if self.normalize else vectors


class ClassifierHead(nn.Module):
    """Query vectors for the label vectors: dropout(linear(h)), of any length or of length one."""

    def __init__(
        self,
        encoder_dim: int,
        dim: int,
        *,
        dropout: float,
        normalize: bool = False,
        projection: bool = True,
    ) -> None:
        super().__init__()
        self.linear = _projection(encoder_dim, dim) if projection else None
        self.dropout = Dropout(dropout)
        self.normalize = normalize

    def forward(self, encoded: Tensor) -> Tensor:
        """Map (B, encoder_dim) to (B, dim)."""
        if self.linear is not None:
            encoded = self.linear(encoded)
        vectors: Tensor = self.dropout(encoded)
        return normalize(vectors, dim=-1) if self.normalize else vectors


def _projection(encoder_dim: int, dim: int) -> nn.Linear:
    """Start with orthogonal rows, so that a pretrained encoder's angles survive the projection."""
    linear = nn.Linear(encoder_dim, dim)
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
