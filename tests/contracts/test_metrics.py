"""Laws of every row of METRICS. Brute force is written here, query by query, in plain Python."""

import inspect
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.metrics import METRICS, PerQuery, parse
from umpteen.metrics.hits import drop_filtered, find_hits, put_in_order
from umpteen.registry import resolve
from umpteen.types import TopK

KS = (1, 2, 3, 5, 100)


def names_of(metric):
    """As it can be asked for: with a k, without, or both."""
    parameters = inspect.signature(resolve(METRICS, metric, kind="metric")).parameters
    with_k = [f"{metric}@{k}" for k in KS] if "k" in parameters else []
    needs_k = with_k and parameters["k"].default is inspect.Parameter.empty
    return with_k if needs_k else [*with_k, metric]


NAMES = [name for metric in METRICS for name in names_of(metric)]


# --- brute force: lists of predicted labels and sets of positives, one query after the other -----


def discount(place):
    return 1.0 / math.log2(place + 1)


def dcg(values):
    return sum(value * discount(place) for place, value in enumerate(values, start=1))


def brute_precision(predicted, positives, weights, k):
    return mean(len(set(p[:k]) & t) / k for p, t in zip(predicted, positives, strict=True))


def brute_recall(predicted, positives, weights, k):
    return mean(
        len(set(p[:k]) & t) / len(t) if t else 0.0
        for p, t in zip(predicted, positives, strict=True)
    )


def brute_r_precision(predicted, positives, weights, k):
    return mean(
        len(set(p[:k]) & t) / min(k, len(t)) if t else 0.0
        for p, t in zip(predicted, positives, strict=True)
    )


def brute_ndcg(predicted, positives, weights, k):
    return mean(
        dcg([label in t for label in p[:k]]) / dcg([1] * min(k, len(t))) if t else 0.0
        for p, t in zip(predicted, positives, strict=True)
    )


def brute_reciprocal_rank(predicted, positives, weights, k):
    values = []
    for p, t in zip(predicted, positives, strict=True):
        places = [place for place, label in enumerate(p[:k], start=1) if label in t]
        values.append(1.0 / places[0] if places else 0.0)
    return mean(values)


def brute_psp(predicted, positives, weights, k):
    reached = best = 0.0
    for p, t in zip(predicted, positives, strict=True):
        reached += sum(weights[label] for label in p[:k] if label in t)
        best += sum(sorted((weights[label] for label in t), reverse=True)[:k])
    return reached / best if best else 0.0


def brute_psndcg(predicted, positives, weights, k):
    reached = best = 0.0
    for p, t in zip(predicted, positives, strict=True):
        if t:
            bound = dcg([1] * min(k, len(t)))
            reached += dcg([weights[label] * (label in t) for label in p[:k]]) / bound
            best += dcg(sorted((weights[label] for label in t), reverse=True)[:k]) / bound
    return reached / best if best else 0.0


def brute_coverage(predicted, positives, weights, k):
    possible = set().union(*positives)
    hit = set().union(*(set(p[:k]) & t for p, t in zip(predicted, positives, strict=True)))
    return len(hit) / len(possible) if possible else 0.0


def brute_macro_f1(predicted, positives, weights, k):
    values = []
    for label in sorted(set().union(*positives)):
        said = [label in p[:k] for p in predicted]
        true = [label in t for t in positives]
        both = sum(s and t for s, t in zip(said, true, strict=True))
        precision = both / sum(said) if any(said) else 0.0
        recall = both / sum(true)
        total = precision + recall
        values.append(2 * precision * recall / total if total else 0.0)
    return mean(values)


def brute_micro_f1(predicted, positives, weights, k):
    pairs = list(zip(predicted, positives, strict=True))
    both = sum(len(set(p[:k]) & t) for p, t in pairs)
    total = sum(len(p[:k]) + len(t) for p, t in pairs)
    return 2 * both / total if total else 0.0


def brute_sample_f1(predicted, positives, weights, k):
    return mean(
        2 * len(set(p[:k]) & t) / (len(p[:k]) + len(t)) if p[:k] or t else 0.0
        for p, t in zip(predicted, positives, strict=True)
    )


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


BRUTE = {
    "P": brute_precision,
    "R": brute_recall,
    "RP": brute_r_precision,
    "nDCG": brute_ndcg,
    "MRR": brute_reciprocal_rank,
    "PSP": brute_psp,
    "PSnDCG": brute_psndcg,
    "C": brute_coverage,
    "MacroF1": brute_macro_f1,
    "MicroF1": brute_micro_f1,
    "F1": brute_sample_f1,
}


def brute(name, predicted, positives, weights):
    metric, _, k = name.partition("@")
    definition = BRUTE.get(metric) or getattr(type(parse(name)), "definition", None)
    if definition is None:
        pytest.skip(f"{metric} has no static method 'definition' to compare with")
    return definition(predicted, positives, weights, int(k) if k else 10**6)


# --- random data with ties, vacant places, filters and queries without positives -----------------


def random_case(seed, n=23, n_labels=17, width=7):
    rng = np.random.default_rng(seed)
    truth = sp.csr_matrix(rng.random((n, n_labels)) < 0.2, dtype=np.float32)
    rows = np.argsort(rng.random((n, n_labels)), axis=1)[:, :width].astype(np.int64)
    # Few distinct scores, negative ones too, so that ties are common.
    scores = rng.integers(-2, 2, rows.shape).astype(np.float32)
    vacant = np.arange(rows.shape[1]) >= rng.integers(0, width + 1, n)[:, None]
    rows[vacant], scores[vacant] = -1, -np.inf
    filters = np.argwhere(rng.random((n, n_labels)) < 0.1)
    return TopK(rows, scores), truth, filters, 1 + 5 * rng.random(n_labels)


