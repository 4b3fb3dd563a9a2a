"""Vectors of single tokens, and how those of a text and of a label are compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS
from umpteen.model.encoder import to_device
from umpteen.ranking.lexical.matrices import places_of_rows

NUMBERS_AT_ONCE = 1 << 24
"""Of a block of pairs: gathered vectors and cosines, which bounds its memory."""
FILES = ("token_vectors.npy", "token_weights.npy", "token_offsets.npy")


@dataclass(frozen=True)
class TokenVectors:
    """Normalized vectors and weights of the tokens of B texts, on a device."""

    values: Tensor
    """(N, d)."""
    weights: Tensor
    """(N,) above 0."""
    starts: Tensor
    """(B,) int64, the first token of each text; equal texts may share theirs."""
    lengths: NDArray[np.int64]
    """(B,) tokens of each text."""


@dataclass(frozen=True)
class StoredTokens:
    """The same in half precision on the host, for labels; may be mapped from files."""

    values: NDArray[np.float16]
    """(N, d)."""
    weights: NDArray[np.float32]
    """(N,)."""
    offsets: NDArray[np.int64]
    """(L + 1,)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def select(self, rows: NDArray[np.int64], device: torch.device) -> TokenVectors:
        """Copy the tokens of some labels to a device, in float32."""
        places, lengths = places_of_rows(self.offsets, rows)
        starts = np.cumsum(lengths) - lengths
        return TokenVectors(
            to_device(np.asarray(self.values[places]), device).float(),
            to_device(np.asarray(self.weights[places]), device),
            to_device(starts.astype(np.int64), device),
            lengths.astype(np.int64),
        )

    def joined(self, other: StoredTokens) -> StoredTokens:
        """Return them with further labels at the end."""
        if not len(other):
            return self
        return StoredTokens(
            np.concatenate([self.values, other.values]),
            np.concatenate([self.weights, other.weights]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
        )

    def save(self, folder: Path) -> None:
        """Write into an existing folder."""
        np.save(folder / FILES[0], self.values, allow_pickle=False)
        np.save(folder / FILES[1], self.weights, allow_pickle=False)
        np.save(folder / FILES[2], self.offsets, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, n_labels: int) -> StoredTokens:
        """Map what ``save`` wrote.

        Raises:
            RunError: If a file is missing or damaged.
        """
        try:
            values, weights = (
                np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in FILES[:2]
            )
            offsets = np.load(folder / FILES[2], allow_pickle=False).astype(np.int64)
            fits = offsets.shape == (n_labels + 1,) and offsets[0] == 0
            fits = fits and bool((np.diff(offsets) >= 0).all()) and values.dtype == np.float16
            if not fits or len(values) != offsets[-1] or weights.shape != (len(values),):
                raise ValueError("token vectors and labels do not belong together")
            return cls(values, weights, offsets)
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; run `umpteen rerank` again") from error


def compare(
    texts: TokenVectors,
    labels: TokenVectors,
    text_rows: NDArray[np.int64],
    label_rows: NDArray[np.int64],
) -> Tensor:
    """Compare P pairs token by token.

    Args:
        texts: Tokens of texts.
        labels: Tokens of labels.
        text_rows: (P,) the text of each pair.
        label_rows: (P,) the label of each pair.

    Returns:
        (P, 2): the weighted mean over the label's tokens of each one's largest cosine with a token
        of the text, and the same the other way round; 0 without tokens.
    """
    long = texts.lengths[text_rows] if len(text_rows) else np.zeros(0, np.int64)
    wide = labels.lengths[label_rows] if len(label_rows) else np.zeros(0, np.int64)
    order = np.lexsort((wide, long))
    width = texts.values.shape[1]
    sizes = (long + wide)[order] * width + (long * wide)[order]
    blocks = np.split(order, np.flatnonzero(np.diff(np.cumsum(sizes) // NUMBERS_AT_ONCE)) + 1)
    parts = [_compared(texts, labels, text_rows[b], label_rows[b]) for b in blocks if len(b)]
    if not parts:
        return texts.values.new_zeros(0, 2)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return torch.cat(parts)[to_device(back, texts.values.device)]


def _compared(
    texts: TokenVectors,
    labels: TokenVectors,
    text_rows: NDArray[np.int64],
    label_rows: NDArray[np.int64],
) -> Tensor:
    """(p, 2) of one block; see ``compare``."""
    own, own_weights, own_real = _padded(texts, text_rows)  # (p, T, d), (p, T), (p, T)
    others, other_weights, other_real = _padded(labels, label_rows)  # (p, S, d), ...
    cosines = torch.bmm(own, others.transpose(1, 2))  # (p, T, S)
    real = own_real[:, :, None] & other_real[:, None, :]
    cosines = torch.where(real, cosines, -2.0)
    either = real.flatten(1).any(dim=1)
    of_label = _mean(cosines.amax(dim=1), other_weights, other_real)
    of_text = _mean(cosines.amax(dim=2), own_weights, own_real)
    return torch.where(either[:, None], torch.stack([of_label, of_text], dim=1), 0.0)


def _padded(tokens: TokenVectors, rows: NDArray[np.int64]) -> tuple[Tensor, Tensor, Tensor]:
    """Gather the tokens of some texts as a block; vectors, weights, and which are real."""
    device = tokens.values.device
    longest = max(1, int(tokens.lengths[rows].max(initial=0)))
    lengths = to_device(tokens.lengths[rows], device)
    places = torch.arange(longest, device=device)
    real = places < lengths[:, None]
    starts = tokens.starts[to_device(rows, device)]
    at = torch.where(real, starts[:, None] + places, 0)
    if not len(tokens.values):
        shape = (len(rows), longest, tokens.values.shape[1])
        return tokens.values.new_zeros(shape), tokens.values.new_zeros(shape[:2]), real
    return tokens.values[at], tokens.weights[at], real


def _mean(values: Tensor, weights: Tensor, real: Tensor) -> Tensor:
    """Average the last dimension with weights, over real tokens."""
    weights = torch.where(real, weights, 0.0)
    return (torch.where(real, values, 0.0) * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(
        1e-9
    )
