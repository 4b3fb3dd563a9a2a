"""Stored examples: neighbours and votes against slow references, corrections, replaced texts."""

import hashlib

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.index.exact import ExactIndex
from umpteen.index.growing import GrowingIndex
from umpteen.ranking import examples as module
from umpteen.ranking.examples import Examples, vote_weights
from umpteen.ranking.growing_rows import GrowingRows
from umpteen.ranking.trained_examples import TrainedExamples, digest_texts
from umpteen.store.chunks import ChunkedList
from umpteen.store.state import StoredExamples
from umpteen.types import TopK

WIDTH, N_TERMS, N_LABELS = 6, 30, 13


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    for name in ("umpteen.index.growing", "umpteen.ranking.growing_rows"):
        monkeypatch.setattr(f"{name}.TAIL_ROWS", 4)
        monkeypatch.setattr(f"{name}.LEVEL_RATIO", 2)


def random_vectors(n, seed):
    values = np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(np.float32)
    return torch.nn.functional.normalize(torch.from_numpy(values), dim=1)


def random_terms(n, seed):
    rng = np.random.default_rng(seed)
    dense = rng.random((n, N_TERMS)) * (rng.random((n, N_TERMS)) < 0.15)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    return sp.csr_matrix((dense / np.maximum(norms, 1e-9)).astype(np.float32))


def random_labels(n, seed, n_labels=N_LABELS):
    rng = np.random.default_rng(seed)
    return [np.sort(rng.choice(n_labels, rng.integers(1, 4), replace=False)) for _ in range(n)]


def stored_of(texts, labels):
    """What a store holds after these examples, one position per text."""
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    packed = [np.asarray(own, "<i8").tobytes() for own in labels]
    return StoredExamples(
        ChunkedList(digests),
        ChunkedList(packed),
        ChunkedList(list(range(1, len(texts) + 1))),
        {digest: place for place, digest in enumerate(digests)},
    )


def trained_examples(n, with_index=True):
    if not n:
        return None, None
    labels = random_labels(n, 3)
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in labels])])
    targets = sp.csr_matrix(
        (np.ones(offsets[-1], np.float32), np.concatenate(labels), offsets), shape=(n, N_LABELS)
    )
    vectors = random_vectors(n, 1)
    digests = digest_texts([f"trained {row}" for row in range(n)])
    trained = TrainedExamples(vectors.numpy(), targets, digests, random_terms(n, 2))
    return trained, ExactIndex(vectors) if with_index else None


class Made:
    """Examples, and the plain lists that a slow reference reads."""

    def __init__(
        self, n_trained=29, n_corrections=0, *, one_by_one=True, again=(), normalize=False
    ):
        """``again``: corrections whose text is that of a training text."""
        trained, index = trained_examples(n_trained)
        self.texts = [f"correction {place}" for place in range(n_corrections)]
        for place, row in again:
            self.texts[place] = f"trained {row}"
        self.replaced = {row for _, row in again}
        self.labels = random_labels(n_corrections, 4, N_LABELS + 2)
        vectors, terms = random_vectors(n_corrections, 5), random_terms(n_corrections, 6)
        examples = Examples(
            trained,
            index,
            StoredExamples.empty(),
            GrowingIndex(WIDTH),
            GrowingRows(N_TERMS),
            normalize=normalize,
        )
        step = 1 if one_by_one else max(1, n_corrections)
        self.versions = [examples]
        for start in range(0, n_corrections, step):
            stop = start + step
            stored = stored_of(self.texts[:stop], self.labels[:stop])
            examples = examples.extended(stored, vectors[start:stop], terms[start:stop])
            self.versions.append(examples)
        self.examples, self.n_trained = examples, n_trained
        own = [trained.targets[row].indices for row in range(n_trained)] if trained else []
        self.all_labels = [*own, *self.labels]
        parts = [trained.terms.toarray()] if trained else []
        self.all_terms = np.concatenate([*parts, terms.toarray()]).astype(np.float64)
        parts = [trained.vectors] if trained else []
        self.all_vectors = np.concatenate([*parts, vectors.numpy()]).astype(np.float64)

    def nearest(self, scores, k, *, positive):
        """(B, k) the reference: every example one by one."""
        rows = np.full((len(scores), k), -1)
        values = np.full((len(scores), k), -np.inf)
        for query, line in enumerate(scores):
            found = [
                (-value, row)
                for row, value in enumerate(line)
                if row not in self.replaced and (value > 0 or not positive)
            ]
            for place, (value, row) in enumerate(sorted(found)[:k]):
                rows[query, place], values[query, place] = row, -value
        return rows, values


MADE = {
    "nothing": {"n_trained": 0},
    "training texts": {},
    "corrections": {"n_trained": 0, "n_corrections": 11},
    "both": {"n_corrections": 11},
    "both at once": {"n_corrections": 11, "one_by_one": False},
    "replaced": {"n_corrections": 9, "again": [(0, 3), (5, 28), (6, 0)]},
    "many replaced": {"n_corrections": 25, "again": [(place, place) for place in range(25)]},
}


@pytest.fixture(params=list(MADE))
def made(request):
    return Made(**MADE[request.param])


@pytest.mark.parametrize("k", [1, 5, 50])
def test_the_nearest_are_those_of_all_products(made, k):
    queries = random_vectors(7, 11)
    top = made.examples.nearest(queries, k)
    scores = queries.numpy().astype(np.float64) @ made.all_vectors.T
    rows, values = made.nearest(scores, k, positive=False)
    np.testing.assert_array_equal(top.rows, rows)
    np.testing.assert_allclose(top.scores, values, atol=1e-6)
    assert len(made.examples) == made.n_trained + len(made.labels)


