"""Top-k against truth becomes numbers: the table of metrics."""

from __future__ import annotations

from umpteen.registry import Registry

METRICS = Registry(
    "umpteen.metrics",
    {
        "C": "umpteen.metrics.coverage:Coverage",
        "F1": "umpteen.metrics.f1:SampleF1",
        "MRR": "umpteen.metrics.reciprocal_rank:ReciprocalRank",
        "MacroF1": "umpteen.metrics.f1:MacroF1",
        "MicroF1": "umpteen.metrics.f1:MicroF1",
        "P": "umpteen.metrics.precision:Precision",
        "PSP": "umpteen.metrics.propensity:PropensityPrecision",
        "PSnDCG": "umpteen.metrics.propensity:PropensityNDCG",
        "R": "umpteen.metrics.recall:Recall",
        "RP": "umpteen.metrics.recall:RPrecision",
        "nDCG": "umpteen.metrics.ndcg:NDCG",
    },
)
"""What a metric is called in front of ``@k``, and where it lives."""

# After the table, which the parser reads.
from umpteen.metrics.base import Hits, Metric, PerQuery, measures_sets  # noqa: E402
from umpteen.metrics.parsing import DEFAULT_METRICS, parse, parse_all  # noqa: E402

__all__ = [
    "DEFAULT_METRICS",
    "METRICS",
    "Hits",
    "Metric",
    "PerQuery",
    "measures_sets",
    "parse",
    "parse_all",
]
