"""The snapshot follows the store: the same as from scratch, and only what is new is encoded."""

import hashlib
import shutil
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from umpteen.data.labels import LabelSet
from umpteen.index.exact import ExactIndex
from umpteen.index.growing import GrowingIndex
from umpteen.ranking import encoded_changes
from umpteen.ranking.encoded_changes import EncodedChanges, from_padded, padded
from umpteen.ranking.examples import Examples
from umpteen.ranking.growing_rows import GrowingRows
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.added_labels import AddedTerms
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.snapshot import Snapshot
from umpteen.ranking.snapshot_source import SnapshotSource
from umpteen.ranking.trained_examples import TrainedExamples, digest_texts
from umpteen.store import ChangeStore, NewLabel
from umpteen.store.state import StoredExamples
from umpteen.store.vector_cache import VectorCache

DIM = 4
COLUMNS = {"dual": slice(0, DIM), "classifier": slice(DIM, 2 * DIM), "combined": slice(0, 2 * DIM)}
TITLES = [f"word{row} thing" for row in range(7)]
LABELS = LabelSet([f"L{row}" for row in range(7)], TITLES)
TEXTS = [f"word{row % 7} and word{row % 3}" for row in range(10)]


class FakeEncoder:
    """A vector per text, of its digest; counts the texts."""

    def __init__(self, text="all"):
        self.text_config = SimpleNamespace(text=text)
        self.encoded = []
        self.device = torch.device("cpu")

    def vectors(self, texts):
        self.encoded.extend(texts)
        seeds = [int.from_bytes(hashlib.sha256(t.encode()).digest()[:4], "big") for t in texts]
        rows = [np.random.default_rng(seed).standard_normal(2 * DIM) for seed in seeds]
        values = np.array(rows, np.float32).reshape(-1, 2 * DIM)
        return torch.nn.functional.normalize(torch.from_numpy(values), dim=1)


VECTORIZER = Vectorizer.fit([*TEXTS, *TITLES], min_texts=1)
LABEL_VECTORS = LabelVectors(FakeEncoder().vectors(TITLES).numpy(), COLUMNS, torch.device("cpu"))


def trained_snapshot(vectorizer=VECTORIZER):
    vectors = FakeEncoder().vectors(TEXTS)
    targets = sp.csr_matrix(np.eye(10, 7, dtype=np.float32))
    terms = sp.csr_matrix((10, 0), dtype=np.float32)
    if vectorizer is not None:
        terms = vectorizer.transform(TEXTS)
    trained = TrainedExamples(vectors.numpy(), targets, digest_texts(TEXTS), terms)
    examples = Examples(
        trained,
        ExactIndex(vectors),
        StoredExamples.empty(),
        GrowingIndex(2 * DIM),
        GrowingRows(terms.shape[1]),
    )
    return Snapshot(
        LABELS,
        7,
        np.arange(7),
        None,
        GrowingIndex(2 * DIM),
        None if vectorizer is None else AddedTerms(vectorizer),
        examples,
    )


def source_of(run, encoder=None, vectorizer=VECTORIZER, cache=None, model="m"):
    encoded = EncodedChanges(
        encoder or FakeEncoder(), LABEL_VECTORS, vectorizer, cache=cache, model=model
    )
    store = ChangeStore.open(run, LABELS)
    return SnapshotSource(trained_snapshot(vectorizer), encoded, store=store)


def contents(snapshot):
    """Everything that predictions read of a snapshot, as plain values."""
    examples, queries = snapshot.examples, ["word1 new", "word2 purple lantern", *TEXTS[:3]]
    encoder = FakeEncoder()
    near = examples.nearest(encoder.vectors(queries), 30)
    found = {
        "ids": list(snapshot.labels.ids),
        "texts": list(snapshot.labels.texts),
        "counts": snapshot.label_counts.tolist(),
        "allowed": None if snapshot.allowed is None else snapshot.allowed.tolist(),
        "added": snapshot.added_vectors.vectors.numpy().round(5).tolist(),
        "near": near.rows.tolist(),
        "votes": examples.votes(near, snapshot.n_labels, neighbours=9, temperature=0.1)
        .toarray()
        .round(5)
        .tolist(),
        "corrected": examples.corrected_labels(queries).tolist(),
        "revision": snapshot.revision,
    }
    if snapshot.added_terms is not None:
        found["lexical"] = snapshot.added_terms.product(queries).toarray().round(4).tolist()
        by_terms = examples.nearest_by_terms(VECTORIZER.transform(queries), 30)
        found["near by terms"] = by_terms.scores.round(4).tolist()
    return found


