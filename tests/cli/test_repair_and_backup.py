"""``umpteen repair`` and ``umpteen backup``."""

import json

import pytest
from store.helpers import LABELS, make_run

from umpteen.store import ChangeStore


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


def test_a_damaged_store_is_named_and_repaired(umpteen_command, run, fails):
    assert "nothing is damaged" in umpteen_command("repair", run).stderr
    assert json.loads(umpteen_command("repair", run, "--json").stdout) == {"damaged": False}
    for label in ("L1", "L2"):
        umpteen_command("labels", "retire", run, label)
    file = run / "changes.sqlite"
    content = file.read_bytes()
    file.write_bytes(content[:-4096])
    sentence = fails(umpteen_command("labels", "retire", run, "L3"))
    assert f"umpteen repair {run}" in sentence
    assert f"umpteen repair {run}" in fails(umpteen_command("examples", "list", run))
    done = umpteen_command("repair", run, "--json")
    report = json.loads(done.stdout)
    assert report["damaged"]
    assert report["damage"] == "unreadable"
    assert report["aside"] == f"{file}.damaged-1"
    assert "nothing is damaged" in umpteen_command("repair", run).stderr
    assert umpteen_command("labels", "retire", run, "L3").exit_code == 0


def test_what_a_repair_lost_is_said(umpteen_command, run):
    umpteen_command("labels", "retire", run, "L1")
    (run / "changes.sqlite").unlink()
    done = umpteen_command("repair", run)
    assert "kept 0 added labels, 0 retired labels and 0 examples" in done.stderr
    assert f"lost 1 change; compare with: umpteen labels list {run} --changed" in done.stderr


def test_a_backup_is_restored(umpteen_command, run, tmp_path, fails):
    assert umpteen_command("backup", run, tmp_path / "copy").exit_code == 0
    assert umpteen_command("labels", "add", run, "new", "later").exit_code == 0
    done = umpteen_command("restore", tmp_path / "copy", run)
    assert done.exit_code == 0, done.stderr
    assert f"the run before: {run}.before-restore-1" in done.stderr
    assert not json.loads(umpteen_command("labels", "list", run, "--changed", "--json").stdout)[
        "labels"
    ]
    again = json.loads(umpteen_command("restore", tmp_path / "copy", run, "--json").stdout)
    assert again["previous"] == f"{run}.before-restore-2"
    assert "is not a run folder" in fails(umpteen_command("restore", tmp_path / "none", run))


def test_a_run_is_backed_up(umpteen_command, run, tmp_path, fails):
    umpteen_command("labels", "retire", run, "L1")
    done = umpteen_command("backup", run, tmp_path / "out", "--json")
    assert json.loads(done.stdout) == {"out": str(tmp_path / "out"), "revision": 1}
    assert ChangeStore.open(tmp_path / "out", LABELS).state().retired_ids == ["L1"]
    assert "revision 1" in umpteen_command("backup", run, tmp_path / "more").stderr
    assert "exists already" in fails(umpteen_command("backup", run, tmp_path / "out"))
    assert "is not a run folder" in fails(umpteen_command("backup", tmp_path, tmp_path / "x"))
