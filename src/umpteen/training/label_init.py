"""The label vectors that training starts from: of the labels' texts, random, or log-odds."""

from __future__ import annotations

import math

import torch

from umpteen.compute.distributed.sharding import ONE_RANK, Ranks
from umpteen.model.model import Model
from umpteen.model.vectors import encode_texts
from umpteen.training.encode_on_ranks import TokenPart
from umpteen.training.prepare import Prepared

LABELS_AT_ONCE = 1 << 16
TEXTS_AT_ONCE = 1 << 20
DEVIATION = 0.02
BIAS = 4.0
"""Length of the head's first bias: about that of the encoders' vectors, so neither drowns."""


def init_from_texts_(
    model: Model, data: Prepared, *, precision: str, ranks: Ranks = ONE_RANK
) -> None:
    """Make each label's vector the classifier head's unit vector of the label's text.

    On several ranks each does so for the labels it holds.
    """
    assert model.label_vectors is not None
    own = ranks.shard(len(data.labels))
    if not len(own):
        return
    was_training = model.training
    model.eval()
    # In chunks: the float32 vectors of all labels would take more than the table itself.
    for start in range(own.start, own.stop, TEXTS_AT_ONCE):
        stop = min(start + TEXTS_AT_ONCE, own.stop)
        texts = TokenPart(data.labels, start, stop)
        vectors = encode_texts(model, texts, model.classifier, precision=precision)
        table = model.label_vectors.data[start - own.start : stop - own.start]
        table.copy_(torch.nn.functional.normalize(vectors, dim=1))
    model.train(was_training)


def init_at_random_(model: Model, *, seed: int, ranks: Ranks = ONE_RANK) -> None:
    """Draw each label's vector from a normal distribution, as Renee's code does.

    Each label has draws of its own, so that ranks start as one does.
    """
    assert model.label_vectors is not None
    generator = torch.Generator().manual_seed(seed)
    own = ranks.shard(model.n_labels)
    table = model.label_vectors.data
    for start in range(0, model.n_labels, LABELS_AT_ONCE):
        stop = min(start + LABELS_AT_ONCE, model.n_labels)
        drawn = torch.randn(stop - start, model.dim, generator=generator) * DEVIATION
        first, last = max(start, own.start), min(stop, own.stop)
        if first < last:
            table[first - own.start : last - own.start] = drawn[first - start : last - start].to(
                table
            )


def init_from_odds_(model: Model, data: Prepared) -> None:
    """Give every label one vector, such that scores start near a label's log-odds.

    With scores of 0, binary cross-entropy over L labels begins by pushing all L of them down, and
    the encoder gives way by making all texts alike: a transformer does not come back from that.
    With scores of log(p / (1 - p)), p the share of the labels that a query has, as much pulls up as
    pushes down. That constant is a bias of the head and label vectors against it.
    """
    assert model.label_vectors is not None
    assert model.classifier_head is not None
    targets = data.train.filtered_targets()
    share = max(targets.nnz, 1) / (targets.shape[0] * targets.shape[1])
    odds = math.log(share / (1 - share)) if share < 1 else 0.0
    assert model.classifier_head.linear is not None
    bias = model.classifier_head.linear.bias.data
    bias.fill_(BIAS / math.sqrt(len(bias)))
    scale = model.scale("classifier").item()
    model.label_vectors.data.copy_((odds / (scale * BIAS**2) * bias).expand_as(model.label_vectors))
