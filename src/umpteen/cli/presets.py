"""``umpteen presets``: the settings that come with the package."""

from __future__ import annotations

from importlib import resources

import click

from umpteen.cli._options import json_option, sentences, write_json, write_table


@click.command()
@json_option
@sentences
def presets(as_json: bool) -> None:
    """List the presets, one line each."""
    from umpteen.config import preset_names

    summaries = {name: _summary(name) for name in preset_names()}
    if as_json:
        write_json(summaries)
    else:
        write_table(["preset", "what it is"], [[n, s] for n, s in summaries.items()])


def _summary(name: str) -> str:
    """The comment below a preset's command line."""
    text = resources.files("umpteen").joinpath("presets", f"{name}.toml").read_text("utf-8")
    return text.splitlines()[1].removeprefix("#").strip()
