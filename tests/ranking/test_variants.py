"""Variants: fitted from any number of queries, cross-fitted, compared by one rule."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.errors import RunError
from umpteen.metrics.hits import find_hits
from umpteen.metrics.precision import Precision
from umpteen.metrics.propensity import PropensityPrecision, inverse_propensities
from umpteen.ranking.candidates import take, top_k
from umpteen.ranking.prior import PRIOR_THRESHOLD, prior_weights, unseen_share
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS, retrievers_of
from umpteen.ranking.variant_fitting import (
    FOLDS,
    ValidationCandidates,
    fit_variant,
    mean_contributions,
    positives_of,
)
from umpteen.ranking.variants import (
    VARIANT_METRICS,
    PropensityModel,
    Variant,
    choose_variant,
    relative_quality,
    scorer_combinations,
)

from .samples import ALL, COUNTS, N_LABELS, knowing, made


def validation(n=120, seed=0, counts=COUNTS):
    candidates, positive = made(n=n, seed=seed, counts=counts)
    queries, places = positive.nonzero(as_tuple=True)
    rows = candidates.rows[queries, places]
    truth = sp.csr_matrix(
        (np.ones(len(rows), np.float32), (queries.numpy(), rows.numpy())), shape=(n, N_LABELS)
    )
    weights = inverse_propensities(counts, 200, 0.55, 1.5)

    def judge(top):
        hits = find_hits(top, truth, inverse_propensities=weights)
        values = {f"P@{k}": 100 * Precision(k).mean(hits) for k in (1, 3, 5)}
        return values | {f"PSP@{k}": 100 * PropensityPrecision(k).mean(hits) for k in (1, 3, 5)}

    return ValidationCandidates(
        candidates, positive, truth, counts, PropensityModel(0.55, 1.5, 200), judge
    )


def test_positives_are_looked_up():
    data = validation()
    assert torch.equal(positives_of(data.candidates, data.truth), data.positive)
    narrow = sp.csr_matrix(data.truth[:, :30])
    expected = data.positive & (data.candidates.rows < 30)
    assert torch.equal(positives_of(data.candidates, narrow), expected)
    nothing = sp.csr_matrix(data.truth.shape, dtype=np.float32)
    assert not positives_of(data.candidates, nothing).any()


@pytest.mark.parametrize("retrievers", [ALL, ("dual",), ("knn", "lexical_ranker")])
def test_a_variant_ranks_and_gives_probabilities(retrievers):
    data = validation()
    variant = fit_variant(data, retrievers)
    assert variant.converged
    assert set(variant.validation) == {*VARIANT_METRICS, "ECE", "micro-F1"}
    assert sum(variant.contributions.values()) == pytest.approx(100)
    assert set(variant.contributions) == {*variant.scorers, "frequency"}
    fresh, right = made(n=60, seed=7)
    scores = variant.scores(fresh, data.propensity)
    chances = variant.probabilities(scores, fresh)
    assert torch.isfinite(chances).all()
    assert (chances[fresh.valid] > 0).all()
    ordered = take(chances, top_k(scores, fresh.rows, 11), 0.0)
    assert (ordered.diff(dim=1) <= 1e-6).all()
    plain = variant.weights.scores(fresh)
    boost = variant.tail_boost * data.propensity.log_inverse(fresh.counts)
    np.testing.assert_allclose((plain + boost)[fresh.valid], scores[fresh.valid], atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_an_ensemble_from_the_first_query_on(n):
    whole = validation(n=60)
    few = torch.arange(n)
    data = ValidationCandidates(
        whole.candidates.select(few),
        whole.positive[few],
        whole.truth[:n],
        whole.label_counts,
        whole.propensity,
        lambda top: dict.fromkeys(VARIANT_METRICS, 0.0),
    )
    variant = fit_variant(data, ALL)
    fresh, right = knowing(*made(n=200, seed=2))
    scores = variant.scores(fresh, data.propensity)
    best = top_k(scores, fresh.rows, 1)
    assert take(right.long(), best, 0)[right.any(dim=1)].float().mean() > 0.5
    assert torch.isfinite(variant.probabilities(scores, fresh)).all()
    assert variant.converged
    if n == 0:
        prior = prior_weights(ALL, unseen_share(data.label_counts))
        np.testing.assert_array_equal(variant.weights.weights, prior.weights)
        assert variant.validation == {}
        assert variant.calibration.threshold == PRIOR_THRESHOLD
    again = Variant.from_json(variant.as_json())
    assert torch.equal(again.scores(fresh, data.propensity), scores)


def test_metrics_are_cross_fitted():
    """Random scores and labels: in-sample the fit finds something, on other folds it does not."""
    rng = np.random.default_rng(0)
    data = validation(n=60)
    noise = {
        name: torch.from_numpy(rng.random((60, 11)).astype(np.float32))
        for name in data.candidates.scores
    }
    random = type(data.candidates)(data.candidates.rows, noise, data.candidates.counts)
    blind = ValidationCandidates(
        random, data.positive, data.truth, COUNTS, data.propensity, data.judge
    )
    variant = fit_variant(blind, ALL, tail_boost=0.0)
    scores = variant.scores(random, data.propensity)
    fitted = top_k(scores, random.rows, 1)
    in_sample = 100 * float(take(data.positive.long(), fitted, 0).float().mean())
    assert variant.validation["P@1"] < in_sample
    assert len(np.unique(data.folds())) == FOLDS


def test_a_given_boost_is_kept_and_unseen_labels_take_part():
    counts = np.where(np.arange(N_LABELS) < 8, 0, COUNTS)
    variant = fit_variant(validation(counts=counts), ALL, tail_boost=0.4)
    assert variant.tail_boost == 0.4
    assert variant.weights.unseen is not None
    assert variant.converged


def test_the_fit_does_not_depend_on_chance():
    first, second = (fit_variant(validation(), ALL) for _ in range(2))
    assert first.as_json() == second.as_json()


def test_mean_contributions_equal_a_loop():
    candidates, _ = made(n=30)
    weights = prior_weights(ALL)
    scores, split = weights.scores(candidates), weights.contributions(candidates)
    sums = dict.fromkeys(split, 0.0)
    for query in range(30):
        if candidates.valid[query].any():
            best = int(scores[query].argmax())
            for name, values in split.items():
                sums[name] += abs(float(values[query, best]))
    total = sum(sums.values())
    found = mean_contributions(weights, candidates)
    for name, value in sums.items():
        assert found[name] == pytest.approx(100 * value / total, rel=1e-4)


def test_combinations_leave_one_scorer_out():
    assert scorer_combinations(ALL) == [
        ("dual", "classifier", "knn", "lexical", "backlinks", "names"),
        ("classifier", "knn", "lexical", "backlinks", "names"),
        ("dual", "knn", "lexical", "backlinks", "names"),
        ("dual", "classifier", "lexical", "backlinks", "names"),
        ("dual", "classifier", "knn", "backlinks", "names"),
        ("dual", "classifier", "knn", "lexical", "names"),
        ("dual", "classifier", "knn", "lexical", "backlinks"),
        ("dual", "classifier"),
    ]
    assert scorer_combinations(["lexical_ranker"]) == [("lexical",)]
    lexical = ("lexical_ranker", "one_vs_rest", "character_ranker")
    assert retrievers_of(("dual", "lexical"), ALL) == ("dual", *lexical)
    assert retrievers_of(("knn",), RETRIEVER_SPECS) == ("knn",)


def test_scorers_are_left_out_for_a_gain_that_costs_no_precision():
    reference, whole = dict.fromkeys(VARIANT_METRICS, 40.0), dict.fromkeys(VARIANT_METRICS, 44.0)
    rare = {name: 52.0 if name.startswith("PSP") else 44.0 for name in VARIANT_METRICS}
    assert choose_variant([whole, rare], reference, 1000) == 1
    for name in VARIANT_METRICS[:3]:
        least = 44.0 * 0.997 - 100 / (1000 * int(name[2:]))
        assert choose_variant([whole, {**rare, name: least + 0.001}], reference, 1000) == 1
        assert choose_variant([whole, {**rare, name: least - 0.001}], reference, 1000) == 0
    assert choose_variant([{}, {}], {}, 0) == 0


def test_two_hundred_queries_do_not_drop_half_of_the_scorers():
    whole = dict(zip(VARIANT_METRICS, (73.36, 52.34, 41.21, 53.61, 63.92, 70.74), strict=True))
    heads = dict(zip(VARIANT_METRICS, (76.17, 52.34, 41.21, 58.77, 64.21, 70.84), strict=True))
    reference = dict(zip(VARIANT_METRICS, (74.0, 51.0, 40.0, 58.0, 64.0, 70.0), strict=True))
    assert choose_variant([whole, heads], reference, 214) == 0
    assert choose_variant([whole, heads], reference, 20_000) == 1


def test_a_loss_in_one_metric_weighs_more_than_the_same_gain_in_another():
    reference = dict.fromkeys(VARIANT_METRICS, 40.0)
    mixed = {**reference, "P@1": 44.0, "PSP@1": 36.0}
    assert relative_quality(mixed, reference) < relative_quality(reference, reference) == 1.0
    nothing = dict.fromkeys(VARIANT_METRICS, 0.0)
    assert relative_quality(nothing, nothing) == 1.0


def test_damage_is_reported():
    value = fit_variant(validation(n=10), ("dual", "knn")).as_json()
    other = fit_variant(validation(n=10), ("dual",)).as_json()
    for damage in (
        {"tail_boost": "x"},
        {"tail_boost": float("nan")},
        {"scorers": ["dual"]},
        {"validation": None},
        {"weights": None},
        {"calibration": other["calibration"]},
    ):
        with pytest.raises(RunError, match="fit the ensemble again"):
            Variant.from_json({**value, **damage})
