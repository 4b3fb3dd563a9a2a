"""Every study of the bench: its settings are accepted by every preset it names."""

from pathlib import Path

import pytest

from umpteen.config.loading import load_config
from umpteen.study.definition import read_study

STUDIES = sorted((Path(__file__).parents[2] / "bench" / "studies").glob("*.toml"))


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_the_settings_of_every_run_are_accepted(file):
    places = dict.fromkeys(("mdn", "wordnet", "debian", "eurlex", "encoder"), "x")
    runs = read_study(file, places).runs()
    assert runs
    for preset, settings in {(run.preset, run.settings) for run in runs}:
        load_config(preset, settings)
