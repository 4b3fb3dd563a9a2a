"""Split training rows into train and test: by label, and never one text on both sides.

Rows with the same text (but for case and blanks) are one unit. Each unit belongs to the rarest of
its labels. Units are ordered by that label, at random within it, and every n-th unit goes to the
other side: every label that is the rarest of many texts gives its share, within one text. Units
that have a label's only text stay in train, and the last text of a label returns there. This is a
simple form of the iterative stratification of Sechidis et al. (2011), without its loop over labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset
from umpteen.errors import DataError

_KEY = 0x5B117


def split_dataset(
    dataset: Dataset, *, test: float = 0.1, validation: float = 0.0, seed: int = 17
) -> Dataset:
    """Move a share of the training rows into a test split, and one into a validation split.

    Args:
        dataset: Data with a train split.
        test: Share of the rows; 0 for none.
        validation: Share of the rows; 0 for none.
        seed: Chooses which rows; the same seed gives the same split.

    Raises:
        DataError: If a share is not possible, a split is there already, or no row can leave train.
    """
    shares = {name: share for name, share in (("test", test), ("validation", validation)) if share}
    _check(dataset, shares)
    train = dataset["train"]
    rows = np.arange(len(train))
    groups = group_texts(train.texts())
    splits = dict(dataset.splits)
    for number, (name, share) in enumerate(shares.items()):
        wanted = round(share * len(train))
        random = np.random.default_rng([seed, _KEY, number])
        chosen = choose_rows(train.targets[rows], groups[rows], wanted, random)
        if not len(chosen):
            raise DataError(
                f"no row can go to {name}: every text has a label that no other text has, or the "
                f"share is too small for {len(rows):,} rows"
            )
        splits[name] = train.select(rows[chosen])
        rows = np.delete(rows, chosen)
    splits["train"] = train.select(rows)
    return replace(dataset, splits=splits)


def group_texts(texts: Sequence[str]) -> NDArray[np.int64]:
    """Number texts in order of first appearance; equal ones, but for case and blanks, alike.

    Example:
        >>> group_texts(["a", "B", "", " A"]).tolist()
        [0, 1, 2, 0]
    """
    # By hashes: 8 bytes for each text, where a table of texts has hundreds.
    hashes = (hash(" ".join(text.split()).casefold()) for text in texts)
    values = np.fromiter(hashes, np.int64, len(texts))
    _, first, numbers = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[numbers]


def choose_rows(
    targets: sp.csr_matrix, groups: NDArray[np.int64], wanted: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """Return rows to move, whole groups, about as many as wanted, stratified by label.

    Args:
        targets: (N, L) labels of the rows.
        groups: (N,) the group of each row; rows of one group stay together.
        wanted: How many rows.
        random: Orders the units within a label.

    Returns:
        Sorted row numbers. Every label of the rest keeps a row there, except that it had none.
    """
    units, unit_of, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    labels = _labels_of_units(targets, unit_of, len(units))
    counts = np.asarray(labels.getnnz(axis=0), np.int64)
    rarest, fewest = _rarest_labels(labels, counts)
    order = np.lexsort((random.random(len(units)), rarest, fewest))
    order = order[fewest[order] > 1]
    total = int(sizes[order].sum())
    if not total or wanted < 1:
        return np.zeros(0, np.int64)
    share = min(1.0, wanted / total)
    # By units, not by rows: a large group must not be more likely to go.
    steps = np.floor(np.arange(len(order) + 1) * share + random.random())
    chosen = np.zeros(len(units), bool)
    chosen[order[np.diff(steps) > 0]] = True
    _give_back_(chosen, labels, counts)
    return np.flatnonzero(chosen[unit_of])


def _labels_of_units(
    targets: sp.csr_matrix, unit_of: NDArray[np.int64], n_units: int
) -> sp.csr_matrix:
    """Return (U, L) ones where a row of the unit has the label."""
    rows = np.repeat(unit_of, np.diff(targets.indptr))
    shape = (n_units, targets.shape[1])
    labels = sp.csr_matrix((np.ones(len(rows), np.int8), (rows, targets.indices)), shape=shape)
    labels.sum_duplicates()
    return labels


def _rarest_labels(
    labels: sp.csr_matrix, counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (U,) the rarest label of each unit and its number of units; without labels: many."""
    n_labels = max(1, labels.shape[1])
    filled = np.flatnonzero(np.diff(labels.indptr))
    keys = np.full(labels.shape[0], np.iinfo(np.int64).max)
    if len(filled):
        each = counts[labels.indices] * n_labels + labels.indices
        keys[filled] = np.minimum.reduceat(each, labels.indptr[filled])
    return keys % n_labels, keys // n_labels


def _give_back_(
    chosen: NDArray[np.bool_], labels: sp.csr_matrix, counts: NDArray[np.int64]
) -> None:
    """Return units to train whose labels have no other unit left there."""
    while True:
        taken = np.flatnonzero(chosen)
        gone = np.asarray(labels[taken].getnnz(axis=0), np.int64)
        lost = np.flatnonzero((gone == counts) & (counts > 0))
        if not len(lost):
            return
        # The first unit of each lost label; one unit may serve several of them.
        columns = labels[taken].tocsc()[:, lost]
        first = columns.indices[columns.indptr[:-1]]
        chosen[taken[np.unique(first)]] = False


def _check(dataset: Dataset, shares: dict[str, float]) -> None:
    if not shares:
        raise DataError("nothing to split: give a share for test or validation, such as 0.1")
    for name, share in shares.items():
        if not 0 < share < 1:
            raise DataError(f"the share of {name} is {share:g}; expected a number between 0 and 1")
        if name in dataset:
            have = ", ".join(dataset.splits)
            raise DataError(f"the data has a {name} split already (it has: {have})")
    if sum(shares.values()) >= 1:
        raise DataError("the shares of test and validation leave nothing for train")
    _ = dataset["train"]
