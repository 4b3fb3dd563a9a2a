"""``umpteen predict``: every kind of line in, one JSON line out."""

import json

import numpy as np
import pytest
from small_runs import SETTINGS

import umpteen

LINES = ["about red apple quite", "", "  ", "ünïcödé 日本 🎉", '{"text": "old river", "id": 7}',
         "{not json", "tab\there", "para\u2028graph"]  # fmt: skip
TEXTS = [*LINES[:4], "old river", *LINES[5:]]


def answers(result) -> list[dict]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.split("\n") if line]


def test_a_line_in_is_a_line_out(umpteen_command, trained, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    found = answers(umpteen_command("predict", trained, file, "-k", "3"))
    assert [answer["text"] for answer in found] == TEXTS
    model = umpteen.Predictor.load(trained)
    top = model.predict(TEXTS, 3)
    for place, answer in enumerate(found):
        assert set(answer) == {"text", "labels"}
        assert [set(label) for label in answer["labels"]] == [{"id", "text", "score"}] * 3
        assert [label["id"] for label in answer["labels"]] == top.ids[place]
        assert [label["text"] for label in answer["labels"]] == top.texts[place]
        scores = [label["score"] for label in answer["labels"]]
        np.testing.assert_allclose(scores, top.scores[place], atol=1e-6)


def test_a_row_of_a_data_set_is_read_as_training_read_it(umpteen_command, trained):
    rows = [
        {"title": "red apple", "content": "old river", "labels": ["L00"]},
        {"title": "red apple", "content": ""},
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    found = answers(umpteen_command("predict", trained, stdin=lines))
    assert [a["text"] for a in found] == ["red apple old river", "red apple"]
    assert [a["input_labels"] for a in found] == [["L00"], None]


def test_a_run_that_was_trained_on_titles_reads_titles(umpteen_command, tiny_data_folder, tmp_path):
    words = ("--device", "cpu", "--text", "title", "--set=train.epochs=1")
    flags = [f"--set={each}" for each in SETTINGS]
    made = umpteen_command("train", tiny_data_folder, "--out", tmp_path / "run", *flags, *words)
    assert made.exit_code == 0, made.stderr
    row = '{"title": "red apple", "content": "old river"}'
    (found,) = answers(umpteen_command("predict", tmp_path / "run", stdin=row))
    assert found["text"] == "red apple"


@pytest.mark.parametrize("dash", [[], ["-"]])
def test_standard_input_is_read(dash, umpteen_command, trained):
    found = answers(umpteen_command("predict", trained, *dash, stdin="red apple\nold river"))
    assert [answer["text"] for answer in found] == ["red apple", "old river"]
    assert [len(answer["labels"]) for answer in found] == [10, 10]


def test_windows_line_ends_are_no_part_of_a_text(umpteen_command, trained, tmp_path):
    (tmp_path / "texts.txt").write_bytes(b"red apple\r\nold river\r\n")
    found = answers(umpteen_command("predict", trained, tmp_path / "texts.txt"))
    assert [answer["text"] for answer in found] == ["red apple", "old river"]


def test_no_line_gives_no_line(umpteen_command, trained):
    assert answers(umpteen_command("predict", trained, stdin="")) == []


def test_more_labels_than_there_are_gives_them_all(umpteen_command, trained):
    (answer,) = answers(umpteen_command("predict", trained, "-k", "1000", stdin="red apple\n"))
    assert len({label["id"] for label in answer["labels"]}) == 40
    assert len(answer["labels"]) == 40


def test_a_threshold_on_scores_that_are_no_probabilities_is_refused(
    umpteen_command, trained, fails
):
    said = fails(umpteen_command("predict", trained, "--threshold", "0.5", stdin="red apple\n"))
    assert "a threshold needs the head 'ensemble'" in said


@pytest.mark.parametrize("head", ["dual", "classifier", "combined"])
def test_a_head_can_be_chosen(head, umpteen_command, trained):
    (answer,) = answers(umpteen_command("predict", trained, "--head", head, stdin="red apple\n"))
    top = umpteen.Predictor.load(trained).predict("red apple", 10, head=head)
    assert [label["id"] for label in answer["labels"]] == top.ids[0]


def test_many_lines_are_answered_in_order(umpteen_command, trained, monkeypatch):
    monkeypatch.setattr("umpteen.cli.predict.TEXTS_AT_ONCE", 7)
    texts = [f"red apple {number}" for number in range(30)]
    found = answers(umpteen_command("predict", trained, "-k", "1", stdin="\n".join(texts)))
    assert [answer["text"] for answer in found] == texts


def test_a_json_line_without_text_names_file_and_line(umpteen_command, fails, trained, tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text('{"text": "fine"}\n{"name": "no text"}\n')
    said = fails(umpteen_command("predict", trained, file))
    assert f"{file}, line 2" in said
    assert "'text' is missing" in said


def test_bytes_that_are_no_utf8_name_the_file(umpteen_command, fails, trained, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes(b"red apple\n\xff\xfe\n")
    assert "not UTF-8" in fails(umpteen_command("predict", trained, file))


def test_half_a_surrogate_pair_is_a_sentence(umpteen_command, fails, trained):
    said = fails(umpteen_command("predict", trained, stdin='{"text": "\\ud800"}\n'))
    assert "surrogate" in said


def test_errors_are_sentences(umpteen_command, fails, tmp_path, run):
    fails(umpteen_command("predict", tmp_path / "nowhere", stdin="x\n"))
    (run / "labels.jsonl").unlink()
    assert "labels.jsonl" in fails(umpteen_command("predict", run, stdin="x\n"))


@pytest.mark.parametrize(
    "flags",
    [
        ["-k", "0"],
        ["-k", "-1"],
        ["--head", "both"],
        ["--threshold", "low"],
        ["--threshold", "nan"],
        ["no-such-file.txt"],
    ],
)
def test_wrong_usage_exits_with_2(flags, umpteen_command, fails, trained):
    said = fails(umpteen_command("predict", trained, *flags, stdin="x\n"), code=2)
    assert "Error: " in said
