"""``umpteen examples``: add labelled texts without a model, and list them."""

import json

import pytest
from store.helpers import LABELS, make_run

from umpteen.store import ChangeStore


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


def test_examples_are_added_and_listed(umpteen_command, run, tmp_path):
    file = tmp_path / "examples.jsonl"
    lines = [{"text": "quite new words", "labels": ["L5", "L2"]}, {"text": "b", "labels": ["L1"]}]
    file.write_text("\n\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = umpteen_command("examples", "add", run, file, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {"added": 2, "total": 2, "revision": 1}
    again = json.dumps({"text": "b", "labels": ["L3"]})
    done = umpteen_command("examples", "add", run, stdin=again)
    assert (done.stdout, done.stderr) == ("", "added 1 example; the run has 2\n")
    listed = json.loads(umpteen_command("examples", "list", run, "--json").stdout)
    assert listed == {
        "examples": [
            {"text": "quite new words", "labels": ["L5", "L2"], "revision": 1},
            {"text": "b", "labels": ["L3"], "revision": 2},
        ],
        "total": 2,
    }
    table = umpteen_command("examples", "list", run, "--limit", "1", "--offset", "1")
    assert table.stdout.splitlines()[2].split() == ["b", "L3", "2"]
    assert "1 of 2 examples" in table.stderr
    assert umpteen_command("examples", "list", run, "--offset", "9").exit_code == 0


def test_one_text_is_added_by_options(umpteen_command, fails, run):
    done = umpteen_command("examples", "add", run, "--text", "b", "--label", "L3", "--label", "L1")
    assert (done.exit_code, done.stderr) == (0, "added 1 example; the run has 1\n")
    listed = json.loads(umpteen_command("examples", "list", run, "--json").stdout)
    assert listed["examples"][0]["labels"] == ["L3", "L1"]
    for part in (["--text", "b"], ["--label", "L3"]):
        done = umpteen_command("examples", "add", run, *part)
        assert done.exit_code == 2
        assert "give --text and at least one --label" in done.stderr
    assert "'L99'" in fails(
        umpteen_command("examples", "add", run, "--text", "b", "--label", "L99")
    )
    assert "blank text" in fails(
        umpteen_command("examples", "add", run, "--text", "", "--label", "L3")
    )


def test_a_table_is_read_like_training_data(umpteen_command, fails, run, tmp_path):
    file = tmp_path / "fix.csv"
    file.write_text("text,labels\nquite new words,L5;L2\nb,L1\n")
    done = umpteen_command("examples", "add", run, file)
    assert done.exit_code == 0, done.stderr
    assert "added 2 examples; the run has 2" in done.stderr
    listed = json.loads(umpteen_command("examples", "list", run, "--json").stdout)["examples"]
    assert [(each["text"], sorted(each["labels"])) for each in listed] == [
        ("quite new words", ["L2", "L5"]),
        ("b", ["L1"]),
    ]
    file.write_text("text,labels\nmore words,nobody\n")
    assert "no label has the id 'nobody'" in fails(umpteen_command("examples", "add", run, file))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not JSON"),
        ('["a"]', "line 2: expected"),
        ('{"text": "a"}', "line 2: expected"),
        ('{"text": "a", "labels": "L1"}', "line 2: expected"),
        ('{"text": "a", "labels": ["nobody"]}', "no label has the id 'nobody'"),
        ('{"text": "a", "labels": []}', "line 2: the example has no list of labels"),
        ('{"text": " ", "labels": ["L1"]}', "line 2: the example has a blank text"),
        (
            '{"text": "a\\ud800", "labels": ["L1"]}',
            "line 2: the text of the example contains a lon",
        ),
        ('{"text": "a", "labels": [["L1"]]}', "line 2: a label id of the example must be a str"),
    ],
)
def test_a_wrong_line_adds_nothing(line, words, umpteen_command, run, tmp_path, fails):
    file = tmp_path / "examples.jsonl"
    file.write_text('{"text": "fine", "labels": ["L5"]}\n' + line + "\n", encoding="utf-8")
    assert words in fails(umpteen_command("examples", "add", run, file))
    assert not list(run.glob("changes*"))


def test_a_file_that_is_not_utf_8_is_named(umpteen_command, run, tmp_path, fails):
    file = tmp_path / "examples.jsonl"
    file.write_bytes(b'{"text": "\xff", "labels": ["L5"]}\n')
    assert "line 1: not UTF-8" in fails(umpteen_command("examples", "add", run, file))


def test_control_characters_are_escaped_and_long_texts_cut(umpteen_command, run):
    ChangeStore.open(run, LABELS).add_examples(["\x1b[2J\n" + "x" * 500], [["L1"]])
    shown = umpteen_command("examples", "list", run).stdout
    assert "\\x1b[2J\\nxxx" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) < 100
