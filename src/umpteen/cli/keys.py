"""``umpteen keys``: a file of named keys for ``umpteen serve --keys``."""

from __future__ import annotations

import click

from umpteen.cli._options import json_option, log, sentences, write_json, write_lines, write_table
from umpteen.serving.keys import SCOPES, add_key, read_keys, read_token, remove_key


@click.group()
def keys() -> None:
    """Manage the file of named keys of a service.

    A running service reads the file again within a second. Tokens are not stored, only their
    SHA-256.
    """


@keys.command()
@click.argument("file")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default="read",
    show_default=True,
    help="Each scope includes those before it.",
)
@click.option("--rate", type=float, help="Most requests per second; no limit without it.")
@click.option("--token-file", metavar="FILE", help="Use this token instead of a new one.")
@sentences
def add(file: str, name: str, scope: str, rate: float | None, token_file: str | None) -> None:
    """Add the key NAME to FILE and print its token once.

    A known name gets the new token; the old one stops to work.
    """
    token = read_token(token_file, name) if token_file is not None else None
    new = add_key(file, name, scope, rate=rate, token=token)
    log(f"{file}: the key {name!r} has the scope {scope}; its token is printed once")
    if token is None:
        write_lines(new)


@keys.command()
@click.argument("file")
@click.argument("name")
@sentences
def remove(file: str, name: str) -> None:
    """Remove the key NAME from FILE; its token stops to work."""
    remove_key(file, name)
    log(f"{file}: the key {name!r} is removed")


@keys.command("list")
@click.argument("file")
@json_option
@sentences
def list_(file: str, as_json: bool) -> None:
    """List the keys of FILE."""
    found = read_keys(file)
    if as_json:
        write_json(
            [
                {"name": k.name, "scope": k.scope, "requests_per_second": k.requests_per_second}
                for k in found
            ]
        )
        return
    rows = [
        (key.name, key.scope, "" if key.requests_per_second is None else key.requests_per_second)
        for key in found
    ]
    write_table(("name", "scope", "requests/s"), rows)
