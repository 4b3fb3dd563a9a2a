"""Teachers that grade labels, their store, and training data with graded relevance."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from umpteen import judgements
from umpteen.cli import main
from umpteen.data.formats import load_dataset
from umpteen.errors import ConfigError, DataError, RunError
from umpteen.predictor import Predictor
from umpteen.teachers import RunTeacher, Teacher, TeacherError, load_teacher

TEXTS = ["red apple about", "blue river near", "old engine with"]


def overlap(pairs):
    """Score pairs by the share of the label's words that the text has: a real, small scorer."""
    return [
        len(set(text.split()) & set(label.split())) / max(1, len(set(label.split())))
        for text, label in pairs
    ]


class Handler(BaseHTTPRequestHandler):
    """Serves the scorer in the format of OpenAI's chat completions."""

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        prompt = json.loads(self.rfile.read(length))["messages"][0]["content"]
        text, _, labels = prompt.partition("Text: ")[2].partition("\n\nLabels:\n")
        names = [line.partition(". ")[2] for line in labels.splitlines()]
        scores = [round(10 * score) for score in overlap([(text, name) for name in names])]
        if self.path != "/v1/chat/completions":
            self.send_error(404, "no such path")
            return
        answer = "nothing" if "broken" in text else f"Here you are: {json.dumps(scores)}"
        body = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        """Print nothing."""


@pytest.fixture(scope="module")
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_an_endpoint_scores_pairs_text_by_text(endpoint):
    teacher = load_teacher(endpoint)
    pairs = [("red apple", "red apple"), ("red apple", "red river"), ("old engine", "tiny lamp")]
    assert teacher(pairs) == [1.0, 0.5, 0.0]
    assert teacher.tokens(pairs) > 50


def test_errors_of_an_endpoint_are_sentences(endpoint):
    with pytest.raises(TeacherError, match="expected a JSON list of 1 numbers"):
        load_teacher(endpoint)([("broken", "a")])
    with pytest.raises(TeacherError, match="answered 404"):
        load_teacher(f"{endpoint}/other")([("a", "b")])
    with pytest.raises(TeacherError, match="cannot be reached"):
        load_teacher("http://127.0.0.1:1")([("a", "b")])
    with pytest.raises(ConfigError, match="no file"):
        load_teacher("nothing")


def test_scores_are_checked():
    with pytest.raises(TeacherError, match="returned 1 scores for 2 pairs"):
        Teacher("few", lambda pairs: [0.5])([("a", "b"), ("a", "c")])
    with pytest.raises(TeacherError, match="scores are 0 to 1"):
        Teacher("large", lambda pairs: [7])([("a", "b")])
    with pytest.raises(TeacherError, match="returned 'high' for the label 'b'"):
        Teacher("words", lambda pairs: ["high"])([("a", "b")])


def test_a_callable_that_fails_is_a_sentence():
    with pytest.raises(TeacherError, match=r"^math:sqrt failed: TypeError: .*list of pairs"):
        load_teacher("math:sqrt")([("a", "b")])


