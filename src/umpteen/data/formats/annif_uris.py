r"""Label ids as URIs in angle brackets, as Annif's files have them.

Characters that cannot stand in a URI are written as in N-Triples, ``\u0020`` for a space. Any id
can be written and is read again unchanged.
"""

from __future__ import annotations

import re

_FORBIDDEN = re.compile(r"[\x00-\x20<>\"{}|^`\\\x7f-\xa0]|\s|\ufeff")
_ESCAPED = re.compile(r"\\u([0-9A-Fa-f]{4})")


def written_uri(label_id: str) -> str:
    r"""Return an id in angle brackets.

    Example:
        >>> written_uri("http://example.org/a"), written_uri("two words")
        ('<http://example.org/a>', '<two\\u0020words>')
    """
    return f"<{_FORBIDDEN.sub(lambda found: f'{chr(92)}u{ord(found[0]):04x}', label_id)}>"


def clean_uri(written: str) -> str:
    r"""Return the id of a URI with or without angle brackets; empty if there is none.

    Example:
        >>> clean_uri(" <two\\u0020words> "), clean_uri("http://example.org/a")
        ('two words', 'http://example.org/a')
    """
    written = written.strip()
    if written.startswith("<") and written.endswith(">"):
        written = written[1:-1]
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), written)


def split_uris(cell: str) -> list[str]:
    """Return the ids of a cell with URIs separated by blanks; each one once."""
    return list(dict.fromkeys(filter(None, map(clean_uri, cell.split()))))


def looks_like_uris(cell: str) -> bool:
    """Return whether a cell holds nothing but URIs, at least one of them in angle brackets."""
    words = cell.split()
    return any(word.startswith("<") and word.endswith(">") for word in words) and all(
        (word.startswith("<") and word.endswith(">")) or "://" in word for word in words
    )
