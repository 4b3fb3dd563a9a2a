"""Results that are kept with the code: whole, and the figures that the notes give."""

from pathlib import Path

import pytest

from umpteen.study.definition import read_study
from umpteen.study.results import mean_and_spread, read_cells

ROOT = Path(__file__).parents[2]
KEPT = sorted((ROOT / "bench" / "studies" / "done").iterdir())


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_kept_results_are_whole_and_the_notes_give_their_figures(folder):
    places = dict.fromkeys(("mdn", "wordnet", "debian", "eurlex", "encoder"), "x")
    study = read_study(ROOT / "bench" / "studies" / f"{folder.name}.toml", places)
    cells = read_cells(study, folder)
    kept = {file.stem for file in (folder / "results").iterdir()}
    assert not list(folder.rglob("*.svg"))  # umpteen study --draw makes them
    assert kept <= {run.name for run in study.runs()}  # a study may be done in part
    assert len(kept) == sum(len(cell.results) for cell in cells)
    notes = (ROOT / "bench" / "notes").glob("*.md")
    said = "".join(note.read_text("utf-8") for note in notes)
    for file in (folder / "results").iterdir():
        assert "=/" not in file.read_text("utf-8"), f"{file.name} names a folder"
    for cell in cells:
        for metric in ("P@1", "P@5", "PSP@1", "PSP@5"):
            figure = mean_and_spread(cell.values(cell.best, metric))
            assert figure in said, (cell.switch, metric, figure)
