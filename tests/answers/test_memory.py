"""Neighbours vote as a plain loop would; what is added counts at once and outlives the process."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.answers.memory import Memory, digest_texts, nearest_vectors, votes
from umpteen.answers.remembered import Remembered
from umpteen.answers.words import Words
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError, LabelMismatch, RunError
from umpteen.index.exact import ExactIndex
from umpteen.journal import Journal
from umpteen.types import TopK

TEXTS = ["red fox", "red cat", "old owl", "blue owl", "blue cat"]
LABELS = LabelSet(["f", "c", "o", "x"], ["fox", "cat", "owl", "unused"])
OWN = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 0]], np.float32)


def encode(texts):
    """Unit vectors in which a letter is a direction."""
    vectors = np.zeros((len(texts), 26), np.float32)
    for row, text in enumerate(texts):
        for sign in text:
            if sign.isalpha():
                vectors[row, ord(sign) - ord("a")] += 1
    return torch.from_numpy(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def made(path=None):
    words = Words.learn([*TEXTS, *TEXTS])
    memory = Memory(
        encode(TEXTS).numpy(), sp.csr_matrix(OWN), digest_texts(TEXTS), words.vectors(TEXTS)
    )
    journal = None if path is None else Journal(path, kind="memory", belongs_to="these")
    return Remembered(memory, words, lambda: LABELS, encode, journal=journal)


def test_votes_equal_a_loop_over_neighbours():
    rng = np.random.default_rng(3)
    rows = np.array([[3, 1, 0, -1], [4, 2, 1, 0], [-1, -1, -1, -1]])
    scores = -np.sort(-rng.random((3, 4)).astype(np.float32), axis=1)
    scores[rows < 0] = -np.inf
    said = votes(TopK(rows, scores), sp.csr_matrix(OWN), neighbours=3, temperature=0.2).toarray()
    for query in range(3):
        near = [(r, s) for r, s in zip(rows[query, :3], scores[query, :3], strict=True) if r >= 0]
        total = sum(np.exp(s / 0.2) for _, s in near)
        expected = sum((np.exp(s / 0.2) / total * OWN[r] for r, s in near), np.zeros(4))
        np.testing.assert_allclose(said[query], expected, rtol=1e-5)
    assert said[2].sum() == 0


def test_the_nearest_of_two_indexes_are_those_of_one():
    vectors = torch.from_numpy(np.random.default_rng(1).normal(size=(9, 4)).astype(np.float32))
    queries = vectors[:3] + 0.1
    parts = [ExactIndex(vectors[:5].contiguous()), ExactIndex(vectors[5:].contiguous())]
    whole = ExactIndex(vectors).search(queries, 4)
    np.testing.assert_array_equal(nearest_vectors(parts, queries, 4).rows, whole.rows)
    without = nearest_vectors(parts, queries, 9, np.array([0, 2]))
    assert not {0, 2} & set(without.rows.ravel().tolist())
    assert (without.rows[:, -2:] == -1).all()


def test_with_vectors_of_any_length_the_nearest_are_those_by_cosine(tmp_path):
    """As of unit vectors: what was trained on, what was added, and the query."""
    lengths = {"red fox": 0.1, "red cat": 50.0, "old owl": 3.0, "blue owl": 0.5, "blue cat": 20.0}

    def stretched(texts):
        factors = [lengths.get(text, 7.0) for text in texts]
        return encode(texts) * torch.tensor(factors).unsqueeze(1)

    plain = made(tmp_path / "plain")
    memory = dataclasses.replace(plain.memory, vectors=stretched(TEXTS).numpy())
    journal = Journal(tmp_path / "stretched", kind="memory", belongs_to="these")
    odd = Remembered(
        memory, plain.words, lambda: LABELS, stretched, journal=journal, normalize=True
    )
    for remembered in (plain, odd):
        remembered.add(["red owl"], [["o"]])
    asked = ["red fox", "old owl", "blue dog"]
    expected = plain.nearest(encode(asked), 6, plain.refresh())
    found = odd.nearest(stretched(asked), 6, odd.refresh())
    np.testing.assert_array_equal(found.rows, expected.rows)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)


def test_a_memory_is_read_as_it_was_written(tmp_path):
    memory = made().memory
    memory.save(tmp_path)
    again = Memory.load(tmp_path, n_labels=4, n_words=memory.words.shape[1], width=26)
    np.testing.assert_array_equal(again.vectors, memory.vectors)
    np.testing.assert_array_equal(again.targets.toarray(), OWN)
    np.testing.assert_allclose(again.words.toarray(), memory.words.toarray(), atol=1e-3)
    assert again.n_bytes > memory.vectors.nbytes
    for wrong in ({"n_labels": 2}, {"width": 25}, {"n_words": 1}):
        sizes = {"n_labels": 4, "n_words": memory.words.shape[1], "width": 26, **wrong}
        with pytest.raises(RunError, match="fit it again"):
            Memory.load(tmp_path, **sizes)


def test_what_is_added_is_nearest_to_itself_at_once_and_after_a_restart(tmp_path):
    remembered = made(tmp_path / "journal")
    assert remembered.add(["green zebu", "red fox"], [["x"], ["c", "x"]]) == 2
    for each in (remembered, made(tmp_path / "journal")):
        now = each.refresh()
        assert len(each) == 7
        near = each.nearest(encode(["green zebu", "red fox"]), 3, now)
        assert near.rows[:, 0].tolist() == [5, 6]
        # The newer word about the same text counts: the old one is not found any more.
        assert 0 not in near.rows
        words = each.words.vectors(["red fox"])
        assert each.nearest_by_words(words, 5, now).rows[0, 0] == 6
        assert 0 not in each.nearest_by_words(words, 5, now).rows
        targets = each.targets(LABELS.rows, 4, now).toarray()
        np.testing.assert_array_equal(targets[5:], [[0, 0, 0, 1], [0, 1, 0, 1]])
        assert each.said_of(["a", "red fox"], now) == ([1], [("c", "x")])


def test_targets_follow_additions_and_labels(tmp_path):
    remembered = made(tmp_path / "journal")
    for ids, rows in ((["x"], [3]), (["c", "x"], [1, 3]), (["o"], [2])):
        remembered.add(["green zebu"], [ids])  # as many additions, with other labels
        for n in (4, 5, 4):
            targets = remembered.targets(LABELS.rows, n, remembered.refresh())
            assert targets.shape == (6, n)
            assert targets[5].indices.tolist() == rows
            np.testing.assert_array_equal(targets[:5].toarray()[:, :4], OWN)
    moved = {**LABELS.rows, "o": 0}
    assert remembered.targets(moved, 4, remembered.refresh())[5].indices.tolist() == [0]


def test_a_text_that_is_added_again_is_replaced(tmp_path):
    remembered = made(tmp_path / "journal")
    remembered.add(["green zebu"], [["x"]])
    remembered.add(["other", "green zebu"], [["f"], ["o"]])
    now = remembered.refresh()
    assert now.texts == ("other", "green zebu")
    assert now.labels == (("f",), ("o",))
    assert now.vectors.shape == (2, 26)


def test_two_processes_see_each_others_additions(tmp_path):
    ours, theirs = made(tmp_path / "journal"), made(tmp_path / "journal")
    ours.add(["one"], [["x"]])
    theirs.add(["two"], [["f"]])
    assert ours.refresh().texts == theirs.refresh().texts == ("one", "two")


def test_many_pairs_are_several_records(tmp_path):
    remembered = made(tmp_path / "journal")
    texts = [f"text {'abcdefghij'[i % 10]} {i}" for i in range(600)]
    assert remembered.add(texts, [["x"]] * 600) == 600
    assert len(made(tmp_path / "journal").refresh().texts) == 600


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a"], [["f"], ["c"]], "1 texts but labels for 2"),
        (["a", " "], [["f"], ["c"]], "pair 2 has no text"),
        (["a"], [[]], "pair 1 has no list of labels"),
        (["a"], ["f"], "pair 1 has no list of labels"),
        (["a", "b"], [["f"], ["nobody"]], "pair 2: no label has the id 'nobody'"),
    ],
)
def test_a_wrong_pair_is_a_sentence_and_adds_nothing(texts, labels, message, tmp_path):
    remembered = made(tmp_path / "journal")
    with pytest.raises(DataError, match=message):
        remembered.add(texts, labels)
    assert remembered.refresh().texts == ()
    assert not (tmp_path / "journal").exists()


def test_a_memory_without_a_journal_cannot_be_added_to():
    with pytest.raises(RunError, match="load the run"):
        made().add(["a"], [["f"]])


def test_a_journal_of_other_labels_is_refused(tmp_path):
    made(tmp_path / "journal").add(["a"], [["f"]])
    other = Journal(tmp_path / "journal", kind="memory", belongs_to="others")
    with pytest.raises(LabelMismatch):
        other.follow()
