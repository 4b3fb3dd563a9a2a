"""Natural first guesses on the command line: each works, or says exactly what to do.

The page docs/guide/guesses.md lists them; a guess is the code of its first column.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from small_runs import SETTINGS

from umpteen.cli import main

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "guesses.md"
NEW = "id,text,price\nA1,red apple,2.50\nA2,old river,1.20\n"

WORKS = {
    "umpteen predict run new.csv": ('"id": "A1"', '"price": "2.50"'),
    "umpteen predict run new.csv --out labels.csv": ("Wrote 2 rows to labels.csv",),
    "umpteen predict run new.csv --to csv": ("id,text,labels,scores,note,price",),
    "cat new.csv | umpteen predict run": ('"id": "A2"',),
    "umpteen predict run data/test.jsonl --threshold auto": ('"input_labels"',),
    "umpteen predict run new.csv --out labels.jsonl --resume": ("Wrote 2 rows",),
    "umpteen evaluate run data --per-label labels.csv": ("predicted are labels with",),
    "umpteen evaluate run data --metrics MicroF1,MacroF1,F1": ("MicroF1",),
    "umpteen suggest run new.csv -n 1": ('"gain"', "1 text of 2 to label next"),
    "umpteen plan data": ("60 training texts", "On this machine"),
    "umpteen train data --out run --resume": ("Continuing from",),
}
REFUSED = {
    "umpteen predict run data": "name a file in it",
    "umpteen predict run new.csv --to parquet": "name a file with --out",
    "umpteen predict run new.csv --text-column body": "body",
    "umpteen predict run 'red apple'": "echo 'red apple' | umpteen predict RUN",
    "umpteen predict run new.csv --out labels.xlsx": "name a file that ends in .csv",
    "umpteen evaluate run data --metrics micro_f1": "Did you mean 'MicroF1'?",
    "umpteen train data --out run": "continue the run in it with --resume",
    "umpteen train data --out run --resume --set seed=1": "seed is 1 in the command and 17 in",
}


@pytest.fixture
def folder(tiny_run, tiny_data_folder, tmp_path, monkeypatch):
    shutil.copytree(tiny_run, tmp_path / "run")
    shutil.copytree(tiny_data_folder, tmp_path / "data")
    (tmp_path / "new.csv").write_text(NEW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(guess):
    *before, command = guess.split(" | ")
    given = Path(before[0].removeprefix("cat ")).read_bytes() if before else None
    return CliRunner().invoke(main, shlex.split(command)[1:], input=given)


@pytest.mark.parametrize("guess", WORKS)
def test_a_guess_works(guess, folder):
    result = run(guess)
    assert result.exit_code == 0, result.stderr
    for words in WORKS[guess]:
        assert words in result.output


@pytest.mark.parametrize("guess", REFUSED)
def test_a_guess_is_refused_with_what_to_do(guess, folder):
    result = run(guess)
    assert (result.exit_code in (1, 2), result.stdout) == (True, "")
    assert REFUSED[guess] in result.stderr


def test_one_file_is_trained_with_a_time(folder):
    (folder / "one.csv").write_text(
        "text,tags\n" + "".join(f'red apple {n},"a,b"\nold river {n},"c,d"\n' for n in range(30))
    )
    flags = " ".join(f"--set {each}" for each in SETTINGS if not each.startswith("train.epochs"))
    result = run(f"umpteen train one.csv --out short --minutes 1 {flags}")
    assert result.exit_code == 0, result.stderr
    # The first where the planned epochs do not fit in the time, which depends on the machine.
    assert re.search("are for the ensemble|Ended early: all 30 planned epochs", result.stderr)
    assert (folder / "short" / "log.txt").is_file()


def test_the_page_lists_every_guess():
    listed = re.findall(r"^\| `((?:[^`\\]|\\.)+)` \|", PAGE.read_text("utf-8"), re.M)
    found = {each.replace("\\|", "|") for each in listed}
    assert not {*WORKS, *REFUSED} - found
