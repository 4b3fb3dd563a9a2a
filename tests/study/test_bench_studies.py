"""Every study of the bench: its command runs, and the settings of every run resolve."""

import shlex
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from umpteen.cli import main
from umpteen.config.loading import load_config, stages
from umpteen.study.definition import read_study
from umpteen.study.paired import PRESET
from umpteen.training.factories import build_encoder, build_losses, build_model
from umpteen.training.resolve import resolve_open_settings

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "bench" / "studies").glob("*.toml"))
by_study = pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)


def command_of(file):
    """Return the words of the command in the first lines of a study's file."""
    lines = file.read_text("utf-8").splitlines()
    words = lines[0].removeprefix("# ")
    for line in lines[1:]:
        if not words.endswith("\\"):
            break
        words = words.removesuffix("\\") + line.removeprefix("#").strip()
    return shlex.split(words)


def option(words, name):
    """Return every value of an option of a command."""
    return [value for key, value in zip(words, words[1:], strict=False) if key == name]


@by_study
def test_the_command_in_the_first_line_lists_its_runs(file, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    program, *words = command_of(file)
    assert program == "umpteen"
    assert words[:2] == ["study", str(file.relative_to(ROOT))]
    words = [str(tmp_path) if word == "STUDY" else word for word in words]
    listed = CliRunner().invoke(main, [*words, "--list"])
    assert listed.exit_code == 0, listed.output
    study = read_study(file, dict.fromkeys(places_of(file), "x"))
    assert listed.stdout.splitlines() == [run.name for run in study.runs()]
    for text in option(words, "--only"):
        assert any(text in run.name for run in study.runs()), text
    switches = {switch.name for switch in study.switches}
    for name in option(words, "--against"):
        assert name in switches or name.removeprefix(PRESET) in study.presets


@by_study
def test_the_command_names_no_place_that_the_file_lacks(file):
    for place in places_of(file):
        assert f"{{{place}}}" in file.read_text("utf-8")


@by_study
def test_every_run_has_settings_a_model_and_losses(file, tiny_bert):
    encoder = {"encoder": str(tiny_bert)}
    runs = read_study(file, dict.fromkeys(places_of(file), "x") | encoder).runs()
    assert runs
    encoders = {}
    for preset, settings in sorted({(run.preset, run.settings) for run in runs}):
        config = resolve_open_settings(load_config(preset, settings))
        assert config.encoder.is_frugal or config.encoder.name == str(tiny_bert), preset
        key = repr(config.encoder)
        if key not in encoders:
            encoders[key] = build_encoder(
                config.encoder, ["a text", "some texts"], generator=torch.Generator()
            )[0]
        model = build_model(config, encoders[key], 7)
        assert model.n_labels == 7
        for stage in stages(config):
            build_losses(stage.loss)


def places_of(file):
    """Return the names that the file's command gives a place."""
    return [value.partition("=")[0] for value in option(command_of(file), "--path")]
