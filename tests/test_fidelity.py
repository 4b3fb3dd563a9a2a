"""The table of fidelity to the papers: its code and its tests are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "fidelity.md"


def rows():
    table = PAGE.read_text().partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_row_has_its_code_and_a_test_that_names_it(row):
    _, definition, code, agreement, test, _ = row
    assert definition
    assert agreement
    for place in re.findall(r"`([\w/.]+/[\w.]*)`", code):
        assert (ROOT / "src" / "umpteen" / place).exists(), place
    (file,) = re.findall(r"`(tests/[\w/]+\.py)`", test)
    assert "def test_" in (ROOT / file).read_text()
    stems = [Path(place).stem for place in re.findall(r"`([\w/]+\.py)`", code)]
    words = {stem: stem in (ROOT / file).read_text() for stem in stems}
    contract = file.startswith("tests/contracts/") or "config" in code
    assert contract or any(words.values()), words
