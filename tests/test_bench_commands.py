"""The command line of the benchmarks, and the code they share."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench import catalogue
from bench.common import results, tables, timing

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "bench"
PAIRS = [(command, name) for command, names in catalogue.SUBJECTS.items() for name in names]
NO_SUBJECT = {
    "training": {"plain", "step_data", "gpu_table", "packed_pieces", "collection"},
    "search": {"vectors"},
    "objectives": {"rows"},
    "serving": {"processes", "service"},
    "peers": {"bi_and_cross"},
}
"""Modules that subjects share."""


def test_help_of_every_command_imports_nothing_heavy():
    code = """
import sys
from bench.catalogue import COMMANDS, main
main(["--help"])
for command in COMMANDS:
    main([command, "--help"])
heavy = {"torch", "numpy", "scipy", "sklearn", "transformers", "umpteen"} & set(sys.modules)
sys.exit(f"imported: {sorted(heavy)}" if heavy else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for command, subject in PAIRS:
        assert catalogue.summary(command, subject) in done.stdout


@pytest.mark.parametrize("command", catalogue.COMMANDS)
def test_every_file_of_a_command_is_a_subject(command):
    files = {path.stem for path in (BENCH / command).glob("*.py")} - {"__init__"}
    subjects = {name.replace("-", "_") for name in catalogue.SUBJECTS[command]}
    assert files - NO_SUBJECT.get(command, set()) == subjects


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_every_subject_describes_its_call(pair):
    if pair == ("peers", "estimators"):
        pytest.importorskip("sklearn")
    if pair == ("ensemble", "cost"):
        pytest.importorskip("threadpoolctl")
    text = catalogue.parser_of(*pair).format_help()
    assert f"python -m bench {' '.join(pair)}" in text.split("\n\n", 1)[1]


def test_the_readme_lists_every_subject_once():
    lines = (BENCH / "README.md").read_text("utf-8").splitlines()
    listed = [
        (cells[1].strip(" `"), cells[2].strip(" `"), [cell.strip() for cell in cells[3:6]])
        for cells in (line.split("|") for line in lines if line.startswith("| `"))
    ]
    assert [(command, subject) for command, subject, _ in listed] == PAIRS
    assert all(all(rest) for _, _, rest in listed)


def documents():
    yield from (ROOT / "docs").rglob("*.md")
    yield from BENCH.rglob("*.md")
    yield from (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile")


def test_documents_name_commands_that_exist():
    seen = 0
    for file in documents():
        text = file.read_text("utf-8")
        for command, subject in re.findall(r"python -m bench ([a-z]+) ([a-z-]+)", text):
            assert (command, subject) in PAIRS, f"{file}: {command} {subject}"
            seen += 1
        for script in re.findall(r"bench/[a-z_/]+\.py", text):
            assert (ROOT / script).is_file(), f"{file}: {script}"
    assert seen > 30


def test_benchmarks_name_no_folder_of_a_machine():
    for path in BENCH.rglob("*.py"):
        assert not re.search(r'["\']/(work|home|root|data|mnt)/', path.read_text("utf-8")), path


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["nothing"], "the commands are"), (["search", "nothing"], "the subjects are exact")],
)
def test_a_wrong_name_gets_the_names_there_are(words, reason):
    with pytest.raises(SystemExit, match=reason):
        catalogue.main(words)


def test_a_table_shows_unknown_values_as_dashes(capsys):
    rows = [{"a": 1, "b": 2.345}, {"a": "x", "b": None}, {"a": float("nan")}]
    tables.print_rows(rows, {"a": "first", "b": "second"}, digits=1)
    assert capsys.readouterr().out.splitlines() == [
        "| first | second |", "|---|---|", "| 1 | 2.3 |", "| x | - |", "| - | - |",
    ]  # fmt: skip


def test_results_name_the_commit_and_the_machine(tmp_path):
    path = tmp_path / "rows.json"
    results.save(path, [{"ms": 1.5}], **results.facts("cpu"))
    found = results.load(path)
    assert found["rows"] == [{"ms": 1.5}]
    assert found["machine"] == "CPU"
    assert {"commit", "torch", "python", "cores", "threads"} <= set(found)
    assert [each.name for each in tmp_path.iterdir()] == ["rows.json"]
    assert json.loads(path.read_text()) == found


def test_calls_are_counted_and_timed():
    calls = []
    ticks = iter(range(100))
    took = timing.seconds(lambda: calls.append(1), repeats=3, warm=2, clock=lambda: next(ticks))
    assert (len(calls), took) == (5, [1, 1, 1])
    assert timing.each(calls.append, "ab", clock=lambda: next(ticks)) == [1, 1]
    step = timing.timed(lambda: calls.append(1) or len(calls), repeats=4, device="cpu", warm=2)
    assert step.result == len(calls) == 13
    assert step.ms >= 0
    assert step.gib != step.gib  # not a number: there is no GPU
