"""Vectors of many texts, sorted by length, in chunks that fit the memory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from umpteen.errors import UmpteenError
from umpteen.types import Ragged

logger = logging.getLogger(__name__)

TOKENS_PER_CHUNK = 1 << 16
TEXTS_PER_CHUNK = 8192


class Tokens(Protocol):
    """Token ids of many texts (a TokenStore)."""

    @property
    def lengths(self) -> Any:
        """(N,) tokens of each text."""

    def take(self, rows: Any) -> Ragged:
        """Return the tokens of some texts."""

    def __len__(self) -> int: ...


def encode_all(
    function: Callable[[Ragged], Tensor],
    tokens: Tokens,
    *,
    tokens_per_chunk: int = TOKENS_PER_CHUNK,
    progress: Callable[[int, int], None] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Apply an encoding function to every text, without gradients.

    Equals ``function(tokens.take(all rows))`` for a function that treats texts one by one. Out of
    memory halves the chunk and goes on.

    Args:
        function: Ragged tokens of B texts to (B, D).
        tokens: The texts' tokens.
        tokens_per_chunk: Padded tokens that are encoded at once.
        progress: Called with (texts done, texts in all).
        dtype: Of the result.

    Returns:
        (N, D) on the function's device, in the order of the texts.

    Raises:
        UmpteenError: If not even one text fits.
    """
    lengths = np.asarray(tokens.lengths)
    order = np.argsort(-lengths, kind="stable")  # longest first: what will not fit fails at once
    result: Tensor | None = None
    done = 0
    with torch.inference_mode():
        while done < len(order):
            size = max(1, min(TEXTS_PER_CHUNK, tokens_per_chunk // int(lengths[order[done]])))
            rows = order[done : done + size]
            try:
                vectors = function(tokens.take(rows)).to(dtype)
            except torch.OutOfMemoryError as error:
                if size == 1:
                    raise UmpteenError(
                        "one text does not fit the GPU's memory; use a smaller data.max_tokens"
                    ) from error
                tokens_per_chunk = max(1, tokens_per_chunk // 2)
                torch.cuda.empty_cache()
                logger.warning("out of memory; going on with %d tokens at once", tokens_per_chunk)
                continue
            if result is None:
                with torch.inference_mode(False):  # so that training may use it
                    result = torch.empty(
                        len(order), vectors.shape[1], dtype=vectors.dtype, device=vectors.device
                    )
            result[torch.from_numpy(rows).to(vectors.device)] = vectors
            done += len(rows)
            if progress is not None:
                progress(done, len(order))
    if result is None:
        raise UmpteenError("there is no text to encode")
    return result
