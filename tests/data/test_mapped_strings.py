"""Strings in arrays: every string comes back, by position, by slice and by value."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umpteen.data import mapped_strings
from umpteen.data.mapped_strings import MappedStrings, StringRows, hashes_of, sorted_hashes
from umpteen.errors import DataError

STRINGS = st.lists(st.text(max_size=5), max_size=20, unique=True)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(mapped_strings, "AT_ONCE", 4)


@settings(max_examples=40)
@given(STRINGS, st.slices(20))
def test_a_packed_list_reads_as_the_list(strings, some):
    packed = MappedStrings.pack(strings)
    assert packed == strings
    assert list(packed) == strings
    assert packed[some] == strings[some]
    assert [packed[i] for i in range(-len(strings), len(strings))] == strings * 2
    with pytest.raises(IndexError):
        packed[len(strings)]
    assert packed.has(";") == any(";" in string for string in strings)


@settings(max_examples=40)
@given(STRINGS, st.text(max_size=5))
def test_strings_are_found_by_value(strings, other):
    packed = MappedStrings.pack(strings)
    rows = StringRows(packed, *sorted_hashes(packed))
    assert dict(rows) == {string: place for place, string in enumerate(strings)}
    assert (other in rows) == (other in strings)


def test_equal_hashes_are_told_apart(monkeypatch):
    strings = [f"id-{n}" for n in range(50)]
    monkeypatch.setattr(
        mapped_strings, "hashed_blocks", lambda packed: [(0, np.full(len(packed), 7, np.uint64))]
    )
    packed = MappedStrings.pack(strings)
    rows = StringRows(packed, *mapped_strings.sorted_hashes(packed))
    assert [rows[string] for string in strings] == list(range(50))
    assert "id-50" not in rows
    assert rows.find(["id-3", "id-50", "id-3", "id-49"]) == {"id-3": 3, "id-49": 49}
    assert rows.first_repeat() is None


@settings(max_examples=40)
@given(STRINGS, st.lists(st.text(max_size=5), max_size=9))
def test_many_strings_are_found_at_once(strings, others):
    packed = MappedStrings.pack(strings)
    rows = StringRows(packed, *sorted_hashes(packed))
    wanted = [*others, *strings[::-2]]
    assert rows.find(wanted) == {one: strings.index(one) for one in wanted if one in strings}


@pytest.mark.parametrize("at_once", [1 << 22, 300, 7])
def test_hashes_of_many_strings_are_sorted_in_parts(monkeypatch, at_once):
    monkeypatch.setattr(mapped_strings, "SORTED_AT_ONCE", at_once)
    packed = MappedStrings.pack(f"id-{n * n}" for n in range(1001))
    hashes, rows = sorted_hashes(packed)
    expected = hashes_of(packed)
    assert hashes.tolist() == sorted(expected.tolist())
    assert expected[rows].tolist() == hashes.tolist()
    assert rows.dtype == np.uint32


def test_the_first_repeated_string_is_found():
    strings = ["a", "b", "c", "b", "a", "b", *(f"id-{n}" for n in range(99)), "id-5"]
    packed = MappedStrings.pack(strings)
    assert StringRows(packed, *sorted_hashes(packed)).first_repeat() == (3, 1)
    once = MappedStrings.pack(dict.fromkeys(strings))
    assert StringRows(once, *sorted_hashes(once)).first_repeat() is None


def test_hashes_spread_and_do_not_depend_on_neighbours():
    strings = [f"label {n}" for n in range(3000)]
    together = hashes_of(MappedStrings.pack(strings))
    assert len(np.unique(together)) == 3000
    assert together[17] == hashes_of(MappedStrings.pack([strings[17]]))[0]
    assert np.bincount((together >> np.uint64(60)).astype(int), minlength=16).min() > 100


def test_damaged_bytes_are_a_sentence():
    with pytest.raises(DataError, match=r"remove labels\.columns"):
        MappedStrings(np.array([0xC3], np.uint8), np.array([0, 1]))[0]
    with pytest.raises(ValueError, match="offsets"):
        MappedStrings(np.zeros(3, np.uint8), np.array([0, 4]))
