"""Where the scores of candidates come from: heads, near queries, words, at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.candidates import VIEWS, Candidates, best_stored, look_up, union
from umpteen.answers.lexical import BLOCK_BYTES, Lexical, best_columns
from umpteen.answers.memory import votes
from umpteen.answers.recipe import Voting
from umpteen.answers.remembered import Additions, Remembered
from umpteen.types import TopK

if TYPE_CHECKING:
    from umpteen.predictor import Predictor

DEPTH = 40
"""Candidates that each view brings."""
QUERIES_AT_ONCE = 2048


@dataclass(frozen=True)
class Labels:
    """The labels at the moment of a search."""

    rows: dict[str, int]
    n: int
    allowed: NDArray[np.bool_] | None
    """(n,) False for labels that nobody may get."""
    added_texts: tuple[str, ...] = ()
    """Of the labels that were added since training."""


@dataclass(frozen=True)
class Views:
    """Where the scores of candidates come from.

    Args:
        predictor: The model; its ``live`` labels count.
        remembered: Training queries, or None.
        lexical: Words, or None.
        voting: How near queries vote.
        word_voting: How queries with the same words vote.
    """

    predictor: Predictor
    remembered: Remembered | None
    lexical: Lexical | None
    voting: Voting = Voting()
    word_voting: Voting = Voting()

    @property
    def names(self) -> tuple[str, ...]:
        """The views there are."""
        have = {
            "dual": "dual" in self.predictor.heads,
            "classifier": "classifier" in self.predictor.heads,
        }
        have["votes"] = self.remembered is not None
        have["words"] = self.lexical is not None
        have["margins"] = self.lexical is not None and self.lexical.margins is not None
        have["word_votes"] = have["votes"] and have["words"]
        return tuple(view for view in VIEWS if have[view])

    def blocks(
        self,
        texts: Sequence[str],
        vectors: torch.Tensor,
        *,
        views: tuple[str, ...],
        depth: int = DEPTH,
        exclude: NDArray[np.int64] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> Iterator[tuple[slice, Candidates, Additions | None]]:
        """Candidates of some queries at a time; see ``Fused.search``.

        Args:
            texts: The queries.
            vectors: Their search vectors.
            views: Which views to ask.
            depth: Candidates that each view brings.
            exclude: Pairs to leave out.
            allowed: Labels that may be returned.

        Yields:
            Which queries, their candidates, and the additions that counted.
        """
        labels = self.labels(allowed)
        now = self.remembered.refresh() if self.remembered is not None else None
        targets = None
        if self.remembered is not None and now is not None:
            targets = self.remembered.targets(labels.rows, labels.n, now)
        step = min(QUERIES_AT_ONCE, max(1, BLOCK_BYTES // (4 * max(1, labels.n))))
        for start in range(0, len(texts), step):
            here = slice(start, min(len(texts), start + step))
            pairs = _pairs_within(exclude, here)
            found = self._candidates(
                list(texts[here]), vectors[here], views, depth, pairs, labels, targets, now
            )
            yield here, found, now

    def _candidates(
        self,
        texts: list[str],
        vectors: torch.Tensor,
        views: tuple[str, ...],
        depth: int,
        exclude: NDArray[np.int64] | None,
        labels: Labels,
        targets: sp.csr_matrix | None,
        now: Additions | None,
    ) -> Candidates:
        tops, stored = [], {}
        for head in ("dual", "classifier"):
            if head in views:
                keep = min(depth, labels.n)
                top = self.predictor.search(
                    vectors, keep, head=head, exclude=exclude, allowed=labels.allowed
                )
                tops.append(top.rows)
        words, dense = self._by_words(texts, views, labels)
        if self.remembered is not None and now is not None and targets is not None:
            if "votes" in views:
                near = self.remembered.nearest(vectors, self.voting.neighbours, now)
                stored["votes"] = _vote(near, targets, self.voting)
            if "word_votes" in views and words is not None:
                near = self.remembered.nearest_by_words(words, self.word_voting.neighbours, now)
                stored["word_votes"] = _vote(near, targets, self.word_voting)
        tops += [_only(best_columns(said, depth).rows, labels.allowed) for said in dense.values()]
        tops += [_only(best_stored(said, depth), labels.allowed) for said in stored.values()]
        if now is not None and self.remembered is not None:
            tops.append(_only(self.told(texts, labels, now), labels.allowed))
        queries, rows = union(tops, exclude, labels.n)
        scores = {view: look_up(said, queries, rows) for view, said in stored.items()}
        for view, said in dense.items():
            known = rows < said.shape[1]
            scores[view] = np.zeros(len(rows), np.float32)
            scores[view][known] = said[queries[known], rows[known]]
        for head in ("dual", "classifier"):
            if head in views:
                scores[head] = self.predictor.pair_scores(vectors, queries, rows, head=head)
        return Candidates(queries, rows, scores, len(texts))

    def _by_words(
        self, texts: list[str], views: tuple[str, ...], labels: Labels
    ) -> tuple[sp.csr_matrix | None, dict[str, NDArray[np.float32]]]:
        """Word vectors, and the scores of all labels by each view that reads them."""
        dense: dict[str, NDArray[np.float32]] = {}
        if self.lexical is None or not {"words", "margins", "word_votes"} & set(views):
            return None, dense
        weighted = self.lexical.words.weighted(texts)
        words = self.lexical.words.cut(weighted)
        if "words" in views:
            dense["words"] = self.lexical.scores(words)
            added = self.lexical.scores_of_added(texts, words, labels.added_texts)
            if added.size:
                dense["words"] = np.concatenate([dense["words"], added], axis=1)
        if "margins" in views:
            dense["margins"] = self.lexical.margin_scores(weighted)
        return words, dense

    def told(self, texts: list[str], labels: Labels, now: Additions) -> NDArray[np.int64]:
        """(B, width) label rows of the texts that were added word for word."""
        assert self.remembered is not None
        places, ids = self.remembered.said_of(texts, now)
        found = [[labels.rows[i] for i in own if i in labels.rows] for own in ids]
        rows = np.full((len(texts), max(map(len, found), default=0)), -1, np.int64)
        for place, own in zip(places, found, strict=True):
            rows[place, : len(own)] = own
        return rows

    def labels(self, allowed: NDArray[np.bool_] | None) -> Labels:
        """The labels of now, fewer where only some are allowed."""
        live = self.predictor.live
        if live is None:
            known = self.predictor.labels
            return Labels(known.rows, len(known), allowed)
        now = live.refresh()
        if now.allowed is not None:
            allowed = now.allowed if allowed is None else now.allowed & allowed
        known, n = now.labels, len(self.predictor.labels)
        added = tuple(known.titles[n:]) if len(known) > n else ()
        return Labels(known.rows, len(known), allowed, added)


def _vote(near: TopK, targets: sp.csr_matrix, voting: Voting) -> sp.csr_matrix:
    return votes(near, targets, neighbours=voting.neighbours, temperature=voting.temperature)


def _only(rows: NDArray[np.int64], allowed: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    if allowed is None:
        return rows
    return np.where(np.append(allowed, False)[rows], rows, -1)


def _pairs_within(pairs: NDArray[np.int64] | None, here: slice) -> NDArray[np.int64] | None:
    if pairs is None or not len(pairs):
        return None
    kept = pairs[(pairs[:, 0] >= here.start) & (pairs[:, 0] < here.stop)]
    return kept - np.array([here.start, 0])
