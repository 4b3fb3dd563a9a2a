"""Synonym replacement: copies of queries with some words replaced by near neighbours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

WORDS = re.compile(r"[^\W\d_]{3,}")
"""What may be replaced: runs of three letters or more."""
MAX_WORDS = 30_000
"""The most frequent words are replaced and replace; the rest stays as it is."""
NEAREST = 5
BLOCK = 2048

VectorsOf = Callable[[Sequence[str]], NDArray[np.float32]]
"""Words to static vectors (V, D)."""


def replace_words(
    titles: Sequence[str],
    contents: Sequence[str] | None,
    vectors_of: VectorsOf,
    *,
    share: float,
    seed: int,
) -> tuple[list[str], list[str] | None]:
    """Replace a share of the known words of texts by one of their five nearest words."""
    texts = [*titles, *(contents or [])]
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(WORDS.findall(text.lower()))
    # Ties by the word itself, so that the order of texts does not matter.
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))[:MAX_WORDS]
    if len(vocabulary) < 2:
        return list(titles), None if contents is None else list(contents)
    near = nearest_words(vectors_of(vocabulary))
    replaced = _replace(texts, vocabulary, near, share, np.random.default_rng([seed, 0x59]))
    n = len(titles)
    return replaced[:n], None if contents is None else replaced[n:]


def nearest_words(vectors: NDArray[np.float32], most: int = NEAREST) -> NDArray[np.int64]:
    """Return (V, M) the nearest other words of each by cosine, best first; M is at most V - 1."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.maximum(lengths, 1e-12)
    most = min(most, len(vectors) - 1)
    found = np.empty((len(vectors), most), np.int64)
    for start in range(0, len(vectors), BLOCK):
        scores = unit[start : start + BLOCK] @ unit.T  # (block, V)
        rows = np.arange(len(scores))
        scores[rows, start + rows] = -np.inf  # a word is no synonym of itself
        top = np.argpartition(-scores, most - 1, axis=1)[:, :most]
        order = np.argsort(-np.take_along_axis(scores, top, axis=1), axis=1, kind="stable")
        found[start : start + BLOCK] = np.take_along_axis(top, order, axis=1)
    return found


def _replace(
    texts: Sequence[str],
    vocabulary: Sequence[str],
    near: NDArray[np.int64],
    share: float,
    rng: np.random.Generator,
) -> list[str]:
    rows = {word: row for row, word in enumerate(vocabulary)}
    pieces = [_cut(text) for text in texts]
    known = [rows.get(piece.lower(), -1) for text in pieces for piece in text]
    codes = np.array(known, np.int64)
    drawn = (codes >= 0) & (rng.random(len(codes)) < share)
    places = np.flatnonzero(drawn)
    choice = near[codes[places], rng.integers(0, near.shape[1], len(places))]
    flat = [piece for text in pieces for piece in text]
    for place, new in zip(places.tolist(), choice.tolist(), strict=True):
        flat[place] = vocabulary[new]
    ends = np.cumsum([len(text) for text in pieces])
    starts = [0, *ends[:-1].tolist()]
    return ["".join(flat[a:b]) for a, b in zip(starts, ends.tolist(), strict=True)]


def _cut(text: str) -> list[str]:
    """Return the text in pieces that are words or lie between words; joined they are the text."""
    pieces, end = [], 0
    for match in WORDS.finditer(text):
        pieces += [text[end : match.start()], match.group()]
        end = match.end()
    return [*pieces, text[end:]]
