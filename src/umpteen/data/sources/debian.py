"""Debian packages to the packages they depend on, recommend and suggest, from apt's local lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.sources.apt_packages import Package, read_packages
from umpteen.data.sources.assembly import Material, assemble, quiet
from umpteen.errors import ConfigError
from umpteen.types import Log

RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests")

# "libc6:any (>= 2.36) [amd64] <!nocheck>": the name ends at the first of these.
_NAME = re.compile(r"[^\s:(\[<]+")


def build(
    *,
    lists: str | Path | None = None,
    max_share: float = 0.01,
    min_queries: int = 1,
    test_share: float = 0.25,
    seed: int = 0,
    log: Log = quiet,
) -> Dataset:
    """Return packages as queries ("name: short description"), the packages they ask for as labels.

    Every alternative of a relation counts, versions and architectures do not, and virtual packages
    (which no list describes) are left out. A package in several lists is taken from the first by
    file name. A package that is a label too is never an answer to itself; such pairs are filters.

    Args:
        lists: The folder with the lists; apt's own if left out. Long descriptions are the
            queries' content where the lists, or Translation-en files beside them, have them.
        max_share: Labels on more than this share of the queries (libc6, say) are left out.
        min_queries: Labels on fewer training queries than this are left out.
        test_share: The share of the packages to hold out.
        seed: Chooses which.
        log: Takes lines of progress.

    Returns:
        The data set.

    Raises:
        ConfigError: If ``max_share`` is not in (0, 1].
        DataError: If there are no lists, or one is damaged.
    """
    if not 0 < max_share <= 1:
        raise ConfigError(f"the largest share must be above 0 and at most 1, not {max_share}")
    packages = read_packages(lists, frozenset(RELATIONS), source="debian", log=log)
    related = [[name for name in related_names(p) if name in packages] for p in packages.values()]
    counts = Counter(name for names in related for name in names)
    most = max_share * sum(bool(names) for names in related)
    head = {name for name, count in counts.items() if count > most}
    log(f"debian: {len(packages)} packages, {len(head)} labels left out as too frequent")
    contents = [package.description for package in packages.values()]
    material = Material(
        ids=list(packages),
        titles=[package.text for package in packages.values()],
        contents=contents if any(contents) else None,
        positives=related,
        label_titles={name: packages[name].text for name in sorted(counts) if name not in head},
        own={name: name for name in packages},
    )
    return assemble(
        material, name="debian", test_share=test_share, seed=seed, min_queries=min_queries
    )


def relation_names(relation: str) -> Iterator[str]:
    r"""Yield the package names of a relation field.

    Example:
        >>> list(relation_names("libc6 (>= 2.36), perl:any | mawk [amd64],\n foo"))
        ['libc6', 'perl', 'mawk', 'foo']
    """
    for alternative in re.split(r"[,|]", relation):
        found = _NAME.search(alternative)
        if found:
            yield found.group()


def related_names(package: Package) -> list[str]:
    """Return the distinct packages a package asks for, itself excluded."""
    related = dict.fromkeys(
        name for field in RELATIONS for name in relation_names(package.fields.get(field, ""))
    )
    related.pop(package.name, None)
    return list(related)
