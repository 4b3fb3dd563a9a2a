"""The laws of every row of ``RETRIEVERS``, on a small trained run with changes."""

import json
import math
import shutil
import sys
from collections import Counter
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import umpteen
from umpteen.config.settings import from_mapping
from umpteen.data.dataset import Dataset, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.errors import RunError
from umpteen.ranking import RETRIEVERS
from umpteen.ranking.lexical.one_vs_rest_training import OneVsRestConfig
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS, RetrieverSpec
from umpteen.ranking.retrievers import backlinks, character_ranker, name_characters
from umpteen.ranking.retrievers.base import Retriever
from umpteen.run_folder import RunFolder
from umpteen.training.fit_ensemble import fit_ensemble_of_run
from umpteen.training.warm_start import WarmStart

TEXTS = [
    "about red apple quite",
    "old river",
    "",
    "zzz qqq",
    "purple lantern",
    "blue " * 30,
    "apple",
]
DEPTHS = (1, 5, 60)


def refit(run, data):
    settings = from_mapping(RunFolder(run).read_settings(), source="test")
    return fit_ensemble_of_run(
        RunFolder(run), data, settings, device="cpu", log=lambda line: None, again=True
    )


def with_linked_texts(data):
    """Add texts that are labels, each with the next label and the one before it."""
    train, n = data["train"], len(data.labels)
    linked = [[(row + 1) % n, (row - 1) % n] for row in range(n)]
    more = replace(
        train,
        titles=[*train.titles, *data.labels.titles],
        targets=sp.vstack([train.targets, targets_from_rows(linked, n)]).tocsr(),
        ids=None,
    )
    return Dataset(data.labels, {**data.splits, "train": more}, name="linked")


@pytest.fixture(scope="module")
def all_run(tiny_run, tiny_data, tmp_path_factory):
    """A run that has every retriever: one-vs-rest too, and the names of a run to start from."""
    place = tmp_path_factory.mktemp("retrievers")
    run = shutil.copytree(tiny_run, place / "run")
    umpteen.start(tiny_data.labels, out=place / "start", device="cpu")
    start = RunFolder(place / "start")
    WarmStart.begin(RunFolder(run), start, tiny_data, changes=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneVsRestConfig, "suits", lambda *given: True)
        patch.setattr(character_ranker, "MIN_TEXTS", 1)
        patch.setattr(character_ranker, "_read_already", lambda context: False)
        patch.setattr(backlinks, "MIN_LINKS", 1)
        refit(run, with_linked_texts(tiny_data))
    return run


@pytest.fixture(scope="module")
def model(all_run):
    return umpteen.Predictor.load(all_run, device="cpu")


@pytest.fixture(scope="module")
def snapshots(all_run, tmp_path_factory):
    """By name: nothing changed, and labels and examples added, replaced and retired."""
    run = shutil.copytree(all_run, tmp_path_factory.mktemp("changed") / "run")
    changed = umpteen.Predictor.load(run, device="cpu")
    before = changed.snapshot()
    changed.add_labels({"N0": "purple lantern", "N1": "red zeppelin", "N2": "velvet"})
    changed.add_examples(["old river", "purple curtain"], [["N2", "L03"], ["N0"]])
    changed.retire_labels(["L02", "N1"])
    return {"trained": before, "changed": changed.snapshot()}


@pytest.fixture(params=list(RETRIEVERS))
def retriever(request, model):
    return model._ranker.retrievers[request.param]


@pytest.fixture(params=["trained", "changed"])
def snapshot(request, snapshots):
    return snapshots[request.param]


def asked(model, texts=TEXTS):
    return Queries(list(texts), model.vectors(list(texts)))


def every_score(retriever, queries, snapshot):
    rows = torch.arange(snapshot.n_labels).repeat(len(queries), 1)
    return retriever.score(queries, rows, snapshot)


def test_every_row_was_fitted_and_loaded(model):
    assert list(model._ranker.retrievers) == list(RETRIEVERS)
    assert tuple(RETRIEVERS) in {variant.retrievers for variant in model.ensemble.variants}


