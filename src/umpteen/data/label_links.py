"""Which texts are labels, and how labels are linked with each other by the labels of their texts.

In data of related items every item is a label, and an item whose relations are known is a text too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Split
from umpteen.data.labels import LabelSet
from umpteen.sorted_unique import sorted_unique

MAX_WORDS = 32
"""Words at the beginning of a text that may be its title."""


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

    def groups(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """(N,) position of the label text that each text is, or the longest it begins with; -1."""
        found = self._positions(text_keys(texts))
        open_ = np.flatnonzero(found < 0)
        if not len(self.words) or not len(open_):
            return found
        firsts = [self._beginnings(texts[row]) for row in open_.tolist()]
        owners = np.repeat(open_, [len(own) for own in firsts])
        places = self._positions(text_keys([first for own in firsts for first in own]))
        known = places >= 0
        found[owners[known]] = places[known]  # the longest is the last one of a text
        return found

    def _positions(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1).astype(np.int64)

    def _beginnings(self, text: str) -> list[str]:
        """Return the first words of a text, in each number that a label has and longest last."""
        words = text.split(maxsplit=MAX_WORDS)[:MAX_WORDS]
        return [" ".join(words[:n]) for n in self.words.tolist() if n <= len(words)]


def text_keys(texts: Sequence[str]) -> NDArray[np.uint64]:
    """(N,) a 64-bit hash of each text, alike for other cases and spaces."""
    digests = [
        hashlib.blake2b(" ".join(text.casefold().split()).encode(errors="replace"), digest_size=8)
        for text in texts
    ]
    return np.frombuffer(b"".join(each.digest() for each in digests), np.uint64)


def group_links(
    groups: NDArray[np.int64], targets: NDArray[np.integer], indptr: NDArray[np.integer]
) -> NDArray[np.int64]:
    """Return the different links between label texts.

    Args:
        groups: (N,) the label text that each training text is; -1.
        targets: (nnz,) the label texts that the training texts have, text by text.
        indptr: (N + 1,) where those of each text begin.

    Returns:
        (M, 2) a label text, and one that it has as a label; ascending, none with itself.
    """
    sources = np.repeat(groups, np.diff(indptr))
    kept = (sources >= 0) & (sources != targets)
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
    own = text_keys(labels.texts)
    keys = sorted_unique(own)
    groups = LabelKeys(keys, np.zeros(0, np.int64)).groups(split.titles)
    targets = split.filtered_targets()
    group_of_label = np.searchsorted(keys, own)
    links = group_links(groups, group_of_label[targets.indices], targets.indptr)
    both, possible = two_way(links, len(keys))
    return {"texts": int((groups >= 0).sum()), "links": possible, "both": both}
