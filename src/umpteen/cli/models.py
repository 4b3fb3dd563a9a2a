"""``umpteen models``: list, load, activate, roll back and unload the models of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from umpteen.cli._options import json_option, log, sentences, write_json, write_table
from umpteen.client import Client, ServiceUnreachable
from umpteen.errors import UmpteenError

SECONDS = 120.0
"""A load may take that long."""


def _service_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        json_option,
        click.option("--token-file", metavar="FILE", help="Token of a key with the scope admin."),
        click.option("--cafile", metavar="FILE", help="Certificates to trust, PEM, for https."),
        click.option(
            "--url",
            default="http://127.0.0.1:8000",
            show_default=True,
            help="The service, at the address that umpteen serve printed.",
        ),
    ):
        function = option(function)
    return sentences(function)


@click.group()
def models() -> None:
    """Manage the models of a running service (umpteen serve RUN... --runs FOLDER)."""


@models.command("list")
@_service_options
def list_(as_json: bool, **service: Any) -> None:
    """List the served models and those that can be loaded."""
    with _client(**service) as client:
        _show(client.models(), as_json)


@models.command()
@click.argument("name")
@_service_options
def load(name: str, as_json: bool, **service: Any) -> None:
    """Load the run NAME of the service's folder of runs, beside the active model."""
    with _client(**service) as client:
        _show(client.load_model(name), as_json)


@models.command()
@click.argument("name")
@click.option("--carry-changes", is_flag=True, help="Apply labels and examples changed so far.")
@_service_options
def activate(name: str, carry_changes: bool, as_json: bool, **service: Any) -> None:
    """Give requests that name no model to NAME; no request fails."""
    with _client(**service) as client:
        _show(client.activate_model(name, carry_changes=carry_changes), as_json)


@models.command()
@_service_options
def rollback(as_json: bool, **service: Any) -> None:
    """Activate the model that was active before."""
    with _client(**service) as client:
        _show(client.roll_back_model(), as_json)


@models.command()
@click.argument("name")
@_service_options
def unload(name: str, as_json: bool, **service: Any) -> None:
    """Unload the model NAME, which must not be active."""
    with _client(**service) as client:
        _show(client.unload_model(name), as_json)


@contextmanager
def _client(url: str, token_file: str | None, cafile: str | None) -> Iterator[Client]:
    from umpteen.serving.keys import read_token

    token = None if token_file is None else read_token(token_file, "admin")
    with Client(url, token=token, cafile=cafile, seconds=SECONDS) as client:
        try:
            yield client
        except ServiceUnreachable as error:
            raise UmpteenError(f"{error}; name its address with --url") from error


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(found)
        return
    columns = ("name", "state", "run", "model", "labels", "revision", "loaded")
    rows = [
        ["" if each[name] is None else each[name] for name in columns] for each in found["models"]
    ]
    write_table(columns, rows)
    if found["workers_behind"]:
        log(f"{found['workers_behind']} workers do not serve this yet")
