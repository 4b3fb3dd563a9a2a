"""Procedural data of any size: Zipf label frequencies, texts that predict labels.

Labels come in topics of some 200. A query has a topic; four fifths of its labels are of its topic,
the rest of any. Within a topic and among topics the r-th is drawn about r^-0.6 as often as the
first. A label's text is words of its own. A query's text is words of its labels and of its topic:
near texts have near labels. Every piece follows from seed and place alone, and memory does not grow
with the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.formats.lines import write_lines
from umpteen.data.sources.assembly import quiet
from umpteen.errors import ConfigError
from umpteen.sorted_unique import sorted_unique
from umpteen.types import Log

N_WORDS = 28_561
"""Words of all texts: two or three syllables of 169 (a 13-letter choice twice)."""
SHORTEST, LONGEST, MAX_POSITIVES = 1, 30, 50
TOPIC_SIZE, EXPONENT = 200, 0.6
OWN_TOPIC, OWN_WORDS, WORDS_OF_LABEL = 0.8, 0.7, 10
"""Share of a query's labels that are of its topic, share of its words that are of its labels, and
the number of words of a label."""
AT_ONCE = 1 << 14
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Pieces:
    """Rows of integers in flat arrays: row i is ``values[offsets[i] : offsets[i + 1]]``."""

    values: Integers
    offsets: Integers


@dataclass(frozen=True)
class SyntheticData:
    """A data set that is made while it is written."""

    queries: int = 450_000
    test_queries: int = 50_000
    labels: int = 300_000
    positives: float = 22.0
    words: float = 10.0
    seed: int = 0

    def write(self, folder: Path, *, log: Log = quiet) -> str:
        """Write ``train.jsonl``, ``test.jsonl`` and ``labels.jsonl``."""
        log(f"synthetic: writing {self.labels:,} labels")
        write_lines(folder / "labels.jsonl", self._label_lines())
        n_pairs = 0
        for name, first, n in (
            ("train", 0, self.queries),
            ("test", self.queries, self.test_queries),
        ):
            log(f"synthetic: writing {n:,} {name} texts")
            counts: list[int] = []
            write_lines(folder / f"{name}.jsonl", self._query_lines(first, n, counts))
            n_pairs += sum(counts) if name == "train" else 0
        return (
            f"{self.queries:,} train and {self.test_queries:,} test texts, {self.labels:,} labels, "
            f"{n_pairs / max(1, self.queries):.2f} labels per training text"
        )

    def label_words(self, first: int, n: int) -> Pieces:
        """Return the words of the labels first .. first + n - 1."""
        rng = np.random.default_rng([self.seed, 2, first])
        offsets, row, place = _framed(self._lengths(rng, n))
        return Pieces(word(first + row, place), offsets)

    def query_words(self, first: int, n: int) -> tuple[Pieces, Pieces]:
        """Return labels and words of the queries first .. first + n - 1."""
        rng = np.random.default_rng([self.seed, 1, first])
        n_topics = max(1, self.labels // TOPIC_SIZE)
        topics = _skewed(rng, n_topics, n)
        own = self._labels_of(rng, topics)
        offsets, row, _ = _framed(self._lengths(rng, n))
        counts = np.diff(own.offsets)
        chosen = own.values[
            own.offsets[row] + (rng.random(len(row)) * counts[row]).astype(np.int64)
        ]
        of_label = rng.random(len(row)) < OWN_WORDS
        owner = np.where(of_label, chosen, self.labels + topics[row])
        return own, Pieces(word(owner, _skewed(rng, WORDS_OF_LABEL, len(row))), offsets)

    def _labels_of(self, rng: np.random.Generator, topics: Integers) -> Pieces:
        """Return the distinct labels of each query, ascending."""
        n_topics = max(1, self.labels // TOPIC_SIZE)
        # Some are drawn twice: about one in twelve at this skew, more where labels are few.
        wanted = np.clip(rng.poisson(self.positives * 1.125, len(topics)), 1, MAX_POSITIVES)
        rows = np.repeat(np.arange(len(topics)), wanted)
        topic = topics[rows]
        anywhere = rng.random(len(rows)) >= OWN_TOPIC
        topic[anywhere] = _skewed(rng, n_topics, int(anywhere.sum()))
        size = (
            self.labels - topic + n_topics - 1
        ) // n_topics  # labels topic, topic + n_topics, ..
        labels = topic + n_topics * _skewed(rng, size, len(rows))
        pairs = sorted_unique(rows * self.labels + labels)
        rows, labels = pairs // self.labels, pairs % self.labels
        return Pieces(labels, np.searchsorted(rows, np.arange(len(topics) + 1)))

    def _lengths(self, rng: np.random.Generator, n: int) -> Integers:
        drawn = SHORTEST + rng.gamma(3.0, (self.words - SHORTEST) / 3.0, n) + 0.5
        lengths: Integers = np.clip(drawn, SHORTEST, LONGEST).astype(np.int64)
        return lengths

    def _label_lines(self) -> Iterator[str]:
        for first, n in _cuts(self.labels):
            for row, text in enumerate(texts_of(self.label_words(first, n)), first):
                yield f'{{"id": "l{row}", "text": "{text}"}}'

    def _query_lines(self, start: int, n: int, counts: list[int]) -> Iterator[str]:
        for first, size in _cuts(n):
            own, words = self.query_words(start + first, size)
            counts.append(len(own.values))
            values, bounds = own.values.tolist(), own.offsets.tolist()
            for row, text in enumerate(texts_of(words)):
                labels = '", "l'.join(map(str, values[bounds[row] : bounds[row + 1]]))
                about = f'"id": "q{start + first + row}", "text": "{text}"'
                yield f'{{{about}, "labels": ["l{labels}"]}}'


def build(
    *,
    queries: int = 450_000,
    labels: int = 300_000,
    positives: float = 22.0,
    words: float = 10.0,
    test_share: float = 0.25,
    seed: int = 0,
    log: Log = quiet,
) -> SyntheticData:
    """Describe procedural data in the shape of a query-to-keyword data set.

    Args:
        queries: Training texts.
        labels: Labels.
        positives: Labels per text, on average.
        words: Words per text, on average.
        test_share: Test texts for each text of both splits together.
        seed: Determines everything.
        log: Not used; writing logs.

    Returns:
        What ``write`` writes.

    Raises:
        ConfigError: If a number is out of range.
    """
    if queries < 1 or labels < 1:
        raise ConfigError(f"{queries} queries and {labels} labels; at least one of each is needed")
    if not 1 <= positives <= MAX_POSITIVES / 2 or not 2 <= words <= LONGEST / 2:
        raise ConfigError(
            f"{positives:g} labels and {words:g} words per text; accepted are 1 to "
            f"{MAX_POSITIVES // 2} labels and 2 to {LONGEST // 2} words"
        )
    if not 0 < test_share < 1:
        raise ConfigError(f"the test share must be between 0 and 1, not {test_share}")
    test = max(1, round(queries * test_share / (1 - test_share)))
    return SyntheticData(queries, test, labels, positives, words, seed)


def word(owner: Integers, place: Any) -> Integers:
    """Return the number of the word that a label or topic has at a place of its own list."""
    x = owner.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += np.asarray(place).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    x ^= x >> np.uint64(31)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(29)
    numbers: Integers = (x % np.uint64(N_WORDS)).astype(np.int64)
    return numbers


def texts_of(words: Pieces) -> Iterator[str]:
    """Yield the text of each row."""
    names = [_SYLLABLES[n // 169] + _SYLLABLES[n % 169] for n in words.values.tolist()]
    bounds = words.offsets.tolist()
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        yield " ".join(names[start:stop])


def _skewed(rng: np.random.Generator, n: Any, size: int) -> Integers:
    """Return ranks below n, a number or an array; the r-th comes about r^-EXPONENT as often."""
    ranks: Integers = (n * rng.random(size) ** (1 / (1 - EXPONENT))).astype(np.int64)
    return ranks


def _framed(lengths: Integers) -> tuple[Integers, Integers, Integers]:
    """Return offsets, each value's row, and its place within it."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    row = np.repeat(np.arange(len(lengths)), lengths)
    return offsets, row, np.arange(offsets[-1]) - offsets[row]


def _cuts(n: int) -> Iterator[tuple[int, int]]:
    return ((first, min(AT_ONCE, n - first)) for first in range(0, n, AT_ONCE))


_LETTERS = "bdfgklmnprstv"
_SYLLABLES = [
    f"{first}{vowel}{last}"
    for first in _LETTERS
    for vowel, last in zip("aeiouaeiouaei", _LETTERS, strict=True)
]
