"""``umpteen labels``: change a run's labels without training, and list them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

import click

from umpteen.cli._options import json_option, say, sentences, write_json, write_table

if TYPE_CHECKING:
    from umpteen.live.changes import NewLabel

PAGE = 50


@click.group()
def labels() -> None:
    """Add, retire, restore and list labels without training.

    A change is on the disk when the command returns, and a running service answers by it at once.
    """


@labels.command()
@click.argument("run")
@click.argument("label_id", metavar="[ID", required=False)
@click.argument("text", metavar="TEXT]", required=False)
@click.option("--file", type=click.File("r", encoding="utf-8"), help="JSON lines; - for stdin.")
@json_option
@sentences
def add(
    run: str, label_id: str | None, text: str | None, file: IO[str] | None, as_json: bool
) -> None:
    """Add a label, or all labels of a file, to RUN.

    A line of the file is {"id": .., "text": .., "content": ..}; the content may be left out.
    All of them are added, or none.
    """
    from umpteen.live.changes import NewLabel

    if (file is None) == (label_id is None) or (label_id is None) != (text is None):
        raise click.UsageError("Name an ID and a TEXT, or a --file.")
    new = [NewLabel(label_id or "", text or "")] if file is None else list(_read(file))
    _change(run, lambda book: book.add(new), "added", as_json)


@labels.command()
@click.argument("run")
@click.argument("ids", nargs=-1, required=True)
@json_option
@sentences
def retire(run: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Take the labels IDS of RUN out of every answer."""
    _change(run, lambda book: book.retire(ids), "retired", as_json)


@labels.command()
@click.argument("run")
@click.argument("ids", nargs=-1, required=True)
@json_option
@sentences
def restore(run: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Undo retire for the labels IDS of RUN."""
    _change(run, lambda book: book.restore(ids), "restored", as_json)


@labels.command("list")
@click.argument("run")
@click.option("--search", default="", metavar="WORDS", help="Only labels with all these words.")
@click.option("--changed", is_flag=True, help="Only added and retired labels.")
@click.option("--limit", default=PAGE, show_default=True, type=click.IntRange(1))
@json_option
@sentences
def list_labels(run: str, search: str, changed: bool, limit: int, as_json: bool) -> None:
    """List the labels of RUN with their training examples and what became of them."""
    from umpteen.live.book import LabelBook
    from umpteen.live.listing import list_labels as listing
    from umpteen.runs import RunFolder

    trained, counts = RunFolder(run).require().read_labels()
    book = LabelBook(run, trained)
    page = listing(book.changes, counts, search=search, changed=changed, limit=limit)
    if as_json:
        write_json(page.as_json())
        return
    write_table(
        ["id", "text", "examples", "state"],
        [[label.id, label.text, label.count, label.state] for label in page.labels],
    )
    if page.total > len(page.labels):
        say(f"{len(page.labels)} of {page.total} labels; more with --limit")


@labels.command()
@click.argument("run")
@json_option
@sentences
def repair(run: str, as_json: bool) -> None:
    """Keep what can be read of RUN's damaged list of changes."""
    from umpteen.live.book import repair as mend

    done = mend(run)
    kept = {} if done is None else {"added": len(done[1].added), "retired": len(done[1].retired)}
    if as_json:
        write_json({"damaged": done is not None, "kept": kept})
    elif done is None:
        say("nothing is damaged")
    else:
        say(f"kept {kept['added']} added and {kept['retired']} retired labels; old file: {done[0]}")


@labels.command()
@click.argument("old")
@click.argument("new")
@json_option
@sentences
def carry(old: str, new: str, as_json: bool) -> None:
    """Make the label changes of the run OLD to the run NEW as well, say of a later training."""
    from umpteen.live.book import carry as carry_over

    done = carry_over(old, new)
    if as_json:
        write_json(done)
    else:
        say(f"added {done['added']} and retired {done['retired']} labels")


def _change(run: str, change: Callable[[Any], int], done: str, as_json: bool) -> None:
    from umpteen.live.book import LabelBook

    book = LabelBook.open(run)
    count = change(book)
    book.compact()
    if as_json:
        write_json({done: count, "revision": book.journal.revision})
    else:
        say(f"{done} {count} label{'' if count == 1 else 's'}")


def _read(file: IO[str]) -> Iterator[NewLabel]:
    from umpteen.errors import DataError
    from umpteen.live.changes import NewLabel

    name = getattr(file, "name", "-")
    number = 0
    try:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
                label = NewLabel(**fields).check()
            except DataError as error:
                raise DataError(str(error), path=name, line=number) from error
            except (ValueError, TypeError) as error:
                raise DataError(
                    'expected {"id": .., "text": ..}, optionally with "content"',
                    path=name,
                    line=number,
                ) from error
            yield label
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error}", path=name, line=number + 1) from error
