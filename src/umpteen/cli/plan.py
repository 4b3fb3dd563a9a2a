"""``umpteen plan``: memory and time of a run before it is started."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import json_option, log, sentences, write_json, write_table

if TYPE_CHECKING:
    from umpteen.config import RunConfig
    from umpteen.plan import Plan


@click.command()
@click.option("--labels", type=int, required=True, metavar="L", help="Number of labels.")
@click.option("--queries", type=int, required=True, metavar="N", help="Training queries.")
@click.option("--dim", type=int, metavar="D", help="Size of a head's vectors; else the preset's.")
@click.option(
    "--encoder",
    metavar="NAME",
    help="distilbert, minilm, bert-base, bag, ... or a Hugging Face folder; else the preset's.",
)
@click.option("--preset", metavar="NAME|FILE", help="Settings to start from; see umpteen presets.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable."
)
@click.option("--gpus", type=int, default=1, show_default=True, metavar="G", help="How many.")
@click.option(
    "--gpu", "kind", default="h200", show_default=True, help="Which: h200, a100, ..., or cpu."
)
@click.option("--memory", type=float, metavar="GIB", help="Memory of each; else its own.")
@click.option(
    "--tokens", type=float, default=12.0, show_default=True, help="Tokens of a text, on average."
)
@click.option(
    "--positives", type=float, default=5.0, show_default=True, help="Labels of a query, on average."
)
@json_option
@sentences
def plan(
    labels: int,
    queries: int,
    dim: int | None,
    encoder: str | None,
    preset: str | None,
    overrides: tuple[str, ...],
    gpus: int,
    kind: str,
    memory: float | None,
    tokens: float,
    positives: float,
    as_json: bool,
) -> None:
    """Estimate memory and time of a run, with advice where it does not fit.

    Memory and time come from formulas (src/umpteen/plan/formulas.py), not from a measurement.
    Expect memory within a quarter and time within a factor of two. Exit code 1 means that it does
    not fit.
    """
    from umpteen.config_rules import refused_on_ranks
    from umpteen.errors import ConfigError
    from umpteen.plan import Job, estimate, find_encoder, find_machine
    from umpteen.settings import from_mapping, read_preset, with_overrides

    name = preset or "unidec-frugal"
    settings = from_mapping(with_overrides(read_preset(name), overrides), source=f"preset {name}")
    refused = refused_on_ranks(settings)
    if gpus > 1 and refused is not None:
        raise ConfigError(f"--gpus {gpus}: {refused}")
    machine = find_machine(kind, memory_gib=memory)
    job = Job(
        labels=labels,
        queries=queries,
        encoder=find_encoder(encoder or settings.encoder.name),
        gpus=gpus,
        tokens=min(tokens, float(settings.data.max_tokens * settings.data.chunks)),
        positives=positives,
        alone=refused is not None,
        **_from_settings(settings, dim, is_gpu=machine.is_gpu),
    )
    found = estimate(job, machine)
    if as_json:
        write_json(found.as_json())
    else:
        _write(found)
        if settings.stage2:
            log("a second stage comes after it; this is the first one's plan")
    if not found.fits:
        sys.exit(1)


def _from_settings(settings: RunConfig, dim: int | None, *, is_gpu: bool) -> dict[str, Any]:
    """Return what a plan needs of the settings."""
    pool, batches, train = settings.pool, settings.batches, settings.train
    return {
        "dim": settings.model.dim if dim is None else dim,
        "dual": "dual" in settings.model.heads,
        "classifier": "classifier" in settings.model.heads,
        "scope": pool.scope,
        "batch": batches.size,
        "drawn": pool.positives + pool.negatives + pool.extra_positives,
        "max_labels": pool.max_labels,
        "min_labels": pool.min_labels,
        "mined": pool.negatives * batches.refresh_epochs,
        "clustered": batches.clustered,
        "refresh_epochs": batches.refresh_epochs,
        "epochs": train.epochs,
        "frozen": train.frozen,
        "chunk_tokens": pool.chunk_tokens,
        "block_bytes": (pool.memory_mib or (1536 if is_gpu else 512)) << 20,
        "label_storage": train.label_storage,
        "label_moments": train.label_moments,
        "label_device": train.label_device,
        "movable": settings.model.label_parametrization == "free",
        "bf16": train.precision == "bf16" or (train.precision == "auto" and is_gpu),
    }


def _write(found: Plan) -> None:
    from umpteen.plan.estimate import in_gib

    job, machine = found.job, found.machine
    where = f"each of {job.gpus} x {machine.name}" if job.gpus > 1 else machine.name
    rows: list[list[Any]] = [[name, in_gib(value)] for name, value in found.device_bytes.items()]
    rows.append(["at most at one time", in_gib(found.peak_bytes)])
    write_table(["memory", "GiB"], rows, title=f"On {where} ({in_gib(machine.memory):.0f} GiB)")
    click.echo()
    rows = [[name, in_gib(value)] for name, value in found.host_bytes.items()]
    write_table(["memory", "GiB"], rows, title="On the host")
    click.echo()
    times = [[name, _time(seconds)] for name, seconds in found.seconds.items() if seconds]
    title = f"Time ({found.pool:,} labels in a step of {job.batch:,} queries)"
    write_table(["of a", "takes"], times, title=title)
    click.echo()
    if found.fits:
        click.echo("It fits.")
    elif found.advice:
        click.echo(f"It does not fit; it would with {' and '.join(found.advice)}.")
    else:
        more = "" if job.alone or not machine.is_gpu else "more GPUs, "
        click.echo(f"It does not fit; take {more}a smaller --dim or fewer labels.")


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
