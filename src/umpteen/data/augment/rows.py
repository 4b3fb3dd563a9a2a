"""Training rows with label texts among them: which labels, which targets, beside which queries.

Nothing is counted for metrics here: propensities and frequencies belong to the data before this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.augment import AUGMENTATIONS
from umpteen.data.augment.graph import Dropped, GraphOptions, LabelTargets
from umpteen.data.dataset import Split
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.registry import resolve
from umpteen.types import Progress, RowIndices

KEPT = ("added", "only", "sampled")
ORDERS = ("random", "tail")


@dataclass(frozen=True)
class Augmented:
    """Training rows after an augmentation."""

    split: Split
    sources: RowIndices
    """(N',) for each row its row in the split before; label row l of the label set is -1 - l."""
    dropped: Dropped = Dropped()
    labels_without_text: int = 0
    """Labels that were chosen but have nothing to read."""

    def sentences(self) -> list[str]:
        """Return what was made and what was left out, for people."""
        labels = self.sources < 0
        entries = np.diff(self.split.targets.indptr)[labels]
        mean = entries.mean() if len(entries) else 0.0
        said = [
            f"{int(labels.sum()):,} label texts as training rows, {mean:.1f} targets each, "
            f"beside {int((~labels).sum()):,} queries"
        ]
        gone = self.dropped
        if gone.queries:
            said.append(
                f"left out of co-occurrence: {gone.queries:,} queries with more than "
                f"max_positives labels ({gone.entries:,} entries); {gone.labels_without:,} labels "
                "have no other query"
            )
        if gone.labels_drawn:
            said.append(
                f"counted on max_queries of their queries, drawn: {gone.labels_drawn:,} frequent "
                f"labels ({gone.entries_drawn:,} entries not read)"
            )
        if self.labels_without_text:
            said.append(f"left out: {self.labels_without_text:,} labels without a text")
        return said


def augment(
    train: Split,
    labels: LabelSet,
    *,
    method: str = "gandalf",
    rows: str = "added",
    share: float = 1.0,
    order: str = "random",
    options: GraphOptions = GraphOptions(),  # noqa: B008 - frozen
    progress: Progress = lambda done, total: None,
) -> Augmented:
    """Add label texts to training queries.

    Filter pairs take no part in targets. A label whose title is also a query's takes over that
    query's filter pairs, except the pair with the label itself, whose target is 1 by definition;
    and the query's positives that are no targets of the label row count neither way in it.

    Args:
        train: The training queries.
        labels: The label set.
        method: A name of ``AUGMENTATIONS``.
        rows: ``added`` to the queries, ``only`` label rows, or ``sampled``: as many rows as there
            are queries, drawn from both together.
        share: Of the labels to take.
        order: Which labels come first: ``random`` ones, or the rarest (``tail``).
        options: Of the method; its seed decides every draw.
        progress: Told of progress.

    Returns:
        The new rows, queries first.

    Raises:
        DataError: If a choice is not known, or nothing is left to train on.
    """
    for name, value, known in (("rows", rows, KEPT), ("order", order, ORDERS)):
        if value not in known:
            raise DataError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
    if not 0 < share <= 1:
        raise DataError(f"share is {share!r}; it must be above 0 and at most 1")
    make: LabelTargets = resolve(AUGMENTATIONS, method, kind="augmentation")
    targets = train.filtered_targets()
    counts = np.asarray(targets.getnnz(axis=0), np.int64)
    chosen = choose_labels(counts, share=share, order=order, seed=options.seed)
    readable = _with_text(labels, chosen)
    without = len(chosen) - len(readable)
    if not len(readable) and rows == "only":
        raise DataError("no label has a text, so there are no label rows to train on")
    sources = np.concatenate([np.arange(len(train)), -1 - readable])
    if rows == "only":
        sources = -1 - readable
    elif rows == "sampled":
        rng = np.random.default_rng([options.seed, 0x77])
        sources = sources[np.sort(rng.permutation(len(sources))[: len(train)])]
    wanted = -1 - sources[sources < 0]
    soft, dropped = make(targets, wanted, options, progress)
    split = _join(train.select(sources[sources >= 0]), _label_split(train, labels, wanted, soft))
    return Augmented(split, sources, dropped, without)


def choose_labels(
    counts: NDArray[np.int64], *, share: float, order: str = "random", seed: int = 17
) -> RowIndices:
    """Return a share of the labels, ascending rows.

    Args:
        counts: (L,) training queries of each label.
        share: Of the labels.
        order: ``random``, or ``tail``: the rarest first, equally rare ones at random.
        seed: Decides the draw.

    Example:
        >>> choose_labels(np.array([5, 1, 9, 0]), share=0.5, order="tail").tolist()
        [1, 3]
    """
    n = max(1, round(share * len(counts))) if len(counts) else 0
    if n == len(counts):
        return np.arange(n)
    draw = np.random.default_rng([seed, 0x5A]).random(len(counts))
    ranked = np.lexsort((draw, counts)) if order == "tail" else np.argsort(draw)
    return np.sort(ranked[:n])


def row_count(n_queries: int, n_labels: int, *, rows: str, share: float) -> int:
    """Return how many rows ``augment`` gives, where every label has a text."""
    n = max(1, round(share * n_labels)) if n_labels else 0
    return {"added": n_queries + n, "only": n, "sampled": n_queries}[rows]


def _with_text(labels: LabelSet, chosen: RowIndices) -> RowIndices:
    texts = labels.encoder_texts()
    keep = np.fromiter((bool(texts[row].strip()) for row in chosen.tolist()), bool, len(chosen))
    return chosen[keep]


def _label_split(train: Split, labels: LabelSet, rows: RowIndices, soft: sp.csr_matrix) -> Split:
    chosen = rows.tolist()
    contents = None
    if labels.contents is not None:
        contents = [labels.contents[row] for row in chosen]
    return Split(
        titles=[labels.titles[row] for row in chosen],
        targets=soft,
        contents=contents,
        ids=[f"label {labels.ids[row]}" for row in chosen],
        filters=_pairs_of_same_text(train, labels, rows, soft),
    )


def _pairs_of_same_text(
    train: Split, labels: LabelSet, rows: RowIndices, soft: sp.csr_matrix
) -> RowIndices:
    """Return (M, 2) pairs of label rows that count neither way, from queries of the same title.

    These are the queries' filter pairs, except the pair with the label itself, and their
    positives, where the row does not have them as targets: they must not become its negatives.
    """
    codes: dict[str, int] = {}
    of_label = np.fromiter(
        (codes.setdefault(_plain(labels.titles[row]), len(codes)) for row in rows.tolist()),
        np.int64,
        len(rows),
    )
    of_query = np.fromiter(
        (codes.get(_plain(title), -1) for title in train.titles), np.int64, len(train)
    )
    same = np.flatnonzero(of_query >= 0)
    if not len(same):
        return np.zeros((0, 2), np.int64)
    shape = (len(codes), len(train))
    gather = sp.csr_matrix((np.ones(len(same), np.int32), (of_query[same], same)), shape=shape)
    filters = sp.csr_matrix(
        (np.ones(len(train.filters), np.int32), (train.filters[:, 0], train.filters[:, 1])),
        shape=train.targets.shape,
    )
    positives = ((gather @ train.filtered_targets())[of_label] > 0).astype(np.int32)  # (R, L)
    known = (soft > 0).astype(np.int32)
    found = sp.csr_matrix((gather @ filters)[of_label] + positives - positives.multiply(known))
    found.eliminate_zeros()
    found.sort_indices()
    entries = found.tocoo()
    pairs = np.column_stack([entries.row, entries.col]).astype(np.int64)
    return pairs[rows[pairs[:, 0]] != pairs[:, 1]]


def _plain(text: str) -> str:
    return text.strip().casefold()


def _join(first: Split, second: Split) -> Split:
    """Return the queries of both, one after the other; ids where the first has them."""
    n = len(first)
    if not n and first.ids is None:
        second = Split(second.titles, second.targets, second.contents, None, second.filters)
    if not n:
        return second
    contents: Sequence[str] | None = None
    if first.contents is not None or second.contents is not None:
        contents = [*_or_empty(first), *_or_empty(second)]
    shifted = second.filters + np.array([n, 0])
    targets = sp.csr_matrix(sp.vstack([first.targets, second.targets], format="csr"))
    return Split(
        titles=[*first.titles, *second.titles],
        targets=targets.astype(np.float32, copy=False),
        contents=contents,
        ids=None if first.ids is None else [*first.ids, *(second.ids or [])],
        filters=np.concatenate([first.filters, shifted]).astype(np.int64),
    )


def _or_empty(split: Split) -> Sequence[str]:
    return split.contents if split.contents is not None else [""] * len(split)
