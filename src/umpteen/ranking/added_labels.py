"""Search vectors of labels that were added after training, from their texts."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize

from umpteen.index.base import LabelIndex
from umpteen.index.exact import ExactIndex
from umpteen.index.growing import GrowingIndex, index_of_block
from umpteen.ranking.label_vectors import LabelVectors

NEIGHBOURS = 8
EXACT_PAIRS = 1 << 29
"""Pairs of added and trained label that are compared on a CPU; some seconds. Beyond it, neighbours
are searched in inverted lists, where faiss is installed."""
PROBES = 32
"""Lists that such a search looks into."""
SHARPNESS = 20.0
"""Neighbours are weighted by the softmax of this times their cosine."""


def added_label_vectors(own: torch.Tensor, trained: LabelVectors) -> torch.Tensor:
    """Replace the classifier vector of untrained labels by a mean of their neighbours'.

    The mean is over the trained labels with the nearest texts, weighted by similarity and scaled
    to length one. The vector of the label's own text would not do: texts are nearer to each other
    than to label vectors, and added labels would crowd into predictions.

    Args:
        own: (A, heads * dim) vectors of the labels' texts, encoded like any text.
        trained: The trained labels.

    Returns:
        (A, heads * dim).
    """
    if "classifier" not in trained.columns or not len(own):
        return own
    near = "dual" if "dual" in trained.columns else "classifier"
    k = min(NEIGHBOURS, len(trained))
    index = _index_for(trained, near, len(own))
    top = index.search(own[:, trained.columns[near]], k)
    weights = torch.from_numpy(SHARPNESS * top.scores).softmax(dim=1).to(own.device)  # (A, n)
    none = GrowingIndex(trained.width, trained.device)
    neighbours = trained.vectors_of(torch.from_numpy(top.rows).to(own.device), none).to(own)
    values = trained.columns["classifier"]
    vectors = own.clone()
    vectors[:, values] = normalize(
        torch.einsum("an,and->ad", weights, neighbours[:, :, values]), dim=1
    )
    return vectors


def _index_for(trained: LabelVectors, head: str, n_queries: int) -> LabelIndex:
    """Return an index of trained labels: approximate where very many labels are added at once."""
    index = trained.index(head)
    many = n_queries * len(trained) > EXACT_PAIRS
    if not many or trained.device.type != "cpu" or not isinstance(index, ExactIndex):
        return index
    vectors = trained.tensor()[:, trained.columns[head]]
    return index_of_block(vectors.contiguous(), probes=PROBES)
