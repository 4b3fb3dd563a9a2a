"""Line and bar charts as inline SVG. Colours live in the style sheet; no run is known here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from umpteen.report.elements import join, tag

LARGE, SMALL = (520, 280), (350, 210)
"""Width and height; type is drawn at the same size in both, so choose by the room there is."""
WIDE_BAR = 30.0
"""From this width on, a bar has room for a value with a decimal."""
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 14, 42
MAX_MARKED = 40
"""A line with more points than this is drawn without a sign at each."""


@dataclass(frozen=True)
class Line:
    """One line of a chart: its name, its points and the class its look comes from."""

    name: str
    look: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True)
class Band:
    """A range around a line: the lowest and highest value at each x."""

    xs: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def round_ticks(low: float, high: float, about: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers that cover a range.

    Args:
        low: The least value to cover.
        high: The largest.
        about: How many steps to aim for.
        whole: Whether only whole numbers will do.

    Returns:
        Rising, evenly spaced; the first is at or below low, the last at or above high.

    Example:
        >>> round_ticks(0, 47)
        [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]
    """
    largest = max(1.0, abs(low), abs(high))
    if high - low < 1e-6 * largest:
        low, high = low - 0.5 * largest, low + 0.5 * largest  # a flat line goes in the middle
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(place * step, 10) for place in range(first, last + 1)]


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_title: str,
    band: Band | None = None,
    mark: tuple[float, str] | None = None,
    size: tuple[int, int] = LARGE,
) -> Markup:
    """Draw lines over a common x.

    Args:
        title: Read out in place of the picture, and shown under the pointer.
        lines: At least one point in all.
        x_title: What x is; whole numbers.
        band: Drawn behind the lines.
        mark: A place on x and what is there.
        size: ``LARGE`` or ``SMALL``.

    Returns:
        An ``svg`` element.
    """
    all_x = [x for line in lines for x in line.xs]
    all_y = [y for line in lines for y in line.ys]
    if band is not None:
        all_y += [*band.low, *band.high]
    y_ticks = round_ticks(min(all_y), max(all_y))
    x_ticks = round_ticks(min(all_x), max(all_x), 6, whole=True)
    frame = _Frame(*size, min(all_x), max(all_x), y_ticks[0], y_ticks[-1])
    x_ticks = [t for t in x_ticks if frame.x_low <= t <= frame.x_high]
    parts = [_y_axis(frame, y_ticks), _x_axis(frame, x_ticks, x_title)]
    if band is not None:
        edge = [*zip(band.xs, band.high, strict=True)]
        edge += [*zip(band.xs, band.low, strict=True)][::-1]
        points = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in edge)
        parts.append(tag("polygon", points=points, class_="band"))
    if mark is not None:
        parts.append(_mark(frame, *mark))
    parts += [_line(frame, line) for line in lines]
    return _svg(title, frame, parts)


def bar_chart(
    title: str, groups: Sequence[str], bars: Sequence[tuple[str, str, Sequence[float]]]
) -> Markup:
    """Draw groups of bars from zero, the value written over each.

    So colour is not needed to read it.

    Returns:
        An ``svg`` element.
    """
    ticks = round_ticks(0.0, max(value for _, _, values in bars for value in values) or 1.0)
    frame = _Frame(*LARGE, 0.0, float(len(groups)), 0.0, ticks[-1])
    parts = [_y_axis(frame, ticks)]
    slot = frame.x(1.0) - frame.x(0.0)
    width = min(34.0, slot * 0.9 / len(bars))
    for at, group in enumerate(groups):
        middle = frame.x(at + 0.5)
        for place, (name, look, values) in enumerate(bars):
            left = middle + (place - len(bars) / 2) * width
            top = frame.y(values[at])
            parts.append(
                tag(
                    "rect",
                    tag("title", f"{name}, {group}: {values[at]:.2f}"),
                    x=f"{left + 1:.1f}",
                    y=f"{top:.1f}",
                    width=f"{width - 2:.1f}",
                    height=f"{frame.y(0.0) - top:.1f}",
                    rx=2,
                    class_=f"bar {look}",
                )
            )
            # Narrow bars have room for whole numbers only.
            value = f"{values[at]:.{int(width >= WIDE_BAR)}f}"
            parts.append(_text(value, left + width / 2, top - 4, look="value", anchor="middle"))
        parts.append(_text(group, middle, frame.foot + 18, anchor="middle"))
    return _svg(title, frame, parts)


