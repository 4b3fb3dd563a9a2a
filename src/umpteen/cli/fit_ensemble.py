"""``umpteen fit-ensemble``: fit the answer that joins heads, near queries and exact words."""

from __future__ import annotations

import click

from umpteen.cli._options import (
    device_option,
    format_option,
    json_option,
    say,
    sentences,
    write_json,
    write_table,
)


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
def fit_ensemble(
    run: str,
    data: str,
    overrides: tuple[str, ...],
    device: str,
    data_format: str | None,
    as_json: bool,
) -> None:
    """Fit the ensemble of RUN on the queries that its training on DATA held out.

    Training does so at its end. Prints what each combination of parts comes to, cross-fitted; the
    first one is what predictions use from then on.
    """
    from umpteen.answers.choosing import METRICS
    from umpteen.data.formats import load_dataset
    from umpteen.errors import ConfigError
    from umpteen.runs import RunFolder
    from umpteen.settings import from_mapping, with_overrides
    from umpteen.training.ensemble import fit_ensemble as fit

    foreign = [each for each in overrides if not each.startswith(("examples.", "ensemble."))]
    if foreign:
        raise ConfigError(
            f"--set {foreign[0]!r}: only examples.* and ensemble.* can be changed here"
        )
    folder = RunFolder(run).require()
    settings = from_mapping(
        with_overrides(folder.read_settings(), overrides), source=str(folder.config)
    )
    recipe = fit(
        folder, load_dataset(data, data_format), settings, device=device, say=say, again=True
    )
    assert recipe is not None
    columns = [*METRICS, "ECE", "micro-F1"]
    if as_json:
        write_json(
            [
                {"parts": way.parts, "tilt": way.tilt, **way.validation, "shares": way.shares}
                for way in recipe.ways
            ]
        )
        return
    write_table(
        ["parts", *columns, "tilt"],
        [
            [" ".join(way.parts), *(way.validation[name] for name in columns), way.tilt]
            for way in recipe.ways
        ],
    )
    shares = ", ".join(f"{part} {share:.0f} %" for part, share in recipe.ways[0].shares.items())
    say(f"cross-fitted on {recipe.fitted_on}; shares of the parts: {shares}")
