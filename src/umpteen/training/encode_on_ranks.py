"""Encode many texts on all ranks, each its even share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.compute.distributed.sharding import Ranks
from umpteen.compute.encoding import Tokens
from umpteen.types import Ragged


@dataclass(frozen=True)
class TokenPart:
    """The texts ``start`` to ``stop - 1`` of a token store, not copied."""

    tokens: Tokens
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def lengths(self) -> Any:
        """(stop - start,) tokens of each text."""
        return np.asarray(self.tokens.lengths)[self.start : self.stop]

    def take(self, rows: Any) -> Ragged:
        """Return the tokens of some texts, counted from the start of the part."""
        return self.tokens.take(np.asarray(rows) + self.start)


def encoded_on_ranks(encode: Callable[[Any], Tensor], tokens: Tokens, ranks: Ranks) -> Tensor:
    """Encode texts on all ranks; all must call it.

    Args:
        encode: From tokens of n texts to (n, D), a text at a time.
        tokens: All texts.
        ranks: Who encodes which: an even share each, in order. Fewer texts than ranks are encoded
            by everyone.

    Returns:
        (N, D) on every rank, in the order of the texts.
    """
    if not ranks.exchanges or len(tokens) < ranks.world:
        return encode(tokens)
    bounds = ranks.bounds(len(tokens))
    own = ranks.part(bounds)
    return ranks.concatenate(encode(TokenPart(tokens, own.start, own.stop)), bounds)


def vectors_for_first(
    encode: Callable[[list[str]], Tensor], texts: list[str], ranks: Ranks
) -> Tensor:
    """Encode texts on all ranks for the first one; all must call it.

    Returns:
        (N, D) on the first rank, in the order of the texts and where ``encode`` has its vectors;
        nothing, (0,), on the others.
    """
    if not ranks.exchanges or len(texts) < ranks.world:
        return encode(texts) if ranks.first else torch.empty(0)
    bounds = ranks.bounds(len(texts))
    own = ranks.part(bounds)
    found = encode(texts[own.start : own.stop])
    whole = ranks.rows_to_first(found, bounds)
    return torch.empty(0) if whole is None else whole.to(found.device)
