"""Fits and answers on a CUDA device equal those on the CPU."""

import dataclasses

import numpy as np
import pytest
import torch

from umpteen.ranking.adjustments import apply_base_rates, apply_corrections
from umpteen.ranking.candidates import Candidates, best_candidates, concat, union
from umpteen.ranking.variant_fitting import fit_variant

from .samples import ALL, COUNTS, N_LABELS, made
from .test_variants import validation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def moved(candidates, device):
    return Candidates(
        candidates.rows.to(device),
        {name: values.to(device) for name, values in candidates.scores.items()},
        candidates.counts.to(device),
    )


def test_a_variant_fitted_on_cuda_equals_that_of_the_cpu():
    data = validation(counts=np.where(np.arange(N_LABELS) < 8, 0, COUNTS))
    there = dataclasses.replace(
        data, candidates=moved(data.candidates, "cuda"), positive=data.positive.cuda()
    )
    mine, theirs = fit_variant(data, ALL), fit_variant(there, ALL)
    assert theirs.converged
    assert theirs.tail_boost == mine.tail_boost
    np.testing.assert_allclose(theirs.weights.weights, mine.weights.weights, atol=1e-3)
    fresh, _ = made(n=33, seed=4)
    answers = []
    for each in (fresh, moved(fresh, "cuda")):
        scores = mine.scores(each, data.propensity)
        chances = mine.probabilities(scores, each)
        corrected = each.rows == 7
        chances, scores = apply_corrections(chances, scores, corrected, threshold=0.3)
        none = torch.arange(33, device=each.rows.device) % 5 == 0
        chances, scores = apply_base_rates(
            chances, scores, each.counts, none, n_train=200, threshold=0.3
        )
        answers.append([x.cpu() for x in best_candidates(scores, chances, each.rows, 5)])
    assert torch.equal(answers[0][0], answers[1][0])
    np.testing.assert_allclose(answers[0][1], answers[1][1], atol=1e-5)


def test_unions_on_cuda_equal_those_of_the_cpu():
    left, _ = made(n=9)
    right, _ = made(n=9, seed=1)
    expected = union([left.rows, right.rows], left.rows[:, :2])
    found = union([left.rows.cuda(), right.rows.cuda()], left.rows[:, :2].cuda())
    assert torch.equal(found.cpu(), expected)
    both = concat([moved(left, "cuda"), moved(right, "cuda")])
    assert torch.equal(both.rows.cpu(), concat([left, right]).rows)
