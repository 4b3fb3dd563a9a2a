"""Descriptions of Debian packages to their debtags, from apt's local lists."""

from __future__ import annotations

import re
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.sources.apt_packages import read_packages
from umpteen.data.sources.assembly import Material, assemble, quiet
from umpteen.errors import ConfigError, DataError
from umpteen.types import Log

_FIELDS = frozenset({"Tag"})
# "implemented-in::{c,perl}": one facet with several tags, as some lists abbreviate it.
_TAG = re.compile(r"([^\s,{}]+::)\{([^{}]*)\}|([^\s,{}]+)")
# Tags of this facet describe the state of the tagging ("special::not-yet-tagged").
_BOOKKEEPING = "special::"


def build(
    *,
    lists: str | Path | None = None,
    min_tags: int = 3,
    min_queries: int = 3,
    test_share: float = 0.25,
    seed: int = 0,
    log: Log = quiet,
) -> Dataset:
    """Build texts and labels from package descriptions and their debtags.

    The title is the short description, the content the long one; neither contains the name of the
    package. Packages with the same short description are in the same split.

    Args:
        lists: The folder with the lists; apt's own if left out. Long descriptions come from the
            lists, or from Translation-en files beside them.
        min_tags: Packages with fewer tags are left out, because their tagging is incomplete.
        min_queries: Labels with fewer training texts than this are left out.
        test_share: The share of the packages to hold out.
        seed: Selects the packages to hold out.
        log: Takes lines of progress.

    Returns:
        The data set.

    Raises:
        ConfigError: If ``min_tags`` is below 1.
        DataError: If there are no lists, one is damaged, or none has tags.
    """
    if min_tags < 1:
        raise ConfigError(f"the least number of tags must be 1 or more, not {min_tags}")
    packages = read_packages(lists, _FIELDS, source="debtags", log=log)
    tags = {name: parse_tags(package.fields.get("Tag", "")) for name, package in packages.items()}
    tagged = sum(map(bool, tags.values()))
    if not tagged:
        raise DataError(
            f"none of {len(packages)} packages has a Tag field; use the lists of Debian 12 main"
        )
    kept = [package for name, package in packages.items() if len(tags[name]) >= min_tags]
    log(f"debtags: {len(packages)} packages, {tagged} with tags, {len(kept)} with {min_tags}+ tags")
    contents = [package.description for package in kept]
    distinct = sorted({tag for package in kept for tag in tags[package.name]})
    material = Material(
        ids=[package.name for package in kept],
        titles=[package.summary for package in kept],
        contents=contents if any(contents) else None,
        positives=[tags[package.name] for package in kept],
        label_titles={tag: tag_text(tag) for tag in distinct},
    )
    return assemble(
        material, name="debtags", test_share=test_share, seed=seed, min_queries=min_queries
    )


def parse_tags(field: str) -> list[str]:
    r"""Parse a Tag field into distinct tags, without those that only keep the books.

    Example:
        >>> parse_tags("role::program, implemented-in::{c,perl},\n special::not-yet-tagged")
        ['role::program', 'implemented-in::c', 'implemented-in::perl']
    """
    tags: dict[str, None] = {}
    for facet, several, single in _TAG.findall(field):
        names = [facet + name.strip() for name in several.split(",")] if facet else [single]
        tags.update(dict.fromkeys(names))
    return [tag for tag in tags if not tag.startswith(_BOOKKEEPING)]


def tag_text(tag: str) -> str:
    """Make a tag readable.

    Example:
        >>> tag_text("works-with-format::xml:docbook")
        'works with format: xml docbook'
    """
    facet, _, name = tag.partition("::")
    words = [re.sub(r"[-:_]+", " ", part).strip() for part in (facet, name)]
    return ": ".join(filter(None, words))
