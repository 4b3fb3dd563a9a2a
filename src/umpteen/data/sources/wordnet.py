"""WordNet synsets to the synsets they are related to, from the files of WordNet's dict folder.

Reads data.noun, data.verb, data.adj and data.adv and nothing else; the index files are not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.sources.assembly import Material, assemble, quiet
from umpteen.errors import DataError
from umpteen.types import Log

PLACES = (Path("/usr/share/wordnet"),)
FILES = {"n": "data.noun", "v": "data.verb", "a": "data.adj", "r": "data.adv"}

RELATIONS = {
    "!": "antonym",
    "@": "hypernym",
    "@i": "instance hypernym",
    "#m": "member holonym",
    "#s": "substance holonym",
    "#p": "part holonym",
    "=": "attribute",
    "+": "derivation",
    ";c": "topic domain",
    ";r": "region domain",
    ";u": "usage domain",
    "*": "entailment",
    ">": "cause",
    "^": "also see",
    "$": "verb group",
    "&": "similar to",
    "<": "participle",
    "\\": "pertainym or derived from adjective",
}
"""The pointers that count. Those that only list what points here (hyponyms, meronyms, members of a
domain) are left out: a general synset has hundreds, and each is there from the other side."""

# "outback(a)": where an adjective may stand; grammar, not part of the word.
_POSITION = re.compile(r"\((?:a|p|ip)\)$")
# A gloss is a definition and, after a semicolon, examples in quotes; quotes elsewhere stay.
_EXAMPLES = re.compile(r"[;:]\s*(?=\")")


@dataclass(frozen=True)
class Synset:
    """One line of a data file."""

    id: str
    lemmas: list[str]
    definition: str
    examples: str
    related: list[str]

    @property
    def text(self) -> str:
        """What a person reads."""
        return f"{', '.join(self.lemmas)}: {self.definition}"


def build(
    *,
    dict_folder: str | Path | None = None,
    min_queries: int = 1,
    test_share: float = 0.25,
    seed: int = 0,
    log: Log = quiet,
) -> Dataset:
    """Return synsets as queries ("lemmas: definition"), the synsets they point to as labels.

    A synset that is a label too is never an answer to itself; such pairs are filters.

    Args:
        dict_folder: Where data.noun and the others are; looked for in Debian's place if left out.
        min_queries: Labels on fewer training queries than this are left out.
        test_share: The share of the synsets to hold out.
        seed: Chooses which.
        log: Takes lines of progress.

    Returns:
        The data set; example sentences are the queries' content.

    Raises:
        DataError: If the files are missing or damaged.
    """
    folder = _find(dict_folder)
    synsets: list[Synset] = []
    for part, file in FILES.items():
        log(f"wordnet: reading {folder / file}")
        synsets.extend(read_synsets(folder / file, part))
    known = {synset.id: synset.text for synset in synsets}
    for synset in synsets:
        for other in synset.related:
            if other not in known:
                raise DataError(
                    f"synset {synset.id} points to {other}, which is in none of the files; "
                    "they are not of one WordNet version",
                    path=folder,
                )
    log(f"wordnet: {len(synsets)} synsets")
    material = Material(
        ids=list(known),
        titles=[synset.text for synset in synsets],
        contents=[synset.examples for synset in synsets],
        positives=[synset.related for synset in synsets],
        label_titles=known,
        own={synset_id: synset_id for synset_id in known},
    )
    return assemble(
        material, name="wordnet", test_share=test_share, seed=seed, min_queries=min_queries
    )


def read_synsets(path: Path, part: str) -> Iterator[Synset]:
    """Read one data file.

    Args:
        path: The file.
        part: The letter of its part of speech, as pointers write it (n, v, a, r).

    Yields:
        Its synsets, in order.

    Raises:
        DataError: With the line that is not in WordNet's format.
    """
    with path.open(encoding="utf-8") as lines:
        try:
            for number, line in enumerate(lines, 1):
                # The licence at the top of each file is indented.
                if line.startswith("  ") or not line.strip():
                    continue
                try:
                    synset = parse_synset(line, part)
                except (ValueError, IndexError):
                    raise DataError(
                        f"{line[:40].rstrip()!r} is not a synset; expected WordNet 3 "
                        "lines: offset, lexicographer file, type, words, pointers, | gloss",
                        path=path,
                        line=number,
                    ) from None
                yield synset
        except UnicodeDecodeError as error:
            raise DataError(f"the file is not UTF-8 text ({error.reason})", path=path) from error


def parse_synset(line: str, part: str) -> Synset:
    """Take one line apart.

    Example:
        >>> line = '00000007 03 n 02 dog 0 canis_major 0 001 @ 00000009 n 0000 | a pet; "good dog"'
        >>> synset = parse_synset(line, "n")
        >>> synset.text, synset.examples, synset.related
        ('dog, canis major: a pet', '"good dog"', ['n00000009'])
    """
    data, bar, gloss = line.partition(" | ")
    fields = data.split()
    if not bar or not fields[0].isdigit():
        raise ValueError(line)
    n_words = int(fields[3], 16)
    words = [_POSITION.sub("", word).replace("_", " ") for word in fields[4 : 4 + 2 * n_words : 2]]
    start = 4 + 2 * n_words
    n_pointers = int(fields[start])
    pointers = fields[start + 1 : start + 1 + 4 * n_pointers]
    if not words or len(pointers) != 4 * n_pointers:
        raise ValueError(line)
    own = part + fields[0]
    related = dict.fromkeys(
        ("a" if kind == "s" else kind) + offset
        for symbol, offset, kind in zip(pointers[::4], pointers[1::4], pointers[2::4], strict=True)
        if symbol in RELATIONS
    )
    related.pop(own, None)
    definition, *examples = _EXAMPLES.split(gloss.strip(), maxsplit=1)
    return Synset(own, words, definition.strip(" ;:,"), "".join(examples), list(related))


def _find(given: str | Path | None) -> Path:
    places = PLACES if given is None else (Path(given),)
    for folder in places:
        if all((folder / file).is_file() for file in FILES.values()):
            return folder
    raise DataError(
        f"WordNet's files ({', '.join(FILES.values())}) are not all in "
        f"{' or '.join(map(str, places))}; install the Debian package wordnet-base "
        "(apt-get install wordnet-base) or name the folder with --dict"
    )
