"""The format of docs/guide/extend/data-format.md works as printed, without a row in the table."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from umpteen.data.convert import save_dataset
from umpteen.data.dataset import Dataset
from umpteen.data.formats import load_dataset
from umpteen.errors import DataError

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "extend" / "data-format.md"


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    (tmp_path / "pairs_of_the_page.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield "pairs_of_the_page:"
    sys.modules.pop("pairs_of_the_page", None)


def test_an_outside_format_reads_what_it_writes(pairs, tmp_path):
    data = Dataset.from_lists(["x y", "z", "w"], [["b"], ["a"], ["b"]])
    assert save_dataset(data, tmp_path / "out", pairs) == ""
    got = load_dataset(tmp_path / "out", pairs)
    assert got.labels == data.labels
    assert got["train"].titles == ["x y", "z", "w"]
    assert (got["train"].targets != data["train"].targets).nnz == 0


def test_its_errors_name_file_and_line(pairs, tmp_path):
    (tmp_path / "pairs.txt").write_text("a\tx\nno tab\n")
    with pytest.raises(DataError, match=r"pairs\.txt, line 2: 'text' or 'title' is missing"):
        load_dataset(tmp_path, pairs)
