"""Checks of labels and examples that need no store: types, lengths and characters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from umpteen.display import counted
from umpteen.errors import DataError

MAX_ID_CHARACTERS = 512
MAX_LABEL_CHARACTERS = 20_000
MAX_EXAMPLE_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class NewLabel:
    """A label to add: the user's id, a text, and optionally a longer description."""

    id: str
    text: str
    content: str = ""

    def check(self) -> NewLabel:
        """Return this label if it can be stored.

        Raises:
            DataError: If id or text is blank, or a field is too long or not valid text.
        """
        _check_text(self.id, "the id of a label", MAX_ID_CHARACTERS)
        _check_text(self.text, "the text of a label", MAX_LABEL_CHARACTERS)
        _check_text(self.content, "the content of a label", MAX_LABEL_CHARACTERS)
        if not self.id.strip() or not self.text.strip():
            raise DataError("a label needs an id and a text, and neither may be blank")
        return self


@dataclass(frozen=True)
class NewExample:
    """An example to add, checked as far as that needs no store."""

    text: str
    digest: bytes
    label_ids: list[str]
    """Without duplicates."""


def check_examples(texts: Sequence[str], labels: Sequence[Sequence[str]]) -> list[NewExample]:
    """Check examples as far as that needs no store.

    Args:
        texts: The texts.
        labels: The label ids of each text.

    Returns:
        The examples in their order.

    Raises:
        DataError: If a text is blank, too long or not valid, or if it has no list of labels.
    """
    if len(texts) != len(labels):
        raise DataError(
            f"found {counted(len(texts), 'text')} and labels for {len(labels):,}; give a list of "
            "label ids for each text"
        )
    checked = []
    for position, (text, ids) in enumerate(zip(texts, labels, strict=True), 1):
        _check_text(text, f"the text of example {position}", MAX_EXAMPLE_CHARACTERS)
        if not text.strip():
            raise DataError(f"example {position} has a blank text; give a text with its labels")
        own = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, str) else []
        if not own:
            raise DataError(f"example {position} has no list of labels; give at least one label id")
        for label_id in own:
            _check_text(label_id, f"a label id of example {position}", MAX_ID_CHARACTERS)
        checked.append(NewExample(text, text_digest(text), list(dict.fromkeys(own))))
    return checked


def text_digest(text: str) -> bytes:
    """Return the SHA-256 of a text: two examples with the same digest are the same example."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _check_text(value: object, name: str, max_characters: int) -> None:
    if not isinstance(value, str):
        raise DataError(f"{name} must be a string, not {value!r:.60}")
    if len(value) > max_characters:
        raise DataError(f"{name} has {len(value):,} characters; the limit is {max_characters:,}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            f"{name} contains a lone surrogate at character {error.start + 1}, which is not valid "
            "Unicode; remove it"
        ) from None
