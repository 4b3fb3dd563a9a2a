import numpy as np
import pytest

from umpteen.compute import packing
from umpteen.compute.packing import Packed, pack, tiles
from umpteen.types import Ragged


def ragged(texts):
    offsets = np.cumsum([0, *map(len, texts)])
    return Ragged(np.array([i for t in texts for i in t], np.int32), offsets)


def unpacked(packed: Packed):
    return [part.tolist() for part in np.split(packed.ids, packed.offsets[1:-1])]


def random_texts(n, vocabulary, longest, seed):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocabulary, rng.integers(1, longest + 1)).tolist() for _ in range(n)]


@pytest.mark.parametrize(("vocabulary", "longest"), [(2, 4), (3, 9), (50, 33), (30000, 200)])
def test_every_text_is_found_at_its_place_and_once(vocabulary, longest):
    texts = random_texts(301, vocabulary, longest, seed=longest)
    packed = pack(ragged(texts))
    back = np.arange(len(texts)) if packed.back is None else packed.back
    found = unpacked(packed)
    assert [found[i] for i in back] == texts
    assert len(found) == len({tuple(t) for t in texts})
    assert (np.diff(packed.lengths) >= 0).all()


def test_texts_that_differ_in_order_or_by_leading_tokens_are_not_the_same():
    texts = [[1, 2], [2, 1], [0, 1, 2], [1, 2, 0], [0], [0, 0], [0, 0, 0]]
    assert len(unpacked(pack(ragged(texts)))) == len(texts)


def test_equal_marks_do_not_make_texts_equal(monkeypatch):
    texts = [[1, 2], [3], [2, 1], [1, 2]]
    # Tokens that all count for nothing: every text has the same mark.
    monkeypatch.setattr(packing, "_powers", lambda n: np.zeros(n, np.uint64))
    packed = pack(ragged(texts))
    assert [unpacked(packed)[i] for i in packed.back] == texts


def test_sorted_different_texts_need_no_way_back():
    assert pack(ragged([[4], [5], [6, 7]])).back is None
    assert pack(ragged([[4, 4], [5]])).back.tolist() == [1, 0]


def test_each_token_knows_its_text_and_place():
    packed = pack(ragged([[7, 8, 9], [5], [7, 8, 9], [1, 2]]))
    assert packed.ids.tolist() == [5, 1, 2, 7, 8, 9]
    assert packed.texts.tolist() == [0, 1, 1, 2, 2, 2]
    assert packed.places.tolist() == [0, 0, 1, 0, 1, 2]
    assert packed.back.tolist() == [2, 0, 2, 1]


@pytest.mark.parametrize("longest", [1, 20, 64, 100, 300])
def test_tiles_hold_whole_texts_one_after_the_other(longest):
    lengths = np.sort(np.random.default_rng(longest).integers(1, longest + 1, 257))
    lengths[-1] = longest
    offsets = np.cumsum([0, *lengths])
    found, count = tiles(offsets)
    assert count == (lengths <= 128).sum()
    at = 0
    for size, bounds in found.items():
        assert bounds.dtype == np.int32
        assert bounds[0] == at
        assert set(bounds.tolist()) <= set(offsets.tolist())  # no text is cut
        assert (np.diff(bounds) <= size).all()
        assert (np.diff(bounds) > 0).all()
        # A tile is only closed when the next text does not fit.
        after = np.searchsorted(offsets, bounds[1:-1])
        assert (np.diff(bounds)[:-1] + lengths[after] > size).all()
        at = bounds[-1]
    assert at == offsets[count]
