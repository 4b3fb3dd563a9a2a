"""Cached vectors are used for exactly the texts and the model they were made from."""

import os

import numpy as np
import pytest
from hard_disks import no_room, not_allowed

from umpteen.store import NewLabel
from umpteen.store.vector_cache import VectorCache, is_save_due

from .helpers import make_run, open_store


@pytest.fixture
def store(run):
    store = open_store(run)
    store.add_labels([NewLabel(f"x{n}", f"text {n}", "more" * n) for n in range(5)])
    store.add_examples([f"example {n}" for n in range(7)], [["L1"]] * 7)
    return store


def arrays(n):
    rng = np.random.default_rng(n)
    return {"dual": rng.normal(size=(n, 3)).astype(np.float16), "sums": rng.normal(size=n)}


@pytest.mark.parametrize(("kind", "n"), [("labels", 5), ("labels", 3), ("examples", 7)])
def test_what_was_saved_is_loaded(run, store, kind, n):
    cache, state = VectorCache(run), store.state()
    assert cache.load(state, kind, "m") is None
    words = ["zebra", "na\u00efve", "\ud800"]
    assert cache.save(state, kind, "m", arrays(n), words)
    cached = VectorCache(run).load(open_store(run).state(), kind, "m")
    assert (cached.n, cached.words) == (n, words)
    found = cached.arrays
    assert found.keys() == arrays(n).keys()
    for name, array in arrays(n).items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_it_stays_valid_while_the_store_grows_and_examples_get_other_labels(run, store):
    cache = VectorCache(run)
    cache.save(store.state(), "examples", "m", arrays(7))
    store.add_examples(["example 2", "another"], [["L5"], ["L2"]])
    store.retire_labels(["L1"])
    assert cache.load(store.state(), "examples", "m").n == 7


def test_of_another_model_or_other_texts_it_is_ignored(run, store, tmp_path):
    cache = VectorCache(run)
    cache.save(store.state(), "labels", "m", arrays(5))
    assert cache.load(store.state(), "labels", "other") is None
    assert cache.load(store.state(), "examples", "m") is None
    other = make_run(tmp_path / "other")
    (run / "cache").rename(other / "cache")
    fresh = open_store(other)
    assert VectorCache(other).load(fresh.state(), "labels", "m") is None  # too few
    fresh.add_labels([NewLabel(f"x{n}", f"text {n}!", "more" * n) for n in range(5)])
    assert VectorCache(other).load(fresh.state(), "labels", "m") is None


def test_a_damaged_file_is_ignored_whatever_byte_it_is(run, store):
    cache, state = VectorCache(run), store.state()
    cache.save(state, "labels", "m", arrays(5))
    (file,) = (run / "cache").iterdir()
    content = file.read_bytes()
    for place in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        file.write_bytes(bytes(damaged))
        loaded = cache.load(state, "labels", "m")
        if loaded is not None:  # white space in the header, say
            for name, array in arrays(5).items():
                np.testing.assert_array_equal(loaded.arrays[name], array)
    for cut in (0, 7, 100, len(content) - 1):
        file.write_bytes(content[:cut])
        assert cache.load(state, "labels", "m") is None
    file.write_bytes(content)
    assert cache.load(state, "labels", "m") is not None


def test_it_never_fails(run, store):
    cache, state = VectorCache(run), store.state()
    assert not cache.save(state, "labels", "m", arrays(6))  # more than there are
    assert not cache.save(state, "labels", "m", {"a": np.zeros((5, 1)), "b": np.zeros((4, 1))})
    assert not cache.save(state, "labels", "m", {})
    with no_room(50):
        assert not cache.save(state, "labels", "m", arrays(5))
    with not_allowed(run):
        assert not cache.save(state, "examples", "m", arrays(7))
    assert [p.name for p in (run / "cache").iterdir()] == []


def test_the_file_of_an_earlier_model_goes(run, store):
    cache, state = VectorCache(run), store.state()
    for model in ("a", "b"):
        cache.save(state, "labels", model, arrays(5))
        cache.save(state, "examples", model, arrays(7))
    assert len(list((run / "cache").iterdir())) == 2
    old = run / "cache" / ".labels-ab.safetensors.0123abcd.tmp"
    new = run / "cache" / ".labels-ab.safetensors.4567abcd.tmp"
    for left in (old, new):
        left.touch()
    os.utime(old, (0, 0))
    cache.save(state, "labels", "b", arrays(5))
    assert (old.exists(), new.exists()) == (False, True)  # the new one may still be written
    assert cache.load(state, "labels", "b") is not None


def test_saving_when_due_writes_a_number_of_rows_in_proportion_to_all():
    saved = written = 0
    for n in range(1, 100_001):
        if is_save_due(saved, n):
            saved, written = n, written + n
    assert written < 6 * 100_000
    assert saved > 75_000
