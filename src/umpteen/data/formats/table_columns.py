"""Which columns of a table hold the text, the labels and the id: named by the user, or found."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from umpteen.data.formats.table_options import TableOptions
from umpteen.errors import DataError
from umpteen.registry import suggest

LABEL_NAMES = (
    "labels", "label", "tags", "tag", "categories", "category", "keywords", "keyword",
    "subjects", "subject", "topics", "topic", "classes", "class", "targets", "target",
)  # fmt: skip
LONG_TEXT_NAMES = (
    "content", "body", "abstract", "description", "summary", "document", "article", "sentence",
    "review", "comment", "message", "question", "query",
)  # fmt: skip
WRITTEN = ("text", "title", "content")
"""The names that umpteen writes; they are what they say, even where they are empty."""
TITLE_NAMES = ("title", "headline")
ID_NAMES = ("id", "uid")
RELEVANCE = "relevance"
MAX_NAMED = 20


@dataclass(frozen=True)
class Columns:
    """The columns of a table that are read."""

    title: tuple[str, ...]
    """Joined with blanks; the text where there is no content."""
    content: tuple[str, ...] = ()
    labels: str | None = None
    id: str | None = None
    relevance: str | None = None
    guessed: bool = False
    """Whether another reading is possible, so that the user should see this one."""

    def used(self) -> list[str]:
        """Return every column that is read, each once."""
        single = (self.labels, self.id, self.relevance)
        return list(dict.fromkeys([*self.title, *self.content, *(name for name in single if name)]))

    def describe(self) -> str:
        """Return the choice in words.

        Example:
            >>> Columns(("title",), ("body",), "tags").describe()
            "title from 'title', content from 'body', labels from 'tags'"
        """
        said = [f"{'title' if self.content else 'text'} from {_quoted(self.title)}"]
        if self.content:
            said.append(f"content from {_quoted(self.content)}")
        if self.labels is not None:
            said.append(f"labels from {self.labels!r}")
        if self.id is not None:
            said.append(f"id from {self.id!r}")
        return ", ".join(said)


def choose_columns(
    names: Sequence[str],
    options: TableOptions,
    *,
    need_labels: bool = True,
    empty: Collection[str] = (),
) -> Columns:
    """Return the columns to read.

    Args:
        names: The columns of the table.
        options: What the user named.
        need_labels: Whether a table without labels is an error; texts to predict have none.
        empty: Columns whose cells are empty, as far as is known; not chosen as a text by a guess.

    Returns:
        The columns. Names are compared without regard to case.

    Raises:
        DataError: With the columns found, if a column is missing.
    """
    labels = _choose_labels(names, options, need_labels)
    query_id = find_column(names, options.id_column, "--id-column") if options.id_column else None
    if query_id is None:
        query_id = _first(names, ID_NAMES)
    relevance = _first(names, (RELEVANCE,)) if labels is not None else None
    taken = {labels, query_id, relevance}
    if options.text_columns:
        title, content, sure = *_given_texts(names, options.text_columns), True
    else:
        doubtful = {name for name in empty if name.lower() not in WRITTEN}
        filled = [name for name in names if name not in taken and name not in doubtful]
        title, content, sure = _find_texts(filled)
    if not title:
        raise DataError(
            f"found the columns {_listed(names)}; none has a name that is known for texts. "
            "Name it with --text-column"
        )
    several = [name for name in names if name.lower() in LABEL_NAMES]
    usual = options.label_column is not None or labels is None
    usual = usual or (len(several) < 2 and str(labels).lower() in ("labels", "label"))
    columns = Columns(title, content, labels, query_id, relevance, not (sure and usual))
    for name in columns.used():
        if names.count(name) > 1:
            raise DataError(f"column {name!r} is there twice; rename one of them")
    return columns


def known_table(names: Sequence[str]) -> bool:
    """Return whether a header has a text and a label column under usual names."""
    lower = {name.lower() for name in names}
    texts = {"text", "texts", *TITLE_NAMES, *LONG_TEXT_NAMES}
    return bool(lower & set(LABEL_NAMES)) and bool(lower & texts)


def _choose_labels(names: Sequence[str], options: TableOptions, needed: bool) -> str | None:
    if options.label_column is not None:
        return find_column(names, options.label_column, "--label-column")
    found = _first(names, LABEL_NAMES)
    if found is None and needed:
        raise DataError(
            f"found the columns {_listed(names)}; none has a name that is known for labels. "
            "Name it with --label-column"
        )
    return found


def _given_texts(
    names: Sequence[str], given: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    fields: dict[str, list[str]] = {"title": [], "content": []}
    for word in given:
        field, equals, name = word.partition("=")
        if equals and field in fields and word not in names:
            fields[field].append(find_column(names, name, "--text-column"))
        else:
            fields["title"].append(find_column(names, word, "--text-column"))
    if not fields["title"]:
        # A content alone is the text.
        return tuple(fields["content"]), ()
    return tuple(fields["title"]), tuple(fields["content"])


def _find_texts(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return columns of title and content, and whether no other reading is possible."""
    text = _first(names, ("text", "texts"))
    title = _first(names, TITLE_NAMES)
    long = [name for known in LONG_TEXT_NAMES for name in names if name.lower() == known]
    long += [name for name in names if re.fullmatch(r"(?i).*[_ -]texts?|texts?[_ -].*", name)]
    if title is not None:
        rest = [*([text] if text else []), *long]
        # The original pair of names is the documented one.
        pair = "content" if "content" in rest and text is None else None
        content = pair or (rest[0] if rest else None)
        sure = content is None or content.lower() == "content"
        return (title,), (content,) if content else (), sure and len(rest) < 2
    if text is not None:
        # Any other column beside a text is the user's own business, except the documented one.
        content = "content" if "content" in long else None
        return (text,), (content,) if content else (), True
    if long:
        return (long[0],), (), False
    return ((names[0],), (), False) if len(names) == 1 else ((), (), False)


def _first(names: Sequence[str], known: Iterable[str]) -> str | None:
    """Return the first column with a known name, the same case first."""
    for word in known:
        if word in names:
            return word
        found = next((name for name in names if name.lower() == word), None)
        if found is not None:
            return found
    return None


def find_column(names: Sequence[str], wanted: str, option: str) -> str:
    """Return a column that the user named, with the same case or, if it is the only one, another.

    Raises:
        DataError: With the columns found, if there is none.
    """
    if wanted in names:
        return wanted
    alike = [name for name in names if name.lower() == wanted.lower()]
    if len(alike) == 1:
        return alike[0]
    raise DataError(
        f"found the columns {_listed(names)}; none is named {wanted!r} ({option})."
        f"{suggest(wanted, names)}"
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return (", ".join(name[:40] for name in names[:MAX_NAMED]) or "(none)") + more


def _quoted(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))
