"""Labels whose last training text is in a fold: left out where its texts judge an ensemble.

The model of the fold knows no text of such a label, but the label is listed because a text of the
fold has it. Where nearly all labels without texts are of that kind, to have none is a sign of being
right, which it never is for a new text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.data.dataset import Split
from umpteen.ranking.candidates import NO_ROW, Candidates


def lost_labels(run: NDArray[np.int64], fold: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark the labels that the model of a fold knows no text of, and that of the run does.

    Args:
        run: (L,) training texts of each label.
        fold: (L,) those outside the fold.

    Returns:
        (L,) marks; none where as many labels have no training text at all. These are then found
        as those are.
    """
    lost: NDArray[np.bool_] = (run > 0) & (fold == 0)
    return lost if int(lost.sum()) > int((run == 0).sum()) else np.zeros_like(lost)


@dataclass(frozen=True)
class KnownPart:
    """Texts of a fold without lost labels, and without texts that have no others."""

    rows: NDArray[np.int64]
    """(M,) of these texts among all of the fold."""
    split: Split
    candidates: Candidates
    text_scores: dict[str, torch.Tensor]


def known_part(
    split: Split,
    candidates: Candidates,
    text_scores: Mapping[str, torch.Tensor],
    lost: NDArray[np.bool_],
) -> KnownPart:
    """Leave lost labels out.

    Args:
        split: The N texts of a fold.
        candidates: Theirs.
        text_scores: Retriever to (N, K) scores beside them.
        lost: (L,) marks of the labels to leave out.

    Returns:
        What is left; everything where no label is lost.
    """
    if not lost.any():
        return KnownPart(np.arange(len(split)), split, candidates, dict(text_scores))
    targets = split.targets.tocsr(copy=True)
    targets.data[lost[targets.indices]] = 0
    targets.eliminate_zeros()
    known = replace(split, targets=targets)
    rows = np.flatnonzero(np.diff(known.filtered_targets().indptr))
    chosen = torch.from_numpy(rows).to(candidates.rows.device)
    found = candidates.select(chosen)
    marks = torch.from_numpy(np.append(lost, True)).to(found.rows.device)
    gone = marks[found.rows]
    order = gone.to(torch.int8).argsort(dim=1, stable=True)
    gone = gone.gather(1, order)
    scores = {name: values.gather(1, order) for name, values in found.scores.items()}
    label_rows = found.rows.gather(1, order).masked_fill(gone, NO_ROW)
    counts = found.counts.gather(1, order).masked_fill(gone, 0)
    texts = {name: values[chosen].gather(1, order) for name, values in text_scores.items()}
    return KnownPart(rows, known.select(rows), Candidates(label_rows, scores, counts), texts)
