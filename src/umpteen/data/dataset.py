"""The data set: texts, sparse targets and filter pairs, in named splits. No reading of files here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.labels import LabelSet, join_texts
from umpteen.errors import DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Propensity:
    """The constants of the label propensity model; a property of the data, never guessed."""

    a: float = 0.55
    b: float = 1.5


@dataclass(frozen=True)
class Split:
    """Queries with their relevant labels.

    ``targets`` is CSR (N, L) float32 with sorted, unique columns and values in (0, 1].
    ``filters`` are (row, label row) pairs that count neither as right nor as wrong.
    """

    titles: Sequence[str]
    targets: sp.csr_matrix
    contents: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    filters: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def __post_init__(self) -> None:
        n = len(self.titles)
        if self.targets.shape[0] != n:
            raise DataError(f"{n} texts but {self.targets.shape[0]} rows of labels")
        for name, column in (("contents", self.contents), ("ids", self.ids)):
            if column is not None and len(column) != n:
                raise DataError(f"{n} texts but {len(column)} {name}")
        if len(self.filters) and (
            self.filters.min() < 0 or (self.filters >= np.array(self.targets.shape)).any()
        ):
            raise DataError("a filter pair points outside the queries or the labels")

    def __len__(self) -> int:
        return len(self.titles)

    def texts(self, which: str = "all") -> list[str]:
        """What the encoder reads of each query: ``"title"`` or ``"all"`` (title and content)."""
        return join_texts(self.titles, self.contents, which)

    def select(self, rows: NDArray[np.int64]) -> Split:
        """The given queries, in the given order, with their filters renumbered."""
        position = np.full(len(self), -1, np.int64)
        position[rows] = np.arange(len(rows))
        kept = self.filters[position[self.filters[:, 0]] >= 0]
        filters = np.column_stack([position[kept[:, 0]], kept[:, 1]]).astype(np.int64)
        chosen = rows.tolist()
        return Split(
            titles=[self.titles[i] for i in chosen],
            targets=self.targets[rows],
            contents=None if self.contents is None else [self.contents[i] for i in chosen],
            ids=None if self.ids is None else [self.ids[i] for i in chosen],
            filters=filters,
        )

    def filtered_targets(self) -> sp.csr_matrix:
        """The targets without the filter pairs."""
        return drop_pairs(self.targets, self.filters)


@dataclass(frozen=True)
class Dataset:
    """Splits over one label set."""

    labels: LabelSet
    splits: Mapping[str, Split]
    propensity: Propensity = Propensity()
    name: str = "data"

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            if name not in SPLITS:
                raise DataError(f"split {name!r} is not known; a data set has {', '.join(SPLITS)}")
            if split.targets.shape[1] != len(self.labels):
                raise DataError(
                    f"split {name!r} speaks of {split.targets.shape[1]} labels, "
                    f"the label set has {len(self.labels)}"
                )

    def __getitem__(self, name: str) -> Split:
        try:
            return self.splits[name]
        except KeyError:
            have = ", ".join(self.splits) or "none"
            raise DataError(f"the data has no {name!r} split; it has: {have}") from None

    def __contains__(self, name: str) -> bool:
        return name in self.splits

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """(L,) training queries of each label; what propensities and frequency bins are made of."""
        return np.asarray(self["train"].targets.getnnz(axis=0), dtype=np.int64)

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Any,
        *,
        label_texts: Mapping[Any, str] | Sequence[str] | None = None,
        test_texts: Sequence[str] | None = None,
        test_labels: Any = None,
        propensity: Propensity = Propensity(),  # noqa: B008 - frozen
        name: str = "lists",
    ) -> Dataset:
        """Make a data set from Python values.

        Args:
            texts: The training texts.
            labels: For each text its label ids (any strings or numbers), or a scipy sparse matrix.
            label_texts: Id to text, or texts in the column order of a matrix. Ids serve as texts
                where it is left out.
            test_texts: Texts of a test split, if there is one.
            test_labels: Their labels.
            propensity: Constants for propensity-scored metrics.
            name: What to call the data.

        Returns:
            The data set, with labels in order of first appearance (or of the columns).

        Example:
            >>> data = Dataset.from_lists(["red fruit", "long fruit"], [["apple"], ["banana"]])
            >>> data.labels.ids
            ['apple', 'banana']
        """
        given = [("train", texts, labels)]
        if test_texts is not None:
            given.append(("test", test_texts, test_labels))
        label_set = _label_set([rows for _, _, rows in given], label_texts)
        splits = {
            split: Split(list(words), _matrix(rows, label_set), None, None)
            for split, words, rows in given
        }
        return cls(label_set, splits, propensity, name)


def targets_from_rows(rows: Iterable[Iterable[int]], n_labels: int) -> sp.csr_matrix:
    """Lists of label rows as a CSR matrix of ones, duplicates removed and columns sorted.

    Example:
        >>> targets_from_rows([[2, 0, 2], []], 3).toarray().tolist()
        [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """
    lists = [list(row) for row in rows]
    lengths = np.fromiter((len(row) for row in lists), np.int64, len(lists))
    indices = np.fromiter((col for row in lists for col in row), np.int64, int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    matrix = sp.csr_matrix(
        (np.ones(len(indices), np.float32), indices, offsets), shape=(len(lists), n_labels)
    )
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def drop_pairs(targets: sp.csr_matrix, pairs: NDArray[np.int64]) -> sp.csr_matrix:
    """The matrix without the given (row, column) entries."""
    if not len(pairs):
        return targets
    n_labels = targets.shape[1]
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    keys = rows * n_labels + targets.indices
    keep = ~np.isin(keys, pairs[:, 0] * n_labels + pairs[:, 1])
    return sp.csr_matrix(
        (targets.data[keep], (rows[keep], targets.indices[keep])), shape=targets.shape
    )


def hold_out_validation(dataset: Dataset, *, share: float, most: int, seed: int) -> Dataset:
    """Move a random part of train into a validation split, unless there is one already.

    Args:
        dataset: The data.
        share: The share of the training queries to move.
        most: At most this many.
        seed: Chooses which.

    Returns:
        The data with train and validation; unchanged if validation exists or share is 0.
    """
    if "validation" in dataset or share <= 0:
        return dataset
    train = dataset["train"]
    n = min(most, int(round(len(train) * share)))
    if n < 1:
        return dataset
    order = np.random.default_rng([seed, 0x5EED]).permutation(len(train))
    splits = dict(dataset.splits)
    splits["validation"] = train.select(np.sort(order[:n]))
    splits["train"] = train.select(np.sort(order[n:]))
    return replace(dataset, splits=splits)


def _label_set(given: Sequence[Any], label_texts: Any) -> LabelSet:
    if sp.issparse(given[0]):
        n = given[0].shape[1]
        ids = [str(i) for i in range(n)]
        if label_texts is None:
            return LabelSet(ids, ids)
        if isinstance(label_texts, Mapping):
            label_texts = [label_texts.get(i, label_texts.get(str(i), str(i))) for i in range(n)]
        if len(label_texts) != n:
            raise DataError(f"{n} label columns but {len(label_texts)} label texts")
        return LabelSet(ids, [str(text) for text in label_texts])
    order: dict[str, None] = {}
    if isinstance(label_texts, Mapping):
        order.update((str(key), None) for key in label_texts)
    for rows in given:
        for row in rows:
            if isinstance(row, str):
                raise DataError(f"labels must be a list for each text, got the string {row!r}")
            order.update((str(label), None) for label in row)
    ids = list(order)
    names = (
        {str(k): str(v) for k, v in label_texts.items()} if isinstance(label_texts, Mapping) else {}
    )
    if label_texts is not None and not isinstance(label_texts, Mapping):
        raise DataError("label_texts must be a mapping from id to text when labels are lists")
    return LabelSet(ids, [names.get(i, i) for i in ids])


def _matrix(rows: Any, labels: LabelSet) -> sp.csr_matrix:
    if sp.issparse(rows):
        matrix = sp.csr_matrix(rows, dtype=np.float32)
        matrix.eliminate_zeros()
        matrix.sort_indices()
        if len(matrix.data) and not (np.isfinite(matrix.data).all() and matrix.data.min() > 0):
            raise DataError("a label matrix must hold positive, finite relevances")
        return matrix
    return targets_from_rows(
        ([labels.rows[str(label)] for label in row] for row in rows), len(labels)
    )
