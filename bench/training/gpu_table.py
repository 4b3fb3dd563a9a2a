"""The table of ``training gpu``: its rows, floors and aims, and two results side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.common import tables

TARGETS = {  # floor and aim in ms, aim in GiB
    "search": (10, 35, None),
    "bce": (4, 9, 2.6),
    "softmax": (4, 12, 5),
    "dexml": (680, 1500, 16),
    "step": (16, 35, 10),
    "refresh": (8000, 60_000, None),
    "epoch": (None, 100_000, None),
}


@dataclass
class Row:
    """One line of the table; what is not known is None."""

    name: str
    work: str
    ms: float
    gib: float | None = None
    wall_ms: float | None = None
    plain_ms: float | None = None
    plain_gib: float | None = None
    plan_ms: float | None = None
    plan_gib: float | None = None


COLUMNS = ("work", "ms", "wall", "plain", "GiB", "plain GiB", "floor", "of it", "aim", "plan ms",
           "plan GiB")  # fmt: skip
HEADER = tables.header(COLUMNS)


def number(value: float | None, unit: str = "") -> str:
    """A few digits, or a dash."""
    if value is None or math.isnan(value):
        return "-"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}") + unit


def beside(prediction: float | None, measured: float | None) -> str:
    """A prediction, and by how much it is off."""
    if prediction is None or measured is None or math.isnan(measured) or not measured:
        return number(prediction)
    return f"{number(prediction)} ({prediction / measured - 1:+.0%})"


def line(row: Row, *, whole: bool) -> str:
    """A row of the table; floors and aims only where sizes are whole."""
    floor, aim_ms, aim_gib = TARGETS[row.name] if whole else (None, None, None)
    aim = number(aim_ms) + (f", {aim_gib} GiB" if aim_gib else "")
    cells = (row.work, number(row.ms), number(row.wall_ms), number(row.plain_ms), number(row.gib),
             number(row.plain_gib), number(floor), f"{floor / row.ms:.0%}" if floor else "-", aim,
             beside(row.plan_ms, row.ms), beside(row.plan_gib, row.gib))  # fmt: skip
    return tables.line(cells)


def compare(new: dict[str, Any], old: dict[str, Any]) -> Iterator[str]:
    """Each row's time and memory over those of the older results."""
    before = {row["name"]: row for row in old["rows"]}
    yield f"{new['commit'][:12]} over {old['commit'][:12]}"
    for what in ("machine", "torch", "scale"):
        if new.get(what) != old.get(what):
            yield f"not alike: {what} {new.get(what)} over {old.get(what)}"
    for row in new["rows"]:
        if row["name"] in before:
            ratios = [
                number(row[key] / before[row["name"]][key])
                if row[key] and before[row["name"]][key]
                else "-"
                for key in ("ms", "gib", "plain_ms")
            ]
            yield f"| {row['name']} | time {ratios[0]} | memory {ratios[1]} | plain {ratios[2]} |"
