"""What frugal encoders share: a table of token vectors, and their files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

from safetensors.torch import load_file, save_file
from torch import nn

WEIGHTS = "encoder.safetensors"


class FrugalEncoder(nn.Module, ABC):
    """An encoder over trainable token vectors: ``table`` (V, D), also its first argument."""

    table: nn.Parameter

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the token vectors."""
        return [self.table]

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return what the constructor needs beside the table, as JSON values."""

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the weights."""
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, folder / WEIGHTS)
        return self.options()

    @classmethod
    def load(cls, folder: Path, options: dict[str, Any]) -> Self:
        """Read what ``save`` wrote."""
        tensors = load_file(folder / WEIGHTS)
        encoder = cls(tensors["table"], **options)
        encoder.load_state_dict(tensors)
        return encoder