def test_proposals_are_rows_of_the_snapshot(retriever, snapshot, model):
    for k in DEPTHS:
        rows = retriever.retrieve(asked(model), snapshot, k)
        assert rows.dtype == torch.int64
        assert len(rows) == len(TEXTS)
        assert ((rows >= -1) & (rows < snapshot.n_labels)).all()
        for line in rows.tolist():
            own = [row for row in line if row >= 0]
            assert len(own) == len(set(own))


def test_scores_are_finite_and_of_the_right_shape(retriever, snapshot, model):
    scores = every_score(retriever, asked(model), snapshot)
    assert scores.shape == (len(TEXTS), snapshot.n_labels)
    assert scores.dtype == torch.float32
    assert torch.isfinite(scores).all()


def test_a_batch_gives_what_its_texts_give_alone(retriever, snapshot, model):
    together = asked(model)
    rows = retriever.retrieve(together, snapshot, 5)
    scores = every_score(retriever, together, snapshot)
    for place, text in enumerate(TEXTS):
        alone = asked(model, [text])
        torch.testing.assert_close(
            every_score(retriever, alone, snapshot)[0], scores[place], atol=1e-5, rtol=1e-5
        )
        own = retriever.retrieve(alone, snapshot, 5)
        # Ties may be broken by the last bit of a product: the scores of proposals are compared.
        found, wanted = (
            retriever.score(each, torch.sort(part, dim=1, descending=True).values, snapshot)
            for each, part in ((alone, own), (asked(model, [text]), rows[place : place + 1]))
        )
        torch.testing.assert_close(
            found.sort(dim=1).values, wanted.sort(dim=1).values, atol=1e-5, rtol=1e-5
        )


def test_the_order_of_candidates_does_not_matter(retriever, snapshot, model):
    rng = np.random.default_rng(7)
    n = snapshot.n_labels
    rows = torch.from_numpy(np.array([rng.permutation(n)[:17] for _ in TEXTS]))
    rows[1, 4] = rows[3, 0] = -1
    order = torch.from_numpy(rng.permutation(17))
    scores = retriever.score(asked(model), rows, snapshot)
    again = retriever.score(asked(model), rows[:, order], snapshot)
    valid = rows[:, order] >= 0
    torch.testing.assert_close(again[valid], scores[:, order][valid], atol=1e-6, rtol=1e-6)


def test_proposals_have_the_best_scores(retriever, snapshot, model):
    queries = asked(model)
    scores = every_score(retriever, queries, snapshot).numpy()
    for k in DEPTHS:
        rows = retriever.retrieve(queries, snapshot, k).numpy()
        for line, own in zip(rows, scores, strict=True):
            proposed = line[line >= 0]
            values = np.sort(own[proposed])[::-1]
            others = np.delete(own, proposed)
            # Where fewer than k are proposed, the others have no score above 0.
            least = values[k - 1] if len(values) >= k else 0.0
            assert (others <= least + 1e-5).all()


def test_a_snapshot_gives_its_own_results_after_changes(retriever, snapshots, model):
    shared = asked(model)  # one request's cache must not leak from one snapshot to another
    found = {
        name: (
            retriever.retrieve(shared, each, 60).clone(),
            every_score(retriever, shared, each).clone(),
        )
        for name, each in snapshots.items()
    }
    for name, each in (("changed", snapshots["changed"]), ("trained", snapshots["trained"])):
        fresh = asked(model)
        assert torch.equal(retriever.retrieve(fresh, each, 60), found[name][0])
        assert torch.equal(every_score(retriever, fresh, each), found[name][1])
    assert int(found["trained"][0].max()) < 40


def test_padding_gets_some_score_and_disturbs_nothing(retriever, snapshot, model):
    rows = torch.full((len(TEXTS), 3), -1)
    assert retriever.score(asked(model), rows, snapshot).shape == rows.shape


def test_a_saved_retriever_is_the_same(retriever, model, all_run, snapshots):
    name = next(n for n, each in model._ranker.retrievers.items() if each is retriever)
    again = umpteen.Predictor.load(all_run, device="cpu")._ranker.retrievers[name]
    assert again is not retriever
    for snapshot in snapshots.values():
        first, second = (every_score(r, asked(model), snapshot) for r in (retriever, again))
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", list(RETRIEVERS))
def test_specs_come_from_the_classes(name):
    from umpteen.registry import resolve

    assert RETRIEVER_SPECS[name] is resolve(RETRIEVERS, name, kind="retriever").spec


