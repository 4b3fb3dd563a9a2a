"""A cross-encoder: a transformer that reads text and label as one sequence, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from umpteen.compute.precision import autocast, choose_precision, full_precision
from umpteen.model.encoder import to_device
from umpteen.model.transformer import TransformerEncoder
from umpteen.ranking.lexical.matrices import places_of_rows
from umpteen.ranking.reranking.pair_scorer import (
    LABEL_TOKENS,
    TEXT_TOKENS,
    TOKENS_AT_ONCE,
    PairScorer,
    joined_tokens,
    passes,
)
from umpteen.types import Ragged


class PairEncoder(PairScorer):
    """A transformer over the tokens of a text followed by those of a label; scores their mean.

    Args:
        encoder: The network, packed where its architecture allows it.
        tokenizer: Its tokenizer.
        text_tokens: Tokens of a text that are read.
        label_tokens: Tokens of a label that are read.
    """

    score: nn.Linear

    def __init__(
        self,
        encoder: TransformerEncoder,
        tokenizer: Any,
        *,
        text_tokens: int = TEXT_TOKENS,
        label_tokens: int = LABEL_TOKENS,
    ) -> None:
        positions = encoder.max_positions or text_tokens + label_tokens
        label_tokens = min(label_tokens, positions // 4)
        text_tokens = min(text_tokens, positions - label_tokens)
        super().__init__(encoder, tokenizer, text_tokens=text_tokens, label_tokens=label_tokens)
        self.score = nn.Linear(encoder.dim, 1)
        # The label goes on after the text's last special token: its own first one is left out.
        self.skipped = 1 if self.label_tokenizer.num_special_tokens_to_add(False) > 1 else 0

    def label_inputs(self, texts: Sequence[str]) -> Ragged:
        """Tokenize labels for ``scores``."""
        return self.label_tokens(texts)

    def joined(self, first: Ragged, second: Ragged) -> Ragged:
        """Return the inputs of two lists of labels as those of one."""
        return joined_tokens(first, second)

    def pairs(
        self,
        texts: Ragged,
        labels: Ragged,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Ragged:
        """Join the tokens of P pairs of a text and a label."""
        starts = labels.offsets[:-1] + self.skipped
        return join_pairs(texts, labels, text_rows, label_rows, starts)

    def batch(
        self,
        texts: Ragged,
        labels: Ragged,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Ragged:
        """Join the tokens of P pairs and lay them out on the network's device."""
        tokens = self.pairs(texts, labels, text_rows, label_rows)
        return replace(tokens, layout=self.encoder.layout(tokens))

    def forward(self, batch: Ragged) -> Tensor:
        """(P,) scores of joined pairs, float32."""
        vectors = self.encoder(batch)
        with full_precision(vectors):
            made: Tensor = self.score(vectors).squeeze(1)
        return made

    @torch.no_grad()
    def scores(
        self,
        texts: Ragged,
        labels: Ragged,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Tensor:
        """(P,) scores of pairs, in passes of similar length."""
        lengths = np.diff(texts.offsets)[text_rows] + np.diff(labels.offsets)[label_rows]
        where = self.device
        made = torch.empty(len(lengths), device=where)
        with autocast(choose_precision("auto", where), where):
            for some in passes(lengths, TOKENS_AT_ONCE.get(where.type, 1 << 16)):
                tokens = self.pairs(texts, labels, text_rows[some], label_rows[some])
                made[to_device(some, where)] = self(tokens)
        return made


def join_pairs(
    texts: Ragged,
    labels: Ragged,
    text_rows: NDArray[np.int64],
    label_rows: NDArray[np.int64],
    label_starts: NDArray[np.int64],
) -> Ragged:
    """Put the tokens of labels behind those of texts.

    Args:
        texts: Ragged tokens.
        labels: Ragged tokens.
        text_rows: (P,) the text of each pair.
        label_rows: (P,) the label of each pair.
        label_starts: (L,) where the tokens of each label begin that are used.
    """
    of_texts, text_lengths = places_of_rows(texts.offsets, text_rows)
    starts, ends = label_starts[label_rows], labels.offsets[label_rows + 1]
    label_lengths = np.maximum(0, ends - starts)
    shifts = np.repeat(starts - (np.cumsum(label_lengths) - label_lengths), label_lengths)
    of_labels = np.arange(len(shifts)) + shifts
    offsets = np.concatenate([[0], np.cumsum(text_lengths + label_lengths)])
    ids = np.empty(offsets[-1], np.int32)
    inner = np.arange(len(of_texts)) - np.repeat(
        np.cumsum(text_lengths) - text_lengths, text_lengths
    )
    ids[np.repeat(offsets[:-1], text_lengths) + inner] = np.asarray(texts.ids)[of_texts]
    inner = np.arange(len(of_labels)) - np.repeat(
        np.cumsum(label_lengths) - label_lengths, label_lengths
    )
    ids[np.repeat(offsets[:-1] + text_lengths, label_lengths) + inner] = np.asarray(labels.ids)[
        of_labels
    ]
    return Ragged(ids, offsets.astype(np.int64))
