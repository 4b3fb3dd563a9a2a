"""Label vectors: searches over trained and added labels, and scores of pairs, against products."""

import numpy as np
import pytest
import torch

from umpteen.errors import ConfigError
from umpteen.index.exact import ExactIndex
from umpteen.index.growing import GrowingIndex
from umpteen.ranking import added_labels
from umpteen.ranking.added_labels import NEIGHBOURS, SHARPNESS, added_label_vectors
from umpteen.ranking.label_vectors import LabelVectors

DIM = 5
TWO_HEADS = {
    "dual": slice(0, DIM),
    "classifier": slice(DIM, 2 * DIM),
    "combined": slice(0, 2 * DIM),
}
CPU = torch.device("cpu")


def unit(n, width, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, width)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def made(n=23, n_added=0, columns=TWO_HEADS, **options):
    """Label vectors, the added ones, and all of them in float64."""
    width = max(part.stop for part in columns.values())
    trained, more = unit(n, width, 1), unit(n_added, width, 2)
    added = GrowingIndex(width)
    for row in range(n_added):
        added = added.extended(torch.from_numpy(more[row : row + 1]))
    everything = np.concatenate([trained, more]).astype(np.float64)
    return LabelVectors(trained, columns, CPU, **options), added, everything


def brute_force(scores, k):
    """(B, k) rows and scores; -1 and -inf where a score is -inf."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(scores, order, 1)
    rows = np.where(np.isfinite(values), order, -1)
    missing = k - rows.shape[1]
    return (
        np.pad(rows, ((0, 0), (0, max(0, missing))), constant_values=-1),
        np.pad(values, ((0, 0), (0, max(0, missing))), constant_values=-np.inf),
    )


@pytest.mark.parametrize("head", ["dual", "classifier", "combined"])
@pytest.mark.parametrize("n_added", [0, 1, 9])
@pytest.mark.parametrize("filters", ["none", "exclude", "allowed", "both"])
def test_a_search_is_that_of_all_products(head, n_added, filters):
    vectors, added, everything = made(n_added=n_added)
    n, queries = len(everything), unit(7, 2 * DIM, 3)
    columns = TWO_HEADS[head]
    scores = queries[:, columns].astype(np.float64) @ everything[:, columns].T
    exclude = allowed = None
    rng = np.random.default_rng(4)
    if filters in ("exclude", "both"):
        exclude = np.column_stack([rng.integers(0, 7, 40), rng.integers(0, n, 40)])
        scores[exclude[:, 0], exclude[:, 1]] = -np.inf
    if filters in ("allowed", "both"):
        allowed = rng.random(n) < 0.6
        scores[:, ~allowed] = -np.inf
    for k in (1, 4, n, n + 3):
        top = vectors.search(
            head, torch.from_numpy(queries), k, added, exclude=exclude, allowed=allowed
        )
        rows, values = brute_force(scores, k)
        np.testing.assert_array_equal(top.rows, rows)
        np.testing.assert_allclose(top.scores, values, atol=1e-6)


def test_pair_scores_are_entries_of_the_product():
    vectors, added, everything = made(n_added=6)
    queries = unit(7, 2 * DIM, 3)
    rows = np.random.default_rng(5).integers(-1, len(everything), (7, 11))
    rows[2] = -1
    found = vectors.pair_scores(
        torch.from_numpy(queries), torch.from_numpy(rows), added, tuple(TWO_HEADS)
    )
    assert list(found) == list(TWO_HEADS)
    for head, columns in TWO_HEADS.items():
        scores = queries[:, columns].astype(np.float64) @ everything[:, columns].T
        wanted = np.where(rows >= 0, np.take_along_axis(scores, np.maximum(rows, 0), 1), 0.0)
        np.testing.assert_allclose(found[head].numpy(), wanted, atol=1e-6)


def test_pair_scores_are_those_of_a_search():
    vectors, added, everything = made(n_added=3)
    queries = torch.from_numpy(unit(4, 2 * DIM, 3))
    top = vectors.search("classifier", queries, len(everything), added)
    found = vectors.pair_scores(queries, torch.from_numpy(top.rows), added, ("classifier",))
    np.testing.assert_allclose(found["classifier"].numpy(), top.scores, atol=1e-6)


def test_one_head_alone_can_be_searched():
    columns = {"dual": slice(0, DIM)}
    vectors, added, everything = made(n_added=4, columns=columns)
    queries = unit(3, DIM, 6)
    top = vectors.search("dual", torch.from_numpy(queries), 9, added)
    rows, _ = brute_force(queries.astype(np.float64) @ everything.T, 9)
    np.testing.assert_array_equal(top.rows, rows)
    assert vectors.require(None) == "dual"


def test_low_memory_keeps_one_index_and_gives_the_same_results():
    vectors, added, _ = made(n_added=2)
    lean, _, _ = made(low_memory=True)
    queries = torch.from_numpy(unit(3, 2 * DIM, 6))
    for head in (*TWO_HEADS, *TWO_HEADS):
        ours, theirs = (each.search(head, queries, 5, added) for each in (lean, vectors))
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        assert list(lean._indexes) == [head]


def test_another_index_can_be_used_for_a_head():
    vectors, added, everything = made()
    queries = torch.from_numpy(unit(2, 2 * DIM, 6))
    before = vectors.search("dual", queries, 5, added).rows
    reversed_rows = torch.from_numpy(everything[::-1, TWO_HEADS["dual"]].astype(np.float32).copy())
    vectors.use_index("dual", ExactIndex(reversed_rows))
    np.testing.assert_array_equal(22 - vectors.search("dual", queries, 5, added).rows, before)


def test_a_mask_of_another_length_and_an_unknown_head_are_refused():
    vectors, added, _ = made(n_added=2)
    queries = torch.zeros(1, 2 * DIM)
    with pytest.raises(ValueError, match=r"allowed must be \(25,\)"):
        vectors.search("dual", queries, 1, added, allowed=np.ones(23, bool))
    with pytest.raises(ValueError, match="outside 1 queries x 25 labels"):
        vectors.search("dual", queries, 1, added, exclude=np.array([[0, 25]]))
    with pytest.raises(ConfigError, match="no head 'both'; it has: dual, classifier, combined"):
        vectors.require("both")


def test_added_labels_get_the_mean_classifier_vector_of_their_neighbours():
    vectors, _, everything = made()
    own = unit(4, 2 * DIM, 8)
    found = added_label_vectors(torch.from_numpy(own), vectors).numpy()
    np.testing.assert_array_equal(found[:, :DIM], own[:, :DIM])
    for place in range(4):
        cosines = everything[:, :DIM] @ own[place, :DIM].astype(np.float64)
        near = np.argsort(-cosines)[:NEIGHBOURS]
        weights = np.exp(SHARPNESS * (cosines[near] - cosines[near].max()))
        mean = (weights / weights.sum()) @ everything[near, DIM:]
        np.testing.assert_allclose(found[place, DIM:], mean / np.linalg.norm(mean), atol=1e-5)


def test_added_labels_of_a_dual_model_keep_their_vectors():
    vectors, _, _ = made(columns={"dual": slice(0, DIM)})
    own = torch.from_numpy(unit(2, DIM, 8))
    assert added_label_vectors(own, vectors) is own


def test_very_many_added_labels_have_almost_the_same_vectors(monkeypatch):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(200, 8))
    own = centres[rng.integers(200, size=9000)] + 0.3 * rng.normal(size=(9000, 8))
    own = (own / np.linalg.norm(own, axis=1, keepdims=True)).astype(np.float32)
    columns = {"dual": slice(0, 4), "classifier": slice(4, 8), "combined": slice(0, 8)}
    trained = LabelVectors(own, columns, torch.device("cpu"))
    added = torch.from_numpy(own[:37] + 0.01)
    exact = added_label_vectors(added, trained)
    monkeypatch.setattr(added_labels, "EXACT_PAIRS", 1000)
    approximate = added_label_vectors(added, trained)
    assert torch.equal(approximate[:, :4], added[:, :4])
    cosines = (exact[:, 4:] * approximate[:, 4:]).sum(dim=1)
    assert cosines.mean() > 0.98
