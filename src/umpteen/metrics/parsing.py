"""From ``"PSP@5"`` to a metric, with all misspellings in one message. No arithmetic here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

from umpteen.errors import ConfigError
from umpteen.metrics import METRICS
from umpteen.metrics.base import Metric
from umpteen.registry import resolve, suggest

DEFAULT_METRICS = (
    *(f"{name}@{k}" for name in ("P", "nDCG", "PSP", "PSnDCG") for k in (1, 3, 5)),
    *("R@10", "R@100", "C@5", "MacroF1@5", "MRR", "RP@5"),
)
"""Reported by default."""

_SPELLED_OUT = {
    "precision": "P",
    "recall": "R",
    "coverage": "C",
    "r-precision": "RP",
    **dict.fromkeys(("micro-f1", "micro_f1", "f1_micro", "f1-micro"), "MicroF1"),
    **dict.fromkeys(("macro-f1", "macro_f1", "f1_macro", "f1-macro"), "MacroF1"),
    **dict.fromkeys(("sample-f1", "samples-f1", "f1_samples", "samplef1", "f-score"), "F1"),
}
_PATTERN = re.compile(r"(?P<name>.+?)(?:@(?P<k>[0-9]+))?")


def parse(text: str) -> Metric:
    """Return the metric that a text such as ``"PSP@5"`` or ``"MRR"`` names.

    ``"package.module:Class@5"`` names a metric of your own.

    Args:
        text: A name of ``METRICS``, with ``@k`` where the metric has one.

    Returns:
        The metric.

    Raises:
        ConfigError: If the name is unknown, or a k is missing, not allowed or below 1.

    Example:
        >>> str(parse("PSP@5"))
        'PSP@5'
    """
    text = text.strip()
    match = _PATTERN.fullmatch(text)
    if match is None or (match["name"] not in METRICS and ":" not in match["name"]):
        known = ", ".join(METRICS)
        raise ConfigError(
            f"metric {text!r} is not known. Known, followed by @k: {known}.{_nearest(text)}"
        )
    metric = resolve(METRICS, match["name"], kind="metric")
    k = inspect.signature(metric).parameters.get("k")
    if match["k"] is None:
        if k is not None and k.default is inspect.Parameter.empty:
            raise ConfigError(f"metric {text!r} needs a k, for example {text}@5")
        return metric()
    if k is None:
        raise ConfigError(f"metric {text!r} takes no k; write {match['name']!r}")
    return metric(k=int(match["k"]))


def parse_all(texts: Sequence[str]) -> list[Metric]:
    """Return all metrics named, in order.

    Args:
        texts: What ``parse`` takes.

    Returns:
        The metrics.

    Raises:
        ConfigError: With a sentence for every text that names none, not only the first.
    """
    metrics, problems = [], []
    for text in texts:
        try:
            metrics.append(parse(text))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problems))
    return metrics


def _nearest(text: str) -> str:
    spellings = {known.lower(): known for known in METRICS} | _SPELLED_OUT
    if text.lower() in spellings:  # a name may end in a digit
        return f" Did you mean '{spellings[text.lower()]}'?"
    name, k = re.fullmatch(r"(.*?)[@ ]*([0-9]*)", text).groups()  # type: ignore[union-attr]
    near = spellings.get(name.lower())
    if near is None:
        return suggest(name, METRICS)
    return f" Did you mean '{near}{'@' + k if k else ''}'?"
