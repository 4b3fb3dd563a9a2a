"""``umpteen study``."""

import json

import pytest
from small_runs import SETTINGS


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    settings = json.dumps([*SETTINGS, "train.epochs=1"])
    path.write_text(
        f'settings = {settings}\nmetrics = ["P@1", "C@5"]\n'
        '[data.tiny]\npath = "{tiny}"\n[switches.plain]\n'
    )
    return path


def test_a_study_prints_its_table_and_draws(umpteen_command, file, tiny_data_folder, tmp_path):
    out = tmp_path / "out"
    words = ("study", file, "--out", out, "--path", f"tiny={tiny_data_folder}", "--device", "cpu")
    first = umpteen_command(*words)
    assert first.exit_code == 0, first.stderr
    assert first.stdout.splitlines()[0].startswith("| data | preset | switch | head | P@1 | C@5 |")
    assert (out / "table.md").read_text().endswith(first.stdout)
    assert list((out / "plots").glob("*.svg"))
    again = umpteen_command(*words, "--draw", "--json")
    assert json.loads(again.stdout)["rows"][0]["data"] == "tiny"
    assert "done already" in umpteen_command(*words).stderr
    assert umpteen_command(*words, "--list").stdout == "tiny--unidec-frugal--plain--seed17\n"


def test_switches_are_compared_in_pairs(umpteen_command, file, tiny_data_folder, tmp_path):
    file.write_text(file.read_text() + '[switches.flat]\nsettings = ["loss.dual_share=0.7"]\n')
    out = tmp_path / "out"
    words = ("study", file, "--out", out, "--path", f"tiny={tiny_data_folder}", "--device", "cpu",
             "--against", "plain")  # fmt: skip
    done = umpteen_command(*words)
    assert done.exit_code == 0, done.stderr
    head, _, row = done.stdout.splitlines()[-3:]
    assert head.startswith("| data | preset | switch | against | head | P@1 |")
    assert row.startswith("| tiny | unidec-frugal | flat | plain |")
    found = json.loads(umpteen_command(*words, "--draw", "--json").stdout)
    assert {each["switch"] for each in found["differences"]} == {"flat"}
    assert found["differences"] == json.loads((out / "paired.json").read_text())


def test_failures_end_with_1_after_the_table(umpteen_command, file, tiny_data_folder, tmp_path):
    file.write_text(file.read_text() + '[switches.bad]\nsettings = ["loss.dual=nothing"]\n')
    result = umpteen_command("study", file, "--out", tmp_path / "out", "--path",
                             f"tiny={tiny_data_folder}", "--device", "cpu")  # fmt: skip
    assert result.exit_code == 1
    assert "| plain |" in result.stdout
    assert "objective 'nothing' is not known" in result.stderr


def test_runs_that_nobody_has_are_not_made_in_silence(umpteen_command, file, tmp_path):
    out = tmp_path / "out"
    result = umpteen_command("study", file, "--out", out, "--path", "tiny=x", "--only", "zzz")
    assert result.exit_code == 1
    assert "no run has 'zzz' in its name; --list names them all" in result.stderr
    assert not out.exists()


def test_a_wrong_path_flag_is_wrong_usage(umpteen_command, file, tmp_path):
    assert umpteen_command("study", file, "--out", tmp_path, "--path", "tiny").exit_code == 2
    missing = umpteen_command("study", file, "--out", tmp_path)
    assert missing.exit_code == 1
    assert "give --path tiny=FOLDER" in missing.stderr
