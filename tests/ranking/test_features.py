"""Features equal a loop over queries in float64."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from umpteen.ranking.candidates import Candidates
from umpteen.ranking.features import columns, feature_owners, log_shares, matrix, query_best

from .samples import ALL, COUNTS, made

UNSEEN = np.where(np.arange(len(COUNTS)) % 3 == 0, 0, COUNTS)


def slow_features(candidates, query, retrievers):
    """(K', F) of one query's candidates."""
    own = candidates.valid[query].numpy()
    counts = candidates.counts[query].numpy()[own]
    frequency = np.log(1.0 + counts)
    found = []
    for name in retrievers:
        s = candidates.scores[name][query].numpy()[own].astype(np.float64)
        if name in ("knn", "lexical_knn", "backlinks"):
            three = [np.log(s + 0.003), s > 0, s]
        elif name in ("lexical_ranker", "character_ranker", "name_characters"):
            three = [log_softmax(s), s, s != 0]
        elif name == "one_vs_rest":
            three = [-np.log(1 + np.exp(-4 * (s - 1))), s, log_softmax(4 * (s - 1))]
        elif name in ("dual", "names"):
            three = [s - s.max(), s]
        else:
            three = [s - (s[counts > 0].max() if (counts > 0).any() else s.min()), s]
        found += [*three, three[0] * frequency]
    return np.stack([*found, frequency, frequency**2], axis=1).astype(np.float64)


@pytest.mark.parametrize("retrievers", [ALL, ("dual",), ("classifier", "knn"), ("one_vs_rest",)])
@pytest.mark.parametrize("counts", [COUNTS, UNSEEN, 0 * COUNTS])
def test_features_equal_the_loop(retrievers, counts):
    candidates, _ = made(n=23, counts=counts)
    found = matrix(candidates, retrievers)
    assert found.shape == (23, 11, len(feature_owners(retrievers)))
    assert found.dtype == torch.float64
    for query in range(23):
        own = candidates.valid[query]
        assert (found[query][~own] == 0).all()
        if own.any():
            expected = slow_features(candidates, query, retrievers)
            np.testing.assert_allclose(found[query][own].numpy(), expected, atol=1e-12)


def test_single_precision_columns_are_the_matrix():
    candidates, _ = made(n=23, counts=UNSEEN)
    whole = matrix(candidates, ALL)
    for place, column in enumerate(columns(candidates, ALL)):
        assert column.dtype == torch.float32
        own = candidates.valid
        np.testing.assert_allclose(column[own], whole[:, :, place][own], rtol=2e-5, atol=2e-5)


def test_a_query_alone_equals_the_batch():
    candidates, _ = made(n=9, counts=UNSEEN)
    whole = matrix(candidates, ALL)
    for query in range(9):
        own = candidates.valid[query]
        own[0] = True  # at least one place, padding or not
        alone = Candidates(
            candidates.rows[query : query + 1, own],
            {name: values[query : query + 1, own] for name, values in candidates.scores.items()},
            candidates.counts[query : query + 1, own],
        )
        np.testing.assert_allclose(matrix(alone, ALL)[0], whole[query][own], atol=1e-12)


def test_shares_of_a_query_add_up_to_one():
    scores = torch.from_numpy(np.random.default_rng(2).normal(size=(4, 7)) * 300)
    valid = torch.arange(7) < torch.tensor([[7], [1], [3], [0]])
    shares = log_shares(scores, valid).exp()
    np.testing.assert_allclose(shares[:3].sum(dim=1), 1.0)
    assert (shares[:3][~valid[:3]] == 0).all()
    rows = torch.where(valid, torch.arange(7), -1)
    best = query_best(Candidates(rows, {"dual": scores}, rows), "dual")
    assert best[3] == 0
    assert best[2] == scores[2, :3].max()
