"""``umpteen fit-ensemble``: fit the ensemble of a run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from umpteen.cli._options import (
    device_option,
    format_option,
    json_option,
    log,
    sentences,
    write_json,
    write_table,
)
from umpteen.cli._table_options import read_data, table_options

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.ranking.ensemble_model import EnsembleModel


@click.command()
@click.argument("run")
@click.argument("data")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="examples.* and ensemble.* settings.",
)
@device_option
@format_option
@json_option
@sentences
@table_options
def fit_ensemble(
    run: str,
    data: str,
    overrides: tuple[str, ...],
    device: str,
    data_format: str | None,
    as_json: bool,
    table: TableOptions,
) -> None:
    """Fit the ensemble of RUN on the texts that its training on DATA held out.

    Training fits it at its end. Prints the metrics of every variant, cross-fitted; predictions use
    the first one.
    """
    from umpteen.config.settings import from_mapping, with_overrides
    from umpteen.errors import ConfigError
    from umpteen.files import disk_errors
    from umpteen.run_folder import RunFolder
    from umpteen.training.fit_ensemble import fit_ensemble_of_run
    from umpteen.training.stage_log import StageLog
    from umpteen.training.warm_start import with_changes_taken_over

    foreign = [each for each in overrides if not each.startswith(("examples.", "ensemble."))]
    if foreign:
        raise ConfigError(
            f"--set {foreign[0]!r}: only examples.* and ensemble.* can be changed here"
        )
    folder = RunFolder(run).require()
    settings = from_mapping(
        with_overrides(folder.read_settings(to_build=True), overrides), source=str(folder.config)
    )
    with StageLog(log) as say, disk_errors(folder.ensemble, advice="fit it again"):
        with say.stage(f"Reading {data}", announced=False):
            dataset = read_data(data, data_format, table)
        dataset = with_changes_taken_over(folder, dataset, settings.data.text)
        model = fit_ensemble_of_run(folder, dataset, settings, device=device, log=say, again=True)
    assert model is not None
    _print(model, as_json=as_json)


def _print(model: EnsembleModel, *, as_json: bool) -> None:
    """Print the metrics of every variant."""
    from umpteen.ranking.variants import VARIANT_METRICS

    columns = [*VARIANT_METRICS, "ECE", "micro-F1"]
    if as_json:
        write_json(
            [
                {
                    "scorers": variant.scorers,
                    "tail_boost": variant.tail_boost,
                    **variant.validation,
                    "contributions": variant.contributions,
                }
                for variant in model.variants
            ]
        )
        return
    write_table(
        ["scorers", *columns, "tail boost"],
        [
            [
                " ".join(variant.scorers),
                *(variant.validation.get(name, float("nan")) for name in columns),
                variant.tail_boost,
            ]
            for variant in model.variants
        ],
    )
    shares = model.variants[0].contributions.items()
    parts = ", ".join(f"{scorer} {share:.0f} %" for scorer, share in shares)
    log(f"fitted on {model.fitted_on}; contributions: {parts or 'not measured'}")
