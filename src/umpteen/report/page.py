"""Render all sections as one self-contained HTML document."""

from __future__ import annotations

from markupsafe import Markup

from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.report import cases, overview, sections
from umpteen.report.elements import Child, escape, tag
from umpteen.report.ensemble import ensemble
from umpteen.report.history import History
from umpteen.report.outcomes import Outcome
from umpteen.report.style import STYLE, content_policy


def render_page(
    name: str,
    history: History,
    outcome: Outcome | None,
    *,
    n_labels: int,
    missing: str = "",
    model: EnsembleModel | None = None,
) -> str:
    """Return the document.

    Args:
        name: What to call the run.
        history: How it was trained.
        outcome: What it predicts, where it can.
        n_labels: How many labels it has.
        missing: Why there is no outcome, as a sentence.
        model: The ensemble, where there is one.

    Returns:
        HTML.
    """
    titles = {"curves": "Learning curves"}
    body: list[Child] = [sections.curves(history, ensemble=model is not None)]
    if outcome is None:
        titles["heads"] = "Heads"
        body.append(tag("section", tag("h2", "Heads"), tag("p", missing), id="heads"))
    else:
        titles |= {"heads": "Heads", "bins": "Head to tail"}
        titles |= {"labels": "Labels", "examples": "Examples"}
        body += [
            sections.heads_side_by_side(outcome),
            sections.bins(outcome),
            cases.labels(outcome),
            cases.examples(outcome),
        ]
    if model is not None:
        titles["ensemble"] = "The ensemble"
        body.append(ensemble(model))
    titles["facts"] = "Settings and facts"
    body.append(overview.facts(history, outcome, n_labels))
    links = [tag("a", title, href=f"#{anchor}") for anchor, title in titles.items()]
    document = tag(
        "html",
        _head(name),
        tag(
            "body",
            tag(
                "header",
                overview.opening(name, history, outcome, n_labels),
                tag("nav", *links, aria_label="Sections"),
            ),
            tag("main", *body),
            tag("footer", tag("p", _closing(history))),
        ),
        lang="en",
    )
    return f"<!doctype html>\n{document}\n"


def _head(name: str) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=content_policy()),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="referrer", content="no-referrer"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("title", f"{name}: training report"),
        Markup(f"<style>{STYLE}</style>"),
    )


def _closing(history: History) -> Markup:
    version = escape(history.about.get("umpteen", ""))
    return Markup(f"Trained with umpteen {version}. This page is one file and loads nothing else.")