def key(look: str) -> Markup:
    """Return a piece of line with its sign, for a legend."""
    middle = [_sign(look, 17.0, 6.0)]
    stroke = tag("path", d="M1 6H33", class_=f"line {look}")
    return tag("svg", stroke, *middle, viewBox="0 0 34 12", width=34, height=12, aria_hidden="true")


@dataclass(frozen=True)
class _Frame:
    width: int
    height: int
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        if self.x_high <= self.x_low:
            return self.middle
        share = (value - self.x_low) / (self.x_high - self.x_low)
        return LEFT + share * (self.right - LEFT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / (self.y_high - self.y_low)
        return self.foot - share * (self.foot - TOP)

    @property
    def right(self) -> int:
        return self.width - RIGHT

    @property
    def foot(self) -> int:
        return self.height - BOTTOM

    @property
    def middle(self) -> float:
        return (LEFT + self.right) / 2


def _svg(title: str, frame: _Frame, parts: Sequence[Markup]) -> Markup:
    box = f"0 0 {frame.width} {frame.height}"
    return tag("svg", tag("title", title), *parts, viewBox=box, role="img", class_="chart")


def _text(
    text: str, x: float, y: float, *, look: str = "tick", anchor: str | None = None
) -> Markup:
    return tag("text", text, x=f"{x:.1f}", y=f"{y:.1f}", class_=look, text_anchor=anchor)


def _y_axis(frame: _Frame, ticks: Sequence[float]) -> Markup:
    parts = []
    for tick in ticks:
        y = frame.y(tick)
        parts.append(tag("path", d=f"M{LEFT} {y:.1f}H{frame.right}", class_="grid"))
        parts.append(_text(f"{tick:g}", LEFT - 7, y + 4, anchor="end"))
    return join(parts)


def _x_axis(frame: _Frame, ticks: Sequence[float], title: str) -> Markup:
    foot = frame.foot
    parts = [tag("path", d=f"M{LEFT} {foot}H{frame.right}", class_="axis")]
    for tick in ticks:
        parts.append(tag("path", d=f"M{frame.x(tick):.1f} {foot}v5", class_="axis"))
        parts.append(_text(f"{tick:,.0f}", frame.x(tick), foot + 18, anchor="middle"))
    parts.append(_text(title, frame.middle, frame.height - 6, anchor="middle"))
    return join(parts)


def _mark(frame: _Frame, at: float, text: str) -> Markup:
    x = frame.x(at)
    anchor = "end" if x > frame.middle else "start"
    return join(
        [
            tag("path", d=f"M{x:.1f} {TOP}V{frame.foot}", class_="mark"),
            _text(text, x - 5 if anchor == "end" else x + 5, frame.foot - 7, anchor=anchor),
        ]
    )


def _line(frame: _Frame, line: Line) -> Markup:
    places = [(frame.x(x), frame.y(y)) for x, y in zip(line.xs, line.ys, strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    parts = [tag("path", d=path, class_=f"line {line.look}")]
    if len(places) <= MAX_MARKED:
        for (x, y), at, value in zip(places, line.xs, line.ys, strict=True):
            parts.append(_sign(line.look, x, y, f"{line.name}, {at:g}: {value:.2f}"))
    return join(parts)


def _sign(look: str, x: float, y: float, title: str | None = None) -> Markup:
    """Return a shape for each head: circle, square, diamond, triangle; a small dot for all else."""
    shapes = {
        "dual": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
        "classifier": "m-3.6-3.6h7.2v7.2h-7.2z",
        "combined": "m0-5l5 5l-5 5l-5-5z",
        "ensemble": "m0-4.5l4.5 8h-9z",
    }
    shape = shapes.get(look, "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0-4 0")
    return tag(
        "path",
        tag("title", title) if title else None,
        d=f"M{x:.1f} {y:.1f}{shape}",
        class_=f"sign {look}",
    )
