import math

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.errors import ConfigError
from umpteen.metrics.hits import find_hits
from umpteen.metrics.propensity import PropensityNDCG, PropensityPrecision, inverse_propensities
from umpteen.types import TopK


@pytest.mark.parametrize(("a", "b"), [(0.6, 2.6), (0.5, 0.4), (0.55, 1.5)])
def test_weights_follow_the_formula_label_by_label(a, b):
    counts, n = [0, 1, 7, 500], 1234
    c = (math.log(n) - 1) * (b + 1) ** a
    expected = [1 + c * (count + b) ** -a for count in counts]
    np.testing.assert_allclose(inverse_propensities(np.array(counts), n, a, b), expected)


def test_rare_labels_weigh_more_and_nothing_weighs_less_than_one():
    for n in (1, 2, 3, 1000):  # ln N - 1 is negative for the first two
        weights = inverse_propensities(np.arange(9), n, 0.55, 1.5)
        assert (np.diff(weights) <= 0).all()
        assert (weights >= 1).all()


@pytest.mark.parametrize(("a", "b"), [(-0.1, 1.5), (0.5, 0.0), (0.5, -1.0), (math.nan, 1.5)])
def test_constants_that_give_no_weights_are_refused(a, b):
    with pytest.raises(ConfigError, match="propensity constants"):
        inverse_propensities(np.array([1]), 10, a, b)


def test_without_training_queries_there_are_no_weights():
    with pytest.raises(ConfigError, match="training queries"):
        inverse_propensities(np.array([0]), 0, 0.55, 1.5)


def two_queries():
    """Query 0 hits its one cheap positive; query 1 misses its dear one."""
    topk = TopK(np.array([[0], [2]]), np.zeros((2, 1), np.float32))
    truth = sp.csr_matrix(np.array([[1.0, 0, 0], [0, 1.0, 0]]))
    return find_hits(topk, truth, inverse_propensities=np.array([2.0, 6.0, 1.0]))


@pytest.mark.parametrize("metric", [PropensityPrecision(1), PropensityNDCG(1)])
def test_it_is_a_ratio_of_means_and_not_a_mean_of_ratios(metric):
    assert metric.mean(two_queries()) == pytest.approx(2 / (2 + 6))  # the other reading: 1/2


def test_psndcg_normalises_each_query_by_its_own_number_of_positives():
    # Query 0: one positive hit at place 2. Query 1: three positives, one hit at place 1.
    topk = TopK(np.array([[4, 0], [1, 4]]), np.zeros((2, 2), np.float32))
    truth = sp.csr_matrix(np.array([[1.0, 0, 0, 0, 0], [0, 1, 1, 1, 0]]))
    hits = find_hits(topk, truth, inverse_propensities=np.array([2.0, 3.0, 5.0, 4.0, 9.0]))
    second = 1 / math.log2(3)
    reached = 2 * second / 1 + 3 / (1 + second)
    best = 2 / 1 + (5 + 4 * second) / (1 + second)
    assert PropensityNDCG(2).mean(hits) == pytest.approx(reached / best)


def test_counts_after_label_augmentation_would_lift_the_number():
    """Why counts come from the data before augmentation: one more query per label, N + L."""
    rng = np.random.default_rng(0)
    n, n_labels = 400, 300
    # The head is predicted well and the tail badly, as models do.
    label = (n_labels * rng.random(n) ** 3).astype(int)
    right = rng.random(n) < np.where(label < 30, 0.7, 0.3)
    topk = TopK(np.where(right, label, (label + 1) % n_labels)[:, None], np.zeros((n, 1), "f"))
    truth = sp.csr_matrix((np.ones(n), (np.arange(n), label)), (n, n_labels))
    counts = np.bincount(label, minlength=n_labels)

    def psp(counts, n_train):
        weights = inverse_propensities(counts, n_train, 0.55, 1.5)
        return PropensityPrecision(1).mean(find_hits(topk, truth, inverse_propensities=weights))

    assert psp(counts + 1, n + n_labels) > psp(counts, n)


def test_without_weights_it_says_what_is_missing():
    hits = find_hits(TopK(np.array([[0]]), np.zeros((1, 1), "f")), sp.csr_matrix(np.ones((1, 1))))
    with pytest.raises(ConfigError, match="need inverse propensities"):
        PropensityPrecision(1).mean(hits)
