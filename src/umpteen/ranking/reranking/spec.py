"""What the ensemble stores about its re-ranking stage: kind, weight, gain and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RERANKER = "reranker"
"""Its name among the scorers."""
PAIR_SCORERS = {
    "cross-encoder": "umpteen.ranking.reranking.pair_encoder:PairEncoder",
    "late-interaction": "umpteen.ranking.reranking.token_encoder:TokenEncoder",
}
"""Transformers whose score of a pair is a feature: of text and label in one sequence, or of their
tokens, encoded apart."""
KINDS = ("features", *PAIR_SCORERS)
"""``features`` has no transformer."""


@dataclass(frozen=True)
class Cost:
    """Milliseconds of re-ranking one text, measured text by text."""

    fixed_ms: float
    """Of a text, whatever the number of its candidates."""
    candidate_ms: float
    """Of each candidate."""
    device: str = "cpu"

    def of(self, candidates: int) -> float:
        """Return the milliseconds of a text with so many candidates."""
        return self.fixed_ms + self.candidate_ms * candidates

    def affordable(self, budget_ms: float, most: int) -> int:
        """Return how many candidates can be re-ranked within a budget, at most ``most``.

        Example:
            >>> Cost(0.5, 0.01).affordable(0.8, 50), Cost(0.5, 0.01).affordable(0.4, 50)
            (30, 0)
        """
        left = budget_ms - self.fixed_ms
        if self.candidate_ms <= 0:
            return most if left >= 0 else 0
        # A shortlist of one changes nothing.
        n = min(most, math.floor(left / self.candidate_ms + 1e-9))
        return n if n > 1 else 0


@dataclass(frozen=True)
class Reranking:
    """How the candidates of one variant are scored again."""

    kind: str
    folder: str
    """Name of its folder in ``ensemble/``."""
    digest: str
    """Of the files in that folder."""
    candidates: int
    """How many of a text are re-ranked, at most."""
    weight: float
    """Factor of its score, which is added to that of the ensemble."""
    min_share: float
    """Candidates with a smaller share in the softmax of the ensemble are not re-ranked."""
    cost: Cost
    fitted_on: str
    """Texts it was trained on, in words."""
    gain: dict[str, float] = field(default_factory=dict)
    """Metric to the difference on texts that it was not trained on, in points."""
    p_value: float = 1.0
    """Of the paired test of the gain."""
    reranked: float = 0.0
    """Mean number of candidates of a text that were re-ranked on validation."""

    @property
    def in_words(self) -> str:
        """What it is and costs, as a sentence without a full stop."""
        return (
            f"re-ranking ({self.kind}): the best {self.candidates} candidates, on average "
            f"{self.reranked:.1f}; {self.cost.of(self.candidates):.2f} ms a text at most "
            f"({self.cost.device}, one text at a time)"
        )

    def as_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Reranking:
        """Read the values of ``as_json``.

        Raises:
            ValueError: If a value is damaged.
        """
        cost = Cost(**value["cost"])
        made = cls(**{**value, "cost": cost, "gain": dict(value["gain"])})
        numbers = (made.weight, made.min_share, made.p_value, cost.fixed_ms, cost.candidate_ms)
        finite = all(math.isfinite(float(number)) for number in (*numbers, *made.gain.values()))
        folder = made.folder
        plain = isinstance(folder, str) and folder and "/" not in folder and "\\" not in folder
        if made.kind not in KINDS or not plain or folder.startswith("."):
            raise ValueError(f"re-ranking of kind {made.kind!r} in {folder!r}")
        if not finite or int(made.candidates) < 2 or not 0 <= made.min_share < 1:
            raise ValueError("a number of the re-ranking is out of range")
        return made
