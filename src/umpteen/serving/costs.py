"""What a request costs, in units of one short text with few labels; and the limit on it."""

from __future__ import annotations

from collections.abc import Sequence

from umpteen.serving.errors import Refused

LABELS_PER_UNIT = 250
"""As many returned labels cost as much as encoding and ranking a short text."""
EXPLAINED_TEXT, EXPLAINED_LABELS_PER_UNIT = 0.5, 160
"""The same for explanations, which are made for each label."""
CHARACTERS_PER_UNIT = 2000


def cost_of(characters: int, k: int, *, explain: bool) -> float:
    """Return the cost of one text.

    Args:
        characters: Its length.
        k: Labels to return.
        explain: Whether contributions and similar examples are returned too.

    Example:
        >>> cost_of(100, 5, explain=False)
        1.07
        >>> cost_of(100, 1000, explain=True)
        11.8
    """
    cost = 1.0 + k / LABELS_PER_UNIT + characters / CHARACTERS_PER_UNIT
    if explain:
        cost += EXPLAINED_TEXT + k / EXPLAINED_LABELS_PER_UNIT
    return cost


def check_cost(texts: Sequence[str], k: int, *, explain: bool, limit: float) -> float:
    """Return the cost of a request.

    Raises:
        Refused: If it is above the limit.
    """
    cost = sum(cost_of(len(text), k, explain=explain) for text in texts)
    if cost > limit:
        n, explained = len(texts), " with explanations" if explain else ""
        what = "1 text" if n == 1 else f"{n} texts"
        less = f"about {int(n * limit / cost)} texts, or " if n * limit > cost else ""
        raise Refused(
            413,
            f"{what} with k {k}{explained} cost {cost:.1f} units, at most {limit:g} are accepted "
            f"(see limits in /v1/info); send {less}a smaller k",
        )
    return cost
