"""The sections with charts: learning curves, the heads side by side, bins head to tail."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from umpteen.metrics.bins import BIN_NAMES, frequency_bins
from umpteen.report.charts import LARGE, SMALL, Band, Line, bar_chart, key, line_chart
from umpteen.report.elements import Child, table, tag
from umpteen.report.history import History, loss_curve
from umpteen.report.outcomes import HEAD_TITLES, PLACES, Outcome
from umpteen.report.overview import source

BARS = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@100")
FITTED_AFTER = (
    "Curves are of the trained heads. The ensemble, which predictions come from, is fitted after "
    "the last epoch."
)


def curves(history: History, *, ensemble: bool = False) -> Markup:
    """Render training loss by step, and every validation metric by epoch."""
    if not history.validations:
        said = "There are no validation curves: the run wrote no validation results."
        charts = tag("div", _loss(history), tag("p", said), class_="charts")
        return tag("section", tag("h2", "Learning curves"), charts, id="curves")
    heads = list(history.validations[-1].heads)
    metrics = list(history.validations[-1].heads[heads[-1]])
    first = history.select if history.select in metrics else metrics[0]
    rows = [
        [str(entry.epoch), HEAD_TITLES.get(head, head), *_numbers(entry.heads[head], metrics)]
        for entry in history.validations
        for head in heads
    ]
    return tag(
        "section",
        tag("h2", "Learning curves"),
        tag("p", FITTED_AFTER, class_="soft") if ensemble else None,
        legend(heads),
        tag("div", _loss(history), _validation(history, first, LARGE), class_="charts"),
        tag(
            "div",
            *(_validation(history, metric, SMALL) for metric in metrics if metric != first),
            class_="charts small",
        ),
        tag(
            "details",
            tag("summary", "All validation results as a table"),
            table(["epoch", "head", *metrics], rows, caption="In percent", words=2),
        ),
        id="curves",
    )


def _validation(history: History, metric: str, size: tuple[int, int]) -> Markup:
    epochs = [entry.epoch for entry in history.validations]
    lines = [
        Line(
            HEAD_TITLES.get(head, head),
            head,
            epochs,
            [entry.heads[head][metric] for entry in history.validations],
        )
        for head in history.validations[-1].heads
    ]
    chooses, best = metric == history.select, history.model_epoch
    note = " on validation, by epoch" + ("; chooses the model" if chooses else "")
    return tag(
        "figure",
        tag("figcaption", metric, tag("span", note, class_="soft")),
        line_chart(
            f"Validation {metric} in percent by epoch, one line for each head",
            lines,
            x_title="epoch",
            mark=(best, f"best: epoch {best}") if chooses and best in epochs else None,
            size=size,
        ),
    )


def _loss(history: History) -> Markup:
    steps = history.steps
    if steps is None:
        return tag("p", "There is no loss curve: the run has no steps.jsonl.")
    if not len(steps.losses):
        return tag("p", "There is no loss curve: no step was logged yet.")
    curve = loss_curve(steps)
    xs = curve.steps.tolist()
    note = "The line is the mean over a twentieth of the run, the shade the range of single steps."
    if steps.damaged_line is not None:
        note += f" steps.jsonl cannot be read from line {steps.damaged_line} on."
    return tag(
        "figure",
        tag("figcaption", "Training loss", tag("span", " by step", class_="soft")),
        line_chart(
            f"Training loss, from {curve.smooth[0]:.3g} at the first step to "
            f"{curve.smooth[-1]:.3g} at the last",
            [Line("Training loss", "train", xs, curve.smooth.tolist())],
            x_title="step",
            band=Band(xs, curve.low.tolist(), curve.high.tolist()),
        ),
        tag("p", note, class_="soft"),
    )


def heads_side_by_side(outcome: Outcome) -> Markup:
    """Render all metrics of all heads: bars for some, a table for all."""
    names = list(outcome.heads)
    values = {name: head.values for name, head in outcome.heads.items()}
    metrics = list(values[names[-1]])
    drawn = [metric for metric in BARS if metric in metrics]
    rows = []
    for metric in metrics:
        best = max(values[name][metric] for name in names)
        cells: list[Child] = [metric]
        for name in names:
            number = f"{values[name][metric]:.2f}"
            is_best = len(names) > 1 and values[name][metric] == best
            cells.append(tag("strong", number) if is_best else number)
        rows.append(cells)
    caption = "In percent" + ("; the best of each row in bold" if len(names) > 1 else "")
    title = "The heads side by side" if len(names) > 1 else "The head"
    return tag(
        "section",
        tag("h2", title),
        tag("p", f"Metrics {source(outcome)} {_uncertainty(outcome)}", _hint(outcome)),
        _unknown(outcome),
        legend(names, bars=True),
        tag(
            "div",
            bar_chart(
                "Metrics in percent, a bar for each head",
                drawn,
                [(HEAD_TITLES.get(n, n), n, [values[n][m] for m in drawn]) for n in names],
            ),
            table(["metric", *(HEAD_TITLES.get(n, n) for n in names)], rows, caption=caption),
            class_="charts",
        ),
        id="heads",
    )


def bins(outcome: Outcome) -> Markup:
    """Return what labels of each frequency bring to P@5."""
    names = list(outcome.heads)
    of_label = frequency_bins(outcome.label_counts, len(BIN_NAMES))
    rows = []
    for place, name in enumerate(BIN_NAMES):
        counts = outcome.label_counts[of_label == place]
        rows.append(
            [
                name,
                f"{len(counts):,}",
                f"{counts.min():,} to {counts.max():,}" if len(counts) else "none",
                *(f"{outcome.heads[head].bins[place]:.2f}" for head in names),
            ]
        )
    total = [f"{sum(outcome.heads[head].bins):.2f}" for head in names]
    rows.append([f"all (P@{PLACES})", f"{len(of_label):,}", "", *total])
    return tag(
        "section",
        tag("h2", f"P@{PLACES} from head to tail"),
        tag(
            "p",
            "Labels are put into five bins by how many training texts they have, each bin with "
            "a fifth of all pairs of text and label: few frequent labels at the head, many rare "
            f"ones at the tail. A bar is what the bin brings to P@{PLACES}; the five add up to it.",
        ),
        legend(names, bars=True),
        tag(
            "div",
            bar_chart(
                f"What each label-frequency bin brings to P@{PLACES}, a bar for each head",
                BIN_NAMES,
                [(HEAD_TITLES.get(n, n), n, outcome.heads[n].bins) for n in names],
            ),
            table(
                ["bin", "labels", "texts of a label", *(HEAD_TITLES.get(n, n) for n in names)],
                rows,
                caption=f"Contributions to P@{PLACES}, in percent, {source(outcome)}",
            ),
            class_="charts",
        ),
        id="bins",
    )


def legend(heads: Sequence[str], *, bars: bool = False) -> Markup | None:
    """Return the heads' signs and names; none where there is only one head."""
    if len(heads) < 2:
        return None
    items = [tag("li", key(head), HEAD_TITLES.get(head, head)) for head in heads]
    order = tag("li", "bars stand in this order", class_="soft") if bars else None
    return tag("ul", *items, order, class_="legend")


