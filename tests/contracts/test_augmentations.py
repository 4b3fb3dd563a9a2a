"""Laws that every way to give label texts targets must keep."""

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.augment import AUGMENTATIONS, SUMMARIES
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.walks import visited_neighbours, visits_by_label
from umpteen.registry import resolve

every = pytest.mark.parametrize("name", sorted(AUGMENTATIONS))


def relevance(n, n_labels, seed=0, density=0.15):
    """A matrix in which some queries and, on purpose, the last label have nothing."""
    rng = np.random.default_rng(seed)
    dense = (rng.random((n, n_labels)) < density).astype(np.float32)
    dense[:, -1] = 0
    return sp.csr_matrix(dense)


def made(name, y, labels=None, **options):
    labels = np.arange(y.shape[1]) if labels is None else labels
    told = []
    found, dropped = resolve(AUGMENTATIONS, name, kind="augmentation")(
        y, labels, GraphOptions(**options), lambda *done: told.append(done)
    )
    assert told[-1] == (len(labels), len(labels))
    return found, dropped


def test_every_method_has_a_summary():
    assert set(SUMMARIES) == set(AUGMENTATIONS)


@every
@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (57, 23)])
def test_targets_are_sorted_and_in_zero_to_one(name, shape):
    found, _ = made(name, relevance(*shape))
    assert found.shape == (shape[1], shape[1])
    assert found.dtype == np.float32
    assert ((found.data > 0) & (found.data <= 1)).all()
    assert found.has_sorted_indices
    assert (found.getnnz(axis=1) >= 1).all()


@every
def test_a_label_is_its_own_full_target(name):
    y = relevance(40, 13)
    own = np.float32(1 / (1 + np.exp(-1)) if name == "glas" else 1)  # S_jj = 1, through a sigmoid
    np.testing.assert_array_equal(made(name, y)[0].diagonal(), np.full(13, own))


@every
def test_a_label_without_queries_has_itself_alone(name):
    found, _ = made(name, relevance(40, 13))
    assert found[12].indices.tolist() == [12]


@every
def test_labels_that_never_come_together_are_no_targets(name):
    y = relevance(60, 11)
    together = (y.T @ y).toarray() > 0
    np.fill_diagonal(together, True)
    if name == "walks":  # more than one step away is a target too
        together = np.linalg.matrix_power(together.astype(float), 11) > 0
    assert not (made(name, y)[0].toarray() > 0)[~together].any()


@every
def test_some_labels_have_the_rows_they_have_among_all(name):
    y = relevance(50, 12)
    some = np.array([7, 2, 11])
    options = {"restart": 1.0, "walk_steps": 4000, "delta": 0.0}
    whole = made(name, y, **options)[0].toarray()[some]
    part = made(name, y, some, **options)[0].toarray()
    np.testing.assert_allclose(part, whole, atol=0.08 if name == "walks" else 0)


@every
def test_relevance_below_one_counts_as_relevance(name):
    y = relevance(50, 12)
    soft = y.copy()
    soft.data[:] = 0.3
    np.testing.assert_array_equal(made(name, soft)[0].toarray(), made(name, y)[0].toarray())


@every
def test_the_matrix_given_is_not_changed(name):
    y = relevance(30, 8)
    before = y.toarray().copy()
    made(name, y, max_positives=2, max_queries=3)
    np.testing.assert_array_equal(y.toarray(), before)


@every
def test_the_same_seed_gives_the_same_targets(name):
    y = relevance(80, 10, density=0.5)
    one, two = (made(name, y, max_queries=5, seed=3)[0].toarray() for _ in range(2))
    np.testing.assert_array_equal(one, two)


@every
def test_no_labels_make_no_rows(name):
    y = relevance(8, 5)
    found, _ = resolve(AUGMENTATIONS, name, kind="augmentation")(
        y, np.zeros(0, np.int64), GraphOptions(), lambda *done: None
    )
    assert found.shape == (0, 5)


