"""The data set: texts, sparse targets and filter pairs, in named splits. Reads no files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.csr import column_counts
from umpteen.data.display import dataset_html, split_html
from umpteen.data.labels import JoinedStrings, LabelSet, join_texts
from umpteen.data.mapped_strings import MappedStrings
from umpteen.data.string_column import select_strings
from umpteen.display import counted
from umpteen.errors import DataError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Propensity:
    """The constants of the label propensity model; a property of the data, never guessed."""

    a: float = 0.55
    b: float = 1.5


@dataclass(frozen=True, repr=False)
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

    def texts(self, which: str = "all") -> Sequence[str]:
        """Return what the encoder reads of each query.

        ``"title"`` or ``"all"`` (title and content). Many texts are not copied.
        """
        if isinstance(self.titles, MappedStrings):
            if which == "title" or self.contents is None:
                return self.titles
            return JoinedStrings(self.titles, self.contents)
        return join_texts(self.titles, self.contents, which)

    def select(self, rows: NDArray[np.int64]) -> Split:
        """Return the given queries, in the given order, with their filters renumbered."""
        position = np.full(len(self), -1, np.int64)
        position[rows] = np.arange(len(rows))
        kept = self.filters[position[self.filters[:, 0]] >= 0]
        filters = np.column_stack([position[kept[:, 0]], kept[:, 1]]).astype(np.int64)
        return Split(
            titles=select_strings(self.titles, rows),
            targets=self.targets[rows],
            contents=None if self.contents is None else select_strings(self.contents, rows),
            ids=None if self.ids is None else select_strings(self.ids, rows),
            filters=filters,
        )

    def filtered_targets(self) -> sp.csr_matrix:
        """Return the targets without the filter pairs."""
        return drop_pairs(self.targets, self.filters)

    def __repr__(self) -> str:
        pairs = counted(self.targets.nnz, "pair")
        return f"Split({counted(len(self), 'text')}, {pairs} of text and label)"

    def _repr_html_(self) -> str:
        return split_html(self)


@dataclass(frozen=True, repr=False)
class Dataset:
    """Splits over one label set."""

    labels: LabelSet
    splits: Mapping[str, Split]
    propensity: Propensity = Propensity()
    name: str = "data"
    notes: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """How the data was read, where that may be otherwise than meant."""
    hold_out_order: NDArray[np.int8] | None = field(default=None, compare=False, repr=False)
    """(N,) of the train split: rows with smaller numbers are held out first; None for no order."""

    def __post_init__(self) -> None:
        for name, split in self.splits.items():
            if name not in SPLITS:
                raise DataError(f"split {name!r} is not known; a data set has {', '.join(SPLITS)}")
            if split.targets.shape[1] != len(self.labels):
                raise DataError(
                    f"split {name!r} has {split.targets.shape[1]} labels, "
                    f"the label set has {len(self.labels)}"
                )

    def __getitem__(self, name: str) -> Split:
        try:
            return self.splits[name]
        except KeyError:
            have = ", ".join(self.splits) or "none"
            raise DataError(f"the data has no {name!r} split; it has: {have}") from None

    def part(self, name: str) -> Split:
        """Return a split, or the only split there is, whatever it is called.

        Raises:
            DataError: If there are several and none has the name.
        """
        return next(iter(self.splits.values())) if len(self.splits) == 1 else self[name]

    def __contains__(self, name: str) -> bool:
        return name in self.splits

    def __repr__(self) -> str:
        sizes = [f"{name} {counted(len(split), 'text')}" for name, split in self.splits.items()]
        return f"Dataset({self.name!r}, {', '.join(sizes)}, {counted(len(self.labels), 'label')})"

    def _repr_html_(self) -> str:
        return dataset_html(self)

    @property
    def label_counts(self) -> NDArray[np.int64]:
        """(L,) training queries of each label; what propensities and frequency bins are made of."""
        return column_counts(self["train"].targets)

    @classmethod
    def from_lists(
        cls,
        texts: Sequence[str],
        labels: Any,
        *,
        label_texts: Mapping[Any, str] | Sequence[str] | None = None,
        classes: Sequence[Any] | None = None,
        test_texts: Sequence[str] | None = None,
        test_labels: Any = None,
        propensity: Propensity = Propensity(),  # noqa: B008 - frozen
        name: str = "lists",
    ) -> Dataset:
        """Make a data set from Python values.

        Args:
            texts: The training texts.
            labels: For each text its label ids (any strings or numbers), or a scipy sparse matrix,
                or an indicator array together with ``classes``.
            label_texts: Id to text, or texts in the column order of a matrix. Ids serve as texts
                where it is left out.
            classes: Label ids in the column order of a matrix or indicator array.
            test_texts: Texts of a test split, if there is one.
            test_labels: Their labels.
            propensity: Constants for propensity-scored metrics.
            name: What to call the data.

        Returns:
            The data set, with labels in order of first appearance (or of the columns). A label
            that is twice in a row is kept once; ``notes`` counts them.

        Raises:
            DataError: If texts and labels do not fit together, an indicator array comes without
                ``classes``, a relevance is not in (0, 1], or no text has any label.

        Example:
            >>> data = Dataset.from_lists(["red fruit", "long fruit"], [["apple"], ["banana"]])
            >>> data.labels.ids
            ['apple', 'banana']
        """
        from umpteen.data.lists import dataset_from_lists

        given = [("train", texts, labels)]
        if test_texts is not None:
            given.append(("test", test_texts, test_labels))
        return dataset_from_lists(given, label_texts, classes, propensity, name)

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        text_column: str | Sequence[str] | None = None,
        label_column: str | Sequence[str] | None = None,
        id_column: str | None = None,
        separator: str | None = None,
        label_texts: Mapping[Any, str] | None = None,
        validation: Any = None,
        test: Any = None,
        propensity: Propensity = Propensity(),  # noqa: B008 - frozen
        name: str = "table",
    ) -> Dataset:
        """Make a data set from a table in memory.

        Args:
            table: The training rows: anything with ``__arrow_c_stream__`` (pyarrow, polars,
                pandas, duckdb), a pandas DataFrame, a Hugging Face ``Dataset``, a dict of columns;
                or a mapping from split to such a table.
            text_column: The column with the text. Several are joined; ``"title=NAME"`` and
                ``"content=NAME"`` keep two fields apart. Found by its name if left out.
            label_column: The column with the labels: lists, or text with a separator. A list of
                names: columns of 0 and 1, one for each label, or with a label in each cell.
            id_column: The column with the ids of the rows.
            separator: Stands between labels in text; ``"none"`` if a cell is one label.
            label_texts: Id to text; with it, no other label may occur.
            validation: The rows of a validation split, if there is one.
            test: The rows of a test split, if there is one.
            propensity: Constants for propensity-scored metrics.
            name: What to call the data.

        Returns:
            The data set; ``notes`` says how it was read where that may be otherwise than meant.

        Raises:
            DataError: If a column is missing or a value is of the wrong type.
        """
        from umpteen.data.formats.table_options import TableOptions, one_or_several
        from umpteen.data.frames import from_tables, open_frames

        one, several = one_or_several(label_column)
        options = TableOptions(text_column or (), one, id_column, separator, label_columns=several)
        tables = open_frames(table, validation=validation, test=test)
        return from_tables(
            tables, options, label_texts=label_texts, propensity=propensity, name=name
        )

    @classmethod
    def from_pandas(cls, frame: Any, **options: Any) -> Dataset:
        """Make a data set from a pandas DataFrame.

        Args:
            frame: The training rows.
            **options: Those of ``from_arrow``.

        Returns:
            The data set.

        Raises:
            DataError: If a column is missing or a value is of the wrong type.
        """
        return cls.from_arrow(frame, **{"name": "frame", **options})

    @classmethod
    def from_hf(cls, dataset: Any, **options: Any) -> Dataset:
        """Make a data set from a Hugging Face ``datasets`` object.

        Args:
            dataset: A ``Dataset`` or ``DatasetDict``. Class numbers become class names.
            **options: Those of ``from_arrow``.

        Returns:
            The data set.

        Raises:
            DataError: If a column is missing or a value is of the wrong type.
        """
        return cls.from_arrow(dataset, **{"name": "datasets", **options})


def targets_from_rows(rows: Iterable[Iterable[int]], n_labels: int) -> sp.csr_matrix:
    """Build a CSR matrix of ones from lists of label rows, without duplicates, columns sorted.

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
    """Return the matrix without the given (row, column) entries."""
    if not len(pairs):
        return targets
    n_labels = targets.shape[1]
    rows = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    keys = rows * n_labels + targets.indices
    keep = ~np.isin(keys, pairs[:, 0] * n_labels + pairs[:, 1])
    return sp.csr_matrix(
        (targets.data[keep], (rows[keep], targets.indices[keep])), shape=targets.shape
    )


