"""Per-label counts and the choice of queries, against loops written out."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.labels import LabelSet
from umpteen.report.cases import choose_queries
from umpteen.report.label_table import count_labels, most_gained, most_missed
from umpteen.report.outcomes import HeadOutcome, Outcome

N, L = 37, 11


def make_outcome(heads=("dual", "classifier", "combined"), seed=3):
    rng = np.random.default_rng(seed)
    truth = sp.csr_matrix((rng.random((N, L)) < 0.2).astype(np.float32))
    outcomes = {}
    for head in heads:
        rows = np.argsort(rng.random((N, L)), axis=1)[:, :5].astype(np.int64)
        rows[0, 3:] = -1
        right = np.take_along_axis(truth.toarray() > 0, np.maximum(rows, 0), axis=1) & (rows >= 0)
        outcomes[head] = HeadOutcome({}, (), rows, right)
    labels = LabelSet([f"l{i}" for i in range(L)], [f"label {i}" for i in range(L)])
    texts = [f"query {i}" for i in range(N)]
    return Outcome(outcomes, "test", "data", texts, truth, labels, np.arange(L))


def test_counts_of_labels_equal_a_loop_over_queries():
    outcome = make_outcome()
    counts = count_labels(outcome)
    truth = outcome.truth.toarray()
    for label in range(L):
        having = [query for query in range(N) if truth[query, label]]
        assert counts.positives[label] == len(having)
        for name, head in outcome.heads.items():
            found = [query for query in having if label in head.rows[query].tolist()]
            assert counts.found[name][label] == len(found)


def test_gains_are_ranked_by_amount_then_share_then_row():
    counts = count_labels(make_outcome())
    gain = counts.found["combined"] - counts.found["dual"]
    expected = sorted(
        (row for row in range(L) if gain[row] > 0),
        key=lambda row: (-gain[row], -gain[row] / counts.positives[row], row),
    )
    assert expected  # else the test says nothing
    assert most_gained(counts, "combined", "dual", 99).tolist() == expected
    assert most_gained(counts, "combined", "dual", 2).tolist() == expected[:2]
    assert not set(expected) & set(most_gained(counts, "dual", "combined", 99).tolist())


def test_labels_never_missed_are_not_listed():
    counts = count_labels(make_outcome())
    rows = most_missed(counts, "combined", 99)
    missed = counts.positives - counts.found["combined"]
    assert set(rows.tolist()) == set(np.flatnonzero(missed).tolist())
    assert (np.diff(missed[rows]) <= 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_chosen_queries_are_what_their_group_says_and_come_once(seed):
    outcome = make_outcome(seed=seed)
    groups = choose_queries(outcome)
    shown = [row for rows in groups.values() for row in rows.tolist()]
    assert len(shown) == len(set(shown))
    assert all(outcome.truth[row].nnz for row in shown)
    for row in groups.get("Where no head finds a true label", []):
        assert not any(head.hits[row].any() for head in outcome.heads.values())
    for row in groups["Where the heads differ most"]:
        assert len({int(head.hits[row].sum()) for head in outcome.heads.values()}) > 1
    assert [rows.tolist() for rows in groups.values()] == [
        rows.tolist() for rows in choose_queries(outcome).values()
    ]


def test_a_run_of_one_head_has_no_group_of_differences():
    assert set(choose_queries(make_outcome(("dual",)))) == {
        "Drawn at random",
        "Where no true label is found",
    }
