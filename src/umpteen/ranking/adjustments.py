"""Rules that adjust probabilities after calibration: corrections, and texts without evidence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.types import TopK

CORRECTED = 0.99
"""Least probability of a label that a user assigned to this very text."""
BELOW_THRESHOLD = 0.99
"""Largest probability of a text without evidence, and of a label that a correction leaves out, as
a share of the threshold."""
EMPTY = "the text is empty"
UNKNOWN = "no word of the text is known and no stored example is similar"
RARE_SIMILARITY = 1.0
"""Percentile of validation texts' best similarity below which an example is not similar."""


def apply_corrections(
    probabilities: Tensor, scores: Tensor, corrected: Tensor, *, threshold: float
) -> tuple[Tensor, Tensor]:
    """Put the labels of stored corrections first, and all others below the threshold.

    A correction never lowers the probability of its label; that of the other labels of its text
    falls to a hundredth or less. Texts without a correction stay as they are.

    Args:
        probabilities: (B, K).
        scores: (B, K) finite at candidates, -inf at padding places.
        corrected: (B, K) labels that are stored as a correction for exactly this text.
        threshold: The smallest threshold in use, above 0.

    Returns:
        Probabilities and scores. In both, corrected labels come before all others of the text; the
        order within each of the two groups stays.
    """
    concerned = corrected.any(dim=1, keepdim=True)
    raised = probabilities.clamp_min(CORRECTED)
    # Another label is right only if the correction is wrong. Scaled instead of cut off, so that
    # the other labels keep their order.
    lowered = probabilities * min(1.0 - CORRECTED, BELOW_THRESHOLD * threshold)
    adjusted = torch.where(corrected, raised, torch.where(concerned, lowered, probabilities))
    finite = torch.isfinite(scores)
    highest = torch.where(finite, scores, -torch.inf).amax(dim=1, keepdim=True)
    lowest = torch.where(finite, scores, torch.inf).amin(dim=1, keepdim=True)
    # Grows with the size of the scores, so that it is not lost to rounding.
    margin = 1.0 + 1e-3 * (highest.abs() + lowest.abs())
    ahead = torch.where(corrected, scores + (highest - lowest + margin), scores)
    return adjusted, ahead


def apply_base_rates(
    probabilities: Tensor,
    scores: Tensor,
    counts: Tensor,
    no_evidence: Tensor,
    *,
    n_train: int,
    threshold: float,
) -> tuple[Tensor, Tensor]:
    """Replace the probabilities of texts without evidence by the labels' base rates.

    A text has no evidence if none of its tokens is known and no example is near, like an empty
    text. All of its probabilities end below the threshold.

    Args:
        probabilities: (B, K).
        scores: (B, K), -inf at padding places.
        counts: (B, K) training texts of each label.
        no_evidence: (B,) bool.
        n_train: Training texts.
        threshold: The smallest threshold in use, above 0.

    Returns:
        Probabilities and scores; the scores of such a text are the base rates too.
    """
    concerned = no_evidence[:, None]
    rates = counts.to(probabilities.dtype) / max(1, n_train)
    adjusted = torch.where(concerned, rates.clamp_max(BELOW_THRESHOLD * threshold), probabilities)
    ranked = torch.where(concerned & torch.isfinite(scores), rates.to(scores.dtype), scores)
    return adjusted, ranked


def similarity_floor(near: TopK) -> float:
    """Return the similarity that nearly every validation text's nearest example reaches.

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
