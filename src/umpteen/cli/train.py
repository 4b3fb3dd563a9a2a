"""``umpteen train``: options in, ``umpteen.train`` called."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import device_option, format_option, log, sentences
from umpteen.cli._table_options import read_data, table_options
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.data.dataset import Dataset
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.run_folder import RunFolder


@click.command()
@click.argument("data")
@click.option("--out", required=True, metavar="RUN", help="The run folder to make or continue.")
@click.option("--preset", metavar="NAME|FILE", help="Settings to start from; see umpteen presets.")
@click.option(
    "--dataset",
    metavar="NAME",
    help="A public data set: use its published settings and propensity constants.",
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable."
)
@click.option(
    "--encoder", metavar="NAME", help="bag, convolution, or a Hugging Face folder or hub name."
)
@click.option(
    "--text", type=click.Choice(["title", "all"]), help="Read titles only, or titles and contents."
)
@click.option(
    "--rerank",
    type=click.Choice(["features", "late-interaction", "cross-encoder"]),
    help="Fit a stage at the end that scores the best labels again; see umpteen rerank.",
)
@click.option(
    "--minutes",
    type=float,
    metavar="M",
    help="Time for everything, from the start to the ensemble.",
)
@click.option(
    "--from",
    "from_run",
    metavar="RUN",
    help="Start from this run: keep its encoder, heads and label vectors.",
)
@click.option(
    "--without-changes",
    is_flag=True,
    help="With --from: leave out labels and examples that were added to that run.",
)
@click.option("--resume", is_flag=True, help="Continue the run; append it to the command.")
@click.option("--cache", metavar="FOLDER", help="Where token stores are kept between runs.")
@click.option(
    "--tensorboard", is_flag=True, help="Write curves for TensorBoard to RUN/tensorboard."
)
@click.option(
    "--reporter",
    "more_reporters",
    multiple=True,
    metavar="MODULE:NAME",
    help="A class that receives the progress, called with RUN; repeatable.",
)
@click.option(
    "--verbose", is_flag=True, help="Print why each setting was chosen, and every stage and fit."
)
@device_option
@format_option
@sentences
@table_options
def train(
    data: str,
    out: str,
    overrides: tuple[str, ...],
    encoder: str | None,
    text: str | None,
    rerank: str | None,
    without_changes: bool,
    resume: bool,
    device: str,
    data_format: str | None,
    table: TableOptions,
    **settings: Any,
) -> None:
    """Train a model on DATA and write a self-contained run folder.

    Without --preset, settings are chosen from the data. Without --encoder, a bag of token vectors
    is trained, which needs no download. A run that was stopped or killed continues to the same
    result with --resume at the end of its command. With --from, training continues from the model
    of an earlier run, on data with other rows or labels. On several GPUs, or several processes:
    torchrun --nproc-per-node N -m umpteen train ...
    """
    started = time.monotonic()
    from umpteen.locks import exclusive_folder
    from umpteen.run_folder import RunFolder

    folder = RunFolder(out)
    resume = resume and not (folder.log.is_file() and folder.is_new())
    first = os.environ.get("RANK", "0") == "0"
    if resume:
        folder.require()
    elif os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        folder.require_empty()
    made = first and not folder.path.exists()
    if first:
        # The lock is held for these lines, and again from when torch is imported.
        with exclusive_folder(folder.path, busy=folder.busy()):
            folder.write_log(f"Reading {data}")
            if not resume:
                folder.write_columns(asdict(table))
    log(f"Reading {data}")
    named = {"encoder.name": encoder, "data.text": text, "rerank.kind": rerank}
    changes = [f"{key}={value}" for key, value in named.items() if value]
    settings |= {"overrides": [*overrides, *changes], "resume": resume, "started": started}
    settings["changes"] = not without_changes
    try:
        tested = _train(data, data_format, table, folder, device, **settings)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        if made:
            folder.take_back_settings()
        raise
    if first:
        trying = f'echo "some text" | umpteen predict {out}'
        following = f"umpteen evaluate {out} {data}" if tested else trying
        log(f"The run is in {out}. Next: {following}")


def _train(
    data: str,
    data_format: str | None,
    table: TableOptions,
    folder: RunFolder,
    device: str,
    *,
    tensorboard: bool,
    more_reporters: tuple[str, ...],
    verbose: bool,
    **options: Any,
) -> bool:
    """Read the data and train; return whether it has a test split."""
    from umpteen.compute.distributed.sharding import start_ranks
    from umpteen.compute.precision import choose_device
    from umpteen.training.reporters import LogFile, Reporter, TensorBoard, Terminal, named_reporter
    from umpteen.training.run import train as run

    ranks = start_ranks(choose_device(device))
    reporters: list[Reporter] = [Terminal(verbose=verbose), LogFile(folder)] if ranks.first else []
    if tensorboard and ranks.first:
        reporters.append(TensorBoard(folder.path / "tensorboard"))
    if ranks.first:
        reporters += [named_reporter(name, folder.path) for name in more_reporters]
    splits: list[str] = []

    def read() -> Dataset:
        found = read_data(data, data_format, table)
        splits.extend(found.splits)
        for reporter in reporters[:2]:
            texts, labels = len(found["train"]), len(found.labels)
            reporter.log(
                f"Read {found.name}: {counted(texts, 'training text')}, {counted(labels, 'label')}"
            )
        return found

    run(read, out=folder.path, device=device, reporters=reporters, ranks=ranks, **options)
    ranks.close()
    return "test" in splits
