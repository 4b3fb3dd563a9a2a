"""A cross-encoder: a transformer that reads text and label as one sequence, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from umpteen.compute.precision import autocast, choose_precision, full_precision
from umpteen.data.tokens import encode, prepare
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, read_json, write_json
from umpteen.model.encoder import to_device
from umpteen.model.pretrained import load_network, load_tokenizer
from umpteen.model.transformer import TransformerEncoder
from umpteen.ranking.lexical.matrices import places_of_rows
from umpteen.types import Ragged

TEXT_TOKENS, LABEL_TOKENS = 128, 48
"""Tokens of a text and of a label that are read, at most."""
TOKENS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Tokens of a pass without gradients, which bounds its memory."""
SCORE = "score.safetensors"


class PairEncoder(nn.Module):
    """A transformer over the tokens of a text followed by those of a label, and a score of both.

    Args:
        encoder: The network, packed where its architecture allows it.
        tokenizer: Its tokenizer.
        text_tokens: Tokens of a text that are read.
        label_tokens: Tokens of a label that are read.
    """

    def __init__(
        self,
        encoder: TransformerEncoder,
        tokenizer: Any,
        *,
        text_tokens: int = TEXT_TOKENS,
        label_tokens: int = LABEL_TOKENS,
    ) -> None:
        super().__init__()
        positions = encoder.max_positions or text_tokens + label_tokens
        label_tokens = min(label_tokens, positions // 4)
        text_tokens = min(text_tokens, positions - label_tokens)
        self.encoder = encoder
        self.score = nn.Linear(encoder.dim, 1)
        self.text_tokens, self.label_tokens = text_tokens, label_tokens
        self.text_tokenizer = prepare(tokenizer, text_tokens)
        self.label_tokenizer = prepare(tokenizer, label_tokens)
        # The label goes on after the text's last special token: its own first one is left out.
        self.skipped = 1 if self.label_tokenizer.num_special_tokens_to_add(False) > 1 else 0

    @classmethod
    def pretrained(cls, name: str, *, text_tokens: int = TEXT_TOKENS) -> Self:
        """Load a Hugging Face folder or hub name; the score of a pair is that of its mean vector.

        Raises:
            ConfigError: If it cannot be had.
        """
        return cls(
            TransformerEncoder(load_network(name)), load_tokenizer(name), text_tokens=text_tokens
        )

    def texts(self, texts: Sequence[str]) -> Ragged:
        """Tokenize texts."""
        return encode(list(texts), self.text_tokenizer, max_tokens=self.text_tokens)

    def labels(self, texts: Sequence[str]) -> Ragged:
        """Tokenize labels."""
        return encode(list(texts), self.label_tokenizer, max_tokens=self.label_tokens)

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

    def forward(self, tokens: Ragged) -> Tensor:
        """(P,) scores of joined pairs, float32."""
        vectors = self.encoder(tokens)
        with full_precision(vectors):
            return self.score(vectors).squeeze(1)

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
        order = np.argsort(lengths, kind="stable")
        device = self.score.weight.device
        passes = np.cumsum(lengths[order]) // TOKENS_AT_ONCE.get(device.type, 1 << 16)
        made = torch.empty(len(order), device=device)
        with autocast(choose_precision("auto", device), device):
            for some in np.split(order, np.flatnonzero(np.diff(passes)) + 1):
                if len(some):
                    tokens = self.pairs(texts, labels, text_rows[some], label_rows[some])
                    made[to_device(some, device)] = self(tokens)
        return made

    def save(self, folder: Path) -> None:
        """Write network and tokenizer into an existing folder."""
        options = self.encoder.save(folder)
        options |= {"text_tokens": self.text_tokens, "label_tokens": self.label_tokens}
        write_json(folder / "pair_encoder.json", options)
        save_file({n: t.contiguous() for n, t in self.score.state_dict().items()}, folder / SCORE)
        self.text_tokenizer.save(str(folder / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            RunError: If a file is missing or damaged.
        """
        from tokenizers import Tokenizer

        options = read_json(folder / "pair_encoder.json", error=RunError)
        try:
            sizes = {name: int(options.pop(name)) for name in ("text_tokens", "label_tokens")}
            encoder = TransformerEncoder.load(folder, options)
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            made = cls(encoder, tokenizer, **sizes)
            made.score.load_state_dict(load_file(folder / SCORE))
            return made.eval()
        except (*LOAD_ERRORS, Exception) as error:  # the tokenizers library raises nothing narrower
            raise RunError(f"{folder} is damaged: {error}; run `umpteen rerank` again") from error


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