def new(place):
    return NewLabel(f"N{place}", f"purple lantern {place}", "made of glass" if place % 2 else "")


CHANGES = [
    lambda store: store.add_labels([new(0), new(1)]),
    lambda store: store.add_examples(["word1 new"], [["L3", "N1"]]),
    lambda store: store.retire_labels(["L2", "N0"]),
    lambda store: store.add_examples([TEXTS[1], "word2 lantern"], [["L0"], ["L1"]]),
    lambda store: store.add_labels([new(2)]),
    lambda store: store.add_examples(["word1 new"], [["N2"]]),
    lambda store: store.restore_labels(["N0"]),
    lambda store: store.add_examples(["word1 new", "word9"], [["L6"], ["N2", "L0"]]),
]


@pytest.mark.parametrize("vectorizer", [VECTORIZER, None], ids=["lexical", "no lexical"])
def test_following_changes_gives_the_same_as_starting_over(vectorizer, tmp_path):
    follower = source_of(tmp_path, vectorizer=vectorizer)
    writer = ChangeStore.open(tmp_path, LABELS)
    for revision, change in enumerate(CHANGES, 1):
        change(writer)
        found = contents(follower.current())
        assert found["revision"] == revision
        assert found == contents(source_of(tmp_path, vectorizer=vectorizer).current())
    late = source_of(tmp_path, vectorizer=vectorizer)
    assert contents(late.current()) == found


def test_snapshots_of_earlier_moments_stay_as_they_were(tmp_path):
    source = source_of(tmp_path)
    snapshots, before = [source.current()], [contents(source.current())]
    for change in CHANGES:
        change(source.store)
        snapshots.append(source.current())
        before.append(contents(snapshots[-1]))
    assert [contents(snapshot) for snapshot in snapshots] == before
    assert len({repr(value) for value in before}) == len(before)


def test_only_what_is_new_is_encoded(tmp_path):
    encoder = FakeEncoder()
    source = source_of(tmp_path, encoder)
    assert contents(source.current()) == contents(source.trained)
    assert not encoder.encoded
    wanted = [
        ["purple lantern 0", "purple lantern 1 made of glass"],
        ["word1 new"],
        [],
        [TEXTS[1], "word2 lantern"],
        ["purple lantern 2"],
        [],
        [],
        ["word9"],
    ]
    for change, texts in zip(CHANGES, wanted, strict=True):
        change(source.store)
        encoder.encoded.clear()
        snapshot = source.current()
        assert encoder.encoded == texts
        assert source.current() is snapshot
        assert encoder.encoded == texts


def test_several_changes_are_read_together_and_each_text_once(tmp_path):
    encoder = FakeEncoder()
    source = source_of(tmp_path, encoder)
    for change in CHANGES:
        change(source.store)
    source.current()
    assert len(encoder.encoded) == len(set(encoder.encoded)) == 7


def test_content_is_read_as_in_training(tmp_path):
    encoder = FakeEncoder("title")
    source = source_of(tmp_path, encoder)
    source.store.add_labels([new(1)])
    source.current()
    assert encoder.encoded == ["purple lantern 1"]


