"""Cut long texts before they are tokenized, where that cannot change the tokens that are kept.

A text is cut between a letter or digit and a blank. That is exact where no token spans such a
place: the pre-tokenizer splits there, or the vocabulary of a BPE model without one has no piece
with a blank behind another character. Tokenizers of other kinds read whole texts.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARACTERS_PER_TOKEN = 8
MIN_CHARACTERS = 512
SPACE = "\u2581"
"""Stands for a blank in the pieces of SentencePiece."""
_WORD_END = re.compile(r"[^\W_] ")
_SPLITS = {"BertPreTokenizer", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit"}
_HARMLESS = {"Digits", "Punctuation", "UnicodeScripts"}
_LOCAL = {"BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled",
          "Prepend", "Strip", "StripAccents", "ByteLevel"}  # fmt: skip
# The patterns of GPT-2 and its relatives end with this alternative for blanks.
_GPT = r"\s+(?!\S)"


def cut_length(tokenizer: Tokenizer) -> int | None:
    """Return how many characters of a text are tokenized first; None if texts must be whole."""
    truncation = tokenizer.truncation
    if truncation is None or truncation.get("direction", "right").lower() != "right":
        return None
    if not can_cut(json.loads(tokenizer.to_str())):
        return None
    return max(MIN_CHARACTERS, CHARACTERS_PER_TOKEN * int(truncation["max_length"]))


def beginning(text: str, length: int) -> str | None:
    """Return the first words of a text; None if it is short, or has no place to cut.

    Example:
        >>> beginning("one two three four", 5), beginning("one two", 5)
        ('one two', None)
    """
    if len(text) < 2 * length:
        return None
    found = _WORD_END.search(text, length - 1, 2 * length)
    return None if found is None else text[: found.start() + 1]


def can_cut(parts: dict[str, Any]) -> bool:
    """Return whether tokens never span the end of a word, of a tokenizer in JSON form."""
    if any(re.search(r"\s", token["content"]) for token in parts.get("added_tokens") or ()):
        return False
    model = parts["model"]
    if model.get("dropout"):
        return False
    if not all(map(_is_local, _flat(parts.get("normalizer"), "normalizers"))):
        return False
    steps = _flat(parts.get("pre_tokenizer"), "pretokenizers")
    if not steps:
        return _splits_itself(parts, model)
    known = all(_divides(step) or _is_harmless(step) for step in steps)
    return known and any(map(_divides, steps))


def _flat(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [step for each in part[inner] for step in _flat(each, inner)]


def _is_local(normalizer: dict[str, Any]) -> bool:
    """Return whether a normalizer changes no more than characters and runs of blanks."""
    if normalizer["type"] in _LOCAL:
        return True
    if normalizer["type"] != "Replace":
        return False
    pattern = normalizer["pattern"]
    text = pattern.get("String")
    if text is not None:
        return not text.strip() or not re.search(r"\s", text)
    return pattern.get("Regex") in (" {2,}", r"\s+", r"\s{2,}", " +")


def _divides(step: dict[str, Any]) -> bool:
    """Return whether a pre-tokenizer splits between a word and a blank."""
    kind = step["type"]
    if kind == "CharDelimiterSplit":
        return bool(step.get("delimiter") == " ")
    if kind == "Metaspace":
        return bool(step.get("split", True))
    if kind == "ByteLevel":
        return bool(step.get("use_regex", True))
    if kind == "Split":
        return _GPT in str(step.get("pattern", {}).get("Regex", ""))
    return kind in _SPLITS


def _is_harmless(step: dict[str, Any]) -> bool:
    return step["type"] in _HARMLESS or step["type"] == "ByteLevel"


def _splits_itself(parts: dict[str, Any], model: dict[str, Any]) -> bool:
    """Return whether a BPE model never merges the end of a word with a blank."""
    replaced = any(
        step["type"] == "Replace"
        and step["pattern"].get("String") == " "
        and step["content"] == SPACE
        for step in _flat(parts.get("normalizer"), "normalizers")
    )
    if model["type"] != "BPE" or not replaced or SPACE not in model["vocab"]:
        return False
    return not any(SPACE in piece.lstrip(SPACE) for piece in model["vocab"])
