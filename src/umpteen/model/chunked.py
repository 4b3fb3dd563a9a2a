"""Long texts in chunks: any encoder sees each chunk as a text, and a text gets the chunks' mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from umpteen.compute.text_mean import text_mean
from umpteen.extras import installed
from umpteen.model.encoder import to_device
from umpteen.registry import resolve_saved
from umpteen.types import Ragged, offsets_of


@dataclass(frozen=True)
class Chunks:
    """Texts cut into chunks, and how their vectors become those of the texts."""

    tokens: Ragged
    """The chunks, those of a text one after the other, with what the encoder planned of them."""
    texts: Tensor | None = None
    """(chunks,) which text each belongs to; None where every text is one chunk."""
    offsets: Tensor | None = None
    """(B + 1,) int32, where the chunks of each text start."""
    weights: Tensor | None = None
    """(chunks,) share of each in its text's own tokens; they add up to 1 for each text."""


class ChunkedEncoder(nn.Module):
    """Wrapper that encodes long texts in chunks with another encoder.

    A text of n tokens of its own is cut into the fewest chunks of at most ``max_tokens``, of equal
    size but for a token. Each begins and ends with the text's own special tokens and is encoded by
    itself; the text's vector is their mean, weighted by tokens. Equals a loop over texts and chunks
    of ``(inner(chunk) * tokens(chunk) / n).sum()``; a text of one chunk has the inner vector, to
    the bit.

    What it is for: documents with a transformer, whose time grows with the square of a length, and
    which has positions for 512 tokens or so.
    When to take its neighbour: a bag of tokens reads texts of any length; give it more tokens.
    Cost: the inner encoder's on all chunks. Chunks stay with their text, in batches and on ranks.

    Args:
        inner: The encoder.
        max_tokens: Of a chunk, special tokens included.
        before: Special tokens that a text begins with.
        behind: Special tokens that it ends with.
    """

    kind = "chunked"

    def __init__(
        self, inner: nn.Module, *, max_tokens: int, before: int = 0, behind: int = 0
    ) -> None:
        super().__init__()
        self.inner = inner
        self.dim = int(inner.dim)  # type: ignore[arg-type]
        self.max_tokens = max_tokens
        self.before = before
        self.behind = behind

    def forward(self, tokens: Ragged) -> Tensor:
        """Encode ragged tokens of B texts, (B, dim)."""
        chunks: Chunks = tokens.layout or self._cut(tokens)
        vectors: Tensor = self.inner(chunks.tokens)  # (chunks, dim)
        if chunks.texts is None:
            return vectors
        assert chunks.weights is not None
        assert chunks.offsets is not None
        weighted = vectors * chunks.weights[:, None].to(vectors.dtype)
        ones = torch.ones(len(tokens), dtype=vectors.dtype, device=vectors.device)
        # One text after the other on a GPU too, where torch's own sum does not repeat to the bit.
        fused = vectors.is_cuda and installed("triton")
        there = torch.cuda.device(vectors.device) if vectors.is_cuda else nullcontext()
        with there:  # kernels start on the current device
            return text_mean(weighted, chunks.texts, chunks.offsets, ones, fused=fused)

    @property
    def layout(self) -> Callable[[Ragged], Chunks] | None:
        """Cuts texts and plans the chunks ahead of time, where the inner encoder plans."""
        return None if getattr(self.inner, "layout", None) is None else self._laid_out

    def _laid_out(self, tokens: Ragged) -> Chunks:
        chunks = self._cut(tokens)
        layout = self.inner.layout(chunks.tokens)  # type: ignore[operator]
        return dataclasses.replace(chunks, tokens=dataclasses.replace(chunks.tokens, layout=layout))

    def _cut(self, tokens: Ragged) -> Chunks:
        device = next(self.inner.parameters()).device
        special = self.before + self.behind
        own = np.maximum(np.diff(tokens.offsets) - special, 0)  # (B,)
        counts = np.maximum(-(-own // (self.max_tokens - special)), 1)
        if not len(counts) or counts.max() == 1:
            return Chunks(Ragged(tokens.ids, tokens.offsets))
        offsets = offsets_of(counts)
        text = np.repeat(np.arange(len(own)), counts)  # (chunks,)
        number = np.arange(len(text)) - offsets[text]
        first = number * own[text] // counts[text]
        sizes = (number + 1) * own[text] // counts[text] - first
        ends = offsets_of(sizes + special)
        places = self._places(tokens.offsets, text, first, sizes, ends)
        here = isinstance(tokens.ids, Tensor)
        ids = tokens.ids[to_device(places, device)] if here else tokens.ids[places]
        # Exactly 1 for a text of one chunk, so that its vector stays what it is.
        weights = np.where(counts[text] == 1, 1.0, sizes / np.maximum(own[text], 1))
        return Chunks(
            Ragged(ids, ends),
            to_device(text, device),
            to_device(offsets.astype(np.int32), device),
            to_device(weights, device),
        )

    def _places(
        self,
        offsets: NDArray[np.int64],
        text: NDArray[np.int64],
        first: NDArray[np.int64],
        sizes: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return where each token of the chunks is among the texts' tokens."""
        lengths = np.diff(ends)

        def each(of_chunk: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.repeat(of_chunk, lengths)

        column = np.arange(ends[-1]) - each(ends[:-1])  # place in the chunk
        place = each(offsets[text]) + column
        place += np.where(column >= self.before, each(first), 0)
        last = each(offsets[text + 1] - lengths) + column
        behind = column >= self.before + each(sizes)
        return np.where(behind, last, place)

    def row_parameters(self) -> list[nn.Parameter]:
        """Return the inner encoder's."""
        found: list[nn.Parameter] = self.inner.row_parameters()  # type: ignore[operator]
        return found

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the inner encoder."""
        return {
            "inner": self.inner.kind,
            "options": self.inner.save(folder),  # type: ignore[operator]
            "max_tokens": self.max_tokens,
            "before": self.before,
            "behind": self.behind,
        }

    @classmethod
    def load(cls, folder: Path, options: dict[str, Any]) -> Self:
        """Read what ``save`` wrote."""
        from umpteen.model import ENCODERS

        own = dict(options)
        kind = resolve_saved(ENCODERS, own.pop("inner"), kind="encoder", source=folder)
        return cls(kind.load(folder, own.pop("options")), **own)
