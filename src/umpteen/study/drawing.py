"""A study's plots as SVG files that stand alone. The charts are those of reports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from umpteen.files import atomic_file
from umpteen.metrics.bins import BIN_NAMES
from umpteen.report.charts import LARGE, Line, bar_chart, line_chart
from umpteen.report.elements import tag
from umpteen.study.definition import Study
from umpteen.study.results import Cell

COLOURS = ("#0072b2", "#c75400", "#00835f", "#8250a8", "#6b6b00", "#b0305c", "#444c56", "#5b5fc7")
DASHES = ("none", "7 4", "2 4", "9 3 2 3", "4 2", "1 3", "12 4", "6 2 1 2")
STYLE = "\n".join(
    [
        "text{font:13px system-ui,sans-serif;fill:#565e68}text.value{font-size:11px;fill:#1d2126}",
        "text.title{font-weight:600;fill:#1d2126}.grid{stroke:#dfe2e6;fill:none}",
        ".axis{stroke:#565e68;fill:none}.line{fill:none;stroke-width:2;stroke-linejoin:round}",
        *(
            f".line.s{i}{{stroke:{colour};stroke-dasharray:{dash}}}.sign.s{i},.bar.s{i}{{fill:{colour}}}"
            for i, (colour, dash) in enumerate(zip(COLOURS, DASHES, strict=True))
        ),
    ]
)
TITLE, LEGEND = 26, 18
GROUPS = 5
"""Presets in one bar chart; the names of more would meet."""


def draw_all(study: Study, cells: Sequence[Cell], folder: str | Path) -> list[Path]:
    """Draw what the study asks for under ``[plots]``, or every kind where it asks for nothing."""
    folder = Path(folder)
    wanted = study.plots or {"epochs": {}, "shares": {}, "bins": {}, "coverage": {}}
    written = []
    for kind, options in wanted.items():
        for name, picture in _KINDS[kind](study, cells, options):
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{kind}--{re.sub('[^A-Za-z0-9.@+-]+', '-', name)}.svg"
            with atomic_file(file) as temporary:
                temporary.write_text(picture + "\n", encoding="utf-8")
            written.append(file)
    return written


Pictures = Iterator[tuple[str, str]]
"""Names and whole SVG documents."""


def _epochs(study: Study, cells: Sequence[Cell], options: Mapping[str, Any]) -> Pictures:
    """Return validation metrics over epochs, a line for each switch."""
    against = options.get("against", "epoch")
    for data, preset, group in _groups(cells, options):
        for metric in options.get("metrics", ["P@1", "PSP@5"]):
            lines: list[Line] = []
            for cell in group:
                xs, ys = cell.curve(cell.best, metric, against)
                if xs:
                    lines.append(Line(cell.switch, f"s{len(lines) % len(COLOURS)}", xs, ys))
            if lines:
                title = f"{metric} of validation, {data}, {preset}"
                chart = line_chart(title, lines, x_title=f"{against}s")
                name = f"{data}--{preset}--{metric}"
                yield name, stand_alone(title, chart, [line.name for line in lines])


def _shares(study: Study, cells: Sequence[Cell], options: Mapping[str, Any]) -> Pictures:
    """Return metrics over the share of labels used, a line for each way to choose them."""
    by_name = {switch.name: switch for switch in study.switches}
    for data, preset, group in _groups(cells, options):
        placed = [(by_name[c.switch], c) for c in group if by_name[c.switch].share is not None]
        names = sorted({switch.line for switch, _ in placed if switch.line})
        measured = [metric for metric in ("P@1", "PSP@5") if metric in study.metrics]
        for metric in options.get("metrics", measured):
            lines = []
            for number, name in enumerate(names):
                own = sorted(
                    (float(switch.share or 0.0), float(cell.values(cell.best, metric).mean()))
                    for switch, cell in placed
                    if switch.line in (name, "")
                )
                xs, ys = [x for x, _ in own], [y for _, y in own]
                lines.append(Line(name, f"s{number % len(COLOURS)}", xs, ys))
            if lines:
                title = f"{metric} of test, {data}, {preset}"
                chart = line_chart(title, lines, x_title="labels used, percent")
                yield f"{data}--{preset}--{metric}", stand_alone(title, chart, names)


def _bins(study: Study, cells: Sequence[Cell], options: Mapping[str, Any]) -> Pictures:
    """Return what each frequency bin brings to P@5, a bar for each switch."""
    for data, preset, group in _groups(cells, options):
        bars = [
            (cell.switch, f"s{number % len(COLOURS)}", cell.bins(cell.best).tolist())
            for number, cell in enumerate(group)
        ]
        title = f"P@5 by label frequency, {data}, {preset}"
        chart = bar_chart(title, BIN_NAMES, bars)
        yield f"{data}--{preset}", stand_alone(title, chart, [name for name, _, _ in bars])


def _coverage(study: Study, cells: Sequence[Cell], options: Mapping[str, Any]) -> Pictures:
    """Return C@5 of each preset, a bar for each switch; see ``_bars``."""
    metric = options.get("metric", "C@5")
    if metric not in study.metrics:
        return
    for data in dict.fromkeys(cell.data for cell in cells):
        by_preset: dict[str, dict[str, float]] = {}
        for cell in _chosen(cells, options):
            if cell.data == data:
                value = float(cell.values(cell.best, metric).mean())
                by_preset.setdefault(cell.preset, {})[cell.switch] = value
        presets = list(by_preset)
        for start in range(0, len(presets), GROUPS):
            some = presets[start : start + GROUPS]
            bars, names = _bars([by_preset[preset] for preset in some])
            title = f"{metric} of test, {data}"
            name = data if len(presets) <= GROUPS else f"{data}--{start // GROUPS + 1}"
            yield name, stand_alone(title, bar_chart(title, some, bars), names)


def _bars(groups: Sequence[Mapping[str, float]]) -> tuple[list[Any], list[str]]:
    """Return a bar for each switch that all groups have, with its name.

    Without one, groups that have as many switches as the others are set side by side in their
    order, and else each group's first alone.
    """
    common = [name for name in groups[0] if all(name in group for group in groups)]
    rows = [(name, [group[name] for group in groups]) for name in common]
    if not rows and len({len(group) for group in groups}) == 1:
        rows = [
            (" / ".join(dict.fromkeys(names)), [g[n] for g, n in zip(groups, names, strict=True)])
            for names in zip(*groups, strict=True)
        ]
    if not rows:
        return [("", "s0", [next(iter(group.values())) for group in groups])], []
    bars = [(name, f"s{i % len(COLOURS)}", values) for i, (name, values) in enumerate(rows)]
    # One bar of many names says nothing but the preset.
    return (bars, [name for name, _ in rows]) if common or len(rows) > 1 else (bars, [])


_KINDS = {"epochs": _epochs, "shares": _shares, "bins": _bins, "coverage": _coverage}


def stand_alone(title: str, chart: Markup, names: Sequence[str]) -> str:
    """Return a chart as a whole SVG document with its title, its own colours and a legend below it.

    Returns:
        The document.
    """
    width, height = LARGE
    rows = [
        tag(
            "g",
            tag("path", d="M0 -4H30", class_=f"line s{place % len(COLOURS)}"),
            tag("text", name, x=38, y=0),
            transform=f"translate(46 {TITLE + height + LEGEND * (place + 1)})",
        )
        for place, name in enumerate(names)
    ]
    whole = TITLE + height + LEGEND * len(names) + 12
    inner = tag("svg", chart, x=0, y=TITLE, width=width, height=height)
    return tag(
        "svg",
        tag("style", Markup(STYLE)),
        tag("rect", width=width, height=whole, fill="#ffffff"),
        tag("text", title, x=12, y=18, class_="title"),
        inner,
        *rows,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {whole}",
        width=width,
        height=whole,
    )


def _chosen(cells: Sequence[Cell], options: Mapping[str, Any]) -> list[Cell]:
    wanted = options.get("switches")
    return [cell for cell in cells if not wanted or cell.switch in wanted]


def _groups(
    cells: Sequence[Cell], options: Mapping[str, Any]
) -> Iterator[tuple[str, str, list[Cell]]]:
    """Yield cells of one data set and preset together."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in _chosen(cells, options):
        groups.setdefault((cell.data, cell.preset), []).append(cell)
    for (data, preset), group in groups.items():
        yield data, preset, group
