"""Which texts are labels, and how labels are linked with each other by the labels of their texts.

In data of related items every item is a label, and an item whose relations are known is a text too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Split
from umpteen.data.labels import LabelSet
from umpteen.sorted_unique import sorted_unique

MAX_WORDS = 32
"""Words at the beginning of a text that may be its title."""
MAX_SAME = 100
"""Labels with the same text; more of them, such as "untitled", are no item."""
TEXTS_AT_ONCE = 4096
"""Texts that are looked up together."""
NO_WORDS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class LabelKeys:
    """Hashes of label texts, to find the label that a text is.

    Args:
        keys: (G,) different hashes, ascending.
        words: (W,) numbers of words of the label texts, ascending: a text may begin with a label's
            text, as a title stands before the contents. Empty if whole texts are compared alone.
    """

    keys: NDArray[np.uint64]
    words: NDArray[np.int64]

    @classmethod
    def of(cls, label_texts: Iterable[str]) -> tuple[LabelKeys, NDArray[np.int64]]:
        """Return the keys of some labels, and (L,) the position of each label's key.

        It is -1 for an empty text, and for one that more than ``MAX_SAME`` labels have.
        """
        own = text_keys(label_texts)
        keys = sorted_unique(own)
        places = np.searchsorted(keys, own)
        counts = np.bincount(places, minlength=len(keys))
        kept = (counts <= MAX_SAME) & (keys != text_keys([""])[0])
        numbers = np.where(kept, np.cumsum(kept) - 1, -1)
        return cls(keys[kept], NO_WORDS), numbers[places].astype(np.int64)

    def with_titles(self, label_texts: Iterable[str]) -> LabelKeys:
        """Return keys that also find the label that a text begins with."""
        counts = sorted_unique(np.array([len(text.split()) for text in label_texts], np.int64))
        return replace(self, words=counts[(counts > 0) & (counts <= MAX_WORDS)])

    def groups(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """(N,) position of the label text that each text is, or the longest it begins with; -1."""
        rest, parts = iter(texts), [np.zeros(0, np.int64)]
        while some := list(islice(rest, TEXTS_AT_ONCE)):
            parts.append(self._groups_of_some(some))
        return np.concatenate(parts)

    def _groups_of_some(self, texts: list[str]) -> NDArray[np.int64]:
        found = self._positions(text_keys(texts))
        others = np.flatnonzero(found < 0)
        if not len(self.words) or not len(others):
            return found
        wanted = frozenset(self.words.tolist())
        pairs = [(key, row) for row in others.tolist() for key in first_keys(texts[row], wanted)]
        keys, rows = zip(*pairs, strict=True) if pairs else ((), ())
        places, owners = self._positions(np.array(keys, np.uint64)), np.array(rows, np.int64)
        known = places >= 0
        found[owners[known]] = places[known]  # the longest is the last one of a text
        return found

    def _positions(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1).astype(np.int64)


def text_keys(texts: Iterable[str]) -> NDArray[np.uint64]:
    """(N,) a 64-bit hash of each text, alike for other cases and spaces."""
    normal = (" ".join(text.casefold().split()).encode(errors="replace") for text in texts)
    digests = (hashlib.blake2b(text, digest_size=8).digest() for text in normal)
    return np.fromiter((int.from_bytes(digest, "little") for digest in digests), np.uint64)


def first_keys(text: str, wanted: frozenset[int]) -> Iterator[int]:
    """Yield what ``text_keys`` returns for the first words of a text, in each wanted number."""
    running = hashlib.blake2b(digest_size=8)
    for number, word in enumerate(text.split(maxsplit=MAX_WORDS)[:MAX_WORDS], start=1):
        space = " " if number > 1 else ""
        running.update((space + word.casefold()).encode(errors="replace"))
        if number in wanted:
            yield int.from_bytes(running.digest(), "little")


def group_links(
    groups: NDArray[np.int64], targets: NDArray[np.integer], indptr: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return the different links between label texts.

    Args:
        groups: (N,) the label text that each training text is; -1.
        targets: (nnz,) the label texts that the training texts have, text by text; -1.
        indptr: (N + 1,) where those of each text begin.

    Returns:
        (M, 2) a label text, and one that it has as a label; ascending, none with itself.
    """
    sources = np.repeat(groups, np.diff(indptr))
    kept = (sources >= 0) & (targets >= 0) & (sources != targets)
    width = int(max(groups.max(initial=0), targets.max(initial=0))) + 1
    pairs = sorted_unique(sources[kept] * width + targets[kept])
    return np.stack([pairs // width, pairs % width], axis=1)


def two_way(links: NDArray[np.int64], n: int) -> tuple[int, int]:
    """Count the links that exist in both directions, and those of which both could exist.

    Both could exist if the label is a training text with links, too.
    """
    sources = np.zeros(n, bool)
    sources[links[:, 0]] = True
    possible = links[sources[links[:, 1]]]
    forward, back = links[:, 0] * n + links[:, 1], possible[:, 1] * n + possible[:, 0]
    if not len(possible):
        return 0, 0
    places = np.minimum(np.searchsorted(forward, back), len(forward) - 1)
    return int((forward[places] == back).sum()), len(possible)


def count_links(labels: LabelSet, split: Split) -> dict[str, int]:
    """Count the texts that are labels by their titles, and the links between them.

    Returns:
        ``texts``; ``links`` of which both directions could exist; ``both`` directions do.
    """
    keys, group_of_label = LabelKeys.of(labels.titles)
    groups, targets = keys.groups(split.titles), split.filtered_targets()
    links = group_links(groups, group_of_label[targets.indices], targets.indptr)
    both, possible = two_way(links, len(keys.keys))
    return {"texts": int((groups >= 0).sum()), "links": possible, "both": both}
