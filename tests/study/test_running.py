"""Runs of a study: what is missing is made, what is done is kept, what was killed goes on."""

import dataclasses
import json
import xml.etree.ElementTree as ElementTree

import pytest
from small_runs import SETTINGS

from umpteen.data.formats import load_dataset
from umpteen.errors import RunError
from umpteen.study import drawing, outcomes, results, running, sources
from umpteen.study.definition import read_study

TEXT = """
name = "tiny study"
presets = ["unidec-frugal"]
seeds = [1, 2]
metrics = ["P@1", "P@5", "PSP@5", "C@5"]
settings = {settings}

[data.tiny]
path = "{{tiny}}"

[switches.plain]
share = 0

[switches.half]
settings = ["augment.method=gandalf", "augment.share=0.5"]
share = 50
line = "random"

[switches.gandalf]
settings = ["augment.method=gandalf"]
share = 100

[switches.broken]
settings = ["loss.dual=no_such_loss"]
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory, tiny_data_folder):
    path = tmp_path_factory.mktemp("study") / "study.toml"
    path.write_text(TEXT.format(settings=json.dumps([*SETTINGS, "validation.every_epochs=1"])))
    return path


@pytest.fixture(scope="module")
def study(file, tiny_data_folder):
    return read_study(file, {"tiny": str(tiny_data_folder)})


@pytest.fixture(scope="module")
def made(study, tmp_path_factory):
    """The study's folder, and what was said and what failed the first time."""
    out = tmp_path_factory.mktemp("made") / "out"
    said = []
    failed = running.run_missing(study, out, device="cpu", log=said.append)
    return out, said, failed


def test_every_run_but_the_broken_one_has_a_result(study, made):
    out, said, failed = made
    assert len(failed) == 2
    assert all("objective 'no_such_loss' is not known" in sentence for sentence in failed)
    names = {file.stem for file in (out / "results").iterdir()}
    assert names == {run.name for run in study.runs() if run.switch.name != "broken"}
    one = json.loads((out / "results" / "tiny--unidec-frugal--gandalf--seed1.json").read_text())
    assert set(one["heads"]["combined"]["metrics"]) == {"P@1", "P@5", "PSP@5", "C@5"}
    assert len(one["heads"]["combined"]["bins"]) == 5
    assert one["steps"] > 0
    assert not list(out.glob("runs/*/models"))


def test_more_rows_mean_fewer_epochs_and_about_equal_steps(study, made):
    cells = {cell.switch: cell for cell in results.read_cells(study, made[0])}
    steps = {name: cell.results[0]["steps"] for name, cell in cells.items()}
    epochs = {name: cell.results[0]["epochs"] for name, cell in cells.items()}
    assert epochs == {"plain": 4, "half": 3, "gandalf": 2}
    assert steps["gandalf"] == steps["plain"]  # half's clusters are of another size


def test_what_is_done_is_kept(study, made):
    out = made[0]
    before = {file: file.read_bytes() for file in (out / "results").iterdir()}
    said = []
    running.run_missing(study, out, device="cpu", only="plain", log=said.append)
    assert [text.endswith("done already") for text in said] == [True, True]
    running.run_missing(study, out, device="cpu", only=["plain", "half"], log=said.append)
    assert [text.endswith("done already") for text in said] == [True] * 6
    assert {file: file.read_bytes() for file in (out / "results").iterdir()} == before


def test_a_run_is_made_again_when_its_settings_or_its_data_change(study, made, tiny_data):
    run = study.runs()[0]
    data = load_dataset(run.source.path)
    key = running.run_key(study, run, data, sources.data_fingerprint(data))
    assert running.is_done(made[0], run, key)
    other = next(r for r in study.runs() if r.switch.name == "gandalf" and r.seed == run.seed)
    assert running.run_key(study, other, data, sources.data_fingerprint(data)) != key
    assert running.run_key(study, run, data, "other data") != key


def test_a_run_without_the_static_table_is_another_run(study, tiny_data, monkeypatch):
    run = study.runs()[0]
    settings = tuple(text for text in run.settings if not text.startswith("encoder.table"))

    def key(*more):
        changed = dataclasses.replace(run, settings=(*settings, *more))
        return running.run_key(study, changed, tiny_data, "data")

    monkeypatch.setattr("umpteen.model.frugal.tables.static_table_available", lambda: True)
    with_table = key()
    monkeypatch.setattr("umpteen.model.frugal.tables.static_table_available", lambda: False)
    assert key() != with_table
    assert key() == key("encoder.table=random")