def _numbers(values: dict[str, float], metrics: Sequence[str]) -> list[str]:
    return [f"{values[metric]:.2f}" if metric in values else "" for metric in metrics]


def _uncertainty(outcome: Outcome) -> str:
    """Return how far P@1 may be off by the choice of queries alone.

    1.96 standard errors of a share.
    """
    share = list(outcome.heads.values())[-1].values["P@1"] / 100.0
    reach = 196.0 * math.sqrt(share * (1.0 - share) / max(1, len(outcome)))
    return f"By the number of texts alone, P@1 is uncertain by about ± {reach:.1f} (95 %)."


def _hint(outcome: Outcome) -> Markup | None:
    if outcome.of_data is not None:
        return None
    option = tag("code", "umpteen report RUN --data DATA")
    # Holding queries out leaves rare labels without any training query, which the classifier
    # cannot find; a test split may have far fewer of them.
    said = "The heads may rank otherwise on test, which" if len(outcome.heads) > 1 else "Test"
    return tag("span", f" {said} is scored by ", option, ".")


def _unknown(outcome: Outcome) -> Markup | None:
    without = int(np.count_nonzero(np.diff(outcome.truth.indptr) == 0))
    said = []
    if outcome.n_unknown:
        said.append(
            f"{outcome.n_unknown:,} true labels of the examples are no longer labels of the run "
            "and were left out."
        )
    if without:
        said.append(f"{without:,} texts have no true label and count as 0.")
    return tag("p", " ".join(said), class_="soft") if said else None
