"""``umpteen labels``: change labels, list them, and name what is wrong."""

import json

import pytest
from store.helpers import LABELS, make_run

from umpteen.data.labels import LabelSet
from umpteen.store import ChangeStore, NewLabel


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


def state_of(run):
    return ChangeStore.open(run, LABELS).state()


def test_labels_are_added_retired_and_restored(umpteen_command, run):
    done = umpteen_command("labels", "add", run, "N1", "some lantern pocket")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "added 1 label" in done.stderr
    assert list(state_of(run).added.texts) == ["some lantern pocket"]
    done = umpteen_command("labels", "retire", run, "N1", "L3", "--json")
    assert json.loads(done.stdout) == {"retired": 2, "revision": 2}
    assert state_of(run).retired_ids == ["L3", "N1"]
    done = umpteen_command("labels", "restore", run, "N1", "--json")
    assert json.loads(done.stdout) == {"restored": 1, "revision": 3}
    again = umpteen_command("labels", "restore", run, "N1")
    assert again.stderr == "already in use: N1\n"
    new = {"N1": "some lantern pocket", "N2": "another"}
    file = "\n".join(json.dumps({"id": name, "text": text}) for name, text in new.items())
    done = umpteen_command("labels", "add", run, "--file", "-", stdin=file)
    assert done.stderr == "added 1 label; 1 already there\n"
    done = umpteen_command("labels", "add", run, "--file", "-", stdin=file)
    assert done.stderr == "already there: N1, N2\n"
    assert state_of(run).retired_ids == ["L3"]


def test_a_file_is_added_whole_or_not_at_all(umpteen_command, run, tmp_path):
    file = tmp_path / "labels.jsonl"
    lines = [{"id": "A", "text": "one"}, {"id": "B", "text": "two", "content": "more"}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    done = umpteen_command("labels", "add", run, "--file", file, "--json")
    assert json.loads(done.stdout)["added"] == 2
    lines = [{"id": "C", "text": "three"}, {"id": "L1", "text": "taken"}]
    result = umpteen_command(
        "labels", "add", run, "--file", "-", stdin="\n".join(map(json.dumps, lines))
    )
    assert result.exit_code == 1
    assert "umpteen: the id 'L1' belongs to the label" in result.stderr
    listed = json.loads(umpteen_command("labels", "list", run, "--changed", "--json").stdout)
    assert [label["id"] for label in listed["labels"]] == ["A", "B"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[1]", "line 2: expected"),
        ("{", "line 2: expected"),
        ('{"id": "x"}', "line 2: expected"),
        ('{"id": "x", "text": "t", "colour": 1}', "line 2: expected"),
        ('{"id": "x", "text": 3}', "line 2: the text of a label must be a string"),
        ('{"id": "x", "text": " "}', "line 2: a label needs an id and a text"),
        ('{"id": "x", "text": "\\ud800"}', "line 2: the text of a label contains a lone surrogate"),
    ],
)
def test_a_bad_line_is_named(umpteen_command, run, line, sentence):
    result = umpteen_command(
        "labels", "add", run, "--file", "-", stdin=f'{{"id": "a", "text": "b"}}\n{line}\n'
    )
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert not list(run.glob("changes*"))


@pytest.mark.parametrize("words", [[], ["N1"], ["N1", "text", "--file", "-"]])
def test_what_to_add_must_be_clear(umpteen_command, run, words):
    assert umpteen_command("labels", "add", run, *words, stdin="").exit_code == 2


def test_the_list_shows_and_searches(umpteen_command, run):
    umpteen_command("labels", "retire", run, "L0")
    result = umpteen_command("labels", "list", run, "--search", "LABEL l0")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["id", "text", "training", "texts", "state"]
    assert lines[2].split() == ["L0", "label", "0", "18", "retired"]
    result = umpteen_command("labels", "list", run, "--limit", "3", "--offset", "2")
    assert "3 of 10 labels" in result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()[2:]] == ["L2", "L3", "L4"]
    rare = umpteen_command("labels", "list", run, "--order", "rare", "--json")
    assert [label["id"] for label in json.loads(rare.stdout)["labels"]][:2] == ["L9", "L8"]


def test_control_characters_are_escaped(umpteen_command, run):
    text = "red \x1b[31m\u202e\x9b2J\nnext"
    ChangeStore.open(run, LABELS).add_labels([NewLabel("a\rb", text)])
    shown = umpteen_command("labels", "list", run, "--changed").stdout
    assert "a\\rb" in shown
    assert "red \\x1b[31m\\u202e\\x9b2J\\nnext" in shown
    listed = umpteen_command("labels", "list", run, "--changed", "--json").stdout
    assert json.loads(listed)["labels"][0]["text"] == text
    for raw in "\x1b\x9b\u202e\r":
        assert raw not in shown
        assert raw not in listed
    refused = umpteen_command("labels", "retire", run, "\x1b[2J")
    assert refused.exit_code == 1
    assert "\x1b" not in refused.stderr


def test_changes_are_carried_over(umpteen_command, run, tmp_path):
    later = LabelSet(["L1", "M"], ["label 1", "other"])
    other = make_run(tmp_path / "later", later)
    umpteen_command("labels", "add", run, "N1", "new")
    umpteen_command("labels", "retire", run, "L1", "L2")
    done = umpteen_command("labels", "carry", run, other)
    assert "added 1 label, retired 1 label, added 0 examples" in done.stderr
    done = umpteen_command("labels", "carry", run, other, "--json")
    assert json.loads(done.stdout) == {"added": 0, "retired": 0, "examples": 0}


def test_mistakes_are_sentences(umpteen_command, run, tmp_path, fails):
    for words, sentence in [
        (["retire", run, "nobody"], "no label has the id 'nobody'"),
        (["list", tmp_path / "nowhere"], "is not a run folder"),
        (["carry", run, run], "is both runs"),
    ]:
        assert sentence in fails(umpteen_command("labels", *words))


def test_nothing_heavy_is_imported():
    import subprocess
    import sys

    code = "import umpteen.cli.labels, umpteen.cli.examples, umpteen.store, sys; " \
           "sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
