"""Where a frugal encoder's tokens come from: a packaged static table, or the data itself."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor

from umpteen.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from tokenizers import Tokenizer

WORDLLAMA_WEIGHTS = "weights/l2_supercat_256.safetensors"
WORDLLAMA_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
MAX_CHARACTERS = 1000
"""Rarer characters have no token of their own in a learned tokenizer."""


def static_table_available() -> bool:
    """Return whether the packaged static table is installed."""
    return importlib.util.find_spec("wordllama") is not None


def load_static_table() -> tuple[Tokenizer, Tensor]:
    """Return the packaged table of static token vectors (wordllama, MIT).

    Tokenizer and (V, 256) float32.

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
            f"the installed wordllama carries no {WORDLLAMA_WEIGHTS}; "
            "use --set encoder.table=random"
        )
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    # The leading <s> is the same for every text and says nothing in a bag.
    tokenizer.post_processor = no_special_tokens()
    return tokenizer, load_file(weights)["embedding.weight"].float()


def static_word_vectors(words: Sequence[str]) -> NDArray[np.float32]:
    """Return the mean static vectors of words' tokens, (V, 256).

    Raises:
        MissingExtra: If the package is not installed.
    """
    tokenizer, table = load_static_table()
    found = [encoding.ids for encoding in tokenizer.encode_batch(list(words))]
    lengths = torch.tensor([len(ids) for ids in found])
    flat = torch.tensor([token for ids in found for token in ids], dtype=torch.int64)
    offsets = torch.cumsum(lengths, 0) - lengths
    means: NDArray[np.float32] = torch.nn.functional.embedding_bag(
        flat, table, offsets, mode="mean"
    ).numpy()
    return means


def train_tokenizer(texts: Iterable[str], *, vocabulary: int) -> Tokenizer:
    """Return a WordPiece tokenizer learned from the data's own texts.

    The same texts give the same one.

    Returns:
        A lower-casing tokenizer with ``[PAD]`` (0) and ``[UNK]`` (1).
    """
    from tokenizers import trainers

    texts = list(texts)
    learner = _word_pieces({"[PAD]": 0, "[UNK]": 1})
    characters = _frequent_characters(texts, learner.normalizer)
    # The trainer numbers the pieces within words in the order of a randomly seeded hash map, and
    # breaks ties between merges by number. Named beforehand, they have the same numbers each time.
    pieces = ["[PAD]", "[UNK]", *(f"##{character}" for character in characters)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocabulary,
        min_frequency=2,
        special_tokens=pieces,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    # A tokenizer of its own, in which the pieces are ordinary tokens and not special ones.
    tokenizer = _word_pieces(learner.get_vocab())
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    return tokenizer


def random_table(n_tokens: int, dim: int, *, generator: torch.Generator) -> Tensor:
    """Return token vectors from a normal distribution with unit expected length: (V, D)."""
    return torch.randn(n_tokens, dim, generator=generator) * dim**-0.5


def no_special_tokens() -> Any:
    """Return a last step of a tokenizer that adds nothing to a text."""
    from tokenizers.processors import TemplateProcessing

    return TemplateProcessing(single="$A", pair="$A $B", special_tokens=[])


def _word_pieces(vocabulary: dict[str, int]) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(
        models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=64)
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _frequent_characters(texts: Sequence[str], normalizer: Any) -> list[str]:
    """Return the most frequent characters after normalizing, ties by character.

    In character order.
    """
    counts: Counter[str] = Counter()
    for start in range(0, len(texts), 1024):
        counts.update(normalizer.normalize_str(" ".join(texts[start : start + 1024])))
    kept = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    return sorted(kept[:MAX_CHARACTERS])
