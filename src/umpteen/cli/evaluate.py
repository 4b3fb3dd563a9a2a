"""``umpteen evaluate``: metrics of a run on a data set."""

from __future__ import annotations

import click

from umpteen.cli._options import (
    ALL_HEADS,
    device_option,
    format_option,
    json_option,
    log,
    plural,
    sentences,
    without_option,
    write_json,
    write_table,
)

MIN_TEXTS = 50
"""Fewer texts say little about calibration: no warning is printed."""


@click.command()
@click.argument("run")
@click.argument("data")
@click.option("--split", default="test", show_default=True, help="Which part of the data.")
@click.option("--head", default="all", show_default=True, type=click.Choice([*ALL_HEADS, "all"]))
@click.option("--metrics", metavar="P@1,...", help="What to compute; a full set by default.")
@click.option("--which", default="best", type=click.Choice(["best", "last"]), show_default=True)
@without_option
@device_option
@format_option
@json_option
@sentences
def evaluate(
    run: str,
    data: str,
    split: str,
    head: str,
    metrics: str | None,
    which: str,
    without: tuple[str, ...],
    device: str,
    data_format: str | None,
    as_json: bool,
) -> None:
    """Print metrics of RUN on DATA, in percent, for each head."""
    from umpteen.data.formats import load_dataset
    from umpteen.evaluation import evaluate as run_evaluation
    from umpteen.metrics import DEFAULT_METRICS
    from umpteen.predictor import Predictor
    from umpteen.ranking.thresholds import MAX_CALIBRATION_ERROR
    from umpteen.scoring import TIE_RULE

    predictor = Predictor.load(run, device=device, which=which)
    chosen = [name.strip() for name in metrics.split(",")] if metrics else list(DEFAULT_METRICS)
    result = run_evaluation(
        predictor,
        load_dataset(data, data_format),
        split=split,
        head=head,
        metrics=chosen,
        without=without,
    )
    if as_json:
        write_json(result.as_json())
        return
    first = next(iter(result.heads.values()))
    rows = [
        [name, *(report.values[name] for report in result.heads.values())] for name in first.values
    ]
    write_table(["metric", *result.heads], rows)
    a, b = first.propensity.a, first.propensity.b
    vectors = predictor.label_vectors
    searched = [name for name in result.heads if name in vectors.columns] or [vectors.heads[-1]]
    indexes = [vectors.index(name).describe() for name in searched]
    if result.sets is not None:
        auto, error = result.sets["auto"], result.sets["expected_calibration_error"]
        log(
            f"ensemble, labels with probability {result.sets['threshold']:.2f} or more: micro-F1 "
            f"{auto['micro_f1']:.2f}, macro-F1 {auto['macro_f1']:.2f}, "
            f"{auto['labels_per_query']:.1f} labels per text; calibration error {error:.2f} points"
        )
        if error > MAX_CALIBRATION_ERROR and first.n >= MIN_TEXTS:
            log(f"warning: probabilities are off by {error:.1f} points on average on this data")
    if result.unknown_labels:
        unknown = plural(result.unknown_labels, "label")
        log(f"{unknown} of the data not known to the run, counted as misses")
    searches = dict.fromkeys(str(each.get("factory", each["kind"])) for each in indexes)
    log(
        f"{plural(first.n, 'text')}; propensity A {a:g}, B {b:g}; "
        f"{plural(first.n_filters, 'filter pair')}; search: {', '.join(searches)}; {TIE_RULE}"
    )
