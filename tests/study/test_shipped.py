"""Shipped studies for a GPU: every run starts, trains, is measured and has its row."""

import dataclasses
import re
from pathlib import Path

import pytest

from umpteen.config.loading import load_config
from umpteen.study import results, running
from umpteen.study.definition import read_study

STUDIES = Path(__file__).parents[2] / "bench" / "studies"


def shortened(switch):
    """Two epochs are enough to have a row."""
    settings = tuple(re.sub(r"\.epochs=\d+", ".epochs=2", text) for text in switch.settings)
    return dataclasses.replace(switch, settings=settings)


@pytest.mark.parametrize("name", ["presets-gpu", "gandalf-gpu"])
def test_every_run_of_a_study_for_a_gpu_has_its_row(name, tiny_data_folder, tiny_bert, tmp_path):
    places = {"wordnet": str(tiny_data_folder), "debian": "unused", "encoder": str(tiny_bert)}
    study = read_study(STUDIES / f"{name}.toml", places)
    study = dataclasses.replace(
        study, sources=study.sources[:1], seeds=(1,), switches=tuple(map(shortened, study.switches))
    )
    for run in study.runs():  # those of every preset can be read
        load_config(run.preset, run.settings)
    # Every preset is trained by tests/training/test_all_labels.py: three are enough here.
    chosen = list({run.preset: run for run in study.runs()}.values())[:3]
    only = [run.name for run in chosen]
    assert running.run_missing(study, tmp_path, device="cpu", only=only) == []
    cells = results.read_cells(study, tmp_path)
    assert {(cell.preset, cell.switch) for cell in cells} == {
        (run.preset, run.switch.name) for run in chosen
    }
    for cell in cells:
        assert cell.results[0]["steps"] > 0
        assert "ensemble" not in cell.heads
        assert 0 <= cell.values(cell.best, "P@1")[0] <= 100
    lines = results.table(study, cells).splitlines()
    assert sum(line.startswith("| wordnet |") for line in lines) == len(cells)
