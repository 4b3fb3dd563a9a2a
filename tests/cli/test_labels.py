"""``umpteen labels``: changes that the next prediction obeys, sentences for what cannot be."""

import json

import pytest


def answers(umpteen_command, run, text, *flags):
    result = umpteen_command("predict", run, *flags, stdin=f"{text}\n")
    assert result.exit_code == 0, result.stderr
    return [label["id"] for label in json.loads(result.stdout)["labels"]]


def test_labels_are_added_retired_and_restored(umpteen_command, run):
    flags = ("--head", "dual", "-k", "1")
    done = umpteen_command("labels", "add", run, "N1", "some lantern pocket")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "added 1 label" in done.stderr
    assert answers(umpteen_command, run, "some lantern pocket", *flags) == ["N1"]
    done = umpteen_command("labels", "retire", run, "N1", "L03", "--json")
    assert json.loads(done.stdout) == {"retired": 2, "revision": 2}
    assert answers(umpteen_command, run, "some lantern pocket", *flags) != ["N1"]
    assert "L03" not in answers(umpteen_command, run, "x", "-k", "50")
    done = umpteen_command("labels", "restore", run, "N1", "--json")
    assert json.loads(done.stdout) == {"restored": 1, "revision": 3}
    assert answers(umpteen_command, run, "some lantern pocket", *flags) == ["N1"]


def test_a_file_is_added_whole_or_not_at_all(umpteen_command, run, tmp_path):
    file = tmp_path / "labels.jsonl"
    lines = [{"id": "A", "text": "one"}, {"id": "B", "text": "two", "content": "more"}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    done = umpteen_command("labels", "add", run, "--file", file, "--json")
    assert json.loads(done.stdout)["added"] == 2
    lines = [{"id": "C", "text": "three"}, {"id": "L01", "text": "taken"}]
    result = umpteen_command(
        "labels", "add", run, "--file", "-", stdin="\n".join(map(json.dumps, lines))
    )
    assert result.exit_code == 1
    assert "umpteen: the id 'L01' is taken by the label" in result.stderr
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
    ],
)
def test_a_bad_line_is_named(umpteen_command, run, line, sentence):
    result = umpteen_command(
        "labels", "add", run, "--file", "-", stdin=f'{{"id": "a", "text": "b"}}\n{line}\n'
    )
    assert result.exit_code == 1
    assert sentence in result.stderr
    assert not (run / "labels.journal").exists()


@pytest.mark.parametrize("words", [[], ["N1"], ["N1", "text", "--file", "-"]])
def test_what_to_add_must_be_clear(umpteen_command, run, words):
    assert umpteen_command("labels", "add", run, *words, stdin="").exit_code == 2


def test_the_list_shows_and_searches(umpteen_command, run):
    umpteen_command("labels", "retire", run, "L00")
    result = umpteen_command("labels", "list", run, "--search", "APPLE red")
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["id", "text", "examples", "state"]
    assert lines[2].split()[:3] == ["L00", "red", "apple"]
    assert lines[2].endswith("retired")
    result = umpteen_command("labels", "list", run, "--limit", "3")
    assert "3 of 40 labels" in result.stderr
    assert len(json.loads(umpteen_command("labels", "list", run, "--json").stdout)["labels"]) == 40


def test_mistakes_are_sentences(umpteen_command, run, tmp_path):
    for words, sentence in [
        (["retire", run, "nobody"], "no label has the id 'nobody'"),
        (["list", tmp_path / "nowhere"], "is not a run folder"),
        (["carry", run, run], "are the same run"),
    ]:
        result = umpteen_command("labels", *words)
        assert result.exit_code == 1
        assert sentence in result.stderr


def test_a_damaged_journal_is_repaired(umpteen_command, run):
    assert "nothing is damaged" in umpteen_command("labels", "repair", run).stderr
    for label in ("L01", "L02"):
        umpteen_command("labels", "retire", run, label)
    file = run / "labels.journal"
    file.write_bytes(file.read_bytes().replace(b"L01", b"L09"))
    result = umpteen_command("predict", run, stdin="x\n")
    assert result.exit_code == 1
    assert f"umpteen labels repair {run}" in result.stderr
    done = umpteen_command("labels", "repair", run, "--json")
    assert json.loads(done.stdout) == {"damaged": True, "kept": {"added": 0, "retired": 1}}
    assert "L02" not in answers(umpteen_command, run, "x", "-k", "50")
