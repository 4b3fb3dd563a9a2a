"""Similar examples of a text, shown with an explanation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.trained_examples import shorten

MAX_NEIGHBOURS = 5
"""Similar examples per text."""


def neighbours(
    predictor: Predictor, queries: Queries, snapshot: Snapshot
) -> list[list[dict[str, Any]]] | None:
    """Return the most similar stored examples of each text, where the run stores any.

    Training texts may be stored without their wording (``examples.texts``). Retired labels are
    left out.
    """
    examples, labels = snapshot.examples, snapshot.labels
    if not len(examples):
        return None
    heads = len(predictor.model.heads)  # a similarity is a sum of as many cosines
    top = examples.nearest(queries.vectors, min(MAX_NEIGHBOURS, len(examples)))
    shown = _example_texts(predictor, snapshot, top.rows)
    return [
        [
            {
                "text": shown.get(row),
                "labels": [
                    labels.texts[label]
                    for label in examples.labels_of(row).tolist()
                    if snapshot.allowed is None or snapshot.allowed[label]
                ],
                "score": round(score / heads, 6),
            }
            for row, score in zip(rows, scores, strict=True)
            if row >= 0
        ]
        for rows, scores in zip(top.rows.tolist(), top.scores.tolist(), strict=True)
    ]


def _example_texts(
    predictor: Predictor, snapshot: Snapshot, rows: NDArray[np.int64]
) -> dict[int, str]:
    """Read the texts of some examples; those without a stored text are missing."""
    examples, n = snapshot.examples, snapshot.examples.n_trained
    wanted = [row for row in np.unique(rows).tolist() if row >= 0]
    trained = examples.trained
    found = {}
    if trained is not None and trained.texts is not None:
        found = {row: trained.texts[row] for row in wanted if row < n}
    late = [row for row in wanted if row >= n]
    if late and predictor.store is not None:
        digests = [examples.stored.digests[row - n] for row in late]
        texts = predictor.store.example_texts(digests)
        found.update({row: shorten(text) for row, text in zip(late, texts, strict=True)})
    return found
