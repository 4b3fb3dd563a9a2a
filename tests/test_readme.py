"""Every block of the README and every example runs, on tiny data."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest
from documents import blocks_of, run_page

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCKS = blocks_of(README)
SMALL = ("encoder.table=random", "encoder.dim=16", "model.dim=16", "train.epochs=2")


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_data_folder, tiny_bert):
    """A folder as the README assumes it, with a tiny encoder under the name of a real one."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "data").mkdir()  # few texts, so that nothing is cross-validated
    for name, n in (("train.jsonl", 15), ("test.jsonl", 5), ("labels.jsonl", None)):
        lines = (tiny_data_folder / name).read_text("utf-8").splitlines(keepends=True)
        (folder / "data" / name).write_text("".join(lines[:n]), "utf-8")
    shutil.copytree(tiny_bert, folder / "sentence-transformers" / "all-MiniLM-L6-v2")
    return folder


def test_every_block_says_whether_it_is_run():
    assert {block.mark for block in BLOCKS} == {"run", "skip: installs"}
    skipped = "".join(block.body for block in BLOCKS if block.mark != "run")
    # What installs, and what does not end by itself.
    known = ("make ", "pip ", ".venv/bin/umpteen serve ")
    assert all(line.startswith(known) for line in skipped.splitlines())


def test_the_make_targets_exist():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    named = set(re.findall(r"(?:^|`)make ([\w-]+)", README.read_text("utf-8"), re.M))
    assert named == {"demo", "docs"}
    assert named <= targets


@pytest.mark.slow
def test_the_blocks_run(place, monkeypatch):
    monkeypatch.chdir(place)
    names, out = run_page(README, place)
    answers = [json.loads(line) for line in out.splitlines() if line.startswith('{"text"')]
    assert [answer["text"] for answer in answers] == ["some text"]
    assert len(answers[0]["labels"]) == 3
    assert re.search(r"^P@1 +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d$", out, re.M)
    big = json.loads((place / "big-run" / "config.json").read_text("utf-8"))["config"]
    assert big["encoder"]["name"].endswith("MiniLM-L6-v2")
    assert names["top"].rows.shape == (1, 5)
    assert set(names["report"].heads) == {"dual", "classifier", "combined", "ensemble"}
    assert len(names["model"].labels) == 40


def test_the_extras_are_those_of_the_package():
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    named = re.findall(r"^\| `(\w+)` \|", README.read_text("utf-8"), re.M)
    assert set(named) == set(extras) - {"demo", "dev", "docs"}


def run_example(name, monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
    monkeypatch.syspath_prepend(ROOT / "examples")
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    return capsys.readouterr().out


def test_example_from_lists(tmp_path, monkeypatch, capsys):
    out = run_example("from_lists", monkeypatch, capsys, tmp_path / "run")
    assert "yellow tropical fruit: " in out
    assert "'combined': {'P@1': " in out


def test_examples_from_folder_and_with_faiss(place, tmp_path, monkeypatch, capsys):
    pytest.importorskip("faiss")
    folder, settings = tmp_path / "run", [*SMALL]
    out = run_example("from_folder", monkeypatch, capsys, place / "data", folder, *settings)
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["dual", "classifier", "combined"]
    out = run_example("faiss_search", monkeypatch, capsys, folder, "red apple", "Flat")
    assert out.startswith("Flat: 100.0% of the exact top 10\n")
    assert len(out.splitlines()) == 11


def test_example_of_an_objective(place, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    out = run_example("custom_objective", monkeypatch, capsys, place / "data", folder, *SMALL)
    assert "'P@5'" in out
    settings = json.loads((folder / "config.json").read_text("utf-8"))["config"]
    assert settings["loss"]["dual"] == "custom_objective:MarginSoftmax"


def test_the_example_of_an_objective_is_what_it_says():
    import torch

    from umpteen.objectives.base import block_loss
    from umpteen.objectives.decoupled_softmax import DecoupledSoftmax
    from umpteen.objectives.reductions import mean_of_positives
    from umpteen.types import Positives

    names = runpy.run_path(str(ROOT / "examples" / "custom_objective.py"))
    scores = torch.tensor([[1.0, -0.5, 0.25], [0.0, 2.0, -1.0]])
    pairs = Positives(torch.tensor([0, 1]), torch.tensor([0, 2]), torch.ones(2))
    shifted = scores.clone()
    shifted[pairs.rows, pairs.cols] -= names["MARGIN"]
    expected = block_loss(DecoupledSoftmax(), mean_of_positives, shifted, pairs)
    found = block_loss(names["MarginSoftmax"](), mean_of_positives, scores, pairs)
    torch.testing.assert_close(found, expected)


def test_every_example_is_tested_and_short():
    here = Path(__file__).read_text("utf-8")
    for example in EXAMPLES:
        assert f'run_example("{example.stem}"' in here
        assert len(example.read_text("utf-8").splitlines()) <= 60
