"""Corrections come first; labels they leave out, and texts without evidence, stay low."""

import numpy as np
import pytest
import torch

from umpteen.ranking.adjustments import CORRECTED, apply_base_rates, apply_corrections
from umpteen.ranking.candidates import top_k

from .samples import made


def given(n=40, factor=1.0):
    candidates, _ = made(n=n)
    rng = np.random.default_rng(0)
    scores = torch.from_numpy((factor * rng.normal(size=(n, 11))).astype(np.float32))
    scores = torch.where(candidates.valid, scores, -torch.inf)
    probabilities = torch.sigmoid(scores / factor * 4)
    corrected = torch.from_numpy(rng.random((n, 11)) < 0.1) & candidates.valid
    return candidates, probabilities, scores, corrected


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_corrections_come_first_and_lower_the_labels_they_leave_out(factor):
    candidates, probabilities, scores, corrected = given(factor=factor)
    after, ranked = apply_corrections(probabilities, scores, corrected, threshold=0.3)
    assert (after[corrected] >= probabilities[corrected]).all()
    assert (after[corrected] >= np.float32(CORRECTED)).all()
    before_order = top_k(scores, candidates.rows, 11)
    after_order = top_k(ranked, candidates.rows, 11)
    for query in range(40):
        own, mine = corrected[query], after_order[query][after_order[query] >= 0]
        old = before_order[query][before_order[query] >= 0]
        assert mine.tolist() == [*old[own[old]].tolist(), *old[~own[old]].tolist()]
        assert (after[query][mine].diff() <= 0).all()
    left_out = corrected.any(dim=1, keepdim=True) & ~corrected
    assert (after[left_out] < 0.3).all()
    assert (after[left_out] <= probabilities[left_out]).all()
    untouched = ~corrected.any(dim=1)
    assert torch.equal(after[untouched], probabilities[untouched])
    assert torch.equal(ranked[untouched], scores[untouched])
    assert (ranked[~candidates.valid] == -torch.inf).all()


def test_texts_without_evidence_get_base_rates_below_the_threshold():
    candidates, probabilities, scores, _ = given()
    none = torch.arange(40) % 3 == 0
    counts = candidates.counts
    after, ranked = apply_base_rates(probabilities, scores, counts, none, n_train=10, threshold=0.3)
    assert (after[none] < 0.3).all()
    low = none[:, None] & (counts < 3) & candidates.valid
    np.testing.assert_allclose(after[low], counts[low] / 10, rtol=1e-6)
    assert torch.equal(after[~none], probabilities[~none])
    assert torch.equal(ranked[~none], scores[~none])
    order = top_k(ranked, candidates.rows, 11)
    for query in none.nonzero()[:, 0].tolist():
        mine = order[query][order[query] >= 0]
        assert (counts[query][mine].diff() <= 0).all()
        assert (after[query][mine].diff() <= 0).all()
    assert (ranked[~candidates.valid] == -torch.inf).all()
