"""What every command shares: error sentences, JSON or table output, progress. No logic here."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from umpteen.errors import UmpteenError
from umpteen.escape import escape_controls, to_json_text
from umpteen.head_names import COMBINED, ENSEMBLE, HEADS
from umpteen.log_lines import Detail

Function = TypeVar("Function", bound=Callable[..., Any])

ALL_HEADS = (*HEADS, COMBINED, ENSEMBLE)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
format_option = click.option(
    "--format", "data_format", metavar="NAME", help="The data's format, if it is not recognised."
)
without_option = click.option(
    "--without",
    multiple=True,
    type=click.Choice([*HEADS, "knn", "lexical", "backlinks", "names", "reranker"]),
    help="Leave this scorer out of the ensemble.",
)
budget_option = click.option(
    "--budget-ms",
    type=click.FloatRange(0),
    metavar="MS",
    help="Re-rank as many candidates as this many milliseconds a text allow, measured at start.",
)
backend_option = click.option(
    "--backend",
    type=click.Choice(["torch", "onnx", "openvino"]),
    default="torch",
    show_default=True,
    help="What runs a transformer on a CPU; exported to RUN/backends with umpteen export.",
)
device_option = click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)


def sentences(function: Function) -> Function:
    """Turn our own errors into one sentence on stderr and exit code 1.

    ``UMPTEEN_TRACEBACK=1`` shows the traceback instead.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except UmpteenError as error:
            if os.environ.get("UMPTEEN_TRACEBACK"):
                raise
            log(f"umpteen: {error}")
            sys.exit(1)
        except OSError as error:
            if os.environ.get("UMPTEEN_TRACEBACK"):
                raise
            if isinstance(error, BrokenPipeError):
                # The reader went away (head, less); this is no error.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(0)
            log(f"umpteen: {_sentence(error)}")
            sys.exit(1)

    return wrapped  # type: ignore[return-value]


def _sentence(error: OSError) -> str:
    """Say what the system refused, and where if it is known."""
    from umpteen.files import disk_error

    full = disk_error(error.filename or "a file", error, advice="repeat the command")
    place = f": {error.filename}" if error.filename else ""
    return str(full or f"{error.strerror or error}{place}")


def log(text: str) -> None:
    """Print a line to stderr, unless it is a detail; stdout is for data."""
    if isinstance(text, Detail):
        return
    click.echo(escape_controls(text, keep="\n\t"), err=True)


def write_json(value: Any) -> None:
    """Write one JSON document to stdout."""
    click.echo(to_json_text(value, indent=2))


def write_lines(*lines: str) -> None:
    """Write lines of text to stdout."""
    for line in lines:
        click.echo(escape_controls(line, keep="\t"))


def write_records(text: str) -> None:
    """Write records in a file format to stdout; a terminal gets no control characters."""
    if sys.stdout.isatty():
        text = escape_controls(text, keep="\t\r\n")
    click.echo(text, nl=False)


def write_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "") -> None:
    """Write an aligned table to stdout; numbers are right-aligned, with two decimals."""
    cells = [
        [f"{c:.2f}" if isinstance(c, float) else escape_controls(str(c)) for c in row]
        for row in rows
    ]
    headers = [escape_controls(header) for header in headers]
    widths = [max(len(h), *(len(r[i]) for r in cells), 0) for i, h in enumerate(headers)]
    right = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(headers))]
    if title:
        click.echo(escape_controls(title))
    for line in [list(headers), ["-" * w for w in widths], *cells]:
        parts = [
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True)
        ]
        click.echo("  ".join(parts).rstrip())


def memory_size(text: str) -> int:
    """Return the bytes of a size such as ``2GiB``, ``500MB`` or ``1e9``.

    Raises:
        ValueError: If it is no size, or less than a byte.
    """
    number = r"(?:[0-9]{1,20}(?:\.[0-9]*)?|\.[0-9]+)(?:e[0-9]{1,2})?"
    found = re.fullmatch(rf"\s*({number})\s*(?:([kmgt])(i?)b?|b)?\s*", text.casefold())
    if found is None:
        raise ValueError(f"{text!r} is no size; write it like 2GiB, 500MB or a number of bytes")
    number, letter, binary = found.groups()
    power = " kmgt".index(letter or " ")
    size = int(float(number) * (1024 if binary else 1000) ** power)
    if size < 1:
        raise ValueError(f"{text!r} is less than a byte; write a size like 2GiB or 500MB")
    return size


def memory_option(name: str, *, help: str) -> Callable[[Function], Function]:  # noqa: A002 - click's name
    """Return an option that takes a size of memory, in bytes for the function."""

    def parsed(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
        try:
            return None if text is None else memory_size(text)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return click.option(name, metavar="SIZE", callback=parsed, help=help)