def hold_out_validation(dataset: Dataset, *, share: float, max_queries: int, seed: int) -> Dataset:
    """Move a random part of train into a validation split, unless there is one already.

    No label loses its last training query: validation on labels that training never saw would
    misjudge whatever learns a vector per label. Where that leaves too few queries to choose from,
    validation is smaller; where it leaves none, any query may go.

    Args:
        dataset: The data.
        share: The share of the training queries to move.
        max_queries: At most this many.
        seed: Chooses which.

    Returns:
        The data with train and validation; unchanged if validation exists or share is 0.
    """
    if "validation" in dataset or share <= 0:
        return dataset
    train = dataset["train"]
    n = min(max_queries, int(round(len(train) * share)), len(train) - 1)
    if n < 1:
        return dataset
    order = np.random.default_rng([seed, 0x5EED]).permutation(len(train))
    if dataset.hold_out_order is not None:
        order = order[np.argsort(dataset.hold_out_order[order], kind="stable")]
    held = spare_queries(train.filtered_targets(), order, n)
    if not len(held):
        held = order[:n]
    kept = np.setdiff1d(order, held)
    splits = dict(dataset.splits)
    splits["validation"] = train.select(np.sort(held))
    splits["train"] = train.select(kept)
    return replace(dataset, splits=splits, hold_out_order=None)