def test_a_store_that_was_replaced_is_read_from_the_start(tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for place in (ours, theirs):
        place.mkdir()
    source = source_of(ours)
    for change in CHANGES:
        change(source.store)
    source.current()
    other = ChangeStore.open(theirs, LABELS)
    for row in range(len(CHANGES) + 2):
        other.add_labels([NewLabel(f"M{row}", f"other {row}")])
    other.close()
    source.store.close()
    for file in ours.glob("changes*"):
        file.unlink()
    for file in theirs.glob("changes*"):
        shutil.copy(file, ours / file.name)
    # A process that goes on refuses a store with another history; one that starts reads it.
    fresh = source_of(ours)
    assert contents(fresh.current()) == contents(source_of(theirs).current())
    source.store = fresh.store
    assert contents(source.current()) == contents(fresh.current())


# -- the cache of a run ---------------------------------------------------------------------------


class _AtOnce:
    """A thread that does its work when it is started."""

    def __init__(self, target):
        self.start = target


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A run with all changes, encoded and cached after each."""
    monkeypatch.setattr(encoded_changes, "MIN_CACHED", 1)
    monkeypatch.setattr(encoded_changes.threading, "Thread", _AtOnce)
    source = source_of(tmp_path, cache=VectorCache(tmp_path))
    for change in CHANGES:
        change(source.store)
        source.current()
    return tmp_path


def test_a_process_that_ends_at_once_has_written_its_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(encoded_changes, "MIN_CACHED", 1)
    before, saving = set(threading.enumerate()), []
    source = source_of(tmp_path, cache=VectorCache(tmp_path))
    CHANGES[0](source.store)
    monkeypatch.setattr(VectorCache, "save", lambda *_: saving.append(threading.current_thread()))
    source.current()
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
    assert saving
    # The interpreter waits for such a thread; it ends a daemon in the middle of its work.
    assert not any(thread.daemon for thread in saving)


@pytest.mark.parametrize("vectorizer", [VECTORIZER, None], ids=["lexical", "no lexical"])
def test_a_restart_encodes_nothing_that_is_cached(vectorizer, cached):
    encoder = FakeEncoder()
    first = source_of(cached, vectorizer=vectorizer, cache=VectorCache(cached), model="n")
    wanted = contents(first.current())
    again = source_of(cached, encoder, vectorizer, cache=VectorCache(cached), model="n")
    assert contents(again.current()) == wanted
    assert not encoder.encoded
    again.store.add_examples(["word3 after"], [["L4"]])
    again.current()
    assert encoder.encoded == ["word3 after"]


def test_a_cache_of_another_model_is_not_used(cached):
    encoder = FakeEncoder()
    source = source_of(cached, encoder, cache=VectorCache(cached), model="another")
    wanted = contents(source_of(cached).current())
    assert contents(source.current()) == wanted
    assert len(encoder.encoded) == 7


def test_a_damaged_cache_is_not_used(cached):
    files = sorted((cached / "cache").glob("*.safetensors"))
    assert len(files) == 2
    wanted = contents(source_of(cached).current())
    for file in files:
        raw = bytearray(file.read_bytes())
        raw[-3] ^= 1
        file.write_bytes(bytes(raw))
    encoder = FakeEncoder()
    source = source_of(cached, encoder, cache=VectorCache(cached))
    assert contents(source.current()) == wanted
    assert len(encoder.encoded) == 7


def test_a_cache_that_lacks_the_newest_is_completed(cached):
    ChangeStore.open(cached, LABELS).add_labels([new(5)])
    encoder = FakeEncoder()
    source = source_of(cached, encoder, cache=VectorCache(cached))
    assert contents(source.current()) == contents(source_of(cached).current())
    assert 1 <= len(encoder.encoded) < 7
    assert "purple lantern 5 made of glass" in encoder.encoded


@pytest.mark.parametrize("n_columns", [0, 5])
def test_padded_rows_are_read_back(n_columns):
    rng = np.random.default_rng(2)
    dense = rng.random((9, n_columns)) * (rng.random((9, n_columns)) < 0.4)
    rows = sp.csr_matrix(dense.astype(np.float32))
    parts = [rows[:2], rows[2:3], rows[3:]]
    again = from_padded(padded(parts), n_columns)
    np.testing.assert_array_equal(again.toarray(), rows.toarray())


# -- masks ----------------------------------------------------------------------------------------


def test_a_source_without_changes_has_the_trained_snapshot(tmp_path):
    source = source_of(tmp_path)
    for change in CHANGES:
        change(source.store)
    assert source.without_changes().current() is source.trained
    assert source.current() is not source.trained


def test_masks_combine_retired_labels_and_a_filter(tmp_path):
    source = source_of(tmp_path)
    more = source.current().mask_of(["L1", "L2", "nobody"])
    np.testing.assert_array_equal(np.flatnonzero(more), [1, 2])
    assert source.current().allowed_with(None) is None
    np.testing.assert_array_equal(source.current().allowed_with(more), more)
    source.store.retire_labels(["L2"])
    np.testing.assert_array_equal(np.flatnonzero(source.current().allowed_with(more)), [1])
    with pytest.raises(ValueError, match=r"allowed must be \(7,\) bool, got \(8,\)"):
        source.current().allowed_with(np.ones(8, bool))
