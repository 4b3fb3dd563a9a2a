"""Split texts into lower-case words: runs of letters and digits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

TEXTS_AT_ONCE = 8192
END = "\x00"
"""Token that closes each text."""
_TOKEN = re.compile(rf"[^\W_]+|{END}")


def tokenize(texts: Sequence[str]) -> list[str]:
    """Return the words of all texts in one list, each text closed by ``END``."""
    some = [text.replace(END, " ") for text in texts]
    return _TOKEN.findall((END.join(some) + END).lower()) if some else []


def token_blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the tokens of up to ``TEXTS_AT_ONCE`` texts at a time."""
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        yield tokenize(texts[start : start + TEXTS_AT_ONCE])