@pytest.mark.parametrize("command", ["judge", "suggest"])
def test_an_output_that_cannot_be_written_is_refused_first(command, tiny_run, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    for out, message in (
        (tmp_path, "is a folder; name a file"),
        (tmp_path / "no" / "out.jsonl", "there is no folder"),
    ):
        given = [command, str(tiny_run), str(texts), "--out", str(out), "--device", "cpu"]
        if command == "judge":
            given += ["--teacher", str(tiny_run), "--store", str(tmp_path / "store"), "--yes"]
        found = CliRunner().invoke(main, given)
        assert found.exit_code == 1
        assert message in found.output
    assert not (tmp_path / "store").exists()


def test_a_file_of_people(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("text,label,relevance\nred apple,fruit,0.8\n")
    assert load_teacher(str(file))([("red apple", "fruit"), ("x", "y")]) == [0.8, None]
    for value in ("much", "7", "nan"):
        file.write_text(f"text,label,relevance\nred apple,fruit,{value}\n")
        with pytest.raises(DataError, match=r"line 2"):
            load_teacher(str(file))


def test_a_run_scores_pairs_by_its_probabilities(tiny_run, tmp_path):
    model = Predictor.load(tiny_run, device="cpu")
    top = model.predict(TEXTS, k=4)
    pairs = [
        (text, name) for text, names in zip(TEXTS, top.texts, strict=True) for name in names[::-1]
    ]
    teacher = load_teacher(str(tiny_run), device="cpu")
    assert teacher.name == f"run {tiny_run.name}"
    wanted = top.scores[:, ::-1].ravel().tolist()
    assert teacher(pairs) == pytest.approx(wanted, rel=1e-5)
    assert teacher([(TEXTS[0], "no such label")]) == [None]
    few = RunTeacher(model, depth=2)
    best, third = top.texts[0][0], top.texts[0][2]
    assert few([(TEXTS[0], third), (TEXTS[0], best)]) == pytest.approx([0.0, top.scores[0, 0]])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="empty"):
        load_teacher(str(tmp_path / "empty"))


def test_judgements_are_stored_and_not_repeated(tiny_run, tmp_path):
    asked = []

    def score(pairs):
        asked.extend(pairs)
        if len(asked) > 20:
            raise TeacherError("gone")
        return overlap(pairs)

    model = Predictor.load(tiny_run, device="cpu")
    questions = judgements.ask(model, TEXTS, 8, [[], [], []])
    store = judgements.JudgementStore(tmp_path / "j.sqlite", "t")
    found = judgements.estimate(questions, Teacher("t", score), store)
    assert (found.pairs, found.stored) == (8, 16)
    with pytest.raises(TeacherError):
        list(judgements.judge(questions, Teacher("t", score), store))
    store.close()
    again = judgements.JudgementStore(tmp_path / "j.sqlite", "t")
    asked.clear()
    assert list(judgements.judge(questions, Teacher("t", score), again, batch=2)) == [2, 3]
    assert len(asked) == 8  # the sixteen of the estimate are stored
    asked.clear()
    list(judgements.judge(questions, Teacher("t", score), again))
    assert not asked
    other = judgements.JudgementStore(tmp_path / "j.sqlite", "another teacher")
    assert not other.get(questions[0].pairs)


def test_records_are_training_data_with_relevance(tiny_run, tmp_path, endpoint):
    texts, out = tmp_path / "texts.txt", tmp_path / "judged.jsonl"
    texts.write_text("".join(f"{text}\n" for text in TEXTS))
    words = ["judge", str(tiny_run), str(texts), "--teacher", endpoint, "--out", str(out)]
    words += ["--store", str(tmp_path / "s.sqlite"), "--device", "cpu", "-k", "12"]
    refused = CliRunner().invoke(main, words, input="n\n")
    assert refused.exit_code == 1
    assert not out.exists()
    done = CliRunner().invoke(main, [*words, "--yes"])
    assert done.exit_code == 0, done.output
    assert "to judge" in done.stderr
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["source"] for line in lines} == {f"{endpoint} default"}
    data = load_dataset(out)
    values = set(data["train"].targets.data.tolist())
    assert values <= {0.5, 1.0}
    assert 0.5 in values


def test_known_labels_count_fully(tiny_run, tmp_path):
    model = Predictor.load(tiny_run, device="cpu")
    (question,) = judgements.ask(model, TEXTS[:1], 5, [["L00"]])
    assert "L00" not in question.labels
    store = judgements.JudgementStore(tmp_path / "j.sqlite", "t")
    list(judgements.judge([question], Teacher("t", overlap), store))
    (record,) = judgements.records([question], store, min_relevance=0.5)
    assert record["labels"][0] == "L00"
    assert record["relevance"][0] == 1.0


def test_a_damaged_store_is_a_sentence(tmp_path):
    (tmp_path / "j.sqlite").write_bytes(b"no database at all, but longer than a header" * 40)
    with pytest.raises(DataError, match="no store of judgements"):
        judgements.JudgementStore(tmp_path / "j.sqlite", "t")