# -- the ranker over all of them ------------------------------------------------------------------


def test_retired_labels_are_never_returned(model, snapshots):
    snapshot = snapshots["changed"]
    top = model._ranker.rank(asked(model), snapshot, 60)
    rows = top.rows[top.rows >= 0]
    assert snapshot.allowed[rows].all()
    assert not {"L02", "N1"} & {label_id for line in top.ids for label_id in line}
    assert "N0" in {label_id for line in top.ids for label_id in line}


def test_filters_are_respected(model, snapshots):
    snapshot = snapshots["changed"]
    n = snapshot.n_labels
    best = model._ranker.rank(asked(model), snapshot, 4).rows
    exclude = np.array(
        [(query, row) for query in range(0, 7, 2) for row in best[query] if row >= 0]
    )
    again = model._ranker.rank(asked(model), snapshot, 4, exclude=exclude).rows
    for query in range(7):
        if query % 2:
            np.testing.assert_array_equal(again[query], best[query])
        else:
            assert not set(best[query]) & set(again[query][again[query] >= 0])
    allowed = np.random.default_rng(5).random(n) < 0.5
    found = model._ranker.rank(asked(model), snapshot, 60, allowed=allowed).rows
    assert (allowed & snapshot.allowed)[found[found >= 0]].all()
    nothing = model._ranker.rank(asked(model), snapshot, 4, allowed=np.zeros(n, bool))
    assert (nothing.rows == -1).all()


def test_blocks_of_texts_give_the_same_as_all_at_once(model, snapshots, monkeypatch):
    exclude = np.array([[0, 0], [4, 38], [6, 1]])
    wanted = model._ranker.rank(
        asked(model), snapshots["changed"], 5, exclude=exclude, explain=True
    )
    monkeypatch.setitem(sys.modules["umpteen.ranking.ranker"].TEXTS_AT_ONCE, "cpu", 3)
    found = model._ranker.rank(asked(model), snapshots["changed"], 5, exclude=exclude, explain=True)
    np.testing.assert_array_equal(found.rows, wanted.rows)
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
    assert found.notes == wanted.notes
    assert [len(line) for line in found.explanations] == [len(w) for w in wanted.explanations]


# -- a retriever of one's own ---------------------------------------------------------------------


class FirstLetter(Retriever):
    """Labels whose text begins with the same letter as the text."""

    spec = RetrieverSpec("votes", "first_letter")

    def __init__(self, n_fitted):
        self.n_fitted = n_fitted

    @classmethod
    def fit(cls, context):
        return cls(len(context.texts))

    @classmethod
    def load(cls, folder, context):
        file = folder / "about.json"
        return cls(json.loads(file.read_text())["n"]) if file.is_file() else None

    def save(self, folder):
        (folder / "about.json").write_text(json.dumps({"n": self.n_fitted}))

    def retrieve(self, queries, snapshot, k):
        scores = self.score(
            queries, torch.arange(snapshot.n_labels).repeat(len(queries), 1), snapshot
        )
        values, rows = scores.topk(min(k, snapshot.n_labels), dim=1)
        return torch.where(values > 0, rows, -1)

    def score(self, queries, rows, snapshot):
        texts = snapshot.labels.texts
        found = [
            [float(row >= 0 and texts[row][:1] == text[:1]) for row in line]
            for text, line in zip(queries.texts, rows.tolist(), strict=True)
        ]
        return torch.tensor(found, dtype=torch.float32)


def test_a_retriever_is_added_with_one_class_and_one_row(
    tiny_run, tiny_data, tmp_path, monkeypatch
):
    module = ModuleType("first_letter_retriever")
    module.FirstLetter = FirstLetter
    monkeypatch.setitem(sys.modules, "first_letter_retriever", module)
    monkeypatch.setitem(RETRIEVERS.own, "first_letter", "first_letter_retriever:FirstLetter")
    run = shutil.copytree(tiny_run, tmp_path / "run")
    refit(run, tiny_data)
    model = umpteen.Predictor.load(run, device="cpu")
    loaded = model._ranker.retrievers["first_letter"]
    assert loaded.n_fitted == 36
    whole = max(model.ensemble.variants, key=lambda variant: len(variant.scorers))
    assert whole.scorers == ("dual", "classifier", "knn", "lexical", "first_letter")
    top = model.predict(["red apple", "zzz qqq"], 3, explain=True)
    assert top.ids[0][0] == "L00"
    less = model.predict("red apple", 3, without=["first_letter"], explain=True)
    assert "first_letter" not in less.explanations[0][0]["scores"]
    more = model.predict("red apple", 3, without=["dual"], explain=True)
    assert more.explanations[0][0]["scores"]["first_letter"] == 1.0
    assert "first_letter" in more.explanations[0][0]["contributions"]
    monkeypatch.delitem(RETRIEVERS.own, "first_letter")
    with pytest.raises(RunError, match="[Ff]it the ensemble again"):
        umpteen.Predictor.load(run, device="cpu")


