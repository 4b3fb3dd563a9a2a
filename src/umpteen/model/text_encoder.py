"""From texts to search vectors: tokenize and encode."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from umpteen.data.text_truncation import cut_length
from umpteen.data.tokens import TokenStore, encode, prepare
from umpteen.model.model import Model
from umpteen.model.storage import TextConfig
from umpteen.model.vectors import encode_texts, query_search_vectors
from umpteen.types import Ragged


class TextEncoder:
    """A model with its tokenizer."""

    def __init__(
        self, model: Model, tokenizer: Any, text_config: TextConfig, *, owned: bool = False
    ) -> None:
        self.model = model
        self.text_config = text_config
        self.tokenizer = prepare(tokenizer, text_config.max_tokens, owned=owned)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    @functools.cached_property
    def _cut_length(self) -> int | None:
        """What is tokenized of a long text; kept, because it takes a tenth of a second."""
        return cut_length(self.tokenizer)

    def vectors(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode texts: (N, heads * dim) float32 on the model's device."""
        ragged = self._tokens(texts)
        if len(ragged) == 1:
            # Sorting by length and splitting into chunks would take longer than encoding.
            with torch.no_grad():
                return self.model.query_vectors(ragged).float()
        return self.token_vectors(TokenStore(ragged.ids, ragged.offsets))

    def encoded(self, texts: Sequence[str]) -> torch.Tensor:
        """Encode texts without the heads: (N, encoder.dim) float32 on the model's device."""
        tokens = self.tokens(texts)
        return encode_texts(self.model, tokens, lambda encoded: encoded, precision="fp32")

    def tokens(self, texts: Sequence[str]) -> TokenStore:
        """Tokenize texts for ``token_vectors``."""
        ragged = self._tokens(texts)
        return TokenStore(ragged.ids, ragged.offsets)

    def _tokens(self, texts: Sequence[str]) -> Ragged:
        return encode(
            texts,
            self.tokenizer,
            max_tokens=self.text_config.max_tokens,
            find_length=lambda: self._cut_length,
        )

    def token_vectors(self, tokens: TokenStore, *, precision: str = "fp32") -> torch.Tensor:
        """Encode tokenized texts: (N, heads * dim) float32."""
        return query_search_vectors(self.model, tokens, precision=precision)
