"""From (query, label) pairs to a data set: the split, the labels worth keeping, the filters.

Knows nothing of where the pairs come from; each source's own file does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError

"""Takes one line of progress."""


def quiet(line: str) -> None:
    """Take a line of progress and do nothing with it."""


@dataclass(frozen=True)
class Material:
    """Everything a source found, before anything is split or dropped.

    A query may be unfit for the test split (``may_test`` False): it then always trains.
    """

    ids: Sequence[str]
    """The queries' ids."""
    titles: Sequence[str]
    """The queries' texts."""
    positives: Sequence[Sequence[str]]
    """For each query the ids of its labels."""
    label_titles: Mapping[str, str]
    """The text of every label that may be used, by id, in the order the data set keeps."""
    contents: Sequence[str] | None = None
    label_contents: Mapping[str, str] | None = None
    own: Mapping[str, str] = field(default_factory=dict)
    """Queries that are a label themselves: query id to label id; filter pairs, never positives."""
    may_test: NDArray[np.bool_] | None = None


def assemble(
    material: Material, *, name: str, test_share: float, seed: int, min_queries: int = 1
) -> Dataset:
    """Split by text, keep the labels that training can learn, and drop queries left with none.

    Args:
        material: The queries, labels and pairs.
        name: What to call the data set.
        test_share: The share of the queries (of those that may) to hold out.
        seed: Chooses which.
        min_queries: Labels on fewer training queries than this are left out.

    Returns:
        The data set with train, test and filters; the same for the same input.

    Raises:
        DataError: If the share is not in (0, 1), or nothing is left.
    """
    if not 0 < test_share < 1:
        raise DataError(f"the test share must be between 0 and 1, not {test_share}")
    if min_queries < 1:
        raise DataError(f"a label needs at least 1 training query, not {min_queries}")
    row_of = {label_id: row for row, label_id in enumerate(material.label_titles)}
    targets = _targets(material, row_of)
    test = held_out(material.titles, share=test_share, seed=seed, may=material.may_test)
    counts = targets[np.flatnonzero(~test)].getnnz(axis=0)
    labels = np.flatnonzero(counts >= min_queries)
    targets = targets[:, labels]
    useful = targets.getnnz(axis=1) > 0
    if not len(labels) or not (useful & test).any():
        raise DataError(
            f"{name}: of {len(material.titles)} queries and {len(row_of)} labels none can be both "
            "trained and tested; the source is too small or the options leave too much out"
        )
    label_ids = list(material.label_titles)
    kept_ids = [label_ids[row] for row in labels.tolist()]
    label_set = LabelSet(
        kept_ids,
        [material.label_titles[i] for i in kept_ids],
        None if material.label_contents is None else [material.label_contents[i] for i in kept_ids],
    )
    splits = {
        split: _split(material, targets, np.flatnonzero(mask & useful), label_set)
        for split, mask in (("train", ~test), ("test", test))
    }
    return Dataset(label_set, splits, Propensity(), name)


def held_out(
    texts: Sequence[str], *, share: float, seed: int, may: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """Return which queries to test on; queries of the same text always go to the same side.

    Args:
        texts: The queries' texts; compared without case and with single spaces.
        share: The share of the texts (of those that may) to hold out.
        seed: Chooses which.
        may: False for queries that must train; so does every query with the text of one.

    Returns:
        (N,) True for a test query.
    """
    # A dict, not np.unique: an array of strings is as wide as the longest.
    number: dict[str, int] = {}
    group = np.array(
        [number.setdefault(text_key(text), len(number)) for text in texts], dtype=np.int64
    )
    n = len(number)
    free = np.ones(n, np.bool_)
    if may is not None:
        free[group[~may]] = False
    candidates = np.flatnonzero(free)
    order = np.random.default_rng([seed, 0xDA7A]).permutation(len(candidates))
    chosen = np.zeros(n, np.bool_)
    chosen[candidates[order[: round(share * len(candidates))]]] = True
    return np.asarray(chosen[group], np.bool_)


def text_key(text: str) -> str:
    """Return what two texts share when they differ in case and spacing alone.

    Example:
        >>> text_key("Heart  Failure ")
        'heart failure'
    """
    return " ".join(text.casefold().split())


def _targets(material: Material, row_of: Mapping[str, int]) -> sp.csr_matrix:
    pairs = np.array(
        [
            (row, row_of[label])
            for row, labels in enumerate(material.positives)
            for label in labels
            if label in row_of and material.own.get(material.ids[row]) != label
        ],
        np.int64,
    ).reshape(-1, 2)
    pairs = np.unique(pairs, axis=0)
    return sp.csr_matrix(
        (np.ones(len(pairs), np.float32), (pairs[:, 0], pairs[:, 1])),
        shape=(len(material.titles), len(row_of)),
    )


def _split(
    material: Material, targets: sp.csr_matrix, rows: NDArray[np.int64], labels: LabelSet
) -> Split:
    chosen = rows.tolist()
    ids = [material.ids[row] for row in chosen]
    own = [labels.rows.get(material.own.get(query_id, ""), -1) for query_id in ids]
    filters = np.column_stack([np.arange(len(ids)), np.array(own, np.int64)])
    return Split(
        titles=[material.titles[row] for row in chosen],
        targets=targets[rows],
        contents=None if material.contents is None else [material.contents[row] for row in chosen],
        ids=ids,
        filters=filters[filters[:, 1] >= 0].astype(np.int64),
    )
