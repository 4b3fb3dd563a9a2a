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

if TYPE_CHECKING:
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
    "--text",
    type=click.Choice(["title", "all"]),
    help="Read titles only, or titles and contents.",
)
@click.option(
    "--minutes",
    type=float,
    metavar="M",
    help="Time for everything, from the start to the ensemble.",
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
@device_option
@format_option
@sentences
@table_options
def train(
    data: str,
    out: str,
    preset: str | None,
    dataset: str | None,
    overrides: tuple[str, ...],
    encoder: str | None,
    text: str | None,
    minutes: float | None,
    resume: bool,
    cache: str | None,
    tensorboard: bool,
    more_reporters: tuple[str, ...],
    device: str,
    data_format: str | None,
    table: TableOptions,
) -> None:
    """Train a model on DATA and write a self-contained run folder.

    Without --preset, settings are chosen from the data. Without --encoder, a bag of token vectors
    is trained, which needs no download. A run that was stopped or killed continues to the same
    result with --resume at the end of its command. On several GPUs, or several processes: torchrun
    --nproc-per-node N -m umpteen train ...
    """
    started = time.monotonic()
    from umpteen.run_folder import RunFolder

    folder = RunFolder(out)
    resume = resume and not (folder.log.is_file() and folder.is_new())
    first = os.environ.get("RANK", "0") == "0"
    restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if resume:
        folder.require()
    elif not restarted:
        folder.require_empty()
    log(f"Reading {data}")
    made = first and not folder.path.exists()
    if first:
        folder.write_log(f"Reading {data}")
        if not resume:
            folder.write_columns(asdict(table))
    changes = list(overrides)
    if encoder:
        changes.append(f"encoder.name={encoder}")
    if text:
        changes.append(f"data.text={text}")
    try:
        tested = _train(
            data,
            data_format,
            table,
            folder,
            device,
            tensorboard,
            more_reporters,
            preset=preset,
            dataset=dataset,
            overrides=changes,
            resume=resume,
            cache=cache,
            minutes=minutes,
            started=started,
        )
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        if made:
            folder.take_back_settings()
        raise
    if first:
        following = f"umpteen evaluate {out} {data}" if tested else f"umpteen predict {out}"
        log(f"The run is in {out}. Next: {following}")


def _train(
    data: str,
    data_format: str | None,
    table: TableOptions,
    folder: RunFolder,
    device: str,
    tensorboard: bool,
    more_reporters: tuple[str, ...],
    **options: Any,
) -> bool:
    """Read the data and train; return whether it has a test split."""
    from umpteen.compute.distributed.sharding import start_ranks
    from umpteen.compute.precision import choose_device
    from umpteen.training.reporters import LogFile, Reporter, TensorBoard, Terminal, named_reporter
    from umpteen.training.run import train as run

    ranks = start_ranks(choose_device(device))
    reporters: list[Reporter] = [Terminal(), LogFile(folder)] if ranks.first else []
    if tensorboard and ranks.first:
        reporters.append(TensorBoard(folder.path / "tensorboard"))
    if ranks.first:
        reporters += [named_reporter(name, folder.path) for name in more_reporters]
    read = read_data(data, data_format, table)
    for reporter in reporters[:2]:
        texts, labels = len(read["train"]), len(read.labels)
        reporter.log(f"Data {read.name}: {texts:,} training texts, {labels:,} labels")
    run(read, out=folder.path, device=device, reporters=reporters, ranks=ranks, **options)
    ranks.close()
    return "test" in read.splits
