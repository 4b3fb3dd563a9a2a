"""Markdown pieces of the reference: wrapped text, and docstrings turned into Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

WIDTH = 100
SECTIONS = ("Args", "Returns", "Yields", "Raises", "Example")


def wrap(text: str, *, indent: str = "", first: str | None = None) -> str:
    """Wrap one paragraph at 100 columns.

    Args:
        text: The paragraph.
        indent: Before every line.
        first: Before the first line, where it differs.
    """
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def item(text: str) -> str:
    """Return a list item."""
    return wrap(text, indent="  ", first="- ")


def plain(text: str) -> str:
    """Turn double back-quotes of docstrings into single ones."""
    return text.replace("``", "`")


def paragraphs(text: str) -> list[str]:
    """Split a text at empty lines and wrap each part; lists and indented blocks stay."""
    parts = re.split(r"\n\s*\n", textwrap.dedent(text).strip("\n"))
    return [_paragraph(part) for part in parts if part.strip()]


def docstring(value: Any) -> list[str]:
    """Turn a Google docstring into Markdown blocks."""
    text = plain(inspect.getdoc(value) or "")
    pieces = re.split(rf"^({'|'.join(SECTIONS)}):\n", text, flags=re.M)
    blocks = paragraphs(pieces[0])
    for name, body in zip(pieces[1::2], pieces[2::2], strict=True):
        body, rest = _indented(body)
        if name == "Example":
            blocks.append(f"```pycon\n{body.strip()}\n```")
        elif name in ("Returns", "Yields"):
            blocks.append(wrap(f"**{name}** {body}"))
        else:
            blocks.append(f"**{name}**\n\n{_definitions(body)}")
        blocks += paragraphs(rest)
    return blocks


def _indented(body: str) -> tuple[str, str]:
    """Split a section from what follows it without indentation."""
    lines = body.splitlines()
    stop = next(
        (i for i, line in enumerate(lines) if line and not line.startswith(" ")), len(lines)
    )
    return textwrap.dedent("\n".join(lines[:stop])).strip("\n"), "\n".join(lines[stop:])


def _definitions(body: str) -> str:
    """Turn ``name: text`` lines, continued by indented ones, into a list."""
    entries = re.split(r"\n(?=\S)", body)
    lines = []
    for entry in entries:
        name, _, text = entry.partition(":")
        lines.append(item(f"`{name.strip()}`: {text}"))
    return "\n".join(lines)


def _paragraph(part: str) -> str:
    if part.lstrip().startswith(">>>"):
        return f"```pycon\n{textwrap.dedent(part).strip()}\n```"
    if re.match(r"\s*[-*] ", part):
        return "\n".join(item(entry) for entry in re.split(r"^\s*[-*] ", part, flags=re.M)[1:])
    return wrap(part)
