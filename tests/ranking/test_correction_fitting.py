"""Weights of corrections: what they are fitted on, what they change, when they are left out."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import umpteen
from umpteen.ranking import correction_fitting as fitting
from umpteen.ranking import corrections
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.correction_features import VOTES, added_by_corrections, correction_votes
from umpteen.ranking.corrections import N_VOTES, CorrectionWeights, fit_size, fitted_rows
from umpteen.ranking.queries import Queries
from umpteen.store import NewLabel

FILLERS = ["about", "near", "with", "under", "over", "beyond"]


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def model(run):
    return umpteen.Predictor.load(run, device="cpu")


def texts_of(labels, fillers):
    return [f"{filler} {title}" for filler in fillers for title in labels.titles]


def other_labels(labels, times, seed=None):
    """The label seven rows further for each text, or labels drawn at random."""
    n = len(labels.ids)
    rows = [(row + 7) % n for _ in range(times) for row in range(n)]
    if seed is not None:
        rows = np.random.default_rng(seed).integers(0, n, n * times).tolist()
    return [[labels.ids[row]] for row in rows]


def share_right(model, texts, wanted, snapshot):
    top = model.rank(Queries(texts, model.vectors(texts)), snapshot, 1)
    return np.mean([ids == own for ids, own in zip(top.ids, wanted, strict=True)])


def test_sizes_rise_and_depend_on_the_number_alone():
    sizes = [fit_size(n) for n in range(3000)]
    assert sizes[: corrections.FIRST_FIT] == [0] * corrections.FIRST_FIT
    assert sizes == sorted(sizes)
    assert all(size <= n < 1.5 * size + 2 for n, size in enumerate(sizes) if size)
    assert all(fit_size(size) == size for size in set(sizes))
    assert fitted_rows(5).tolist() == [0, 1, 2, 3, 4]
    assert len(fitted_rows(4000)) == corrections.MAX_FITTED
    assert fitted_rows(4000)[-1] == 3999


def test_corrections_that_follow_a_rule_change_texts_alike(model):
    labels = model.labels
    texts = texts_of(labels, FILLERS[:4])
    model.add_examples(texts, other_labels(labels, 4))
    snapshot, held = model.snapshot(), texts_of(labels, FILLERS[4:])
    learned = snapshot.corrections
    assert learned.n == fit_size(len(texts))
    assert (learned.weights >= 0).all()
    assert learned.weights[: len(VOTES)].max() > 0
    wanted = other_labels(labels, 2)
    before = share_right(model, held, wanted, replace(snapshot, corrections=None))
    after = share_right(model, held, wanted, snapshot)
    assert after > before + 0.2
    assert after > 0.6
    top = model.predict(held, 5)
    assert (np.diff(top.scores, axis=1) <= 0).all()
    assert ((top.scores >= 0) & (top.scores <= 1)).all()


def test_corrections_without_a_rule_change_nothing(model):
    texts = texts_of(model.labels, FILLERS[:4])
    model.add_examples(texts, other_labels(model.labels, 4, seed=3))
    assert model.snapshot().corrections is None


def test_few_corrections_are_not_fitted(model):
    texts = texts_of(model.labels, FILLERS[:1])[: corrections.FIRST_FIT - 1]
    model.add_examples(texts, other_labels(model.labels, 1)[: len(texts)])
    assert model.snapshot().corrections is None
    assert model.as_trained().snapshot().corrections is None


def test_processes_that_read_in_other_steps_have_the_same_weights(run):
    first = umpteen.Predictor.load(run, device="cpu")
    texts = texts_of(first.labels, FILLERS[:4])
    wanted = other_labels(first.labels, 4)
    for start in range(0, len(texts), 7):
        first.add_examples(texts[start : start + 7], wanted[start : start + 7])
        first.snapshot()
    first.add_labels([NewLabel("late", "a label that came later")])
    again = umpteen.Predictor.load(run, device="cpu")
    one, two = first.snapshot().corrections, again.snapshot().corrections
    assert one.n == two.n == fit_size(len(texts))
    np.testing.assert_allclose(one.weights, two.weights, rtol=1e-4)
    rows, unseen = torch.tensor([[0, 39, 40, -1]]), torch.ones(1, 4, dtype=torch.bool)
    values = one.count_values(rows, unseen)
    np.testing.assert_allclose(values, two.count_values(rows, unseen), rtol=1e-4)
    assert values[0, 2:].tolist() == [0.0, 0.0]


def test_the_contributions_add_up_with_corrections(model):
    texts = texts_of(model.labels, FILLERS[:4])
    model.add_examples(texts, other_labels(model.labels, 4))
    held = texts_of(model.labels, FILLERS[4:])[:6]
    plain = replace(model.snapshot(), corrections=None)
    queries = Queries(held, model.vectors(held))
    with_them = model.rank(queries, model.snapshot(), 3, explain=True)
    without = model.rank(queries, plain, 40, explain=True)
    for place, line in enumerate(with_them.explanations):
        before = dict(zip(without.rows[place].tolist(), without.explanations[place], strict=False))
        gained = [
            entry["contributions"]["knn"] - before[row]["contributions"]["knn"]
            for row, entry in zip(with_them.rows[place].tolist(), line, strict=True)
        ]
        assert gained[0] > 0


def test_no_correction_is_its_own_neighbour_and_later_ones_are_not_used(model, monkeypatch):
    monkeypatch.setattr(fitting, "TEXTS_AT_ONCE", 16)
    texts = texts_of(model.labels, FILLERS[:2])
    model.add_examples(texts, other_labels(model.labels, 2))
    snapshot, n = model.snapshot(), 70
    examples = snapshot.examples
    own = model.store.example_texts([examples.stored.digests[i] for i in fitted_rows(n).tolist()])
    queries = Queries(own, model.vectors(own))
    vectors = examples.vectors.vectors[:n].numpy()
    for name in ("knn", "lexical_knn"):
        retriever = model._ranker.retrievers[name]
        near = fitting._nearest_others(retriever, queries, snapshot, fitted_rows(n), n)
        places = near.rows - examples.n_trained
        assert not (places == fitted_rows(n)[:, None]).any()
        assert (places[near.rows >= 0] < n).all()
        assert (np.diff(np.where(near.rows >= 0, near.scores, -9.0), axis=1) <= 0).all()
        if name == "knn":
            products = vectors @ vectors.T
            np.fill_diagonal(products, -np.inf)
            best = -np.sort(-products, axis=1)[:, : near.rows.shape[1]]
            np.testing.assert_allclose(near.scores[:, : n - 1], best[:, : n - 1], atol=1e-5)


def test_votes_of_corrections_are_a_softmax_with_a_background(model):
    labels = model.labels
    texts = texts_of(labels, FILLERS[:1])
    model.add_examples(texts, other_labels(labels, 1))
    snapshot, asked = model.snapshot(), texts[:3]
    queries = Queries(asked, model.vectors(asked))
    rows = torch.arange(len(labels.ids)).expand(3, -1).contiguous()
    retrievers = model._ranker.retrievers
    votes = correction_votes(queries, snapshot, rows, retrievers, "knn")
    products = model.vectors(asked).numpy() @ snapshot.examples.vectors.vectors.numpy().T
    order = np.argsort(-products, axis=1)[:, : VOTES["knn"].neighbours]
    stored = snapshot.examples.stored
    for place in range(3):
        near = products[place, order[place]]
        powers = np.exp((near - VOTES["knn"].background) / VOTES["knn"].temperature)
        wanted = np.zeros(len(labels.ids))
        for other, power in zip(order[place].tolist(), powers, strict=True):
            wanted[stored.rows_of(other)] += power / (1.0 + powers.sum())
        np.testing.assert_allclose(votes[place], wanted, atol=1e-4)
        alone, some = (
            Queries(asked[place : place + 1], queries.vectors[place : place + 1]),
            rows[:1, 1::3],
        )
        for name in VOTES:  # one text takes another way
            few = correction_votes(alone, snapshot, some, retrievers, name)
            all_of_them = correction_votes(queries, snapshot, rows, retrievers, name)
            np.testing.assert_allclose(few[0], all_of_them[place, 1::3], atol=1e-6)
    assert not correction_votes(queries, snapshot, rows, {}, "knn").any()
    learned = CorrectionWeights(40, np.array([2.0, 0, 0, 0, 0]), np.zeros(41, np.float32), None)
    found = Candidates(rows, {}, torch.ones_like(rows))
    added = added_by_corrections(queries, snapshot, found, retrievers, learned)
    np.testing.assert_allclose(added, 2.0 * votes, rtol=1e-6)


def test_numbers_of_corrections_count_otherwise_for_unseen_labels():
    weights = np.array([0.0, 0.0, 0.5, 0.25, 2.0])
    assert len(VOTES) == N_VOTES
    made = CorrectionWeights(32, weights, np.array([2.0, 3.0, 0.0, 0.0], np.float32), None)
    rows = torch.tensor([[1, 0, -1, 2, 9]])
    seen = made.count_values(rows, torch.zeros(1, 5, dtype=torch.bool))
    unseen = made.count_values(rows, torch.ones(1, 5, dtype=torch.bool))
    logs = np.log([4.0, 3.0, 1.0, 1.0, 1.0])
    np.testing.assert_allclose(seen[0], 0.5 * logs, rtol=1e-6)
    np.testing.assert_allclose(unseen[0], 0.75 * logs + [2.0, 2.0, 0, 0, 0], rtol=1e-6)
