"""Texts about which nothing is known: no known word and no similar example."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umpteen.types import TopK

EMPTY = "the text is empty"
UNKNOWN = "no word of the text is known and no stored example is similar"
RARE_SIMILARITY = 1.0
"""Percentile of validation texts' best similarity below which an example is not similar."""


def similarity_floor(near: TopK) -> float:
    """Return the similarity that nearly every validation text's nearest example reaches.

    Args:
        near: The nearest examples of the validation texts.

    Returns:
        -inf where there are no texts or examples.
    """
    best = near.scores[:, 0] if near.scores.size else np.zeros(0)
    best = best[np.isfinite(best)]
    return float(np.percentile(best, RARE_SIMILARITY)) if len(best) else -np.inf


def missing_evidence(
    texts: Sequence[str],
    n_terms: NDArray[np.int64] | None,
    similarity: NDArray[np.float32] | None,
    floor: float,
) -> list[str | None]:
    """Say for each text why no label should be assigned to it.

    Args:
        texts: The texts.
        n_terms: (B,) known terms of each; None without a lexical scorer.
        similarity: (B,) of the nearest stored example; None without examples.
        floor: From ``similarity_floor``.

    Returns:
        A reason, or None for a text with some evidence.
    """
    unknown = np.zeros(len(texts), np.bool_) if n_terms is None else n_terms == 0
    if similarity is not None:
        unknown = unknown & ~(similarity >= floor)
    return [
        EMPTY if not text.strip() else UNKNOWN if none else None
        for text, none in zip(texts, unknown.tolist(), strict=True)
    ]
