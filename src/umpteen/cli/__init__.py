"""The command line: a table of commands, each imported only when it is called."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "backup": "umpteen.cli.backup:backup",
    "data": "umpteen.cli.data:data",
    "demo": "umpteen.cli.demo:demo",
    "evaluate": "umpteen.cli.evaluate:evaluate",
    "fit-ensemble": "umpteen.cli.fit_ensemble:fit_ensemble",
    "examples": "umpteen.cli.examples:examples",
    "index": "umpteen.cli.index:index",
    "labels": "umpteen.cli.labels:labels",
    "plan": "umpteen.cli.plan:plan",
    "predict": "umpteen.cli.predict:predict",
    "presets": "umpteen.cli.presets:presets",
    "repair": "umpteen.cli.repair:repair",
    "report": "umpteen.cli.report:report",
    "score": "umpteen.cli.score:score",
    "study": "umpteen.cli.study:study",
    "serve": "umpteen.cli.serve:serve",
    "train": "umpteen.cli.train:train",
}

SUMMARIES = {
    "backup": "Copy a run while it is served.",
    "data": "Check, describe, convert and build data sets.",
    "demo": "Train the default model on a small real data set and try it.",
    "evaluate": "Print metrics of a run on a data set.",
    "fit-ensemble": "Fit the ensemble: weigh all scorers on validation texts.",
    "examples": "Add labelled texts without training, and list them.",
    "index": "Build a search index for a run and measure its recall.",
    "labels": "Add, retire, restore and list labels without training.",
    "plan": "Estimate memory and time of a run before it is started.",
    "predict": "Predict labels for texts, one JSON line each.",
    "presets": "List the presets.",
    "repair": "Repair the store of changes of a run.",
    "report": "Write one HTML page with plots of a run.",
    "score": "Print metrics of predictions from any source.",
    "study": "Run a study: several runs from one file, with a table and plots.",
    "serve": "Serve a run over HTTP, with a page to try it.",
    "train": "Train a model.",
}


class LazyGroup(click.Group):
    """A group that lists its commands from a table and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands, by name."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, SUMMARIES[name]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup)
@click.version_option(package_name="umpteen")
def main() -> None:
    """Assign the few right labels out of umpteen to a piece of text."""
