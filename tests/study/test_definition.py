"""A study's file: what it asks for, and what is wrong with it."""

from pathlib import Path

import pytest

from umpteen.config.loading import load_config
from umpteen.errors import ConfigError
from umpteen.study.definition import read_study

FILE = """
name = "a study"
presets = ["unidec-frugal", "renee"]
seeds = [1, 2]
settings = ["train.epochs=3"]

[data.one]
path = "{one}"
settings = ["data.text=title"]

[data.two]
path = "two"

[switches.plain]

[switches.gandalf]
settings = ["augment.method=gandalf"]
presets = ["renee"]
data = ["one"]
"""


@pytest.fixture
def file(tmp_path):
    def write(text=FILE):
        path = tmp_path / "study.toml"
        path.write_text(text)
        return path

    return write


def test_every_combination_is_a_run_unless_a_switch_is_for_some(file):
    study = read_study(file(), {"one": "/place"})
    names = [run.name for run in study.runs()]
    assert len(names) == len(set(names)) == 2 * 2 * 2 + 2
    assert "one--renee--gandalf--seed2" in names
    assert not [n for n in names if "gandalf" in n and ("two" in n or "unidec" in n)]
    run = next(run for run in study.runs() if run.name == "one--renee--gandalf--seed1")
    assert run.source.path == "/place"
    assert run.settings == ("train.epochs=3", "data.text=title", "augment.method=gandalf")


def test_a_setting_with_a_place_is_written_as_the_file_has_it(file):
    path = file(FILE.replace('["train.epochs=3"]', '["train.epochs=3", "encoder.name={encoder}"]'))
    study = read_study(path, {"one": "/place", "encoder": "/models/mini"})
    settings = study.runs()[0].settings
    assert "encoder.name=/models/mini" in settings
    assert [study.as_written(each) for each in settings] == [
        "train.epochs=3", "encoder.name={encoder}", "data.text=title"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("name =", "nme ="), r"unknown key nme\. Did you mean 'name'"),
        (("[switches.plain]", "[switches.a--b]"), "'a--b' cannot be a file's name"),
        (('data = ["one"]', 'data = ["three"]'), "'three', which is none of one, two"),
        (('presets = ["renee"]', 'presets = ["dpr"]'), "names presets the study does not: dpr$"),
        (('path = "two"', 'path = "two"\nqueries = 0'), r"data\.two\.queries is 0; it must"),
        (("seeds = [1, 2]", "seeds = []"), "seeds must be a list of whole numbers"),
        (("seeds = [1, 2]", "seeds = 3"), "seeds must be a list of whole numbers .* not 3"),
        (("seeds = [1, 2]", "seeds = [true]"), "seeds must be a list of whole numbers"),
        (("seeds", 'metrics = ["P@1", "Q@1"]\nseeds'), "metric 'Q@1' is not known"),
        (("seeds", 'keep_models = "no"\nseeds'), "keep_models must be true or false, not 'no'"),
        (("[switches.plain]", '[switches.plain]\nshare = "half"'), "a number from 0 to 100"),
        (("[switches.plain]", "[plots]\nbins = 3\n[switches.plain]"), r"plots\.bins must be a"),
        (("[switches.plain]", '[plots.epochs]\nagainst = "time"\n[switches.plain]'), "or step, n"),
        (("[switches.plain]", '[plots.bins]\nmetrics = ["P@1"]\n[switches.plain]'), "unknown key"),
        (("[switches.plain]", '[plots.epochs]\nmetrics = ["Q@1"]\n[switches.plain]'), "'Q@1' is n"),
        (("[switches.plain]", '[plots.shares]\nmetrics = ["MRR"]\n[switches.plain]'),
         "'MRR', which is none of the study's metrics: P@1"),
        (('path = "two"', "path = 2"), r"data\.two\.path must be text"),
        (('settings = ["data.text=title"]', 'settings = "x"'), "must be a list of texts"),
        (("[switches.plain]", "[plots.pie]\n[switches.plain]"), r"unknown key plots\.pie"),
        (("[switches.plain]", '[plots.bins]\nswitches = ["x"]\n[switches.plain]'), "name 'x'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_file(file, change, says):
    path = file(FILE.replace(*change))
    with pytest.raises(ConfigError, match=says) as caught:
        read_study(path, {"one": "x"})
    assert str(path) in str(caught.value)


def test_a_place_that_is_not_given_names_the_flag(file):
    with pytest.raises(ConfigError, match="give --path one=FOLDER"):
        read_study(file())


def test_a_study_without_data_or_switches_is_refused(file):
    with pytest.raises(ConfigError, match=r"there is no \[data\.NAME\]"):
        read_study(file("seeds = [1]"))


def test_files_that_are_no_studies_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "x.toml").write_text("= 1")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_study(tmp_path / "x.toml")


SHIPPED = sorted((Path(__file__).parents[2] / "bench" / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_study_has_settings_that_hold(path):
    text = path.read_text("utf-8")
    places = {name: "x" for name in ("wordnet", "debian", "eurlex", "mdn", "encoder", "data")}
    study = read_study(path, places)
    assert text.startswith(f"# umpteen study bench/studies/{path.name} --out ")
    for run in study.runs():
        load_config(run.preset, [*run.settings, f"seed={run.seed}"])