def test_a_source_may_keep_a_share_of_its_training_queries(study, tiny_data_folder):
    whole = load_dataset(tiny_data_folder)
    source = dataclasses.replace(study.sources[0], queries=0.3)
    data = sources.load_source(source)
    titles = list(whole["train"].titles)
    rows = [titles.index(title) for title in data["train"].titles]
    assert len(rows) == round(0.3 * len(titles))
    assert rows == sorted(set(rows))
    assert rows != list(range(len(rows)))
    assert (data["train"].targets != whole["train"].targets[rows]).nnz == 0
    assert data["test"].titles == whole["test"].titles
    assert sources.load_source(source)["train"].titles == data["train"].titles


def test_an_encoder_counts_by_its_files_and_not_by_its_place(study, tiny_data, tmp_path):
    def key(place, weights):
        folder = tmp_path / place
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_bytes(weights)
        run = study.runs()[0]
        run = dataclasses.replace(run, settings=(*run.settings, f"encoder.name={folder}"))
        return running.run_key(study, run, tiny_data, "data")

    assert key("one", b"weights") == key("other", b"weights") != key("one", b"other weights")


def test_a_killed_run_goes_on_to_the_same_result(study, made, tmp_path):
    class StopAt:
        """Like Ctrl-C at the fifth step."""

        def __getattr__(self, name):
            return lambda *args, **kwargs: None

        def step(self, info, epoch):
            if info.step == 5:
                raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        running.run_missing(study, out, device="cpu", only="--plain--seed1",
                            reporters=lambda: [StopAt()])  # fmt: skip
    assert not (out / "results").exists()
    running.run_missing(study, out, device="cpu", only="--plain--seed1")
    found, expected = (
        json.loads((place / "results" / "tiny--unidec-frugal--plain--seed1.json").read_text())
        for place in (out, made[0])
    )
    for key in ("heads", "validation", "steps", "key"):
        assert found[key] == expected[key]


def test_two_processes_do_not_work_in_one_folder(study, tmp_path):
    with running._alone(tmp_path), pytest.raises(RunError, match="another process is at work"):
        running.run_missing(study, tmp_path)


def test_the_table_has_mean_and_spread_over_seeds(study, made):
    cells = results.read_cells(study, made[0])
    text = results.table(study, cells)
    assert text.startswith("2 of 8 runs are missing.")
    row = next(line for line in text.splitlines() if "| gandalf |" in line)
    values = cells[2].values("combined", "P@1")
    assert f"| {values.mean():.2f} ±{values.std(ddof=1):.2f} |" in row
    assert results.table(study, cells, heads="all").count("| gandalf |") == 3
    document = results.as_json(study, cells)
    found = next(r for r in document["rows"] if r["switch"] == "gandalf" and r["head"] == "dual")
    assert found["mean"]["P@5"] == pytest.approx(cells[2].values("dual", "P@5").mean())


def test_plots_are_whole_svg_files_with_a_legend(study, made, tmp_path):
    cells = results.read_cells(study, made[0])
    files = drawing.draw_all(study, cells, tmp_path)
    assert {file.name for file in files} == {
        "epochs--tiny--unidec-frugal--P@1.svg",
        "epochs--tiny--unidec-frugal--PSP@5.svg",
        "shares--tiny--unidec-frugal--P@1.svg",
        "shares--tiny--unidec-frugal--PSP@5.svg",
        "bins--tiny--unidec-frugal.svg",
        "coverage--tiny.svg",
    }
    for file in files:
        root = ElementTree.parse(file).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        text = "".join(root.itertext())
        assert "gandalf" in text or file.name.startswith("shares")


def test_shares_are_drawn_of_what_was_measured(study, made, tmp_path):
    fewer = dataclasses.replace(study, metrics=("P@1",), plots={"shares": {}})
    for cell in (cells := results.read_cells(study, made[0])):
        for result in cell.results:
            for head in result["heads"].values():
                head["metrics"] = {"P@1": head["metrics"]["P@1"]}
    (file,) = drawing.draw_all(fewer, cells, tmp_path)
    assert file.name == "shares--tiny--unidec-frugal--P@1.svg"


def test_a_curve_is_the_mean_over_seeds(study, made):
    cell = results.read_cells(study, made[0])[0]
    epochs, values = cell.curve("combined", "P@1")
    assert epochs == [1, 2, 3, 4]
    firsts = [r["validation"][0]["heads"]["combined"]["P@1"] for r in cell.results]
    assert values[0] == pytest.approx(sum(firsts) / 2)


def test_a_result_without_a_metric_that_was_added_since_is_missing(study, made):
    more = dataclasses.replace(study, metrics=(*study.metrics, "MRR"))
    assert results.read_cells(more, made[0]) == []
    assert "8 of 8 runs are missing" in results.table(more, [])


def test_a_damaged_result_is_named(study, made, tmp_path):
    file = outcomes.result_file(tmp_path, study.runs()[0])
    file.parent.mkdir()
    file.write_text("[]")
    with pytest.raises(RunError, match="is not the result of a run"):
        results.read_cells(study, tmp_path)
