"""Clinical terms to ICD-10-CM codes, from the tables inside the package simple-icd-10-cm.

No downloads, and no medical knowledge of our own but the names in everyday_terms.txt, which only
train: every other term and pair, and all that is tested, is in the tables.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import Any

import numpy as np

from umpteen.data.dataset import Dataset
from umpteen.data.sources.assembly import Material, assemble, quiet, text_key
from umpteen.errors import ConfigError
from umpteen.extras import require
from umpteen.types import Log

TOPS = {"category": 3, "block": 2, "chapter": 1}
DESCRIPTIONS = ("own", "deeper", "all", "none")

# "fracture of wrist and hand (S62.-)": a term, and in brackets the codes it belongs to.
_REFERENCE = re.compile(r"(?P<term>.*\S)\s*\((?P<codes>[A-Z]\d[0-9A-Z][0-9A-Z.,\s-]*)\)")
# Sentences about codes, not terms: "any condition classifiable to I70.21-".
_ABOUT_CODES = re.compile(r"classifi|conditions? in [A-Z]\d|\b[A-Z]\d[0-9A-Z](?:\.[-\d]|-[A-Z]\d)")
# Words that make no difference between two terms; NOS is "not otherwise specified".
_EMPTY_WORDS = {"a", "an", "and", "in", "my", "nos", "of", "on", "or", "the", "to", "with"}


def build(
    *,
    depth: int = 4,
    top: str = "category",
    descriptions: str = "own",
    everyday: bool = True,
    test_share: float = 0.25,
    seed: int = 0,
    log: Log = quiet,
) -> Dataset:
    """Return terms of the ICD-10-CM tables as queries, their codes and the codes above as labels.

    Queries are inclusion terms, "includes" notes and the terms of "excludes" notes that name the
    code they belong to; only such terms are ever tested, and never one that is word for word the
    description of one of its labels. A code whose description is that of the code above it stands
    for the same words and counts as the code above.

    Args:
        depth: Labels have at most this many characters (3 to 7, the dot not counted); what belongs
            to a longer code belongs to the label above it. Seventh-character extensions are never
            used: they repeat the injury once per encounter.
        top: The highest labels: ``category`` (three characters), ``block`` or ``chapter``.
        descriptions: Which codes' descriptions train as well: the labels' ``own`` (so that every
            code is a label, even one that no term has), those of codes ``deeper`` than the
            labels, ``all`` of them, or ``none``.
        everyday: Whether everyday names that the tables lack ("heart attack") train as well; none
            of them is ever tested.
        test_share: The share of the terms to hold out.
        seed: Chooses which.
        log: Takes lines of progress.

    Returns:
        The data set.

    Raises:
        ConfigError: If an option has a value that is not offered.
    """
    if not 3 <= depth <= 7:
        raise ConfigError(f"depth must be 3 to 7 characters of a code, not {depth}")
    for option, value, known in (("top", top, TOPS), ("descriptions", descriptions, DESCRIPTIONS)):
        if value not in known:
            raise ConfigError(f"{option} {value!r} is not known. Known: {', '.join(known)}.")
    log("icd10: reading the tables of simple-icd-10-cm")
    with warnings.catch_warnings():
        # The package warns about empty notes in its own tables, which is nothing a user can mend.
        warnings.simplefilter("ignore")
        table = require("simple_icd_10_cm", extra="icd10")
        names, chains = _hierarchy(table, depth=depth, highest=TOPS[top])
        terms = list(_terms(table, names))
    labels = {label: names[label] for chain in chains.values() for label in chain}
    queries = _Queries(labels, chains)
    for term, codes in terms:
        queries.add(term, codes, may_test=True)
    if descriptions != "none":
        own, deeper = descriptions in ("own", "all"), descriptions in ("deeper", "all")
        queries.add_descriptions(names, own=own, deeper=deeper)
    if everyday:
        queries.add_everyday(everyday_terms())
    log(f"icd10: {len(queries.titles)} queries, {len(labels)} codes")
    return assemble(queries.material(), name="icd10", test_share=test_share, seed=seed)


class _Queries:
    """Terms by their text, with the labels of every code the text was given for."""

    def __init__(self, labels: Mapping[str, str], chains: Mapping[str, list[str]]) -> None:
        self.labels = labels
        self.chains = chains
        self.titles: dict[str, str] = {}
        self._positives: dict[str, dict[str, None]] = {}
        self._may_test: dict[str, bool] = {}
        self._label_key = {label: text_key(text) for label, text in labels.items()}

    def add(self, term: str, codes: Iterable[str], *, may_test: bool, own: bool = False) -> None:
        """Add a term, but not (unless ``own``) one that only repeats the text of its label."""
        found = dict.fromkeys(label for code in codes for label in self.chains[code])
        key = text_key(term)
        if not found or (not own and any(self._label_key[label] == key for label in found)):
            return
        self.titles.setdefault(key, " ".join(term.split()))
        self._positives.setdefault(key, {}).update(found)
        self._may_test[key] = self._may_test.get(key, True) and may_test

    def add_descriptions(self, names: Mapping[str, str], *, own: bool, deeper: bool) -> None:
        """Add descriptions for training: of the labels themselves, of the codes under them."""
        for code in self.chains:
            is_label = code in self.labels
            if own if is_label else deeper:
                self.add(names[code], [code], may_test=False, own=is_label)

    def add_everyday(self, terms: Iterable[tuple[str, list[str]]]) -> None:
        """Add terms for training that say what no query says yet, after all the others.

        A term in the words of a query would be known from training if that query were tested.
        """
        seen = {_words(title) for title in self.titles.values()}
        for term, codes in terms:
            # Another release of the tables may lack a code; its terms then have no label.
            known = [code for code in codes if code in self.chains]
            if _words(term) not in seen:
                self.add(term, known, may_test=False)

    def material(self) -> Material:
        """Return what was added, in the order of the labels' table and then of first appearance."""
        keys = list(self.titles)
        return Material(
            ids=[f"term-{number}" for number in range(len(keys))],
            titles=[self.titles[key] for key in keys],
            positives=[list(self._positives[key]) for key in keys],
            label_titles=self.labels,
            may_test=np.array([self._may_test[key] for key in keys], np.bool_),
        )


