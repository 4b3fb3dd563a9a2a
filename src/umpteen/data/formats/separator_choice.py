"""Which character separates the labels in the cells of a table, found in the cells themselves.

A cell that begins with ``[`` is a list and separates its labels itself. For the others:

1. With a list of labels, the separator under which most pieces are labels.
2. ``;``, then ``|``, unless fewer than one in twenty of the cells with a separator has it.
3. A comma, if the pieces occur again in other cells, or cells have three and more of them. Names
   such as "Paris, France" stay whole.
4. Otherwise each cell is one label.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from html.entities import html5

SURE = (";", "|")
COMMA = ","
MIN_SHARE = 0.05
TIGHT_REUSE = 0.3
SPACED_REUSE = 0.5
PATTERN_REUSE = 0.85
MANY_PIECES = 3
MANY_SPACED_REUSE = 0.25
_ENTITY = re.compile(r"&(#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]\w{1,30});")
_SPACED = re.compile(r",\s")
NAMES = {";": "';'", "|": "'|'", ",": "commas", "\t": "tabs", " ": "blanks", "\n": "line breaks"}


@dataclass(frozen=True)
class Separator:
    """What separates labels, and what else could."""

    character: str | None
    """None: a cell is one label."""
    ambiguous: bool = False
    """Whether the cells allow another reading."""
    reason: str = ""
    in_lists: bool = False
    """Whether every cell is a list and separates its labels itself."""

    def describe(self) -> str:
        """Return the choice in words.

        Example:
            >>> Separator(",", True, "3 cells, 2 labels").describe()
            'labels separated by commas (3 cells, 2 labels)'
        """
        if self.in_lists:
            return "labels in lists"
        name = NAMES.get(self.character or "", repr(self.character))
        said = f"labels separated by {name}" if self.character else "each cell is one label"
        return f"{said} ({self.reason})" if self.reason else said


def choose_separator(cells: Iterable[str], known: Collection[str] | None = None) -> Separator:
    """Return the separator of a data set's cells; the rule is in the module's text.

    Example:
        >>> choose_separator(["a,b", "b,c", "a,c", "c"]).character
        ','
        >>> choose_separator(["Paris, France", "Lyon, France", "Rome, Italy"]).character is None
        True
    """
    distinct = Counter(cell for cell in map(str.strip, cells) if cell and not cell.startswith("["))
    counts = {mark: _count(distinct, mark) for mark in (*SURE, COMMA)}
    present = [mark for mark, count in counts.items() if count]
    if not present:
        return Separator(None, in_lists=not distinct)
    if known is not None:
        return _by_known(distinct, present, known)
    total = sum(n for cell, n in distinct.items() if any(mark in cell for mark in (*SURE, COMMA)))
    for mark in SURE:
        if counts[mark] and counts[mark] >= MIN_SHARE * total:
            return Separator(mark, len(present) > 1)
    return _judge_commas(distinct)


def pieces(cell: str, separator: str | None) -> list[str]:
    """Return the non-empty pieces of a cell without blanks around them.

    Example:
        >>> pieces(" a &amp; c ;b;", ";"), pieces(" a;b ", None)
        (['a &amp; c', 'b'], ['a;b'])
    """
    if separator is None:
        return [cell.strip()] if cell.strip() else []
    parts = cell.split(separator)
    ends = _entity_ends(cell) if separator == ";" and "&" in cell else set()
    if ends:
        cuts = [place for place, c in enumerate(cell) if c == ";" and place not in ends]
        bounds = zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(cell)], strict=True)
        parts = [cell[start:stop] for start, stop in bounds]
    return [piece for piece in map(str.strip, parts) if piece]


def _entity_ends(cell: str) -> set[int]:
    """Return where entities such as &amp; end; their semicolons separate nothing."""
    return {
        found.end() - 1
        for found in _ENTITY.finditer(cell)
        if found[1].startswith("#") or f"{found[1]};" in html5
    }


def _count(distinct: Counter[str], mark: str) -> int:
    holding = ((cell, count) for cell, count in distinct.items() if mark in cell)
    if mark != ";":
        return sum(count for _, count in holding)
    return sum(count for cell, count in holding if cell.count(mark) > len(_entity_ends(cell)))


def _by_known(distinct: Counter[str], present: list[str], known: Collection[str]) -> Separator:
    def share(mark: str | None) -> float:
        found = [piece for cell in distinct for piece in pieces(cell, mark)]
        return sum(piece in known for piece in found) / max(1, len(found))

    # Of equals the first: whole cells, then the surer marks.
    best = max([None, *present], key=share)
    return Separator(best)


def _judge_commas(distinct: Counter[str]) -> Separator:
    """Decide whether commas separate labels or belong to their names."""
    with_comma = [cell for cell in distinct if COMMA in cell]
    split = {cell: pieces(cell, COMMA) for cell in with_comma}
    # In how many different cells a piece occurs; a whole cell counts as one.
    uses = Counter(cell for cell in distinct if COMMA not in cell)
    for parts in split.values():
        uses.update(set(parts))
    found = [piece for parts in split.values() for piece in parts]
    reused = sum(uses[piece] > 1 for piece in found) / max(1, len(found))
    spaced = any(_SPACED.search(cell) for cell in with_comma)
    numbers = sum(map(_mixes_numbers, split.values())) > len(split) / 2
    # Names with commas have a form: "city, country", "surname, name", "1,2-dichloroethane".
    alike = len({len(parts) for parts in split.values()}) == 1 and len(with_comma) > 2
    needed = SPACED_REUSE if spaced else TIGHT_REUSE
    if numbers or (spaced and alike):
        needed = PATTERN_REUSE
    elif len(found) >= MANY_PIECES * len(split):
        # Lists of keywords are long, and many keywords are there once.
        needed = MANY_SPACED_REUSE if spaced else 0.0
    said = f"{len(distinct):,} different cells, {len(uses):,} different pieces"
    return Separator(COMMA if reused >= needed else None, True, said)


def _mixes_numbers(parts: list[str]) -> bool:
    """Return whether some pieces are numbers and some are not, as in "1,2-dichloroethane"."""
    numbers = sum(part.isdigit() for part in parts)
    return 0 < numbers < len(parts) or any(part.startswith("000") for part in parts)
