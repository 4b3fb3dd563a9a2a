"""The probabilistic contrastive loss, written out, and the second stage of SiameseXML."""

import math

import pytest
import torch

from umpteen.config.loading import load_config
from umpteen.objectives.base import block_loss
from umpteen.objectives.prob_contrastive import ProbabilisticContrastive
from umpteen.objectives.reductions import sum_of_positives
from umpteen.types import Positives


def positives_of(pairs):
    rows, cols = (torch.tensor(side) for side in zip(*pairs, strict=True))
    return Positives(rows, cols, torch.ones(len(pairs), dtype=torch.float64))


@pytest.mark.parametrize("n_negatives", [0, 1, 3])
def test_the_loss_is_its_formula(n_negatives):
    c, d, threshold = 0.75, 3.0, 0.05
    scores = torch.rand(5, 11, generator=torch.Generator().manual_seed(1)).double() * 2 - 1
    pairs = [(0, 3), (0, 7), (1, 0), (2, 10), (4, 4)]
    expected = []
    for row in (0, 1, 2, 4):
        own = [col for at, col in pairs if at == row]
        rest = sorted((float(scores[row, at]) for at in range(11) if at not in own), reverse=True)
        terms = [-math.log(1 - c * math.exp(d * (s - 1))) / d for s in rest[: n_negatives or None]]
        total = sum(term for term in terms if term >= threshold)
        expected.append(total + sum(1 - float(scores[row, at]) - math.log(c) / d for at in own))
    objective = ProbabilisticContrastive(c, d, n_negatives=n_negatives, threshold=threshold)
    found = block_loss(objective, sum_of_positives, scores, positives_of(pairs))
    assert float(found) == pytest.approx(sum(expected) / 4, abs=1e-12)


def crowded(n_texts=96, n_labels=500):
    """Cosines as a first stage of SiameseXML leaves them: all high, a text's own label's higher."""
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(n_texts, n_labels, generator=generator).double() * 0.06 + 0.7
    diagonal = torch.arange(n_texts)
    scores[diagonal, diagonal] += 0.12
    return scores.clamp(max=1.0).requires_grad_(), positives_of([(i, i) for i in range(n_texts)])


def pull(objective):
    """Return by how much the texts of a batch raise the scores of their own labels."""
    scores, positives = crowded()
    loss = block_loss(objective, sum_of_positives, scores, positives) * len(scores)
    (slope,) = torch.autograd.grad(loss, scores)
    return -float(slope.sum(dim=0)[: len(scores)].mean())


def test_the_second_stage_of_siamesexml_raises_a_label_that_a_text_has():
    """Labels that no batch draws are pushed by nothing; those of a pool stay above them."""
    options = load_config("siamese").stage2["loss"]["classifier_options"]
    assert pull(ProbabilisticContrastive(**options)) > 0
    assert pull(ProbabilisticContrastive(**{**options, "n_negatives": 0})) < -10
