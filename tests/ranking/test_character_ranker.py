"""The lexical ranker over character n-grams: names as a slow loop, when it is fitted, files."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.data.labels import LabelSet
from umpteen.ranking.lexical.one_vs_rest import OneVsRest
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.queries import Queries
from umpteen.ranking.retrievers import character_ranker
from umpteen.ranking.retrievers.base import FitContext, LoadContext
from umpteen.ranking.retrievers.character_ranker import CharacterRanker
from umpteen.ranking.retrievers.lexical import OneVsRestRetriever

TEXTS = ["abolishing slavery", "a labelled text", "relabel", "abolition now", "texture"] * 3
NAMES = ["abolition", "labels", "TEXT"]


def context(**changes):
    owners = np.array([0, 1, 1, 0, 2] * 3)
    targets = sp.csr_matrix((np.ones(15, np.float32), (np.arange(15), owners)))
    values = {
        "texts": TEXTS, "targets": targets, "label_texts": NAMES, "filters": None,
        "label_vectors": None, "device": torch.device("cpu"), "seconds": 60.0, "seed": 0,
        "log": [].append,
    }  # fmt: skip
    return FitContext(**values | changes)


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(character_ranker, "MIN_TEXTS", 15)


def grams(text):
    words = [f" {word} " for word in text.lower().split()]
    return Counter(w[i : i + 4] for w in words for i in range(len(w) - 3))


def slow_cosines(texts, names):
    """20 times the cosine of tf-idf of runs of four characters, in float64, pair by pair."""
    both = [grams(text) for text in TEXTS + NAMES]
    counts = Counter(gram for own in both for gram in own)
    idf = {g: math.log((1 + len(both)) / (1 + n)) + 1 for g, n in counts.items() if n >= 2}

    def vector(text):
        values = {g: (1 + math.log(n)) * idf[g] for g, n in grams(text).items() if g in idf}
        length = math.sqrt(sum(value * value for value in values.values())) or 1.0
        return {g: value / length for g, value in values.items()}

    rows = [vector(name) for name in names]
    return [
        [20 * sum(v * row.get(g, 0.0) for g, v in vector(text).items()) for row in rows]
        for text in texts
    ]


def asked(texts):
    return Queries(texts, torch.zeros(len(texts), 1))


def snapshot_of(*added):
    names = [*NAMES, *added]
    return SimpleNamespace(n_trained=3, n_labels=len(names), labels=LabelSet(names, names))


def test_other_forms_of_a_word_find_its_label():
    fitted = CharacterRanker.fit(context())
    found = fitted.retrieve(asked(["abolitionist", "labelling", "zzz"]), snapshot_of(), 2)
    assert found[0, 0] == 0
    assert found[1, 0] == 1
    assert (found[2] == -1).all()


def test_names_of_added_and_hidden_labels_equal_a_slow_loop():
    fitted = CharacterRanker.fit(context())
    added = ["abolish", "text label"]
    texts = ["abolishing a label", "zzz", "texture", "labelled"]
    rows = torch.tensor([[3, 4, -1]]).repeat(4, 1)
    wanted = slow_cosines(texts, added)
    made = fitted.score(asked(texts), rows, snapshot_of(*added))
    np.testing.assert_allclose(made[:, :2], wanted, atol=1e-4)
    places = np.tile([0, 1], (4, 1))
    np.testing.assert_allclose(fitted.name_scores(asked(texts), added, places), wanted, atol=1e-4)
    best = fitted.retrieve(asked(texts), snapshot_of(*added), 5)
    assert [4 in row for row in best.tolist()] == [scores[1] > 0 for scores in wanted]


def test_scores_are_vectors_times_weights_before_and_after_files(tmp_path):
    fitted = CharacterRanker.fit(context())
    fitted.save(tmp_path)
    loaded = CharacterRanker.load(
        tmp_path, LoadContext(None, 3, torch.device("cpu"), stores_examples=False)
    )
    queries, rows = asked(TEXTS[:5]), torch.arange(3).repeat(5, 1)
    wanted = fitted.rows(TEXTS[:5]).toarray() @ fitted.ranker.all_weights().toarray()
    for each in (fitted, loaded):
        np.testing.assert_allclose(each.score(queries, rows, snapshot_of()), wanted, atol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [{"lexical": False}, {"texts": TEXTS[:14]}, {"ranker_seconds": 31.0},
     {"device": torch.device("meta")}],
    ids=["lexical scorers off", "too few texts", "too little time", "not on a CPU"],
)  # fmt: skip
def test_it_is_left_out_where_it_does_not_suit(changes):
    assert CharacterRanker.fit(context(**changes)) is None


def test_it_is_left_out_where_one_vs_rest_reads_n_grams():
    chars = CharacterRanker.fit(context()).ranker.vectorizer
    for used in (None, chars):
        classifier = OneVsRest(Vectorizer.fit(TEXTS), sp.csr_matrix((1, 3)), used)
        other = OneVsRestRetriever(classifier, torch.device("cpu"), None)
        made = CharacterRanker.fit(context(fitted={"one_vs_rest": other}))
        assert (made is None) == (used is not None)


def test_it_is_left_out_of_very_much_text(monkeypatch):
    monkeypatch.setattr(character_ranker, "MAX_CHARACTERS", sum(map(len, TEXTS)))
    assert CharacterRanker.fit(context()) is not None
    monkeypatch.setattr(character_ranker, "MAX_CHARACTERS", sum(map(len, TEXTS)) - 1)
    assert CharacterRanker.fit(context()) is None
