"""``umpteen train``: options in, ``umpteen.train`` called."""

from __future__ import annotations

import sys

import click

from umpteen.cli._options import device_option, format_option, log, sentences


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
@click.option("--minutes", type=float, metavar="M", help="Train as many epochs as fit this time.")
@click.option("--resume", is_flag=True, help="Continue the run from its newest checkpoint.")
@click.option("--cache", metavar="FOLDER", help="Where token stores are kept between runs.")
@click.option(
    "--tensorboard", is_flag=True, help="Write curves for TensorBoard to RUN/tensorboard."
)
@device_option
@format_option
@sentences
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
    device: str,
    data_format: str | None,
) -> None:
    """Train a model on DATA and write a self-contained run folder.

    Without --preset, settings are chosen from the data. Without --encoder, a bag of token vectors
    is trained, which needs no download. A run that was stopped or killed
    continues with --resume to the same result. On several GPUs, or several processes: torchrun
    --nproc-per-node N -m umpteen train ...
    """
    from pathlib import Path

    from umpteen.compute.precision import choose_device
    from umpteen.compute.sharding import start_ranks
    from umpteen.data.formats import load_dataset
    from umpteen.training.reporters import Reporter, TensorBoard, Terminal
    from umpteen.training.run import train as run

    changes = list(overrides)
    if encoder:
        changes.append(f"encoder.name={encoder}")
    if text:
        changes.append(f"data.text={text}")
    ranks = start_ranks(choose_device(device))
    reporters: list[Reporter] = [Terminal()] if ranks.first else []
    if tensorboard and ranks.first:
        reporters.append(TensorBoard(Path(out) / "tensorboard"))
    try:
        read = load_dataset(data, data_format)
        for reporter in reporters[:1]:
            texts, labels = len(read["train"]), len(read.labels)
            reporter.log(f"Data {read.name}: {texts:,} training texts, {labels:,} labels")
        run(
            read,
            out=out,
            preset=preset,
            dataset=dataset,
            overrides=changes,
            device=device,
            resume=resume,
            reporters=reporters,
            cache=cache,
            ranks=ranks,
            minutes=minutes,
        )
        ranks.close()
    except KeyboardInterrupt:
        sys.exit(130)
    if ranks.first:
        tested = f"umpteen evaluate {out} {data}" if "test" in read.splits else ""
        log(f"The run is in {out}. Next: {tested or f'umpteen predict {out}'}")