def as_lists(topk, truth, filters):
    """The same case for the brute force: sort by (-score, row), drop what is filtered."""
    banned = {(int(i), int(j)) for i, j in filters}
    predicted, positives = [], []
    for query in range(len(topk)):
        places = [
            (-float(score), int(row))
            for row, score in zip(topk.rows[query], topk.scores[query], strict=True)
            if row >= 0 and (query, int(row)) not in banned
        ]
        predicted.append([row for _, row in sorted(places)])
        labels = np.flatnonzero(truth[[query]].toarray()[0]).tolist()
        positives.append({label for label in labels if (query, label) not in banned})
    return predicted, positives


def hits_of(topk, truth, filters, weights):
    kept = drop_filtered(put_in_order(topk), filters, truth.shape[1])
    dense = truth.toarray()
    dense[filters[:, 0], filters[:, 1]] = 0
    return find_hits(kept, sp.csr_matrix(dense), inverse_propensities=weights)


@pytest.mark.parametrize("name", NAMES)
def test_equals_brute_force_with_ties_vacant_places_and_filters(name):
    for seed, sizes in enumerate([(23, 17, 7), (1, 1, 1), (5, 3, 3), (40, 60, 9)]):
        case = random_case(seed, *sizes)
        expected = brute(name, *as_lists(*case[:3]), case[3])
        assert parse(name).mean(hits_of(*case)) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    n_labels=st.integers(1, 12),
    width=st.integers(1, 12),
)
def test_every_metric_equals_brute_force_on_any_shape(seed, n, n_labels, width):
    case = random_case(seed, n, n_labels, min(width, n_labels))
    hits, lists = hits_of(*case), as_lists(*case[:3])
    for metric in METRICS:
        name = f"{metric}@3" if f"{metric}@3" in NAMES else metric
        value = parse(name).mean(hits)
        assert 0.0 <= value <= 1.0
        if metric in BRUTE or hasattr(type(parse(name)), "definition"):
            assert value == pytest.approx(brute(name, *lists, case[3]), abs=1e-12), name


def test_the_brute_force_knows_every_metric_of_umpteen():
    assert set(BRUTE) == set(METRICS.own)


@pytest.mark.parametrize("name", NAMES)
def test_prints_as_the_text_it_was_parsed_from(name):
    assert str(parse(name)) == name
    assert parse(str(parse(name))) == parse(name)


@pytest.mark.parametrize("name", NAMES)
def test_perfect_ranking_is_one(name):
    """Perfect: exactly the positives, those of largest weight first.

    P@k needs k positives per query and R@k at most k. F1 metrics and C@k need k to reach the last
    positive; ``positives_for_one`` declares it. The others reach 1 for any number above zero.
    """
    k = getattr(parse(name), "k", None) or 4
    declared = getattr(parse(name), "positives_for_one", None)
    rng = np.random.default_rng(3)
    n, n_labels = 11, 2 * max(k, 4) + 1
    counts = {"k": k, "at most k": min(k, 3)}.get(declared, 4)
    weights = 1 + 9 * rng.random(n_labels)
    rows = np.argsort(rng.random((n, n_labels)), axis=1)[:, :counts]
    rows = np.take_along_axis(rows, np.argsort(-weights[rows], axis=1), axis=1)
    truth = sp.csr_matrix(
        (np.ones(rows.size), (np.repeat(np.arange(n), counts), rows.ravel())), (n, n_labels)
    )
    scores = np.tile(-np.arange(counts, dtype=np.float32), (n, 1))
    hits = find_hits(TopK(rows, scores), truth, inverse_propensities=weights)
    assert parse(name).mean(hits) == pytest.approx(1.0, abs=1e-12)
    assert parse(name).mean(hits) <= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_disjoint_predictions_are_zero(name):
    topk, truth, _, weights = random_case(5)
    wrong = sp.csr_matrix(truth.toarray() == 0, dtype=np.float32)
    rows = np.stack([row.nonzero()[1][:7] for row in wrong])
    hits = find_hits(TopK(rows, topk.scores), truth, inverse_propensities=weights)
    assert parse(name).mean(hits) == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_order_of_queries_does_not_matter(name):
    topk, truth, filters, weights = random_case(8)
    order = np.random.default_rng(1).permutation(len(topk))
    where = np.argsort(order)
    moved = TopK(topk.rows[order], topk.scores[order])
    moved_filters = np.column_stack([where[filters[:, 0]], filters[:, 1]])
    one = parse(name).mean(hits_of(topk, truth, filters, weights))
    two = parse(name).mean(hits_of(moved, truth[order], moved_filters, weights))
    assert one == pytest.approx(two, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(parse(name), PerQuery)])
def test_values_per_query_average_to_the_metric(name):
    metric = parse(name)
    hits = hits_of(*random_case(13))
    values = metric.per_query(hits)
    assert values.shape == (len(hits),)
    assert values.mean() == pytest.approx(metric.mean(hits), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("n", "n_labels"), [(0, 4), (3, 4)])
def test_no_queries_or_no_positives_is_zero_and_not_nan(name, n, n_labels):
    topk = TopK(np.tile(np.arange(2), (n, 1)), np.zeros((n, 2), np.float32))
    truth = sp.csr_matrix((n, n_labels), dtype=np.float32)
    hits = find_hits(topk, truth, inverse_propensities=np.ones(n_labels))
    assert parse(name).mean(hits) == 0.0
