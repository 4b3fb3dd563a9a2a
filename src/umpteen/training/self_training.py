"""Self-training: move label vectors towards the texts that they are predicted for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset
from umpteen.evaluation import evaluate
from umpteen.predictor import Predictor

SHARE = 0.5
"""Share of the texts that is used: those whose first label is most probable."""
CHECKED = ("P@1", "P@3", "P@5", "nDCG@5", "R@10")
STEP = 0.5
"""Weight of the mean vector of a label's texts, times the logarithm of their number plus one."""


def pseudo_label_vectors(predictor: Predictor, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the label vectors (L, D) moved towards texts.

    Returns:
        Vectors of length one; those of labels that are predicted for no text stay as they are.
    """
    top = predictor.as_trained().predict(list(texts), k=1)
    rows, sure = top.rows[:, 0], top.scores[:, 0]
    chosen = np.argsort(-sure, kind="stable")[: int(np.ceil(SHARE * len(rows)))]
    chosen = chosen[rows[chosen] >= 0]
    vectors = predictor.label_vectors.numpy().copy()
    entries = np.ones(len(chosen), np.float32), (rows[chosen], chosen)
    members = sp.csr_matrix(entries, shape=(len(vectors), len(rows)))
    counts = np.asarray(members.sum(axis=1))  # (L, 1)
    means = (members @ predictor.vectors(list(texts)).cpu().numpy()) / np.maximum(counts, 1)
    moved = vectors + STEP * np.log1p(counts) * means
    lengths = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.asarray(moved / np.maximum(lengths, 1e-12), np.float32)


def measured(predictor: Predictor, data: Dataset) -> dict[str, float]:
    """Return metrics on labelled data: its test split, or what it has."""
    split = next(name for name in ("test", "validation", "train") if name in data)
    found = evaluate(predictor, data, split=split, metrics=CHECKED)
    return dict(found.heads[predictor.heads[-1]].values)


def in_words(values: dict[str, float]) -> str:
    """Return metrics as a line of text."""
    return ", ".join(f"{name} {value:.1f}" for name, value in values.items())