# -- label names as they were scored before training ----------------------------------------------


def test_names_are_scored_by_the_cosines_of_the_run_that_training_started_from(
    model, all_run, snapshots
):
    start = umpteen.Predictor.load(all_run.parent / "start", device="cpu")
    texts = ["red apple", "purple lantern", "old river", "zzz qqq"]
    names = model._ranker.retrievers["names"]
    for snapshot in snapshots.values():
        # In float64, one pair at a time; a label that was added is encoded as a text.
        late = list(snapshot.labels.titles[snapshot.n_trained :])
        labels = [*start.label_vectors.numpy(), *(start.vectors([t]).numpy()[0] for t in late)]
        wanted = [
            [float(np.dot(a.astype(np.float64), b.astype(np.float64))) for b in labels]
            for a in start.vectors(texts).numpy()
        ]
        found = every_score(names, asked(model, texts), snapshot)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_names_of_a_smaller_snapshot_after_a_larger_one(all_run, snapshots, model):
    fresh = umpteen.Predictor.load(all_run, device="cpu")._ranker.retrievers["names"]
    trained, changed = snapshots["trained"], snapshots["changed"]
    first = every_score(fresh, asked(model), changed)
    shorter = every_score(fresh, asked(model), trained)
    torch.testing.assert_close(shorter, first[:, : trained.n_labels], atol=1e-6, rtol=0)
    assert torch.equal(every_score(fresh, asked(model), changed), first)


def grams(text):
    """Count the runs of 3 to 5 characters of every word with a space on either side."""
    words = [f" {word} " for word in text.lower().split()]
    return Counter(w[i : i + n] for w in words for n in (3, 4, 5) for i in range(len(w) - n + 1))


def slow_name_scores(texts, names, most=None):
    """20 times the cosine of tf-idf of character n-grams, in float64, one pair at a time."""
    known = Counter(gram for name in names for gram in grams(name))
    idf = {g: math.log((1 + len(names)) / (1 + n)) + 1 for g, n in known.items()}

    def vector(text):
        values = {g: (1 + math.log(n)) * idf[g] for g, n in grams(text).items() if g in idf}
        length = math.sqrt(sum(value * value for value in values.values())) or 1.0
        return {g: value / length for g, value in values.items()}

    rows = [vector(name) for name in names]
    if most is not None:
        for gram in idf:
            there = sorted((row[gram] for row in rows if gram in row), reverse=True)
            if len(there) > most:
                for row in rows:
                    if row.get(gram, there[0]) < there[most - 1]:
                        del row[gram]
    return [
        [20 * sum(v * row.get(g, 0.0) for g, v in vector(text).items()) for row in rows]
        for text in texts
    ]


@pytest.mark.parametrize("most", [None, 2])
def test_characters_of_names_equal_a_slow_loop(most, monkeypatch):
    names = ["abolition", "abolish slavery", "labels", "LABELLED text", "unrelated"]
    texts = ["abolishing", "a label", "zzz", "slave text"]
    if most is not None:
        monkeypatch.setattr(name_characters, "MAX_POSTINGS", most)
    found = name_characters.NameCharacters.of_names(names)
    snapshot = SimpleNamespace(n_trained=5, n_labels=5, labels=LabelSet(names, names))
    queries = Queries(texts, torch.zeros(4, 1))
    rows = torch.arange(5).repeat(4, 1)
    np.testing.assert_allclose(
        found.score(queries, rows, snapshot), slow_name_scores(texts, names, most), atol=0.02
    )
