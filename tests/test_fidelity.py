"""The page on fidelity: every row has a test, and every preset says where it differs."""

import itertools
import re
from pathlib import Path

import umpteen
from umpteen.config.settings import preset_names

ROOT = Path(__file__).parents[1]
SOURCE = Path(umpteen.__file__).parent
PAGE = (ROOT / "docs" / "explanation" / "fidelity.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if line.count("|") == 7][2:]
OURS = {"unidec-bank", "unidec-frugal", "renee-adamw"}
"""Presets of no paper; their summary says what they are made of."""


def opening(preset):
    """The comment at the top of a preset's file, without its command line."""
    text = (SOURCE / "config" / "presets" / f"{preset}.toml").read_text("utf-8")
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line[1:].strip() for line in lines).partition(f"--preset {preset}")[2]


def test_every_row_names_a_module_and_a_test_that_exist():
    assert len(ROWS) >= 26
    for row in ROWS:
        _, system, definition, places, _, tests, deviations, _ = (c.strip() for c in row.split("|"))
        assert system, row
        assert definition, row
        assert deviations, row
        named = re.findall(r"`([\w/.-]+(?:\.py|/))`", places)
        assert named, row
        assert all((SOURCE / place).exists() for place in named), row
        files = re.findall(r"`(tests/[\w/]+\.py)`", tests)
        assert files, row
        assert all((ROOT / file).is_file() for file in files), row


def test_every_preset_says_where_it_differs_from_its_paper():
    for preset in set(preset_names()) - OURS:
        assert "Differs from the paper:" in opening(preset), preset
    for preset in OURS:
        assert "Differs from the paper:" not in opening(preset), preset


def test_the_page_names_every_preset_that_differs():
    section = PAGE.partition("## Deviations that remain")[2].partition("\n## ")[0]
    named = set(re.findall(r"`([\w-]+)`", section))
    assert set(preset_names()) - OURS <= named


def test_the_reference_shows_what_the_files_say():
    shown = (ROOT / "docs" / "reference" / "presets.md").read_text("utf-8")
    flat = " ".join(shown.split())
    for preset in preset_names():
        differs = opening(preset).partition("Differs from the paper:")[2]
        assert " ".join(differs.split()) in flat, preset
