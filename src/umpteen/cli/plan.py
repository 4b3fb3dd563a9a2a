"""``umpteen plan``: memory and time of a run before it is started."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from umpteen.cli._options import (
    format_option,
    json_option,
    log,
    sentences,
    write_json,
    write_lines,
    write_table,
)
from umpteen.cli._table_options import read_data, table_options
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.config.schema import RunConfig
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.plan import Machine, Plan

USUAL = {"tokens": 12.0, "positives": 5.0}
"""Of texts that are not there yet."""


@click.command()
@click.argument("data", required=False)
@click.option("--labels", type=int, metavar="L", help="Number of labels; else the data's.")
@click.option("--queries", type=int, metavar="N", help="Training texts; else the data's.")
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
    "--gpu", "kind", metavar="NAME", help="h200, a100, ..., or cpu. By default this machine's."
)
@click.option(
    "--link", type=float, metavar="GB/S", help="What each sends to the others; else its own."
)
@click.option("--memory", type=float, metavar="GIB", help="Memory of each; else its own.")
@click.option("--tokens", type=float, help="Tokens of a text, on average: the data's, else 12.")
@click.option("--positives", type=float, help="Labels of a text, on average: the data's, else 5.")
@format_option
@json_option
@sentences
@table_options
def plan(
    data: str | None,
    labels: int | None,
    queries: int | None,
    dim: int | None,
    encoder: str | None,
    preset: str | None,
    overrides: tuple[str, ...],
    gpus: int,
    kind: str | None,
    link: float | None,
    memory: float | None,
    tokens: float | None,
    positives: float | None,
    data_format: str | None,
    as_json: bool,
    table: TableOptions,
) -> None:
    """Estimate memory and time of a run, with advice where it does not fit.

    DATA is a folder or file to train on; --labels and --queries describe data that is not there
    yet. Without --preset, DATA has the settings that umpteen train would choose for it.

    Memory and time come from formulas (src/umpteen/plan/formulas.py), not from a measurement.
    Expect memory within a quarter and time within a factor of two. Exit code 1 means that it does
    not fit.
    """
    from umpteen.config.checks import refused_on_ranks
    from umpteen.errors import ConfigError
    from umpteen.plan import estimate, find_encoder, job_of

    given = {"labels": labels, "queries": queries, "tokens": tokens, "positives": positives}
    settings, numbers = _settings_and_numbers(data, data_format, table, preset, overrides, given)
    refused = refused_on_ranks(settings)
    if gpus > 1 and refused is not None:
        raise ConfigError(f"--gpus {gpus}: {refused}")
    machine = _machine(kind, memory)
    if link is not None:
        if not link > 0:
            raise ConfigError(f"--link must be above 0 GB/s, not {link:g}")
        machine = replace(machine, link=link * 1e9)
    numbers["tokens"] = min(
        numbers["tokens"], float(settings.data.max_tokens * settings.data.chunks)
    )
    shape = find_encoder(encoder or settings.encoder.name)
    if dim is None and settings.model.projection == "none":
        dim = shape.hidden
    job = job_of(settings, shape, dim=dim, is_gpu=machine.is_gpu, gpus=gpus, **numbers)
    job = replace(job, alone=refused is not None)
    found = estimate(job, machine)
    if as_json:
        write_json(found.as_json())
    else:
        _write(found, here=kind is None)
        if settings.stage2:
            log("a second stage comes after it; this is the first one's plan")
    if not found.fits:
        sys.exit(1)


def _settings_and_numbers(
    data: str | None,
    data_format: str | None,
    table: TableOptions,
    preset: str | None,
    overrides: tuple[str, ...],
    given: dict[str, Any],
) -> tuple[RunConfig, dict[str, Any]]:
    """Return the settings, and the numbers of the data where the command does not give them."""
    from umpteen.config.loading import DEFAULT_PRESET
    from umpteen.config.settings import from_mapping, read_preset, with_overrides

    if data is None:
        missing = [f"--{name}" for name in ("labels", "queries") if given[name] is None]
        if missing:
            raise click.UsageError(f"Give DATA, a folder or file, or {' and '.join(missing)}.")
        name = preset or DEFAULT_PRESET
        values = with_overrides(read_preset(name), overrides)
        settings = from_mapping(values, source=f"preset {name}")
        numbers: dict[str, Any] = dict(USUAL)
    else:
        from umpteen.plan.from_data import data_numbers
        from umpteen.training.resolve import GivenSettings, resolve_config

        read = read_data(data, data_format, table)
        resolved = resolve_config(read, GivenSettings(preset, overrides))
        for line in resolved.reasons:
            log(line)
        settings = resolved.config
        kept = settings.data.max_tokens * settings.data.chunks
        numbers = asdict(data_numbers(read, text=settings.data.text, max_tokens=kept))
        log(
            f"Read {read.name}: {counted(numbers['queries'], 'training text')} of "
            f"{numbers['tokens']:.0f} tokens, {counted(numbers['labels'], 'label')}, "
            f"{numbers['positives']:.1f} labels per text"
        )
    return settings, numbers | {name: value for name, value in given.items() if value is not None}


def _machine(kind: str | None, memory: float | None) -> Machine:
    """Return the named machine, or this one."""
    from umpteen.plan import find_machine
    from umpteen.plan.machines import with_memory

    if kind is not None:
        return find_machine(kind, memory_gib=memory)
    from umpteen.plan.this_machine import this_machine

    return with_memory(this_machine(), memory)


def _write(found: Plan, *, here: bool) -> None:
    from umpteen.plan.estimate import in_gib

    job, machine = found.job, found.machine
    name = f"this machine, {machine.name}" if here else machine.name
    where = f"each of {job.gpus} x {name}" if job.gpus > 1 else name
    rows: list[list[Any]] = [[name, in_gib(value)] for name, value in found.device_bytes.items()]
    rows.append(["at most at one time", in_gib(found.peak_bytes)])
    write_table(["memory", "GiB"], rows, title=f"On {where} ({in_gib(machine.memory):.0f} GiB)")
    write_lines("")
    rows = [[name, in_gib(value)] for name, value in found.host_bytes.items()]
    write_table(["memory", "GiB"], rows, title="On the host")
    write_lines("")
    times = [[name, _time(seconds)] for name, seconds in found.seconds.items() if seconds]
    title = f"Time ({found.pool:,} labels in a step of {job.batch:,} queries)"
    write_table(["of a", "takes"], times, title=title)
    write_lines("")
    if found.exchanged_bytes:
        rows = [[name, size / 1e6] for name, size in found.exchanged_bytes.items()]
        title = f"Each sends to the others, at {machine.link / 1e9:g} GB/s"
        write_table(["in a", "MB"], rows, title=title)
        write_lines("")
    if found.fits:
        write_lines("It fits.")
    elif found.advice:
        write_lines(f"It does not fit; it would with {' and '.join(found.advice)}.")
    else:
        more = "" if job.alone or not machine.is_gpu else "more GPUs, "
        write_lines(f"It does not fit; take {more}a smaller --dim or fewer labels.")


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
