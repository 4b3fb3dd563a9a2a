"""How many tokens a tokenizer puts before and behind a text, and what that leaves for the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umpteen.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PROBES = ("a", "1", ".")


def special_tokens(tokenizer: Tokenizer) -> tuple[int, int]:
    """Return tokens before and behind every text: (1, 1) for BERT, (0, 0) for a bag of tokens."""
    total = int(tokenizer.num_special_tokens_to_add(False))
    if not total:
        return 0, 0
    for probe in PROBES:
        encoding = tokenizer.encode(probe)
        marks = [
            special
            for special, real in zip(
                encoding.special_tokens_mask, encoding.attention_mask, strict=True
            )
            if real  # padding is marked as special, too
        ]
        if 0 in marks:
            return marks.index(0), total - marks.index(0)
    return 1, total - 1


def tokens_in_chunks(tokenizer: Tokenizer, max_tokens: int, chunks: int) -> int:
    """Return tokens that are kept of a text which is read in chunks, its special tokens included.

    Args:
        tokenizer: The encoder's.
        max_tokens: Of a chunk, with the special tokens that each chunk has.
        chunks: At most so many.

    Returns:
        ``max_tokens`` for one chunk.

    Raises:
        ConfigError: If a chunk has no room for a token of the text.
    """
    special = sum(special_tokens(tokenizer))
    if max_tokens <= special:
        raise ConfigError(
            f"max_tokens is {max_tokens}, but the tokenizer adds {special} special tokens to "
            f"each text; give at least {special + 1}"
        )
    return chunks * (max_tokens - special) + special
