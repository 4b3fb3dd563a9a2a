"""Accuracy against cost of the choices a user has: a table, and a plot for the guide.

    python -m bench ensemble choice bench/results/rerank [--metric P@1] [--out choice.svg]

Reads what ``training rerank --out FOLDER`` kept, whichever seeds and data sets there are; nothing
is measured. A row for each choice: token vectors on a CPU, the same re-ranked by features, a
transformer on a GPU, the same re-ranked by a cross-encoder. Means over seeds, of test. The cost is
milliseconds of a text in a batch of 512 on the machine of the row, the least over seeds, since
others may share the machine; training time has the stage in it, and is a mean of what was measured.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from bench.common.results import load
from bench.common.tables import print_rows

CHOICES = {
    ("features", "ensemble"): "token vectors",
    ("features", "features"): "token vectors, re-ranked",
    ("cross-encoder", "ensemble"): "transformer",
    ("cross-encoder", "cross-encoder"): "transformer, re-ranked",
}
"""Kind of the run's stage and what ranked the texts, to what a user chooses."""
SHOWN = ("P@1", "P@5", "PSP@1", "PSP@5", "ms a text")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="with the JSON files of `training rerank`")
    parser.add_argument("--metric", default="P@1", choices=SHOWN[:-1], help="of the plot")
    parser.add_argument("--out", type=Path, help="write the plot here, as SVG")


def main(given: argparse.Namespace) -> None:
    rows = table([load(file) for file in sorted(given.folder.glob("*.json"))])
    print_rows(rows)
    if given.out:
        given.out.write_text(plot(rows, given.metric) + "\n", "utf-8")


def table(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each data set and choice, with means over seeds."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        for row in run["rows"]:
            name = CHOICES.get((run["spec"]["kind"], row["ranked by"]))
            if name and row["texts"] == "test":
                stage = 0.0 if row["ranked by"] == "ensemble" else run["rerank_s"]
                own = {**row, "training s": run["train_s"] + stage, "machine": run["machine"]}
                data = run["data"].removesuffix("-titles")
                found.setdefault((data, name), []).append(own)
    places = list(CHOICES.values())
    return [
        {
            "data": data,
            "choice": name,
            "seeds": len(own),
            **{metric: float(np.mean([row[metric] for row in own])) for metric in SHOWN[:-1]},
            "ms a text": min(row["ms a text"] for row in own),
            "training s": round(float(np.mean([row["training s"] for row in own]))),
            "machine": own[0]["machine"],
        }
        for (data, name), own in sorted(
            found.items(), key=lambda item: (item[0][0], places.index(item[0][1]))
        )
    ]


def plot(rows: list[dict[str, Any]], metric: str) -> str:
    """Without and with the stage: a line for each data set and machine."""
    from umpteen.report.charts import Line, line_chart
    from umpteen.study.drawing import stand_alone

    lines: list[Line] = []
    for data, machine in dict.fromkeys((row["data"], row["machine"]) for row in rows):
        some = [row for row in rows if (row["data"], row["machine"]) == (data, machine)]
        own = sorted((1000 * row["ms a text"], row[metric]) for row in some)
        name = f"{data}, {some[0]['choice']}, {machine}"
        lines.append(Line(name, f"s{len(lines)}", *map(list, zip(*own, strict=True))))
    title = f"{metric} of test without and with re-ranking"
    chart = line_chart(title, lines, x_title="cost of a text, microseconds")
    return stand_alone(title, chart, [line.name for line in lines])
