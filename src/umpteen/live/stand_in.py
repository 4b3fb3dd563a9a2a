"""Search vectors of labels that were never trained, with a stand-in where training is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from umpteen.index.base import LabelIndex

NEIGHBOURS = 8
SHARPNESS = 20.0
"""Neighbours weigh in by the softmax of this times their cosine."""


def with_stand_ins(
    own: Tensor, index: LabelIndex, trained: Any, *, keys: slice, values: slice
) -> Tensor:
    """Vectors of new labels, the classifier part taken from the trained labels nearest in text.

    The part is the weighted mean of the neighbours' classifier vectors, of length one again. The
    text's own classifier vector would not do: queries are nearer to each other than to label
    vectors, so added labels would crowd into answers (measured by ``bench/new_labels.py``).

    Args:
        own: (A, heads * dim) vectors of the labels' texts, as if they were queries.
        index: Of the trained labels, over the columns ``keys``.
        trained: (L, heads * dim) their search vectors, NumPy or torch.
        keys: The columns that neighbours are found by.
        values: The columns to replace.

    Returns:
        (A, heads * dim).
    """
    top = index.search(own[:, keys], min(NEIGHBOURS, index.n_labels))
    weights = torch.from_numpy(SHARPNESS * top.scores).softmax(dim=1).to(own.device)  # (A, n)
    rows = np.maximum(top.rows, 0).reshape(-1)
    picked = torch.as_tensor(np.array(trained[rows]) if not isinstance(trained, Tensor)
                             else trained[torch.from_numpy(rows).to(trained.device)])  # fmt: skip
    near = picked[:, values].to(own).view(len(own), -1, values.stop - values.start)  # (A, n, dim)
    vectors = own.clone()
    vectors[:, values] = normalize(torch.einsum("an,and->ad", weights, near), dim=1)
    return vectors
