"""Tables, verdicts and plots of learning curves of several orders."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from bench.common.curve_peers import PEERS

OWN = ("umpteen", "P@5", "votes alone")
CHANCE = 0.05
"""Of the paired test that calls a mean a loss."""
MIN_ORDERS = 3
"""With fewer orders nothing is decided."""


def by_order(rows: list[dict[str, Any]], data: str) -> dict[int, list[dict[str, Any]]]:
    """Return the curve of each order of one data set, from the first point to the last."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["data"] == data:
            found.setdefault(row["order"], []).append(row)
    return {o: sorted(own, key=_key) for o, own in sorted(found.items())}


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means over orders, in the order of the curve."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["data"], *_key(row)), []).append(row)
    made = []
    for (data, examples, trained), own in sorted(found.items()):
        about = {"data": data, "examples": examples, "trained on": trained, "orders": len(own)}
        shown = {
            name: float(np.mean([row[name] for row in own]))
            for name in (*OWN, *PEERS)
            if all(name in row for row in own)
        }
        made.append({**about, **shown})
    return made


def verdicts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each data set whether P@1 never falls, and stays above each peer.

    ``holds`` where it is so in every order; ``does not hold`` where the mean over orders falls, or
    is below the peer, at some point by a paired test; ``undecided`` otherwise, and with fewer than
    three orders. A point is named ``texts (texts that the run was trained on)``.
    """
    made = []
    for data in dict.fromkeys(row["data"] for row in rows):
        curves = list(by_order(rows, data).values())
        steps = [
            {f"{_place(a)} to {_place(b)}": b["umpteen"] - a["umpteen"] for a, b in pairwise(c)}
            for c in curves
        ]
        made.append({"data": data, "claim": "never falls", **_verdict(steps)})
        for name in PEERS:
            above = [_above(curve, name) for curve in curves]
            if any(above):
                made.append({"data": data, "claim": f"not below {name}", **_verdict(above)})
    return made


def _above(curve: list[dict[str, Any]], peer: str) -> dict[str, float]:
    """Return how far a curve is above a peer at each of its points, before and after training."""
    peers = {row["examples"]: row[peer] for row in curve if peer in row}
    return {
        _place(row): row["umpteen"] - peers[row["examples"]]
        for row in curve
        if row["examples"] in peers
    }


def _verdict(differences: list[dict[str, float]]) -> dict[str, Any]:
    """Count the orders without a difference below 0, and test the mean of each place.

    Args:
        differences: Of each order, by place; 0 or more is as it should be.
    """
    good = sum(min(own.values()) >= 0 for own in differences)
    places = list(dict.fromkeys(place for own in differences for place in own))
    lost = []
    for place in places:
        values = np.array([own[place] for own in differences if place in own])
        if len(values) >= MIN_ORDERS and values.mean() < 0:
            same = np.ptp(values) == 0
            if same or stats.ttest_1samp(values, 0.0).pvalue < CHANCE:
                lost.append(place)
    least, where = min((value, place) for own in differences for place, value in own.items())
    n = len(differences)
    held = good == n >= MIN_ORDERS
    word = "holds" if held else "does not hold" if lost else "undecided"
    return {"orders": f"{good} of {n}", "verdict": word, "least": least, "at": where}


def _key(row: dict[str, Any]) -> tuple[int, int]:
    return row["examples"], row["trained on"]


def _place(row: dict[str, Any]) -> str:
    return f"{row['examples']:,} ({row['trained on']:,})"


def plot(rows: list[dict[str, Any]]) -> str:
    """Draw one data set: a line for umpteen and for each peer, the points evenly spaced."""
    from umpteen.report.charts import Line, line_chart
    from umpteen.study.drawing import stand_alone

    points = sorted({row["examples"] for row in rows})
    lines, names = [], ["umpteen", *PEERS]
    for place, name in enumerate(names):
        # Of two values at a point, before and after training, the later one is drawn.
        own = {row["examples"]: row[name] for row in rows if name in row}
        xs = [float(points.index(point)) for point in own]
        lines.append(Line(name, f"s{place}", xs, list(own.values())))
    title = f"P@1 of {rows[0]['data']} after more and more labelled texts"
    about = ", ".join(f"{point:,}" for point in points)
    return stand_alone(title, line_chart(title, lines, x_title=f"labelled texts: {about}"), names)
