"""A chunked list equals a plain list, and shares what did not change."""

import random

import pytest

from umpteen.store.chunks import CHUNK, ChunkedList


@pytest.mark.parametrize("n", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7])
def test_it_reads_like_a_list(n):
    plain, chunked = list(range(n)), ChunkedList(range(n))
    assert list(chunked) == plain
    assert len(chunked) == n
    for piece in (slice(None), slice(5, 2 * CHUNK), slice(-3, None), slice(None, None, 7),
                  slice(CHUNK, CHUNK), slice(n, n + 9)):  # fmt: skip
        assert chunked[piece] == plain[piece]
    if n:
        assert (chunked[-1], chunked[n // 2]) == (plain[-1], plain[n // 2])
    with pytest.raises(IndexError):
        chunked[n]


def test_updates_equal_those_of_a_list_and_leave_the_old_one_alone():
    rng = random.Random(3)
    plain, chunked = [], ChunkedList()
    for _ in range(200):
        before, old = chunked, list(plain)
        appended = [rng.random() for _ in range(rng.choice([0, 1, 1, 5, 700]))]
        places = rng.sample(range(len(plain)), min(len(plain), rng.choice([0, 0, 1, 4])))
        replaced = {place: -rng.random() for place in places}
        chunked = chunked.updated(appended, replaced)
        for place, item in replaced.items():
            plain[place] = item
        plain.extend(appended)
        assert list(before) == old
        assert list(chunked) == plain


def test_one_more_item_copies_one_chunk():
    big = ChunkedList(range(50 * CHUNK))
    more = big.updated([0], {3: -1})
    shared = sum(a is b for a, b in zip(big._chunks, more._chunks, strict=False))
    assert shared == 49
    assert big.updated([]) is big
