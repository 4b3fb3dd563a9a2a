"""``umpteen evaluate``: metrics of a run on a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from umpteen.cli._options import (
    ALL_HEADS,
    device_option,
    format_option,
    json_option,
    log,
    sentences,
    without_option,
    write_json,
    write_table,
)
from umpteen.cli._table_options import read_data, table_options
from umpteen.display import counted

if TYPE_CHECKING:
    from umpteen.data.formats.table_options import TableOptions
    from umpteen.evaluation import Evaluation
    from umpteen.predictor import Predictor

MIN_TEXTS = 50
"""Fewer texts say little about calibration: no warning is printed."""


@click.command()
@click.argument("run")
@click.argument("data")
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    default="test",
    show_default=True,
    help="Which part of the data; one file is measured whole.",
)
@click.option("--head", default="all", show_default=True, type=click.Choice([*ALL_HEADS, "all"]))
@click.option("--metrics", metavar="P@1,...", help="What to compute; a full set by default.")
@click.option(
    "--per-label",
    metavar="FILE.csv",
    help="Write precision, recall, F1 and support of each label.",
)
@click.option("--which", default="best", type=click.Choice(["best", "last"]), show_default=True)
@without_option
@device_option
@format_option
@json_option
@sentences
@table_options
def evaluate(
    run: str,
    data: str,
    split: str,
    head: str,
    metrics: str | None,
    per_label: str | None,
    which: str,
    without: tuple[str, ...],
    device: str,
    data_format: str | None,
    as_json: bool,
    table: TableOptions,
) -> None:
    """Print metrics of RUN on DATA, in percent, for each head.

    F1, MicroF1 and MacroF1 measure the labels above the threshold of the ensemble; F1@5,
    MicroF1@5 and MacroF1@5 the first 5 labels of any head. Under torchrun each process ranks an
    even share of the texts, and the first one prints.
    """
    from umpteen.compute.distributed.sharding import start_ranks
    from umpteen.compute.precision import choose_device
    from umpteen.evaluation import evaluate as run_evaluation
    from umpteen.metrics import DEFAULT_METRICS, parse_all
    from umpteen.per_label import require_table_name
    from umpteen.predictor import Predictor

    chosen = [name.strip() for name in metrics.split(",")] if metrics else list(DEFAULT_METRICS)
    names = [str(metric) for metric in parse_all(chosen)]  # before anything is loaded
    if per_label is not None:
        require_table_name(per_label)
    ranks = start_ranks(choose_device(device))
    predictor = Predictor.load(run, device=device, which=which)
    result = run_evaluation(
        predictor,
        read_data(data, data_format, table.with_known(predictor.labels.ids)),
        split=split,
        head=head,
        metrics=chosen,
        without=without,
        ranks=ranks,
    )
    ranks.close()
    if not ranks.first:
        return
    if per_label is not None and result.per_label is not None:
        written = result.per_label.write(per_label)
        rule = f"{result.per_label.rule} (head {result.per_label.head})"
        log(f"Wrote {counted(written, 'label')} to {per_label}; predicted are {rule}")
    if result.trained_texts and split != "train":
        n = next(iter(result.heads.values())).n
        log(
            f"warning: {result.trained_texts:,} of {counted(n, 'text')} are training texts of the "
            "run; metrics on them say nothing about new texts. Hold texts out before training: "
            f"umpteen data split {data} OUT"
        )
    if as_json:
        write_json(result.as_json())
        return
    _print(result, names, predictor, reranked=not without)


def _print(result: Evaluation, names: list[str], predictor: Predictor, *, reranked: bool) -> None:
    """Print the table of metrics, and what to know about it."""
    from umpteen.ranking.thresholds import MAX_CALIBRATION_ERROR
    from umpteen.scoring import TIE_RULE

    first = next(iter(result.heads.values()))
    rows = [
        [name, *(report.values.get(name, "-") for report in result.heads.values())]
        for name in names
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
    if "ensemble" in result.heads and predictor.reranking is not None and reranked:
        log(predictor.reranking.in_words)
    if result.unknown_labels:
        unknown = counted(result.unknown_labels, "label")
        log(f"{unknown} of the data not known to the run, counted as misses")
    searches = dict.fromkeys(str(each.get("factory", each["kind"])) for each in indexes)
    filtered = f"{counted(first.n_filters, 'filter pair')} left out; " if first.n_filters else ""
    log(
        f"{counted(first.n, 'text')}; PSP with propensity A {a:g}, B {b:g}; {filtered}"
        f"search: {', '.join(searches)}; {TIE_RULE}"
    )
