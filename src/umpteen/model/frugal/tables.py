"""Where a frugal encoder's tokens come from: a packaged static table, or the data itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file
from torch import Tensor

from umpteen.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDLLAMA_WEIGHTS = "weights/l2_supercat_256.safetensors"
WORDLLAMA_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"


def static_table_available() -> bool:
    """Whether the packaged static table is installed."""
    return importlib.util.find_spec("wordllama") is not None


def load_static_table() -> tuple[Tokenizer, Tensor]:
    """The packaged table of static token vectors (wordllama, MIT): tokenizer and (V, 256) float32.

    Only the package's two data files are read; its code is not imported.

    Raises:
        MissingExtra: If the package is not installed.
        ConfigError: If the installed version does not carry the files.
    """
    from tokenizers import Tokenizer

    spec = importlib.util.find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise MissingExtra(
            "the static token table needs wordllama; install it with: pip install 'umpteen[static]'"
            ", or train token vectors from nothing with --set encoder.table=random"
        )
    folder = Path(spec.origin).parent
    weights, tokenizer_file = folder / WORDLLAMA_WEIGHTS, folder / WORDLLAMA_TOKENIZER
    if not weights.is_file() or not tokenizer_file.is_file():
        raise ConfigError(
            f"the installed wordllama carries no {WORDLLAMA_WEIGHTS}; use --set encoder.table=random"
        )
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    # The leading <s> is the same for every text and says nothing in a bag.
    tokenizer.post_processor = _no_special_tokens()
    return tokenizer, load_file(weights)["embedding.weight"].float()


def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> Tokenizer:
    """A WordPiece tokenizer learned from the data's own texts; deterministic.

    Args:
        texts: Query and label texts.
        vocabulary: At most this many tokens.

    Returns:
        A lower-casing tokenizer with ``[PAD]`` (0) and ``[UNK]`` (1).
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=64))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=["[PAD]", "[UNK]"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def random_table(n_tokens: int, dim: int, *, generator: torch.Generator) -> Tensor:
    """Token vectors from a normal distribution with unit expected length: (V, D)."""
    return torch.randn(n_tokens, dim, generator=generator) * dim**-0.5


def _no_special_tokens() -> object:
    from tokenizers.processors import TemplateProcessing

    return TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])
