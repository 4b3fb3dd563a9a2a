"""The section on the ensemble: what each combination of parts comes to, and their shares."""

from __future__ import annotations

from umpteen.answers.choosing import METRICS
from umpteen.answers.recipe import Recipe, Way
from umpteen.report.markup import Markup, table, tag

PART_TITLES = {
    "dual": "dual encoder",
    "classifier": "classifier",
    "votes": "near queries",
    "lexical": "exact words",
    "frequency": "label frequency",
}


def ensemble(recipe: Recipe) -> Markup:
    """Metrics of every way to answer that was fitted, and the shares of the parts in the first."""
    default = recipe.ways[0]
    rows = [
        [
            _named(way) + (" (in use)" if way is default else ""),
            *(f"{way.validation[name]:.2f}" for name in METRICS),
            f"{way.validation['ECE']:.2f}",
            f"{way.validation['micro-F1']:.2f}",
            f"{way.tilt:g}",
        ]
        for way in recipe.ways
    ]
    shares = [[PART_TITLES.get(part, part), f"{s:.1f}"] for part, s in default.shares.items()]
    return tag(
        "section",
        tag("h2", "The ensemble"),
        tag(
            "p",
            f"Fitted on {recipe.fitted_on}; each query is judged by a model that was fitted on the "
            f"others. What is in use was chosen by {recipe.rule}.",
        ),
        tag(
            "div",
            table(
                ["parts", *METRICS, "calibration error", "micro-F1", "tilt"],
                rows,
                caption="In percent, on held-out queries",
            ),
            table(
                ["part", "share"],
                shares,
                caption="Share of what sets the best candidate apart, in percent",
            ),
            class_="charts",
        ),
        id="ensemble",
    )


def _named(way: Way) -> str:
    return ", ".join(PART_TITLES.get(part, part) for part in way.parts)
