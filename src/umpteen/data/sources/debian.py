"""Debian packages to the packages they depend on, recommend and suggest, from apt's local lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.sources.apt_lists import find_lists, read_stanzas
from umpteen.data.sources.assembly import Material, Say, assemble, quiet
from umpteen.errors import ConfigError, DataError

LISTS = Path("/var/lib/apt/lists")
RELATIONS = ("Pre-Depends", "Depends", "Recommends", "Suggests")
_FIELDS = frozenset({"Package", "Description", "Description-en", "Description-md5", *RELATIONS})

# "libc6:any (>= 2.36) [amd64] <!nocheck>": the name ends at the first of these.
_NAME = re.compile(r"[^\s:(\[<]+")


@dataclass(frozen=True)
class Package:
    """What the lists say of one package."""

    name: str
    summary: str
    description: str
    related: list[str]

    @property
    def text(self) -> str:
        """What a person reads."""
        return f"{self.name}: {self.summary}"


def build(
    *,
    lists: str | Path | None = None,
    max_share: float = 0.01,
    min_queries: int = 1,
    test_share: float = 0.25,
    seed: int = 0,
    say: Say = quiet,
) -> Dataset:
    """Packages as queries ("name: short description"), the packages they ask for as labels.

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
        say: Takes lines of progress.

    Returns:
        The data set.

    Raises:
        ConfigError: If ``max_share`` is not in (0, 1].
        DataError: If there are no lists, or one is damaged.
    """
    if not 0 < max_share <= 1:
        raise ConfigError(f"the largest share must be above 0 and at most 1, not {max_share}")
    folder = LISTS if lists is None else Path(lists)
    files = find_lists(folder, "Packages")
    if not files:
        raise DataError(
            f"{folder} has no package lists (files named *_Packages); run apt-get update, "
            "or name a folder that has some with --lists"
        )
    packages = _read(files, find_lists(folder, "Translation-en"), say)
    related = [[name for name in p.related if name in packages] for p in packages.values()]
    counts = Counter(name for names in related for name in names)
    most = max_share * sum(bool(names) for names in related)
    head = {name for name, count in counts.items() if count > most}
    say(f"debian: {len(packages)} packages, {len(head)} labels left out as too frequent")
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
    r"""The package names of a relation field.

    Example:
        >>> list(relation_names("libc6 (>= 2.36), perl:any | mawk [amd64],\n foo"))
        ['libc6', 'perl', 'mawk', 'foo']
    """
    for alternative in re.split(r"[,|]", relation):
        found = _NAME.search(alternative)
        if found:
            yield found.group()


def _read(files: Iterable[Path], translations: Iterable[Path], say: Say) -> dict[str, Package]:
    long: dict[str, str] = {}
    for path in translations:
        say(f"debian: reading {path.name}")
        for stanza in read_stanzas(path, _FIELDS):
            long.setdefault(stanza.get("Description-md5", ""), _long(stanza))
    packages: dict[str, Package] = {}
    for path in files:
        say(f"debian: reading {path.name}")
        for stanza in read_stanzas(path, _FIELDS):
            name = stanza.get("Package", "")
            if not name:
                raise DataError("a stanza has no Package field", path=path)
            if name not in packages:
                packages[name] = _package(name, stanza, long)
    # By name, so that the order of the lists does not choose the split.
    return dict(sorted(packages.items()))


def _package(name: str, stanza: dict[str, str], long: dict[str, str]) -> Package:
    described = stanza.get("Description") or stanza.get("Description-en", "")
    related = dict.fromkeys(
        other for field in RELATIONS for other in relation_names(stanza.get(field, ""))
    )
    related.pop(name, None)
    description = _long(stanza) or long.get(stanza.get("Description-md5", ""), "")
    return Package(name, described.split("\n")[0], description, list(related))


def _long(stanza: dict[str, str]) -> str:
    """The description without its first line, as one line; a lone dot is an empty line."""
    described = stanza.get("Description") or stanza.get("Description-en", "")
    lines = (line.strip() for line in described.split("\n")[1:])
    return " ".join(" ".join(line for line in lines if line != ".").split())