def test_gandalf_is_the_expression_of_the_paper():
    y = relevance(73, 19, density=0.3)
    dense = y.toarray().astype(np.float64)
    expected = np.zeros((19, 19))
    for j in range(19):
        for other in range(19):
            both = float((dense[:, j] * dense[:, other]).sum())
            own = float(dense[:, j].sum())
            if own and both / own > 0.1:
                expected[j, other] = both / own
    expected[18, 18] = 1.0
    np.testing.assert_allclose(made("gandalf", y)[0].toarray(), expected, rtol=1e-6)


def test_a_share_of_exactly_delta_is_not_above_it():
    y = sp.csr_matrix(np.array([[1, 1]] + [[1, 0]] * 9, np.float32))
    assert made("gandalf", y)[0][0].indices.tolist() == [0]
    assert made("gandalf", y, delta=0.099)[0][0].indices.tolist() == [0, 1]


def test_glas_is_the_sigmoid_of_the_symmetric_share():
    y = relevance(60, 15, density=0.2)
    dense = y.toarray().astype(np.float64)
    both = dense.T @ dense
    own = np.maximum(both.diagonal(), 1)
    symmetric = (both / own[:, None] + both / own[None, :]) / 2
    np.fill_diagonal(symmetric, 1.0)  # also where a label has no query
    expected = np.where(symmetric > 0, 1 / (1 + np.exp(-symmetric)), 0.0)
    assert expected[14, 14] == expected[0, 0] == pytest.approx(0.7310586)
    np.testing.assert_allclose(made("glas", y)[0].toarray(), expected, rtol=1e-6)


@pytest.mark.parametrize("restart", [1.0, 0.6])
def test_walks_tend_to_the_visits_of_the_chain(restart):
    y = relevance(25, 7, density=0.4)
    dense = y.toarray().astype(np.float64)
    to_query = dense.T / np.maximum(dense.T.sum(axis=1, keepdims=True), 1)
    to_label = dense / np.maximum(dense.sum(axis=1, keepdims=True), 1)
    hop = to_query @ to_label
    steps = 20000
    found = made("walks", y, restart=restart, walk_steps=steps, delta=0.0)[0].toarray()
    for j in range(6):
        here, visits = np.eye(7)[j], np.zeros(7)
        for _ in range(500):
            here = (restart * np.eye(7)[j] + (1 - restart) * here) @ hop
            visits += here
        others = np.arange(7) != j
        np.testing.assert_allclose(found[j, others], (visits / visits.max())[others], atol=0.05)


def test_the_graph_of_eclare_has_the_most_visited_labels_over_both_sums():
    y = relevance(60, 17, density=0.25)
    options = GraphOptions(walk_steps=300, restart=0.8, seed=5)
    ((_, visits),) = visits_by_label(y, np.arange(17), options, lambda *_: None)
    rows, weights = visited_neighbours(y, 4, options)
    kept = np.zeros((17, 17))
    for j, mine in enumerate(visits.toarray()):
        mine = mine.astype(np.float64)
        others = sorted((k for k in range(17) if k != j and mine[k]), key=lambda k: (-mine[k], k))
        kept[j, j] = max(mine[j], 1)
        kept[j, others[:3]] = mine[others[:3]]
    expected = kept / np.sqrt(kept.sum(axis=1)[:, None] * kept.sum(axis=0)[None, :])
    dense = np.zeros((17, 17))
    np.add.at(dense, (np.arange(17)[:, None], rows), weights)
    np.testing.assert_allclose(dense, expected, rtol=1e-6)
    np.testing.assert_array_equal(rows[:, 0], np.arange(17))
    assert dense[16].nonzero()[0].tolist() == [16]  # without queries: itself alone
    assert dense[16, 16] == 1


def test_a_walk_that_never_comes_home_keeps_its_label():
    y = sp.csr_matrix(np.array([[1] * 40], np.float32))
    rows, weights = visited_neighbours(y, 3, GraphOptions(walk_steps=2, restart=1.0))
    np.testing.assert_array_equal(rows[:, 0], np.arange(40))
    assert (weights[:, 0] > 0).all()
