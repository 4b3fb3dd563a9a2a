"""The sections that look at single labels and single queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from umpteen.head_names import ENSEMBLE
from umpteen.report.elements import Child, table, tag, user_text
from umpteen.report.label_table import (
    LabelCounts,
    count_labels,
    label_table,
    most_gained,
    most_missed,
    named_label,
)
from umpteen.report.outcomes import HEAD_TITLES, PLACES, HeadOutcome, Outcome
from umpteen.report.overview import source

SHOWN, MORE = 10, 40
MAX_TRUE = 12
PER_GROUP = 4
_SEED = 11


def labels(outcome: Outcome) -> Markup:
    """Render scores of single labels, and what the head in use gains, loses and misses most."""
    counts = count_labels(outcome)
    best = outcome.in_use
    parts: list[Child] = [tag("h2", "Labels")]
    if outcome.per_label is not None:
        parts += label_table(outcome.per_label, source(outcome))
    parts.append(
        tag(
            "p",
            f"Below, a label is found for a text when it is among the first {PLACES}. "
            f"Counted {source(outcome)}",
        )
    )
    base = "combined" if best == ENSEMBLE and "combined" in outcome.heads else "dual"
    if best != base and base in outcome.heads:
        for better, other, title in ((best, base, "Most improved"), (base, best, "Most worsened")):
            verb = "gains" if better == best else "loses"
            parts += _ranking(
                outcome,
                counts,
                most_gained(counts, better, other, SHOWN + MORE),
                heads=(base, best),
                title=title,
                said=f"Labels where {_in_words(best)} {verb} most against {_in_words(base)} alone.",
                amount=(
                    "difference",
                    lambda row: int(counts.found[best][row] - counts.found[base][row]),
                ),
            )
    parts += _ranking(
        outcome,
        counts,
        most_missed(counts, best, SHOWN + MORE),
        heads=(best,),
        title="Most often missed",
        said=f"Labels that are true for the most texts and not found by {_in_words(best)}.",
        amount=("missed", lambda row: int(counts.positives[row] - counts.found[best][row])),
    )
    return tag("section", *parts, id="labels")


def _in_words(head: str) -> str:
    """Return a head as a sentence names it."""
    title = HEAD_TITLES.get(head, head).lower()
    return f"the {title} head" if head == "combined" else f"the {title}"


def _ranking(
    outcome: Outcome,
    counts: LabelCounts,
    rows: NDArray[np.int64],
    *,
    heads: Sequence[str],
    title: str,
    said: str,
    amount: tuple[str, Callable[[int], int]],
) -> list[Child]:
    parts: list[Child] = [tag("h3", title)]
    if not len(rows):
        return [*parts, tag("p", f"{said} There is none.", class_="soft")]
    name, count = amount
    signed = name == "difference"
    texts, ids = outcome.labels.texts, outcome.labels.ids
    lines = [
        [
            named_label(texts[row], ids[row]),
            f"{outcome.label_counts[row]:,}",
            f"{counts.positives[row]:,}",
            *(f"{counts.found[head][row]:,}" for head in heads),
            tag("strong", f"{count(row):+}".replace("-", "−") if signed else f"{count(row):,}"),
        ]
        for row in rows.tolist()
    ]
    headers = ["label", "training texts", "true for", *(_found(h, heads) for h in heads), name]
    parts.append(table(headers, lines[:SHOWN], caption=said))
    if len(lines) > SHOWN:
        rest = table(headers, lines[SHOWN:], caption=f"{title}, continued")
        parts.append(tag("details", tag("summary", f"{len(lines) - SHOWN} more"), rest))
    return parts


def examples(outcome: Outcome) -> Markup:
    """Render some queries with their true labels and the predictions of each head."""
    parts: list[Child] = [
        tag("h2", "Examples"),
        tag(
            "p",
            "✓ marks what is right: a true label that was found, a prediction that is true. "
            "Long texts are cut here, not for the model.",
        ),
    ]
    for title, rows in choose_queries(outcome).items():
        parts.append(tag("h3", title))
        parts += [_example(outcome, row) for row in rows.tolist()]
    return tag("section", *parts, id="examples")


def _example(outcome: Outcome, row: int) -> Markup:
    truth, texts = outcome.truth, outcome.labels.texts
    positives = truth.indices[truth.indptr[row] : truth.indptr[row + 1]].tolist()
    best = list(outcome.heads.values())[-1]
    found = set(best.rows[row][best.hits[row]].tolist())
    # Those found come first, so that a long list does not hide them.
    ordered = sorted(positives, key=lambda label: (label not in found, label))
    true_labels = [
        _item(user_text(texts[label], longest=120), hit=label in found, other="○")
        for label in ordered[:MAX_TRUE]
    ]
    if len(ordered) > MAX_TRUE:
        true_labels.append(tag("li", f"and {len(ordered) - MAX_TRUE} more", class_="soft"))
    columns = [
        tag(
            "div",
            tag("h5", f"{HEAD_TITLES.get(name, name)}: {_right(head, row)}"),
            tag("ol", *_predictions(outcome, head, row), class_="found"),
        )
        for name, head in outcome.heads.items()
    ]
    return tag(
        "article",
        tag("h4", user_text(outcome.texts[row]) if outcome.texts[row].strip() else "(empty text)"),
        tag("h5", "True labels"),
        tag("ul", *true_labels, class_="truth"),
        tag("div", *columns, class_="columns"),
        class_="example",
    )


def _predictions(outcome: Outcome, head: HeadOutcome, row: int) -> list[Markup]:
    return [
        _item(user_text(outcome.labels.texts[label], longest=120), hit=hit, other="·")
        for label, hit in zip(head.rows[row].tolist(), head.hits[row].tolist(), strict=True)
        if label >= 0
    ]


def _item(text: Markup, *, hit: bool, other: str) -> Markup:
    sign = tag("span", "✓" if hit else other, aria_label="right" if hit else None)
    return tag("li", sign, " ", text, class_="hit" if hit else None)


def _right(head: HeadOutcome, row: int) -> str:
    n = int(np.count_nonzero(head.hits[row]))
    return f"{n} right" if n else "none right"


def _found(head: str, heads: Sequence[str]) -> str:
    if len(heads) == 1:
        return "found"
    return f"found by {HEAD_TITLES.get(head, head).lower()}"


def choose_queries(outcome: Outcome, most: int = PER_GROUP) -> dict[str, NDArray[np.int64]]:
    """Choose queries: some at random, some where heads differ, some where nothing is found.

    Only queries with positives are shown, and none twice. A fixed seed draws the random ones, so
    that the same run gives the same page.

    Returns:
        What a group shows, and the rows of its queries; groups without any are left out.
    """
    order = np.random.default_rng(_SEED).permutation(len(outcome))
    order = order[np.diff(outcome.truth.indptr)[order] > 0]
    heads = list(outcome.heads)
    hits = np.column_stack([np.count_nonzero(outcome.heads[h].hits, axis=1) for h in heads])
    groups = {"Drawn at random": order[:most]}
    rest = order[most:]
    spread = hits.max(axis=1) - hits.min(axis=1)
    by_spread = rest[np.argsort(-spread[rest], kind="stable")]
    groups["Where the heads differ most"] = by_spread[spread[by_spread] > 0][:most]
    rest = rest[~np.isin(rest, groups["Where the heads differ most"])]
    groups["Where no head finds a true label"] = rest[hits[rest].max(axis=1) == 0][:most]
    if len(heads) == 1:
        nothing = groups.pop("Where no head finds a true label")
        groups["Where no true label is found"] = nothing
    return {title: rows for title, rows in groups.items() if len(rows)}
