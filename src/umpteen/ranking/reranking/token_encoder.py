"""Late interaction: a transformer encodes text and label apart, and their tokens are compared.

The vectors of labels are computed once and stored, so that a text costs one pass of the network
however many candidates it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import normalize, softplus

from umpteen.compute.precision import autocast, choose_precision, full_precision
from umpteen.model.encoder import to_device
from umpteen.model.transformer import TransformerEncoder
from umpteen.ranking.lexical.matrices import places_of_rows
from umpteen.ranking.reranking.pair_scorer import (
    LABEL_TOKENS,
    TEXT_TOKENS,
    TOKENS_AT_ONCE,
    PairScorer,
    passes,
)
from umpteen.ranking.reranking.token_vectors import StoredTokens, TokenVectors, compare
from umpteen.types import Ragged

WIDTH = 64
"""Of a token's vector."""
SCALE = 10.0
"""Factor of both means of cosines before training."""


class TokenHead(nn.Module):
    """From the network's tokens to vectors and weights, and from two means to a score."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.project = nn.Linear(dim, WIDTH, bias=False)
        self.weigh = nn.Linear(dim, 1)
        self.join = nn.Linear(2, 1)
        nn.init.zeros_(self.weigh.weight)
        nn.init.zeros_(self.weigh.bias)
        nn.init.constant_(self.join.weight, SCALE)
        nn.init.zeros_(self.join.bias)


@dataclass(frozen=True)
class TokenBatch:
    """Pairs of one step: the tokens of their texts and labels, each once."""

    texts: Ragged
    labels: Ragged
    text_rows: NDArray[np.int64]
    """(P,) into the texts."""
    label_rows: NDArray[np.int64]
    """(P,) into the labels."""


class TokenEncoder(PairScorer):
    """Scores a pair by the cosines of its tokens: each token counts with its nearest one.

    Args:
        encoder: The network.
        tokenizer: Its tokenizer.
        text_tokens: Tokens of a text that are read.
        label_tokens: Tokens of a label that are read.
    """

    score: TokenHead

    def __init__(
        self,
        encoder: TransformerEncoder,
        tokenizer: Any,
        *,
        text_tokens: int = TEXT_TOKENS,
        label_tokens: int = LABEL_TOKENS,
    ) -> None:
        most = encoder.max_positions or max(text_tokens, label_tokens)
        super().__init__(
            encoder,
            tokenizer,
            text_tokens=min(text_tokens, most),
            label_tokens=min(label_tokens, most),
        )
        self.score = TokenHead(encoder.dim)

    def vectors(self, tokens: Ragged) -> TokenVectors:
        """Encode texts or labels."""
        hidden, starts = self.encoder.token_vectors(tokens)
        with full_precision(hidden):
            hidden = hidden.float()
            values = normalize(self.score.project(hidden), dim=1)
            weights = softplus(self.score.weigh(hidden)).squeeze(1)
        return TokenVectors(values, weights, starts, np.diff(tokens.offsets))

    def batch(
        self,
        texts: Ragged,
        labels: Ragged,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> TokenBatch:
        """Take the tokens of the texts and labels of P pairs, each once."""
        own, text_rows = np.unique(text_rows, return_inverse=True)
        others, label_rows = np.unique(label_rows, return_inverse=True)
        parts = [_selected(texts, own), _selected(labels, others)]
        first, second = (replace(part, layout=self.encoder.layout(part)) for part in parts)
        return TokenBatch(first, second, text_rows, label_rows)

    def forward(self, batch: TokenBatch) -> Tensor:
        """(P,) scores of the pairs of a batch, float32."""
        texts, labels = self.vectors(batch.texts), self.vectors(batch.labels)
        return self._joined(texts, labels, batch.text_rows, batch.label_rows)

    def _joined(
        self,
        texts: TokenVectors,
        labels: TokenVectors,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Tensor:
        with full_precision(texts.values):
            both = compare(texts, labels, text_rows, label_rows)
            made: Tensor = self.score.join(both).squeeze(1)
        return made

    @torch.no_grad()
    def label_inputs(self, texts: Sequence[str]) -> StoredTokens:
        """Encode labels for ``scores``."""
        tokens = self.label_tokens(texts)
        lengths = np.diff(tokens.offsets)
        values = np.zeros((len(tokens.ids), WIDTH), np.float16)
        weights = np.zeros(len(tokens.ids), np.float32)
        for rows, made in self._in_passes(tokens):
            places, _ = places_of_rows(tokens.offsets, rows)
            at = _places(made.starts.cpu().numpy(), lengths[rows])
            values[places] = made.values.cpu().numpy()[at]
            weights[places] = made.weights.cpu().numpy()[at]
        return StoredTokens(values, weights, np.asarray(tokens.offsets, np.int64))

    def joined(self, first: StoredTokens, second: StoredTokens) -> StoredTokens:
        """Return the inputs of two lists of labels as those of one."""
        return first.joined(second)

    @torch.no_grad()
    def scores(
        self,
        texts: Ragged,
        labels: StoredTokens,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Tensor:
        """(P,) scores of pairs; each text is encoded once, and vectors of labels are read."""
        own, text_rows = np.unique(text_rows, return_inverse=True)
        made = torch.zeros(len(text_rows), device=self.device)
        chosen = _selected(texts, own)
        for rows, vectors in self._in_passes(chosen):
            place = np.full(len(own), -1)
            place[rows] = np.arange(len(rows))
            pairs = np.flatnonzero(place[text_rows] >= 0)
            others, at = np.unique(label_rows[pairs], return_inverse=True)
            of_labels = labels.select(others, self.device)
            scores = self._joined(vectors, of_labels, place[text_rows[pairs]], at)
            made[to_device(pairs, self.device)] = scores
        return made

    def _in_passes(self, tokens: Ragged) -> Any:
        """Yield rows of texts and their vectors, so many at a time as memory allows."""
        where = self.device
        most = TOKENS_AT_ONCE.get(where.type, 1 << 16)
        with autocast(choose_precision("auto", where), where):
            for rows in passes(np.diff(tokens.offsets), most):
                yield rows, self.vectors(_selected(tokens, rows))


def _selected(tokens: Ragged, rows: NDArray[np.int64]) -> Ragged:
    """Return the tokens of some texts."""
    places, lengths = places_of_rows(tokens.offsets, rows)
    return Ragged(np.asarray(tokens.ids)[places], np.concatenate([[0], np.cumsum(lengths)]))


def _places(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where the tokens of texts are, text after text."""
    shifts = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return np.arange(len(shifts)) + shifts