def _hierarchy(
    table: Any, *, depth: int, highest: int
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the description of every code, and its labels from the highest down to the nearest."""
    names: dict[str, str] = {}
    chains: dict[str, list[str]] = {}
    for code in table.get_all_codes(with_dots=True):
        if code in names or table.is_extended_subcategory(code):
            continue
        names[code] = " ".join(table.get_description(code).split())
        chain: list[str] = []
        for above in [*reversed(table.get_ancestors(code)), code]:
            if not highest <= _level(above) <= depth:
                continue
            if not chain or text_key(names[above]) != text_key(names[chain[-1]]):
                chain.append(above)
        chains[code] = chain
    return names, chains


def _level(code: str) -> int:
    """Return characters of a code; a block counts as 2 and a chapter as 1.

    Example:
        >>> [_level(code) for code in ("9", "I20-I25", "I21", "I21.09")]
        [1, 2, 3, 5]
    """
    if code.isdigit():
        return TOPS["chapter"]
    return TOPS["block"] if "-" in code else len(code.replace(".", ""))


def _words(term: str) -> frozenset[str]:
    """Return the words two terms share when they differ in order, number or words that say nothing.

    Example:
        >>> _words("Wax in ear") == _words("Ear wax NOS"), _words("Earache") == _words("ear wax")
        (True, False)
    """
    words = re.findall(r"\w+", term.casefold().replace("'s", ""))
    return frozenset(word.removesuffix("s") for word in words if word not in _EMPTY_WORDS)


def _terms(table: Any, names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    for code in names:
        for term in [*table.get_inclusion_term(code), *table.get_includes(code)]:
            if not _ABOUT_CODES.search(term) and not term.rstrip().endswith(":"):
                yield term.strip(" .;"), [code]
    for code in names:
        for notes in (table.get_excludes1(code), table.get_excludes2(code)):
            yield from _references(notes, names)


def _references(notes: Iterable[str], names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the terms of exclusion notes, with the codes they point to.

    Example:
        >>> known = {"S62": "", "E00": ""}
        >>> list(_references(["fracture of wrist (S62.-)", "goiter (E00-E02)"], known))
        [('fracture of wrist', ['S62'])]
    """
    for note in notes:
        if note.rstrip().endswith(":"):
            # What follows a heading ("meningitis in:") is no term by itself ("listeriosis"), and
            # the tables do not say where such a list ends.
            return
        found = _REFERENCE.fullmatch(note.strip())
        if found is None or _ABOUT_CODES.search(found["term"]):
            continue
        codes = [part.strip().rstrip("-.") for part in found["codes"].split(",")]
        if all(code in names for code in codes):
            yield found["term"], codes


def everyday_terms() -> Iterator[tuple[str, list[str]]]:
    """Yield everyday names with the code or codes each one means, in the order of their table.

    Example:
        >>> terms = dict(everyday_terms())
        >>> terms["heart attack"], terms["fell and broke my wrist"]
        (['I21.9'], ['S62.1', 'W19'])
    """
    table = resources.files("umpteen").joinpath("data", "sources", "everyday_terms.txt")
    for line in table.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        codes, _, terms = line.partition(" ")
        for term in terms.split(";"):
            yield term.strip(), codes.split("+")
