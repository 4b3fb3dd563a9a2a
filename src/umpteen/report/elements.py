"""HTML and SVG elements for the report, built on ``markupsafe``. No knowledge of runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from markupsafe import Markup

from umpteen.display import escape

_VOID = {"meta", "br"}

Child = str | int | float | None


def tag(name: str, *children: Child, **attributes: Any) -> Markup:
    """Build an element.

    Args:
        name: Of the element.
        *children: Markup as it is, other values escaped; None is left out.
        **attributes: ``class_`` is written ``class`` and ``stroke_width`` ``stroke-width``; True
            gives a bare attribute, None leaves it out.

    Example:
        >>> str(tag("p", "a < b", class_="note"))
        '<p class="note">a &lt; b</p>'
    """
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(key if value is True else f'{key}="{escape(value)}"')
    opening = f"<{' '.join(written)}>"
    return Markup(opening if name in _VOID else f"{opening}{join(children)}</{name}>")


def join(children: Iterable[Child]) -> Markup:
    """Concatenate pieces; what is not markup is escaped."""
    return Markup("").join(escape(child) for child in children if child is not None)


def user_text(text: str, *, longest: int = 300) -> Markup:
    """Show a text of the user: shortened, with its writing direction isolated."""
    words = " ".join(text.split())
    shown = words if len(words) <= longest else words[: longest - 1].rstrip() + "…"
    return tag("bdi", shown)


def table(
    headers: Sequence[Child], rows: Iterable[Sequence[Child]], *, caption: str, words: int = 1
) -> Markup:
    """Build a table in a box that scrolls.

    Args:
        headers: Of the columns.
        rows: Cells; the first of each row is its heading.
        caption: What the table shows.
        words: How many columns from the left hold words; the others are aligned as numbers.
    """

    def side(place: int) -> str | None:
        return None if place < words else "number"

    head = [tag("th", text, scope="col", class_=side(at)) for at, text in enumerate(headers)]
    body = []
    for row in rows:
        cells = [tag("td", cell, class_=side(at)) for at, cell in enumerate(row)]
        cells[0] = tag("th", row[0], scope="row")
        body.append(tag("tr", *cells))
    whole = tag("table", tag("thead", tag("tr", *head)), tag("tbody", *body))
    # Reachable by keyboard, so that it can be scrolled without a mouse; the caption stays put.
    box = tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption)
    return tag("figure", tag("figcaption", caption, class_="caption"), box)
