"""``write_report``: render all sections as one HTML document and write it."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib import resources
from pathlib import Path

from markupsafe import Markup

from umpteen.data.dataset import Dataset
from umpteen.display import escape
from umpteen.errors import RunError
from umpteen.files import atomic_file
from umpteen.predictor import Predictor
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.report import cases, overview, sections
from umpteen.report.elements import Child, tag
from umpteen.report.ensemble import ensemble
from umpteen.report.history import History, read_history
from umpteen.report.outcomes import Outcome, outcome_on_examples, outcome_on_split
from umpteen.run_folder import RunFolder

FILE_NAME = "report.html"


def render_page(
    name: str,
    history: History,
    outcome: Outcome | None,
    *,
    n_labels: int,
    missing: str = "",
    model: EnsembleModel | None = None,
) -> str:
    """Return the document."""
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
        Markup(f"<style>{style_sheet()}</style>"),
    )


@functools.cache
def style_sheet() -> str:
    """Return the page's style sheet."""
    return resources.files("umpteen").joinpath("report", "style.css").read_text("utf-8")


def content_policy() -> str:
    """Return a policy that allows the page's style sheet, no scripts and no requests."""
    digest = base64.b64encode(hashlib.sha256(style_sheet().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _closing(history: History) -> Markup:
    version = escape(history.about.get("umpteen", ""))
    return Markup(f"Trained with umpteen {version}. This page is one file and loads nothing else.")


def write_report(
    run: str | Path,
    *,
    data: Dataset | None = None,
    split: str = "test",
    out: str | Path | None = None,
    device: str = "auto",
) -> Path:
    """Write one self-contained HTML page about a run.

    Without data the heads are scored on the run's own examples (up to 1,000 validation queries);
    with data, on the whole split. A run that was stopped before its first model gets a page with
    curves and settings alone.

    Args:
        run: The run folder.
        data: The data to evaluate on.
        split: Which part of it.
        out: The page; ``RUN/report.html`` if left out.
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        Where the page is.

    Raises:
        RunError: If the folder holds no run, or a part of it is missing or damaged.
        DataError: If the data has no such split, or none of the run's labels.
    """
    folder = RunFolder(run)
    history = read_history(folder)
    outcome: Outcome | None = None
    missing = ""
    ensemble: EnsembleModel | None = None
    if history.model_epoch is None:
        missing = (
            "The run has saved no trained model yet, so there are no predictions to score. "
            "Make this page again after its first validation."
        )
        n_labels = len(folder.read_labels()[0])
    else:
        predictor = Predictor.load(folder.path, device=device).as_trained()
        n_labels = len(predictor.labels)
        ensemble = predictor.ensemble
        if data is not None:
            outcome = outcome_on_split(predictor, data, split)
        else:
            outcome = outcome_on_examples(predictor, folder)
    name = folder.path.resolve().name
    page = render_page(name, history, outcome, n_labels=n_labels, missing=missing, model=ensemble)
    target = Path(out) if out is not None else folder.path / FILE_NAME
    if not target.parent.is_dir():
        raise RunError(f"{target.parent} is no folder; make it first, or name another --out")
    with atomic_file(target) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return target
