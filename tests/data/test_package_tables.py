"""Tables that a new user makes of the packages in apt's lists are read with one option at most."""

from __future__ import annotations

import csv
import random

import pytest

from umpteen.data.formats import load_dataset
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.sources.apt_packages import LISTS, find_lists, read_packages
from umpteen.data.splitting import split_dataset

N_ROWS = 7000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not LISTS.is_dir() or not find_lists(LISTS, "Packages"), reason="no apt lists here"
    ),
]


@pytest.fixture(scope="module")
def packages():
    """Name, summary, section and tags of packages that have tags."""
    found = read_packages(
        None, frozenset({"Tag", "Section"}), source="packages", log=lambda text: None
    )
    rows = []
    for package in found.values():
        tags = " ".join(package.fields.get("Tag", "").replace("{", "").replace("}", "").split())
        if tags:
            section = package.fields.get("Section", "")
            rows.append((package.name, package.summary, section, tags.split(", ")))
    if len(rows) < N_ROWS:
        pytest.skip("the lists here have too few packages with tags")
    return random.Random(1).sample(rows, N_ROWS)


@pytest.fixture(scope="module")
def tags(packages):
    return {tag for *_, row in packages for tag in row}


JOINED = {"spaced": ", ".join, "tight": ",".join, "bars": "|".join, "lists": str}


@pytest.mark.parametrize("way", JOINED)
@pytest.mark.parametrize("column", ["tags", "Keywords"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_tags_are_found_without_an_option(way, column, delimiter, packages, tags, tmp_path):
    file = tmp_path / "packages.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out, delimiter=delimiter)
        rows.writerow(["package", "description", "section", column])
        rows.writerows((name, text, part, JOINED[way](row)) for name, text, part, row in packages)
    data = load_dataset(file)
    assert set(data.labels.ids) == tags
    assert data["train"].targets.nnz == sum(len(set(row)) for *_, row in packages)
    assert data["train"].titles == [text for _, text, _, _ in packages]
    assert data.notes[0].count(" -> ") == 3


def test_sections_are_read_with_one_option_and_split(packages, tmp_path):
    file = tmp_path / "packages.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        rows = csv.writer(out)
        rows.writerow(["package", "description", "section"])
        rows.writerows(row[:3] for row in packages)
    data = load_dataset(file, options=TableOptions(label_column="section"))
    assert set(data.labels.ids) == {section for _, _, section, _ in packages}
    assert (data["train"].targets.getnnz(axis=1) == 1).all()
    made = split_dataset(data, test=0.1)
    assert abs(len(made["test"]) - 700) < 30
    assert not set(made["test"].titles) & set(made["train"].titles)
