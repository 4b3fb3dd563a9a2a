"""The quickstart notebook runs from its first to its last cell, and its stored outputs fit."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import umpteen

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "guide" / "quickstart.ipynb"


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The notebook with fresh outputs, its names, and the folder it ran in."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MPLBACKEND", "Agg")
        patch.syspath_prepend(str(ROOT / "tools"))
        from run_notebook import run_notebook

        notebook = json.loads(NOTEBOOK.read_text("utf-8"))
        names = run_notebook(notebook)
    sys.modules.pop("run_notebook", None)
    return notebook, names, folder


def kinds(notebook):
    """The kinds of all outputs, in order."""
    return [
        sorted(output.get("data", {"stream": 0}))
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
    ]


def html_of(notebook):
    return "".join(
        "".join(output["data"].get("text/html", ""))
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
    )


@pytest.mark.slow
def test_it_shows_tables_a_plot_and_corrections(ran):
    notebook, names, folder = ran
    shown = html_of(notebook)
    assert "login, password" in shown  # the data set
    assert "<th>lexical</th>" in shown  # an explanation
    assert "<th>ensemble</th>" in shown  # the evaluation
    assert "refund" in names["model"].predict("I want my refund", k=2).ids[0]
    assert names["model"].folder == Path("tickets-run")
    review = pd.read_csv(folder / "review.csv")
    assert list(review.columns) == ["text", "rank", "id", "score"]
    assert len(review) == 12
    kept = umpteen.Predictor.load(folder / "tickets-run")
    assert "refund" in kept.snapshot().labels.ids


@pytest.mark.slow
def test_the_stored_outputs_are_those_of_its_cells(ran):
    stored = json.loads(NOTEBOOK.read_text("utf-8"))
    assert kinds(stored) == kinds(ran[0])
    assert ["image/png", "text/plain"] in kinds(stored)
    numbers = [c["execution_count"] for c in stored["cells"] if c["cell_type"] == "code"]
    assert numbers == list(range(1, len(numbers) + 1))
