"""The two heads on top of an encoder: one for the dual encoder, one for the classifier."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import normalize

from umpteen.compute.dropout import Dropout


class DualHead(nn.Module):
    """Text vectors for comparison with other texts: normalize(dropout(tanh(linear(h)))).

    Args:
        encoder_dim: Size of encoded texts.
        dim: Size of the vectors.
        dropout: Share of their entries that is dropped while training.
        normalize: Whether they have length one; otherwise tanh alone bounds them.
    """

    def __init__(
        self, encoder_dim: int, dim: int, *, dropout: float, normalize: bool = True
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(encoder_dim, dim)
        self.dropout = Dropout(dropout)
        self.normalize = normalize
        _keep_geometry_(self.linear)

    def forward(self, encoded: Tensor) -> Tensor:
        """Map (B, encoder_dim) to vectors (B, dim)."""
        vectors: Tensor = self.dropout(self.linear(encoded).tanh())
        return normalize(vectors, dim=-1) if self.normalize else vectors


class ClassifierHead(nn.Module):
    """Query vectors for the label vectors: dropout(linear(h)), of any length."""

    def __init__(self, encoder_dim: int, dim: int, *, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(encoder_dim, dim)
        self.dropout = Dropout(dropout)
        _keep_geometry_(self.linear)

    def forward(self, encoded: Tensor) -> Tensor:
        """Map (B, encoder_dim) to (B, dim)."""
        return self.dropout(self.linear(encoded))


def _keep_geometry_(linear: nn.Linear) -> None:
    """Start with orthogonal rows, so that a pretrained encoder's angles survive the projection."""
    nn.init.orthogonal_(linear.weight)
    nn.init.zeros_(linear.bias)
