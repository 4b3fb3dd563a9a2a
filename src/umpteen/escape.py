"""Text for terminals: characters that a terminal acts on are written as escapes."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from typing import Any

_ACTED_ON = {"Cc", "Cf", "Cs", "Zl", "Zp"}
# What JSON leaves as it is: C1 controls, marks of direction, line separators, lone surrogates.
_RAW_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Escape characters that a terminal acts on: control and format characters, line breaks.

    Args:
        text: Any text, such as a label's.
        keep: Characters to leave as they are.

    Example:
        >>> escape_controls("a\x1b[31m\nb\u202e")
        'a\\x1b[31m\\nb\\u202e'
    """
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if unicodedata.category(c) in _ACTED_ON and c not in keep
        else c
        for c in text
    )


def to_json_text(
    value: Any, *, indent: int | None = None, default: Callable[[Any], Any] | None = None
) -> str:
    r"""Return JSON that is read as the same value, without characters a terminal acts on.

    Example:
        >>> to_json_text("é\x9b31m\x1b")
        '"é\\u009b31m\\u001b"'
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    return _RAW_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
