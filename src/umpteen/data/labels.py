"""The label set: the only owner of label order, ids and texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any

from umpteen.data.mapped_strings import MappedStrings, StringRows, sorted_hashes
from umpteen.display import counted, shorten
from umpteen.errors import DataError

FIELDS_AT_ONCE = 30_000


class RepeatedLabel(DataError):
    """A label id is there twice.

    Args:
        label_id: The id.
        rows: Its second row and its first.
    """

    def __init__(self, label_id: str, rows: tuple[int, int]) -> None:
        super().__init__(
            f"label id {label_id!r} is there twice; every label needs an id of its own"
        )
        self.label_id = label_id
        self.rows = rows


@dataclass(frozen=True, repr=False)
class LabelSet:
    """Labels in a fixed order: row l has the user's ``ids[l]`` and a title and content to read.

    Ids are strings and belong to the user; rows are ours and never leave a run. The fingerprint is
    stored with every part that depends on the order.

    Example:
        >>> labels = LabelSet(["a", "b"], ["apple", "pear"])
        >>> labels.row("b"), labels.texts[1]
        (1, 'pear')
    """

    ids: Sequence[str]
    titles: Sequence[str]
    contents: Sequence[str] | None = None
    """Longer descriptions, or None where no label has any."""
    metadata: Sequence[Mapping[str, Any]] | None = None
    """What else is known of each label, such as ``broader`` and ``notation``; not in the texts and
    not in the fingerprint. None where nothing is."""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.titles):
            raise DataError(f"{len(self.ids)} label ids but {len(self.titles)} label texts")
        if self.contents is not None and len(self.contents) != len(self.ids):
            raise DataError(f"{len(self.ids)} label ids but {len(self.contents)} label contents")
        if self.metadata is not None and len(self.metadata) != len(self.ids):
            raise DataError(f"{len(self.ids)} label ids but metadata of {len(self.metadata)}")
        if (rows := self._repeated()) is not None:
            raise RepeatedLabel(self.ids[rows[0]], rows)

    @classmethod
    def checked_before(
        cls,
        ids: Sequence[str],
        titles: Sequence[str],
        contents: Sequence[str] | None,
        fingerprint: str,
        rows: Mapping[str, int] | None = None,
    ) -> LabelSet:
        """Return a set that was one before.

        Nothing is checked, so ``rows`` are made when first wanted, unless they are given.
        """
        labels = cls.__new__(cls)
        values = {"ids": ids, "titles": titles, "contents": contents, "metadata": None}
        vars(labels).update(values, fingerprint=fingerprint)
        if rows is not None:
            vars(labels)["rows"] = rows
        return labels

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        first = ", ".join(repr(shorten(label_id, 30)) for label_id in self.ids[:3])
        return f"LabelSet({counted(len(self), 'label')}: {first}{', ..' if len(self) > 3 else ''})"

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """From id to row; a sorted index of hashes where the ids are in arrays."""
        if isinstance(self.ids, MappedStrings):
            return StringRows(self.ids, *sorted_hashes(self.ids))
        return {label_id: row for row, label_id in enumerate(self.ids)}

    def _repeated(self) -> tuple[int, int] | None:
        """Return the row of the first id that is there before, and the earlier row."""
        if isinstance(self.rows, StringRows):
            return self.rows.first_repeat()
        if len(self.rows) == len(self.ids):
            return None
        first: dict[str, int] = {}
        rows = ((row, first.setdefault(name, row)) for row, name in enumerate(self.ids))
        return next((row, before) for row, before in rows if row != before)

    @property
    def texts(self) -> Sequence[str]:
        """What a person reads: the title, or the id where there is no title."""
        return _Readable(self)

    def row(self, label_id: str) -> int:
        """Return the row of an id.

        Raises:
            DataError: If no label has this id.
        """
        try:
            return self.rows[label_id]
        except KeyError:
            raise DataError(f"no label has the id {label_id!r}") from None

    def encoder_texts(self, which: str = "all") -> list[str]:
        """Return what the encoder reads of each label.

        ``"title"`` or ``"all"`` (title and content).
        """
        return join_texts(self.titles, self.contents, which)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of ids and texts in their order."""
        digest = hashlib.sha256()
        contents = self.contents if self.contents is not None else repeat("")
        fields = chain.from_iterable(zip(self.ids, self.titles, contents, strict=False))
        # Many at once: a million calls of update would take most of a start's time.
        while some := list(islice(fields, FIELDS_AT_ONCE)):
            digest.update(_sized(some))
        return digest.hexdigest()[:32]


def _sized(fields: list[str]) -> bytes:
    """Return UTF-8 of all fields, each with its number of bytes before it, in eight bytes."""
    lengths = list(map(len, fields))
    if max(lengths, default=0) < len(_SIZES) and "".join(fields).isascii():
        # One byte a character, as in Latin-1: no loop of ours, half of the time.
        sizes = map(_SIZES.__getitem__, lengths)
        return "".join(chain.from_iterable(zip(sizes, fields, strict=True))).encode("latin-1")
    raw = [field.encode("utf-8", "surrogatepass") for field in fields]
    counts = [len(each).to_bytes(8, "little") for each in raw]
    return b"".join(chain.from_iterable(zip(counts, raw, strict=True)))


_SIZES = [size.to_bytes(8, "little").decode("latin-1") for size in range(1024)]


class _Readable(Sequence[str]):
    """Titles with ids in the empty places, without a copy of the list."""

    def __init__(self, labels: LabelSet) -> None:
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, row):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN204
        if isinstance(row, slice):
            return [self[i] for i in range(*row.indices(len(self)))]
        return self._labels.titles[row] or self._labels.ids[row]


class JoinedStrings(Sequence[str]):
    """Titles joined with contents while they are read, where a list of them would not fit."""

    def __init__(self, titles: Sequence[str], contents: Sequence[str]) -> None:
        self._titles, self._contents = titles, contents

    def __len__(self) -> int:
        return len(self._titles)

    def __getitem__(self, row):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN204
        if isinstance(row, slice):
            return join_texts(self._titles[row], self._contents[row], "all")
        return f"{self._titles[row]} {self._contents[row]}".strip()

    def __iter__(self) -> Iterator[str]:
        pairs = zip(self._titles, self._contents, strict=True)
        return (f"{title} {content}".strip() for title, content in pairs)


def join_texts(titles: Sequence[str], contents: Sequence[str] | None, which: str) -> list[str]:
    """Join title and content; the title alone where there is no content.

    Example:
        >>> join_texts(["a", "b"], ["", "more"], "all")
        ['a', 'b more']
    """
    if which not in ("title", "all"):
        raise DataError(f"text must be 'title' or 'all', not {which!r}")
    if which == "title" or contents is None:
        return list(titles)
    return [f"{title} {content}".strip() for title, content in zip(titles, contents, strict=True)]