def spare_queries(targets: sp.csr_matrix, order: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return up to n queries, early in the order, whose labels all keep a query outside the choice.

    Chosen in rounds: each takes the next queries none of whose labels would run out, then gives
    back those that together took a label's last ones.

    Args:
        targets: (N, L) those of the training queries.
        order: (N,) all query rows, in the order in which they are tried.
        n: How many are wanted.

    Returns:
        Query rows, at most n; none without labels.
    """
    lengths = np.diff(targets.indptr)
    waiting = order[lengths[order] > 0]
    remaining = np.asarray(targets.getnnz(axis=0), dtype=np.int64)
    held: list[NDArray[np.int64]] = []
    while n > 0 and len(waiting):
        least = np.minimum.reduceat(remaining[targets[waiting].indices], _starts(lengths[waiting]))
        waiting = waiting[least > 1]
        taken = waiting[:n]
        after = remaining - np.asarray(targets[taken].getnnz(axis=0))
        if len(taken):
            spent = np.minimum.reduceat(after[targets[taken].indices], _starts(lengths[taken])) < 1
            # The first of those that share a label may stay; the others wait for the next round.
            spent[0] = False
            taken, waiting = taken[~spent], np.concatenate([taken[spent], waiting[n:]])
            remaining -= np.asarray(targets[taken].getnnz(axis=0))
            held.append(taken)
            n -= len(taken)
    return np.concatenate(held) if held else order[:0]


def _starts(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return where each row starts in the rows' joined entries; all rows have one."""
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
