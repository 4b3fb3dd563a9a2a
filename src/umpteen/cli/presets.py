"""``umpteen presets``: the settings that come with the package."""

from __future__ import annotations

from importlib import resources

import click

from umpteen.cli._options import json_option, log, sentences, write_json, write_lines, write_table


@click.command()
@json_option
@sentences
def presets(as_json: bool) -> None:
    """List the presets and the well-known data sets, one line each."""
    from umpteen.config.known_datasets import dataset_names, dataset_text
    from umpteen.config.settings import preset_names

    folder = resources.files("umpteen").joinpath("config", "presets")
    methods = {
        name: _summary(folder.joinpath(f"{name}.toml").read_text("utf-8"))
        for name in preset_names()
    }
    datasets = {name: _summary(dataset_text(name)) for name in dataset_names()}
    if as_json:
        write_json({"presets": methods, "datasets": datasets})
        return
    write_table(["--preset", "what it is"], [[n, s] for n, s in methods.items()])
    write_lines("")
    write_table(["--dataset", "settings for it"], [[n, s] for n, s in datasets.items()])
    log("\ngandalf-NAME is any preset with label texts as training rows.")


def _summary(text: str) -> str:
    """Return the comment below a preset's command line."""
    return text.splitlines()[1].removeprefix("#").strip()