@pytest.mark.parametrize("k", [1, 5, 50])
def test_the_nearest_by_terms_are_those_of_all_products(made, k):
    queries = random_terms(7, 12)
    top = made.examples.nearest_by_terms(queries, k)
    scores = queries.toarray().astype(np.float64) @ made.all_terms.T
    rows, values = made.nearest(scores, k, positive=True)
    np.testing.assert_allclose(top.scores, values, atol=1e-6)
    np.testing.assert_array_equal(top.rows, rows)


def slow_votes(made, near, n_labels, neighbours, temperature):
    votes = np.zeros((len(near), n_labels))
    for query in range(len(near)):
        own = [
            (row, score)
            for row, score in zip(near.rows[query], near.scores[query], strict=True)
            if row >= 0
        ][:neighbours]
        powers = [np.exp((float(score) - float(own[0][1])) / temperature) for _, score in own]
        for (row, _), power in zip(own, powers, strict=True):
            for label in made.all_labels[row]:
                votes[query, label] += power / sum(powers)
    return votes


@pytest.mark.parametrize("few", [0, 256])
def test_votes_are_a_softmax_over_neighbours(made, few, monkeypatch):
    monkeypatch.setattr(module, "FEW_NEIGHBOURS", few)
    n_labels = N_LABELS + 2
    near = made.examples.nearest(random_vectors(7, 11), 9)
    for neighbours, temperature in ((1, 0.1), (5, 0.03), (9, 2.0)):
        votes = made.examples.votes(near, n_labels, neighbours=neighbours, temperature=temperature)
        assert votes.shape == (7, n_labels)
        assert votes.dtype == np.float32
        wanted = slow_votes(made, near, n_labels, neighbours, temperature)
        np.testing.assert_allclose(votes.toarray(), wanted, atol=1e-6)
        assert votes.toarray().max() <= 1 + 1e-6


def test_weights_do_not_overflow_and_ignore_padding():
    rows = np.array([[3, 1, -1], [-1, -1, -1]])
    scores = np.array([[900.0, -900.0, -np.inf], [-np.inf] * 3], np.float32)
    weights = vote_weights(TopK(rows, scores), 3, 0.03)
    np.testing.assert_allclose(weights, [[1, 0, 0], [0, 0, 0]])
    assert weights.dtype == np.float32


def test_corrections_are_found_word_for_word():
    made = Made(n_corrections=9)
    texts = ["correction 4", "correction  4", "trained 3", "correction 8", ""]
    rows = made.examples.corrected_labels(texts)
    for place, wanted in ((0, made.labels[4]), (1, []), (2, []), (3, made.labels[8]), (4, [])):
        assert sorted(rows[place][rows[place] >= 0]) == sorted(wanted)
    assert Made().examples.corrected_labels(["correction 4"]).shape == (1, 0)


def test_an_earlier_version_lacks_later_corrections():
    made = Made(n_corrections=9, again=[(7, 3)])
    for size, version in enumerate(made.versions):
        assert version.n_corrections == size
        found = (version.corrected_labels(made.texts) >= 0).any(axis=1)
        np.testing.assert_array_equal(found, np.arange(9) < size)
        rows = version.nearest(random_vectors(5, 11), 40).rows
        assert rows.max() == 29 + size - 1
        assert (3 in rows) == (size <= 7)


def test_a_correction_that_gets_other_labels_votes_for_these():
    made = Made(n_corrections=6)
    labels = list(made.labels)
    labels[2] = np.array([0, 14])
    stored = stored_of(made.texts, labels)
    before = made.examples
    after = before.extended(stored, torch.zeros(0, WIDTH), random_terms(0, 0))
    assert len(after) == len(before)
    np.testing.assert_array_equal(after.corrected_labels(["correction 2"])[0], [0, 14])
    np.testing.assert_array_equal(after.labels_of(29 + 2), [0, 14])
    np.testing.assert_array_equal(before.labels_of(29 + 2), made.labels[2])
    near = TopK(np.array([[29 + 2]]), np.ones((1, 1), np.float32))
    votes = after.votes(near, 15, neighbours=1, temperature=0.1).toarray()[0]
    np.testing.assert_array_equal(np.flatnonzero(votes), [0, 14])


def test_labels_of_training_texts_are_their_targets():
    made = Made(n_corrections=2)
    for row in (0, 17, 28):
        np.testing.assert_array_equal(made.examples.labels_of(row), made.all_labels[row])


def test_vectors_that_are_not_normalized_are_compared_by_cosine():
    made = Made(n_trained=0, n_corrections=0, normalize=True)
    vectors = random_vectors(8, 5)
    lengths = torch.linspace(0.1, 30, 8)[:, None]
    texts = [f"correction {place}" for place in range(8)]
    stored = stored_of(texts, random_labels(8, 4))
    examples = made.examples.extended(stored, vectors * lengths, random_terms(8, 6))
    top = examples.nearest(vectors * lengths.flip(0), 1)
    np.testing.assert_array_equal(top.rows[:, 0], np.arange(8))
    np.testing.assert_allclose(top.scores, 1.0, atol=1e-6)


def test_growing_rows_are_the_rows_that_were_added():
    rows = random_terms(83, 7)
    grown, versions = GrowingRows(N_TERMS), []
    for row in range(83):
        grown = grown.extended(rows[row])
        versions.append(grown)
    assert len(grown.blocks) < 9
    for size, version in enumerate(versions, 1):
        assert len(version) == size
        whole = sp.vstack([block.rows for block in version.blocks]).toarray()
        np.testing.assert_array_equal(whole, rows[:size].toarray())
        inverted = sp.hstack([block.inverted for block in version.blocks]).toarray()
        np.testing.assert_array_equal(inverted, whole.T)
    assert grown.extended(rows[:0]) is grown
