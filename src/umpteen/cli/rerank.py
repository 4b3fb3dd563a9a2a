"""``umpteen rerank``: fit the re-ranking stage of a run."""

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
    from umpteen.training.rerank import RerankOutcome


@click.command()
@click.argument("run")
@click.argument("data")
@click.option(
    "--kind",
    type=click.Choice(["features", "late-interaction", "cross-encoder"]),
    default="features",
    show_default=True,
    help="features: common words, tokens, names and the other scorers, for a CPU. "
    "late-interaction: also a transformer whose tokens of text and label are compared. "
    "cross-encoder: one that reads text and label together.",
)
@click.option(
    "--encoder",
    metavar="FOLDER",
    help="The transformer; by default that of the run.",
)
@click.option(
    "--candidates",
    default=50,
    show_default=True,
    type=click.IntRange(2, 500),
    help="Labels of a text that are re-ranked, at most.",
)
@click.option(
    "--folds",
    type=click.IntRange(0, 5),
    help="Models to train, each without a fifth of the texts; the re-ranker learns from those. 0: "
    "it learns from validation texts, cross-fitted. By default 1; 0 for a transformer with 1,000 "
    "or more validation texts.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    help="Of the transformer, by default 4, with few texts up to 16; without one, of the "
    "network, 5 to 40.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, min_open=True),
    help="The time that training the transformer may take.",
)
@click.option(
    "--keep",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Use it where validation shows a gain, in any case, or only measure it.",
)
@device_option
@format_option
@json_option
@sentences
@table_options
def rerank(
    run: str,
    data: str,
    kind: str,
    encoder: str | None,
    candidates: int,
    folds: int | None,
    epochs: int | None,
    seconds: float | None,
    keep: str,
    device: str,
    data_format: str | None,
    as_json: bool,
    table: TableOptions,
) -> None:
    """Fit a stage that scores the best labels of RUN again, on the DATA of its training.

    Trains one model for each fold without a fifth of the training texts, which takes about as long
    as training RUN. A transformer is trained on all training texts but these. The stage is used
    from then on where validation shows a gain. Prints metrics without and with it, and its cost.
    """
    from umpteen.training.rerank_stage import rerank as rerank_run

    found = rerank_run(
        run, lambda: read_data(data, data_format, table), kind=kind, encoder=encoder,
        candidates=candidates, folds=folds, epochs=epochs, seconds=seconds, keep=keep,
        device=device, log=log,
    )  # fmt: skip
    _print(found, as_json=as_json)


def _print(found: RerankOutcome, *, as_json: bool) -> None:
    """Print metrics without and with the stage, and its cost."""
    from umpteen.training.rerank_stage import TABLE

    spec = found.after.reranking
    assert spec is not None
    if as_json:
        write_json(
            {
                "used": found.used,
                "before": found.before.validation,
                "after": found.after.validation,
                "decided_on": found.decision.n_texts,
                "gain": found.decision.gain,
                **spec.as_json(),
            }
        )
        return
    write_table(
        ["validation", *TABLE],
        [
            ["without re-ranking", *(found.before.validation[name] for name in TABLE)],
            ["with re-ranking", *(found.after.validation[name] for name in TABLE)],
        ],
    )
    log(
        f"gain {found.decision.gain:+.2f} points on {found.decision.n_texts:,} texts "
        f"(p {found.decision.p_value:.3g}), weight {spec.weight:g}"
    )
    log(f"{spec.in_words}; {'in use' if found.used else 'not used'}")
