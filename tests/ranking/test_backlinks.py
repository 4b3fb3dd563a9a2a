"""Backlinks equal a loop over texts and labels; when they are fitted; titles, files, changes."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.errors import RunError
from umpteen.ranking.queries import Queries
from umpteen.ranking.retrievers import backlinks
from umpteen.ranking.retrievers.backlinks import Backlinks
from umpteen.ranking.retrievers.base import FitContext, LoadContext

NAMES = ["Dog", "wolf", "cat", "house cat", "lion", "stone", "dog"]
TEXTS = ["dog", "WOLF", "cat", "lion", "a text that is no label", "house  cat", "wolf"]
LABELS = [[1, 2], [0, 4], [0, 3], [2], [5, 1], [2, 3], [4, 6]]
"""The last text repeats one, with other labels; "house cat" has itself as a label."""


def context(texts=TEXTS, labels=LABELS, names=NAMES):
    rows = np.repeat(np.arange(len(texts)), [len(own) for own in labels])
    columns = np.array([label for own in labels for label in own])
    shape = (len(texts), len(names))
    targets = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape)
    values = {
        "texts": texts, "targets": targets, "label_texts": names, "filters": None,
        "label_vectors": None, "device": torch.device("cpu"), "seconds": 9.0, "seed": 0,
        "log": [].append,
    }  # fmt: skip
    return FitContext(**values)


def same(text, name):
    return text.casefold().split() == name.casefold().split()


def slow_votes(text, texts, labels, names):
    """Each different label text whose own text has this one as a label votes once."""
    linking = set()
    for other, own in zip(texts, labels, strict=True):
        if any(same(names[label], text) for label in own) and not same(other, text):
            linking |= {row for row, name in enumerate(names) if same(name, other)}
    return [1 / len(linking) if row in linking else 0.0 for row in range(len(names))]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(backlinks, "MIN_LINKS", 1)


def asked(texts):
    return Queries(texts, torch.zeros(len(texts), 1))


def scores(retriever, texts, n=7):
    every = torch.arange(-1, n).repeat(len(texts), 1)
    return retriever.score(asked(texts), every, SimpleNamespace(n_labels=n))[:, 1:]


@pytest.mark.parametrize("texts", [[*TEXTS, "stone", "", "zzz"], ["cat"], ["zzz"]])
def test_votes_equal_a_slow_loop(texts):
    found = scores(Backlinks.fit(context()), texts)
    wanted = [slow_votes(text, TEXTS, LABELS, NAMES) for text in texts]
    np.testing.assert_allclose(found, wanted, atol=5e-4)
    assert found.dtype == torch.float32


def test_random_links_equal_the_slow_loop():
    rng = np.random.default_rng(4)
    names = [f"item {row}" for row in range(37)]
    texts = [f"Item {row}" for row in rng.integers(0, 45, 61)]
    labels = [sorted({*rng.integers(0, 37, 4).tolist()}) for _ in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backlinks, "MIN_SHARE", 0.0)
        retriever = Backlinks.fit(context(texts, labels, names))
    found = scores(retriever, names, 37)
    wanted = [slow_votes(name, texts, labels, names) for name in names]
    np.testing.assert_allclose(found, wanted, atol=5e-4)
    top = retriever.retrieve(asked(names), SimpleNamespace(n_labels=37), 5).numpy()
    for row, own in enumerate(top):
        best = np.sort(wanted[row])[::-1][:5]
        np.testing.assert_allclose([wanted[row][k] for k in own if k >= 0], best[best > 0])


def test_one_way_links_and_few_links_are_no_evidence(monkeypatch):
    chain = [f"p{row}" for row in range(9)]
    one_way = context(chain[:8], [[row + 1] for row in range(8)], chain)
    assert Backlinks.fit(one_way) is None
    assert Backlinks.fit(context(["a", "b"], [[0], [0]], ["nothing alike"])) is None
    monkeypatch.setattr(backlinks, "MIN_LINKS", 10**6)
    assert Backlinks.fit(context()) is None


def test_titles_before_contents_are_found():
    contents = [f"{text} and what is said about it, at length" for text in TEXTS]
    whole, begun = Backlinks.fit(context()), Backlinks.fit(context(contents))
    assert not len(whole.labels.words)
    assert begun.labels.words.tolist() == [1, 2]
    texts = ["cat", "house cat", "lion", "wolf"]
    longer = [f"{text} and other words" for text in texts]
    assert torch.equal(scores(begun, longer), scores(whole, texts))
    # "house cat" is the title, not "house"; a part of a word is none.
    groups = begun.labels.groups(["house cats", "house cat x", "wolfram"])
    assert groups.tolist()[0] == groups.tolist()[2] == -1
    assert groups[1] >= 0


def test_tags_at_the_beginning_of_many_texts_are_no_titles():
    tags = [f"tag{row}" for row in range(6)]
    texts = [f"{tags[row % 6]} question number {row}" for row in range(60)]
    labels = [[(row + 1) % 6, (row + 5) % 6] for row in range(60)]
    assert Backlinks.fit(context(texts, labels, tags)) is None
    assert Backlinks.fit(context(texts[:6], labels[:6], tags)) is not None


def test_an_empty_text_has_no_votes():
    names, texts = [*NAMES, "", ""], [*TEXTS, ""]
    found = scores(Backlinks.fit(context(texts, [*LABELS, [0, 7]], names)), [*TEXTS, ""], 9)
    assert (found[:, 7:] == 0).all()
    assert (found[-1] == 0).all()
    np.testing.assert_allclose(found[:-1, :7], scores(Backlinks.fit(context()), TEXTS))


def test_a_loaded_retriever_gives_the_same_scores(tmp_path):
    fitted = Backlinks.fit(context())
    fitted.save(tmp_path)
    loading = LoadContext(None, len(NAMES), torch.device("cpu"), True)
    loaded = Backlinks.load(tmp_path, loading)
    assert torch.equal(scores(loaded, TEXTS), scores(fitted, TEXTS))
    assert Backlinks.load(tmp_path / "missing", loading) is None


@pytest.mark.parametrize("name", ["keys", "words", "weights", "indices"])
def test_a_damaged_file_is_named(tmp_path, name):
    Backlinks.fit(context()).save(tmp_path)
    file = tmp_path / f"{name}.npy"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(RunError, match="is damaged"):
        Backlinks.load(tmp_path, LoadContext(None, len(NAMES), torch.device("cpu"), True))


def test_keys_out_of_order_are_refused(tmp_path):
    Backlinks.fit(context()).save(tmp_path)
    keys = np.load(tmp_path / "keys.npy")
    np.save(tmp_path / "keys.npy", keys[::-1].copy())
    with pytest.raises(RunError, match="not in order"):
        Backlinks.load(tmp_path, LoadContext(None, len(NAMES), torch.device("cpu"), True))


def test_labels_that_were_added_later_have_no_votes():
    retriever = Backlinks.fit(context())
    wide = scores(retriever, TEXTS, len(NAMES) + 3)
    assert (wide[:, len(NAMES) :] == 0).all()
    assert torch.equal(wide[:, : len(NAMES)], scores(retriever, TEXTS))
