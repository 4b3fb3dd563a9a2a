"""The page's opening and closing: what the run is, how it stands, its settings and facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from umpteen.head_names import ENSEMBLE
from umpteen.model import ENCODERS
from umpteen.report.elements import join, table, tag, user_text
from umpteen.report.history import History
from umpteen.report.outcomes import HEAD_TITLES, Outcome
from umpteen.scoring import TIE_RULE

TILES = ("P@1", "P@5", "nDCG@5", "PSP@5", "R@100")


def opening(name: str, history: History, outcome: Outcome | None, n_labels: int) -> Markup:
    """Render the title, the state of the run and the best head's main metrics."""
    data = str(history.about.get("data", {}).get("name", "unnamed data"))
    parts = [
        tag("p", "Training report", class_="over"),
        tag("h1", user_text(name)),
        tag("p", f"{n_labels:,} labels of ", user_text(data), f". {standing(history)}"),
    ]
    if not history.finished:
        parts.append(
            tag(
                "p",
                "This run has not finished: what follows is what it knew at its last validation "
                "and its last step. Continue it with umpteen train and --resume.",
                class_="notice",
            )
        )
    if outcome is not None:
        head = outcome.in_use
        values = outcome.heads[head].values
        tiles = [
            tag("div", tag("dt", metric), tag("dd", f"{values[metric]:.2f}"))
            for metric in TILES
            if metric in values
        ]
        parts.append(tag("dl", *tiles, class_="tiles"))
        parts.append(tag("p", f"{head_in_use(head)}, in percent, {source(outcome)}", class_="soft"))
    return join(parts)


def head_in_use(head: str) -> str:
    """Return the head that predictions come from, as a title.

    Example:
        >>> head_in_use("combined")
        'Combined head, the one in use'
    """
    title = HEAD_TITLES.get(head, head)
    return f"{title}{'' if head == ENSEMBLE else ' head'}, the one in use"


def standing(history: History) -> str:
    """Return how far the run came, in a sentence or two."""
    if history.early:
        state = f"Stopped after epoch {history.reached} of {history.planned}: no better validation."
    elif history.finished:
        state = f"Finished: {history.planned} {_epochs(history.planned)}."
    elif history.reached:
        state = f"Unfinished: it reached epoch {history.reached} of {history.planned}."
    else:
        state = f"Unfinished: none of {history.planned} {_epochs(history.planned)} was begun."
    if history.model_epoch is None:
        return state
    return f"{state} The model shown here is that of epoch {history.model_epoch}."


def source(outcome: Outcome) -> str:
    """Return on which queries an outcome's numbers were made, and what they may be taken for."""
    n = f"{len(outcome):,}"
    if outcome.of_data is not None:
        text = f"on all {n} {outcome.split} texts of {outcome.of_data}."
        if outcome.split == "train":
            text += " The model has seen them: this is no measure of new texts."
        return text
    if outcome.split == "train":
        return (
            f"on {n} training examples, not on test: the run held no validation part out, so the "
            "model has seen them."
        )
    return f"on {n} {outcome.split} examples, not on test."


def facts(history: History, outcome: Outcome | None, n_labels: int) -> Markup:
    """Return the section of facts and settings."""
    about = history.about
    settings = about["config"]
    data = about.get("data", {})
    steps = history.steps
    pairs: list[tuple[str, Any]] = [
        ("Data", user_text(str(data.get("name", "unknown")))),
        ("Text read", settings.get("data", {}).get("text")),
        ("Labels", f"{n_labels:,}"),
        ("Encoder", _encoder(settings.get("encoder", {}))),
        ("Heads trained", ", ".join(settings.get("model", {}).get("heads", []))),
        ("Head in use", None if outcome is None else outcome.in_use),
        ("Device", about.get("device")),
        ("Epochs", f"{history.reached} of {history.planned}"),
    ]
    if steps is not None and len(steps.steps):
        pairs.append(("Steps", f"{int(steps.steps[-1]):,}"))
        pairs.append(("Time in training", duration(steps.seconds)))
    if outcome is not None and outcome.propensity is not None:
        constants = outcome.propensity
        pairs.append(("Propensity constants", f"a = {constants.a:g}, b = {constants.b:g}"))
    if outcome is not None:
        pairs.append(("Filter pairs taken out", f"{outcome.n_filters:,}"))
        pairs.append(("Order and ties", TIE_RULE))
    pairs += [
        ("Seed", settings.get("seed")),
        ("umpteen", about.get("umpteen")),
        ("torch", about.get("torch")),
        ("Python", about.get("python")),
        ("Fingerprint of the data", tag("code", data.get("fingerprint"))),
        ("Fingerprint of the labels", tag("code", about.get("labels"))),
    ]
    items = [
        join([tag("dt", name), tag("dd", value)]) for name, value in pairs if value is not None
    ]
    rows = [[tag("code", key), tag("code", _plain(value))] for key, value in flatten(settings)]
    return tag(
        "section",
        tag("h2", "Settings and facts"),
        tag("dl", *items, class_="facts"),
        tag(
            "details",
            tag("summary", f"All {len(rows)} settings"),
            table(["setting", "value"], rows, caption="Every setting as resolved", words=2),
        ),
        id="facts",
    )


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings as ``section.key`` and value.

    Example:
        >>> list(flatten({"a": 1, "b": {"c": 2}}))
        [('a', 1), ('b.c', 2)]
    """
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def duration(seconds: float) -> str:
    """Format seconds as a duration.

    Example:
        >>> duration(43.2), duration(754), duration(9300)
        ('43 s', '12 min 34 s', '2 h 35 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _encoder(encoder: Mapping[str, Any]) -> str:
    name = str(encoder.get("name", "unknown"))
    # Pooling is an option of transformers, the first token vectors one of the others.
    detail = encoder.get("table" if name in ENCODERS else "pooling")
    return f"{name} ({detail})" if detail else name


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if value == {}:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _epochs(n: int) -> str:
    return "epoch" if n == 1 else "epochs"
