"""The section on the ensemble: metrics of every variant, and what each scorer contributes."""

from __future__ import annotations

from markupsafe import Markup

from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.reranking.spec import Reranking
from umpteen.ranking.variants import VARIANT_METRICS, Variant
from umpteen.report.elements import table, tag

SCORER_TITLES = {
    "dual": "dual encoder",
    "classifier": "classifier",
    "knn": "similar examples",
    "lexical": "exact words",
    "backlinks": "links in the other direction",
    "names": "label names",
    "frequency": "label frequency",
    "reranker": "re-ranking",
}
COLUMNS = (*VARIANT_METRICS, "ECE", "micro-F1")


def ensemble(model: EnsembleModel) -> Markup:
    """Show the metrics of all variants and the contributions of the scorers to the default one."""
    default = model.variants[0]
    rows = [
        [
            _named(variant) + (" (in use)" if variant is default else ""),
            *(_number(variant.validation.get(name)) for name in COLUMNS),
            f"{variant.tail_boost:g}",
        ]
        for variant in model.variants
    ]
    contributions = [
        [SCORER_TITLES.get(scorer, scorer), f"{share:.1f}"]
        for scorer, share in default.contributions.items()
    ]
    return tag(
        "section",
        tag("h2", "The ensemble"),
        tag("p", f"Fitted on {model.fitted_on}. Probabilities: {_calibration(default)}."),
        None if default.reranking is None else tag("p", _reranking(default.reranking)),
        table(
            ["scorers", *VARIANT_METRICS, "calibration error", "micro-F1", "tail boost"],
            rows,
            caption="In percent, on validation texts",
        ),
        table(
            ["scorer", "contribution"],
            contributions,
            caption="Share of what separates the best label from the others, in percent",
        ),
        id="ensemble",
    )


def _calibration(variant: Variant) -> str:
    error = variant.validation.get("ECE")
    if error is None:
        return "not measured, because no text was held out"
    return f"off by {error:.2f} points on average"


def _reranking(found: Reranking) -> str:
    gains = ", ".join(f"{name} {value:+.2f}" for name, value in found.gain.items())
    return f"{found.in_words.capitalize()}. Gain on validation, in points: {gains}."


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _named(variant: Variant) -> str:
    return ", ".join(SCORER_TITLES.get(scorer, scorer) for scorer in variant.scorers)
