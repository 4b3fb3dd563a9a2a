"""What the transformers of a re-ranker have in common: tokens in, a score for each pair out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, device, nn

from umpteen.data.tokens import encode, prepare
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, read_json, write_json
from umpteen.model.pretrained import load_network, load_tokenizer
from umpteen.model.transformer import TransformerEncoder
from umpteen.types import Ragged

TEXT_TOKENS, LABEL_TOKENS = 128, 48
"""Tokens of a text and of a label that are read, at most."""
TOKENS_AT_ONCE = {"cpu": 1 << 14, "cuda": 1 << 18}
"""Tokens of a pass without gradients, which bounds its memory."""
SCORE = "score.safetensors"
OPTIONS = "pair_encoder.json"


class PairScorer(nn.Module, ABC):
    """A transformer and a head that score pairs of a text and a label.

    Args:
        encoder: The network, packed where its architecture allows it.
        tokenizer: Its tokenizer.
        text_tokens: Tokens of a text that are read.
        label_tokens: Tokens of a label that are read.
    """

    score: nn.Module
    """All parameters besides those of the network."""

    def __init__(
        self,
        encoder: TransformerEncoder,
        tokenizer: Any,
        *,
        text_tokens: int = TEXT_TOKENS,
        label_tokens: int = LABEL_TOKENS,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.n_text_tokens, self.n_label_tokens = text_tokens, label_tokens
        self.text_tokenizer = prepare(tokenizer, text_tokens)
        self.label_tokenizer = prepare(tokenizer, label_tokens)

    @classmethod
    def pretrained(cls, name: str, *, text_tokens: int = TEXT_TOKENS) -> Self:
        """Load a Hugging Face folder or hub name; the head is new.

        Raises:
            ConfigError: If it cannot be had.
        """
        return cls(
            TransformerEncoder(load_network(name)), load_tokenizer(name), text_tokens=text_tokens
        )

    @property
    def device(self) -> device:
        """Where the parameters are."""
        return next(self.score.parameters()).device

    def text_tokens(self, texts: Sequence[str]) -> Ragged:
        """Tokenize texts."""
        return encode(list(texts), self.text_tokenizer, max_tokens=self.n_text_tokens)

    def label_tokens(self, texts: Sequence[str]) -> Ragged:
        """Tokenize labels."""
        return encode(list(texts), self.label_tokenizer, max_tokens=self.n_label_tokens)

    @abstractmethod
    def label_inputs(self, texts: Sequence[str]) -> Any:
        """Return what ``scores`` reads of labels."""

    @abstractmethod
    def joined(self, first: Any, second: Any) -> Any:
        """Return the inputs of two lists of labels as those of one."""

    @abstractmethod
    def batch(
        self,
        texts: Ragged,
        labels: Ragged,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Any:
        """Arrange the tokens of P pairs for ``forward``."""

    @abstractmethod
    def forward(self, batch: Any) -> Tensor:
        """(P,) scores of the pairs of a batch, float32."""

    @abstractmethod
    def scores(
        self,
        texts: Ragged,
        labels: Any,
        text_rows: NDArray[np.int64],
        label_rows: NDArray[np.int64],
    ) -> Tensor:
        """(P,) scores of pairs without gradients, in passes of bounded memory.

        Args:
            texts: Tokens of texts.
            labels: From ``label_inputs``.
            text_rows: (P,) the text of each pair.
            label_rows: (P,) the label of each pair.
        """

    def save(self, folder: Path) -> None:
        """Write network and tokenizer into an existing folder."""
        options = self.encoder.save(folder)
        options |= {"text_tokens": self.n_text_tokens, "label_tokens": self.n_label_tokens}
        write_json(folder / OPTIONS, options)
        save_file({n: t.contiguous() for n, t in self.score.state_dict().items()}, folder / SCORE)
        self.text_tokenizer.save(str(folder / "tokenizer.json"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what ``save`` wrote.

        Raises:
            RunError: If a file is missing or damaged.
        """
        from tokenizers import Tokenizer

        options = read_json(folder / OPTIONS, error=RunError)
        try:
            sizes = {name: int(options.pop(name)) for name in ("text_tokens", "label_tokens")}
            encoder = TransformerEncoder.load(folder, options)
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            made = cls(encoder, tokenizer, **sizes)
            made.score.load_state_dict(load_file(folder / SCORE))
            return made.eval()
        except (*LOAD_ERRORS, Exception) as error:  # the tokenizers library raises nothing narrower
            raise RunError(f"{folder} is damaged: {error}; run `umpteen rerank` again") from error


def joined_tokens(first: Ragged, second: Ragged) -> Ragged:
    """Return the tokens of two lists of texts as those of one."""
    offsets = np.concatenate([first.offsets, first.offsets[-1] + second.offsets[1:]])
    return Ragged(np.concatenate([first.ids, second.ids]), offsets)


def passes(lengths: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
    """Split rows of these lengths into passes of about so many tokens, by length."""
    order = np.argsort(lengths, kind="stable")
    cuts = np.cumsum(lengths[order]) // tokens
    return [some for some in np.split(order, np.flatnonzero(np.diff(cuts)) + 1) if len(some)]
