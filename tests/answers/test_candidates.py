"""The union of lists, values of pairs and the best of each query equal plain loops."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.answers.candidates import (
    Candidates,
    best_candidates,
    best_stored,
    first_places,
    look_up,
    union,
)

RNG = np.random.default_rng(8)


def matrix(n=6, m=13, share=0.4):
    return sp.csr_matrix(np.where(RNG.random((n, m)) < share, RNG.integers(1, 4, (n, m)), 0) * 1.0)


def test_the_union_holds_each_label_once_without_excluded_pairs():
    tops = [np.array([[3, 1, -1], [0, 2, 5]]), np.array([[1, 4], [-1, -1]])]
    queries, rows = union(tops, np.array([[0, 4], [1, 9]]), 10)
    assert list(zip(queries.tolist(), rows.tolist(), strict=True)) == [
        (0, 1),
        (0, 3),
        (1, 0),
        (1, 2),
        (1, 5),
    ]


def test_values_are_looked_up_and_zero_elsewhere():
    given = matrix()
    queries = np.repeat(np.arange(6), 15)
    rows = np.tile(np.arange(15), 6)  # two beyond the matrix
    dense = np.concatenate([given.toarray(), np.zeros((6, 2))], axis=1)
    np.testing.assert_array_equal(look_up(given, queries, rows), dense[queries, rows])
    nothing = look_up(sp.csr_matrix((3, 4)), np.array([0]), np.array([1]))
    assert nothing.tolist() == [0]


@pytest.mark.parametrize("k", [1, 3, 20])
def test_the_best_stored_values_come_first(k):
    given = matrix()
    found = best_stored(given, k)
    for row in range(6):
        dense = given.toarray()[row]
        order = sorted(np.flatnonzero(dense).tolist(), key=lambda c: (-dense[c], c))[:k]
        assert found[row][found[row] >= 0].tolist() == order


def test_the_best_candidates_of_each_query_carry_their_probabilities():
    queries = np.array([0, 0, 0, 2, 2])
    rows = np.array([4, 5, 6, 1, 7])
    scores = np.array([1.0, 3.0, 3.0, -2.0, 0.0])
    chances = np.array([0.1, 0.8, 0.8, 0.2, 0.4])
    top = best_candidates(scores, chances, Candidates(queries, rows, {}, 3), 2)
    assert top.rows.tolist() == [[5, 6], [-1, -1], [7, 1]]
    np.testing.assert_allclose(top.scores, [[0.8, 0.8], [-np.inf, -np.inf], [0.4, 0.2]])
    first = first_places(scores, Candidates(queries, rows, {}, 3), 3)
    assert first.tolist() == [[1, 2, 0], [-1, -1, -1], [4, 3, -1]]


def test_some_queries_can_be_taken_out():
    queries = np.array([0, 0, 1, 3])
    given = Candidates(queries, np.arange(4), {"dual": np.arange(4, dtype=np.float32)}, 4)
    some = given.of(np.array([True, False, True, True]))
    assert some.queries.tolist() == [0, 0, 2]
    assert some.rows.tolist() == [0, 1, 3]
    assert some.scores["dual"].tolist() == [0, 1, 3]
    assert some.n_queries == 3
    assert some.starts.tolist() == [0, 2]
