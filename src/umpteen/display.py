"""Short text and HTML tables for notebooks. No knowledge of runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import markupsafe
from markupsafe import Markup

# Not allowed in HTML even when escaped: control characters and halves of surrogate pairs.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Cell = str | int | float | None


def shorten(text: object, longest: int = 60) -> str:
    """Return a text on one line, cut with an ellipsis.

    Example:
        >>> shorten("one  long text", 9)
        'one long…'
    """
    words = " ".join(str(text)[: 8 * longest].split())
    return words if len(words) <= longest else words[: longest - 1].rstrip() + "…"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    Example:
        >>> counted(1, "label"), counted(1200, "text")
        ('1 label', '1,200 texts')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def html_table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    caption: str = "",
    more: str = "",
    number: str = ".3g",
) -> str:
    """Build an HTML table that a notebook can show.

    Args:
        headers: Of the columns.
        rows: Cells. Texts are escaped and aligned left, numbers right; None is an empty cell.
        caption: Above the table.
        more: Below the table, such as how many rows are left out.
        number: The format of numbers that are not whole.

    Returns:
        The markup.

    Example:
        >>> html_table(["id"], [["<b>"]])
        '<table><thead><tr><th>id</th></tr></thead><tbody><tr><td style="text-align:left">&lt;b&gt;</td></tr></tbody></table>'
    """  # noqa: E501
    head = Markup("").join(Markup("<th>{}</th>").format(escape(text)) for text in headers)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(Markup("").join(_cell(cell, number) for cell in row))
        for row in rows
    )
    above = Markup("<caption>{}</caption>").format(escape(caption)) if caption else Markup("")
    below = Markup("<p>{}</p>").format(escape(more)) if more else Markup("")
    table = Markup("<table>{}<thead><tr>{}</tr></thead><tbody>{}</tbody></table>{}")
    return str(table.format(above, head, body, below))


def _cell(value: Cell, number: str) -> Markup:
    side = "right" if isinstance(value, int | float) else "left"
    text = format(value, number) if isinstance(value, float) else value
    shown = "" if text is None else escape(text)
    return Markup('<td style="text-align:{}">{}</td>').format(side, shown)


def escape(text: object) -> Markup:
    """Escape a text for HTML; characters that HTML cannot hold become U+FFFD.

    Example:
        >>> str(escape("<b> & c"))
        '&lt;b&gt; &amp; c'
    """
    if isinstance(text, Markup):
        return text
    return markupsafe.escape(_FORBIDDEN.sub("\ufffd", str(text)))


def html_progress(share: float, caption: str, lines: Sequence[str]) -> str:
    """Build a progress bar with log lines below it.

    Args:
        share: What is done, 0 to 1.
        caption: Beside the bar; without one there is no bar.
        lines: Below it.

    Returns:
        The markup.

    Example:
        >>> html_progress(0.5, "epoch 1/2", ["a < b"])
        '<div><progress value="0.500" max="1"></progress> epoch 1/2</div><pre>a &lt; b</pre>'
    """
    bar = Markup('<progress value="{}" max="1"></progress>').format(f"{share:.3f}")
    shown = Markup("<div>{} {}</div>").format(bar, escape(caption)) if caption else Markup("")
    return str(shown + Markup("<pre>{}</pre>").format(escape("\n".join(lines))))
