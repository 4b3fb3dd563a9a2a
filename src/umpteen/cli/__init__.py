"""The command line: a table of commands, each imported only when it is called."""

from __future__ import annotations

import importlib
import logging
import os

import click

COMMANDS = {
    "backup": "Copy a run; services may use it meanwhile.",
    "data": "Check, describe, split, convert and build data sets.",
    "demo": "Train the default model on a small real data set and try it.",
    "evaluate": "Print metrics of a run on a data set.",
    "export": "Write a run's encoder or label vectors for other programs.",
    "fit-ensemble": "Fit the ensemble: weigh all scorers on validation texts.",
    "examples": "Add labelled texts without training, and list them.",
    "index": "Build a search index for a run and measure its recall.",
    "judge": "Grade labels of texts with a language model, to train on.",
    "keys": "Manage the access keys of a service.",
    "models": "Load, activate and roll back the models of a service.",
    "labels": "Add, retire, restore and list labels without training.",
    "plan": "Estimate memory and time of a run before it is started.",
    "predict": "Predict labels for a file of texts.",
    "presets": "List the presets.",
    "repair": "Repair a damaged file of added labels and examples.",
    "restore": "Put a backup in place of a run.",
    "rerank": "Fit a second stage that ranks the best labels again.",
    "report": "Write one HTML page with plots of a run.",
    "score": "Print metrics of predictions from any source.",
    "study": "Run a study: several runs from one file, with a table and plots.",
    "serve": "Serve runs over HTTP, with a page to try them.",
    "start": "Make a run from label names, without labelled texts.",
    "suggest": "Choose the texts to label next.",
    "train": "Train a model.",
}
"""Name to summary; a command is in the module of its name."""
SECTIONS = {
    "Train and predict": ("data", "train", "evaluate", "predict", "demo", "start"),
    "Change a model without training": ("labels", "examples", "suggest", "repair"),
    "Serve": ("serve", "models", "keys", "backup", "restore"),
    "Improve and export": ("rerank", "fit-ensemble", "judge", "index", "export"),
    "Measure and compare": ("report", "score", "study", "plan", "presets"),
}
"""The order in which ``umpteen --help`` lists the commands."""


class LazyGroup(click.Group):
    """A group that lists its commands from a table and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, by name."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"umpteen.cli.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, without importing them."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<12}", COMMANDS[name]) for name in names])


@click.group(cls=LazyGroup)
@click.version_option(package_name="umpteen")
@click.option(
    "--trust-code",
    is_flag=True,
    help="Run code that a run or an encoder brings. Only for folders whose author you trust.",
)
@click.pass_context
def main(ctx: click.Context, trust_code: bool) -> None:
    """Assign the few right labels out of umpteen to a piece of text."""
    # The library logs and never prints; warnings go to stderr while a command runs.
    logger, handler = logging.getLogger("umpteen"), logging.lastResort
    if handler is not None:
        logger.addHandler(handler)
        ctx.call_on_close(lambda: logger.removeHandler(handler))
    if trust_code:
        from umpteen.registry import TRUST_VARIABLE

        os.environ[TRUST_VARIABLE] = "1"  # worker processes inherit it
