"""Columns of many strings: kept as bytes, and the same for everything that reads them."""

import numpy as np
import pytest
from small_runs import fit, outcome

from umpteen.data import growing_array, string_column
from umpteen.data.formats import load_dataset, targets
from umpteen.data.mapped_strings import MappedStrings
from umpteen.data.string_column import StringColumn, select_strings

TEXTS = ["one", "", "dr\u00e9i", "\U0001f34f four", "five", "six", "seven"]


@pytest.mark.parametrize("packed", [1, 3, 7, 8])
def test_a_column_has_the_strings_it_was_given(packed, monkeypatch):
    monkeypatch.setattr(string_column, "PACKED_ROWS", packed)
    column = StringColumn()
    assert not column.has_text
    for text in TEXTS:
        column.append(text)
    found = column.finish()
    assert isinstance(found, list if packed > len(TEXTS) else MappedStrings)
    assert list(found) == TEXTS
    some = select_strings(found, np.array([3, 0, 3]))
    assert type(some) is type(found)
    assert list(some) == [TEXTS[3], TEXTS[0], TEXTS[3]]
    assert column.has_text


def test_a_data_set_of_packed_columns_is_the_same(tiny_data_folder, monkeypatch):
    plain = load_dataset(tiny_data_folder)
    monkeypatch.setattr(string_column, "PACKED_ROWS", 16)
    packed = load_dataset(tiny_data_folder)
    for name, split in plain.splits.items():
        other = packed[name]
        assert isinstance(other.titles, MappedStrings)
        assert list(other.titles) == list(split.titles)
        assert list(other.texts()) == list(split.texts())
        rows = np.arange(len(split))[::-3]
        assert list(other.select(rows).texts("title")) == list(split.select(rows).texts("title"))
        assert (other.targets != split.targets).nnz == 0


def test_a_run_on_packed_columns_is_the_same(tiny_data_folder, tmp_path, monkeypatch):
    fit(load_dataset(tiny_data_folder), tmp_path / "plain", "train.epochs=1")
    monkeypatch.setattr(string_column, "PACKED_ROWS", 16)
    monkeypatch.setattr(targets, "ROWS_IN_MEMORY", 16)
    monkeypatch.setattr(growing_array, "IN_MEMORY_BYTES", 64)
    fit(load_dataset(tiny_data_folder), tmp_path / "packed", "train.epochs=1")
    assert outcome(tmp_path / "plain") == outcome(tmp_path / "packed")
