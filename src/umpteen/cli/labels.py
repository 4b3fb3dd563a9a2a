"""``umpteen labels``: change a run's labels without training, and list them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from typing import IO, TYPE_CHECKING, TypeVar

import click

from umpteen.cli._options import json_option, log, sentences, write_json, write_table
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.store import ChangeStore, NewLabel

Item = TypeVar("Item")
PAGE = 50
SHOWN = 5
STATES = {"added": "there", "retired": "retired", "restored": "in use"}
"""What a label is already where a change does nothing."""


@click.group()
def labels() -> None:
    """Add, retire, restore and list labels without training.

    A change is on the disk when the command returns. Running services use it immediately.
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
    """Add one label, or all labels of a file, to RUN.

    A line of the file is {"id": .., "text": .., "content": ..}; the content is optional. All labels
    are added, or none.
    """
    from umpteen.store import NewLabel

    if (file is None) == (label_id is None) or (label_id is None) != (text is None):
        raise click.UsageError("Name an ID and a TEXT, or a --file.")
    new = (
        [NewLabel(label_id or "", text or "")]
        if file is None
        else list(read_json_lines(file, _label))
    )
    known = {each.id for each in new}
    _change(run, lambda store: store.add_labels(new, who="cli"), "added", as_json, known)


@labels.command()
@click.argument("run")
@click.argument("ids", nargs=-1, required=True)
@json_option
@sentences
def retire(run: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Retire the labels IDS of RUN: no prediction returns them."""
    _change(run, lambda store: store.retire_labels(ids, who="cli"), "retired", as_json, set(ids))


@labels.command()
@click.argument("run")
@click.argument("ids", nargs=-1, required=True)
@json_option
@sentences
def restore(run: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Restore the retired labels IDS of RUN."""
    _change(run, lambda store: store.restore_labels(ids, who="cli"), "restored", as_json, set(ids))


@labels.command("list")
@click.argument("run")
@click.option("--search", default="", metavar="WORDS", help="Only labels with all these words.")
@click.option("--changed", is_flag=True, help="Only added and retired labels.")
@click.option(
    "--order",
    type=click.Choice(["row", "frequent", "rare"]),
    default="row",
    show_default=True,
    help="By row, or by the number of training texts.",
)
@click.option("--offset", default=0, show_default=True, type=click.IntRange(0))
@click.option("--limit", default=PAGE, show_default=True, type=click.IntRange(1))
@json_option
@sentences
def list_(
    run: str, search: str, changed: bool, order: str, offset: int, limit: int, as_json: bool
) -> None:
    """List the labels of RUN: id, text, number of training texts, and state."""
    from umpteen.run_folder import RunFolder
    from umpteen.store import ChangeStore
    from umpteen.store.listing import list_labels

    trained, counts = RunFolder(run).require().read_labels()
    state = ChangeStore.open(run, trained, read_only=True).state()
    page = list_labels(
        state, counts, search=search, changed=changed, order=order, offset=offset, limit=limit
    )
    if as_json:
        write_json(page.as_json())
        return
    write_table(
        ["id", "text", "training texts", "state"],
        [[label.id, label.text, label.count, label.state] for label in page.labels],
    )
    if page.total > len(page.labels):
        log(f"{len(page.labels)} of {page.total} labels; more with --limit and --offset")


@labels.command()
@click.argument("old")
@click.argument("new")
@json_option
@sentences
def carry(old: str, new: str, as_json: bool) -> None:
    """Apply the changes of the run OLD to the run NEW, for example after training again.

    Added and retired labels and examples are carried over. Labels that NEW lacks are left out.
    """
    from umpteen.store.carry import carry_changes

    done = carry_changes(open_store(old), open_store(new), who="cli")
    if as_json:
        write_json(done)
    else:
        log(
            f"added {counted(done['added'], 'label')}, "
            f"retired {counted(done['retired'], 'label')}, "
            f"added {counted(done['examples'], 'example')}"
        )


def open_store(run: str) -> ChangeStore:
    """Open the store of a run folder."""
    from umpteen.run_folder import RunFolder
    from umpteen.store import ChangeStore

    trained, _ = RunFolder(run).require().read_labels()
    return ChangeStore.open(run, trained)


def _change(
    run: str, change: Callable[[ChangeStore], int], done: str, as_json: bool, ids: Collection[str]
) -> None:
    store = open_store(run)
    count = change(store)
    if as_json:
        write_json({done: count, "revision": store.revision})
    elif count or not ids:
        left = len(ids) - count
        others = f"; {left:,} already {STATES[done]}" if left else ""
        log(f"{done} {counted(count, 'label')}{others}")
    else:
        shown = ", ".join(sorted(ids)[:SHOWN]) + (", .." if len(ids) > SHOWN else "")
        log(f"already {STATES[done]}: {shown}")


def read_json_lines(file: IO[str], parse: Callable[[str], Item]) -> Iterator[Item]:
    """Yield what ``parse`` makes of each line that is not blank; errors name file and line."""
    from umpteen.errors import DataError

    name, number = getattr(file, "name", "-"), 0
    try:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                item = parse(line)
            except DataError as error:
                raise DataError(str(error), path=name, line=number) from error
            yield item
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error}", path=name, line=number + 1) from error


def _label(line: str) -> NewLabel:
    from umpteen.errors import DataError
    from umpteen.store import NewLabel

    try:
        return NewLabel(**json.loads(line)).check()
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError('expected {"id": .., "text": ..}, optionally with "content"') from error
