"""Late interaction over static token vectors: each token finds its most similar one in the other.

The vectors are those that the run's encoder starts from: the table of a frugal encoder, or the word
embeddings of a transformer. They are part of the model and not stored again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.data.tokens import encode, prepare
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS
from umpteen.model.text_encoder import TextEncoder
from umpteen.sorted_unique import sorted_unique

TOKEN_FEATURES = 4
TEXT_TOKENS, LABEL_TOKENS = 64, 24
"""Tokens that are compared, the first ones."""
TEXTS_AT_ONCE = {"cpu": 16, "cuda": 256}
"""Texts of a block, whose different tokens are compared in one product."""
EXACT = 0.999
"""Cosine from which on two tokens count as the same."""


@dataclass(frozen=True)
class TokenMatch:
    """A table of token vectors, and the tokens of all labels."""

    tokenizer: Any
    table: Tensor
    """(V, D) token vectors, on their device."""
    lengths: Tensor
    """(V,) of these vectors, at least a tiny number."""
    label_tokens: NDArray[np.int32]
    """(L, LABEL_TOKENS) token ids, -1 for none."""
    idf: Tensor
    """(V,) ln((1 + labels) / (1 + labels with the token))."""

    @classmethod
    def of(cls, encoder: TextEncoder, label_texts: Sequence[str]) -> TokenMatch:
        """Build it for a model from the texts of all labels."""
        table, tokenizer = token_table(encoder), prepare(encoder.tokenizer, TEXT_TOKENS)
        tokens = padded_tokens(label_texts, tokenizer, LABEL_TOKENS)
        return cls.restored(encoder, tokens, label_idf(tokens, len(table)), tokenizer)

    @classmethod
    def restored(
        cls,
        encoder: TextEncoder,
        label_tokens: NDArray[np.int32],
        idf: NDArray[np.float32],
        tokenizer: Any = None,
    ) -> TokenMatch:
        """Build it from tokens and idf of another one."""
        table = token_table(encoder)
        tokenizer = tokenizer or prepare(encoder.tokenizer, TEXT_TOKENS)
        lengths = torch.linalg.vector_norm(table.float(), dim=1).clamp_min(1e-6)
        weights = torch.from_numpy(np.array(idf)).to(table.device)
        return cls(tokenizer, table, lengths, label_tokens, weights)

    def __len__(self) -> int:
        return len(self.label_tokens)

    def extended(self, label_texts: Sequence[str]) -> TokenMatch:
        """Return it with more labels at the end; token frequencies stay as they are."""
        if not label_texts:
            return self
        more = padded_tokens(label_texts, self.tokenizer, LABEL_TOKENS)
        return replace(self, label_tokens=np.concatenate([self.label_tokens, more]))

    @torch.no_grad()
    def features(self, texts: Sequence[str], rows: NDArray[np.int64]) -> Tensor:
        """Compare texts with labels.

        Args:
            texts: B texts.
            rows: (B, n) label rows, -1 for none.

        Returns:
            (B, n, TOKEN_FEATURES) on the table's device; 0 for none. The mean, weighted by idf, of
            each label token's largest cosine with a token of the text; the same the other way
            round; and for both the share of tokens that are in the other text.
        """
        device = self.table.device
        tokens = padded_tokens(texts, self.tokenizer, TEXT_TOKENS)
        width = max(1, int((tokens >= 0).sum(axis=1).max(initial=1)))
        own = torch.from_numpy(tokens[:, :width].astype(np.int64)).to(device)
        labels = self.label_tokens[np.maximum(rows, 0)]
        longest = max(1, int((labels >= 0).sum(axis=2).max(initial=1)))
        others = torch.from_numpy(labels[:, :, :longest].astype(np.int64)).to(device)
        step = TEXTS_AT_ONCE.get(device.type, 256)
        parts = [
            self._compare(own[start : start + step], others[start : start + step])
            for start in range(0, len(own), step)
        ]
        empty = torch.zeros(0, rows.shape[1], TOKEN_FEATURES, device=device)
        made = torch.cat(parts) if parts else empty
        return torch.where(torch.from_numpy(rows >= 0).to(device)[:, :, None], made, 0.0)

    def _compare(self, own: Tensor, others: Tensor) -> Tensor:
        """(b, T) tokens with (b, n, S) tokens of labels, (b, n, TOKEN_FEATURES)."""
        ours, at_ours = own.unique(return_inverse=True)
        theirs, at_theirs = others.unique(return_inverse=True)
        table = self._vectors(ours) @ self._vectors(theirs).T
        table = table.masked_fill((ours < 0)[:, None] | (theirs < 0), -1.0)
        places = at_ours[:, :, None, None] * len(theirs) + at_theirs[:, None, :, :]
        cosines = table.reshape(-1)[places]  # (b, T, n, S)
        of_label, of_text = cosines.amax(dim=1), cosines.amax(dim=3).transpose(1, 2)
        label_weights = self._weights(others)
        text_weights = self._weights(own)[:, None, :].expand_as(of_text)
        return torch.stack(
            [
                _mean(of_label, label_weights),
                _mean(of_text, text_weights),
                _mean((of_label > EXACT).float(), label_weights),
                _mean((of_text > EXACT).float(), text_weights),
            ],
            dim=2,
        )

    def _vectors(self, tokens: Tensor) -> Tensor:
        known = tokens.clamp_min(0)
        return self.table[known].float() / self.lengths[known][:, None]

    def _weights(self, tokens: Tensor) -> Tensor:
        return torch.where(tokens >= 0, self.idf[tokens.clamp_min(0)], 0.0)

    def save(self, folder: Path) -> None:
        """Write into an existing folder; the table is that of the model."""
        np.save(folder / "label_tokens.npy", self.label_tokens, allow_pickle=False)
        np.save(folder / "token_idf.npy", self.idf.cpu().numpy(), allow_pickle=False)

    @classmethod
    def load(cls, folder: Path, encoder: TextEncoder, n_labels: int) -> TokenMatch:
        """Read what ``save`` wrote.

        Raises:
            RunError: If a file is missing or damaged.
        """
        try:
            tokens = np.load(folder / "label_tokens.npy", allow_pickle=False)
            idf = np.load(folder / "token_idf.npy", allow_pickle=False)
            size = len(token_table(encoder))
            sound = tokens.shape == (n_labels, LABEL_TOKENS) and idf.shape == (size,)
            if not sound or tokens.max(initial=-1) >= size or not np.isfinite(idf).all():
                raise ValueError("tokens and model do not belong together")
            return cls.restored(encoder, tokens.astype(np.int32), idf.astype(np.float32))
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; run `umpteen rerank` again") from error


def token_table(encoder: TextEncoder) -> Tensor:
    """Return the (V, D) token vectors that an encoder starts from."""
    own: Any = encoder.model.encoder
    table = getattr(own, "table", None)
    if table is None:
        table = own.network.get_input_embeddings().weight
    return table.detach()


def padded_tokens(texts: Sequence[str], tokenizer: Any, width: int) -> NDArray[np.int32]:
    """Return the first tokens of each text, (B, width), -1 for none."""
    made = np.full((len(texts), width), -1, np.int32)
    if not len(texts):
        return made
    ragged = encode(list(texts), tokenizer, max_tokens=TEXT_TOKENS)
    lengths = np.diff(ragged.offsets)
    owners = np.repeat(np.arange(len(texts)), lengths)
    places = np.arange(len(owners)) - np.repeat(ragged.offsets[:-1], lengths)
    kept = places < width
    made[owners[kept], places[kept]] = np.asarray(ragged.ids)[kept]
    return made


def label_idf(tokens: NDArray[np.int32], n_tokens: int) -> NDArray[np.float32]:
    """Return (V,) the logarithm of how rare each token is among labels."""
    n, width = tokens.shape
    owners = np.repeat(np.arange(n, dtype=np.int64), width)
    known = tokens.ravel() >= 0
    keys = sorted_unique(owners[known] * n_tokens + tokens.ravel()[known])
    counts = np.bincount(keys % n_tokens, minlength=n_tokens)
    return np.log((1 + n) / (1 + counts)).astype(np.float32)


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Average the last dimension with weights; 0 where all weights are 0."""
    return (values * weights).sum(dim=2) / weights.sum(dim=2).clamp_min(1e-9)
