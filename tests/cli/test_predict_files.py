"""``umpteen predict`` with files: every format in and out, columns kept, continued after a kill."""

import csv
import json
import time

import forks
import pytest
from forks import fork
from hard_disks import no_room

import umpteen
from umpteen.data.record_output import RecordFile, RecordLines

ROWS = [
    {"id": f"k{n}", "text": f'red apple {n}, "old" river', "price": n + 0.5, "shelf": f"s{n}"}
    for n in range(9)
]


def write_rows(folder, name):
    """The same rows in another format; the file."""
    path = folder / name
    kind = path.suffix
    if kind in (".csv", ".tsv"):
        with path.open("w", newline="") as out:
            writer = csv.DictWriter(out, list(ROWS[0]), delimiter="," if kind == ".csv" else "\t")
            writer.writeheader()
            writer.writerows(ROWS)
    elif kind == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(ROWS), path)
    elif kind == ".json":
        path.write_text(json.dumps(ROWS))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture(scope="module")
def expected(trained):
    model = umpteen.Predictor.load(trained, device="cpu")
    return model.predict([row["text"] for row in ROWS], 3).ids


def check(records, expected):
    assert [record["id"] for record in records] == [row["id"] for row in ROWS]
    assert [record["text"] for record in records] == [row["text"] for row in ROWS]
    assert [[label["id"] for label in record["labels"]] for record in records] == expected
    assert [float(record["price"]) for record in records] == [row["price"] for row in ROWS]
    assert [record["shelf"] for record in records] == [row["shelf"] for row in ROWS]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.json", "a.parquet"])
def test_every_format_is_read_and_columns_are_kept(
    name, umpteen_command, trained, expected, tmp_path
):
    file = write_rows(tmp_path, name)
    made = umpteen_command("predict", trained, file, "-k", 3)
    assert made.exit_code == 0, made.stderr
    check([json.loads(line) for line in made.stdout.splitlines()], expected)
    if name != "a.parquet":
        piped = umpteen_command("predict", trained, "-", "-k", 3, stdin=file.read_text())
        assert piped.stdout == made.stdout


def test_csv_is_written_with_a_header(umpteen_command, trained, expected, tmp_path):
    file, out = write_rows(tmp_path, "a.parquet"), tmp_path / "out.csv"
    made = umpteen_command("predict", trained, file, "-k", 3, "--out", out)
    assert made.exit_code == 0, made.stderr
    assert made.stdout == ""
    assert f"Wrote 9 rows to {out}" in made.stderr
    with out.open(newline="") as handle:
        records = list(csv.DictReader(handle))
    assert list(records[0]) == ["id", "text", "labels", "scores", "note", "price", "shelf"]
    for record in records:
        record["labels"] = [{"id": each} for each in record["labels"].split(";")]
        assert len(record["scores"].split(";")) == 3
    check(records, expected)
    streamed = umpteen_command("predict", trained, file, "-k", 3, "--to", "csv")
    assert streamed.stdout == out.read_text()


def test_parquet_is_written_with_types(umpteen_command, trained, expected, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    file, out = write_rows(tmp_path, "a.jsonl"), tmp_path / "out.parquet"
    made = umpteen_command("predict", trained, file, "-k", 3, "--out", out)
    assert made.exit_code == 0, made.stderr
    table = parquet.read_table(out)
    assert str(table.schema.field("price").type) == "double"
    check(table.to_pylist(), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out.parquet"]
    # What was written is read again.
    again = umpteen_command("predict", trained, out, "-k", 3)
    assert again.exit_code == 0, again.stderr
    records = [json.loads(line) for line in again.stdout.splitlines()]
    assert [record["input_labels"][0]["id"] for record in records] == [ids[0] for ids in expected]


def test_a_header_is_never_answered_as_a_text(umpteen_command, trained, tmp_path):
    for name, text in (
        ("a.csv", "text\nred apple\n"),
        ("b.csv", "id;text\n1;red apple\n"),
        ("c.csv", "name,description\nfruit,red apple\n"),
    ):
        (tmp_path / name).write_text(text)
        made = umpteen_command("predict", trained, tmp_path / name)
        assert made.exit_code == 0, made.stderr
        records = [json.loads(line) for line in made.stdout.splitlines()]
        assert len(records) == 1
        assert "red apple" in records[0]["text"]


def test_columns_of_training_are_used_again(umpteen_command, tmp_path):
    from small_runs import SETTINGS

    lines = ["headline,body,tags", *(f"x{n},red apple {n},a;b" for n in range(40))]
    (tmp_path / "train.csv").write_text("\n".join(lines) + "\n")
    flags = [f"--set={each}" for each in (*SETTINGS, "train.epochs=1")]
    run = tmp_path / "run"
    named = ("--text-column", "body", "--label-column", "tags", "--id-column", "headline")
    made = umpteen_command("train", tmp_path / "train.csv", "--out", run, *named, *flags)
    assert made.exit_code == 0, made.stderr
    (tmp_path / "new.csv").write_text("text,body,headline\nwrong,red apple,first\n")
    made = umpteen_command("predict", run, tmp_path / "new.csv")
    record = json.loads(made.stdout)
    assert (record["id"], record["text"], record["input_text"]) == ("first", "red apple", "wrong")
    given = umpteen_command("predict", run, tmp_path / "new.csv", "--text-column", "text")
    assert json.loads(given.stdout)["text"] == "wrong"
    (tmp_path / "other.csv").write_text("id,text\n7,red apple\n")
    other = umpteen_command("predict", run, tmp_path / "other.csv")
    assert json.loads(other.stdout)["text"] == "red apple"


# -- files that are continued ------------------------------------------------------------------


def stop_after(monkeypatch, batches):
    """Make the file break after some batches, as a full disk would."""
    append = RecordFile.append

    def limited(self, records):
        append(self, records)
        if self.rows >= 2 * batches:
            raise KeyboardInterrupt

    monkeypatch.setattr(RecordFile, "append", limited)


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet"])
def test_a_file_is_continued_to_the_same_bytes(
    name, umpteen_command, trained, monkeypatch, tmp_path
):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr("umpteen.cli.predict.TEXTS_AT_ONCE", 2)
    file, whole, out = write_rows(tmp_path, "a.csv"), tmp_path / f"whole-{name}", tmp_path / name
    assert umpteen_command("predict", trained, file, "--out", whole).exit_code == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        umpteen_command("predict", trained, file, "--out", out)
    assert not out.exists()
    part = tmp_path / f"{name}.part"
    with part.open("ab") as handle:
        handle.write(b'{"half a li')  # what a kill leaves beyond the last batch
    made = umpteen_command("predict", trained, file, "--out", out, "--resume")
    assert made.exit_code == 0, made.stderr
    assert "Continuing after 4 rows" in made.stderr
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["a.csv", whole.name, out.name]
    )
    done = umpteen_command("predict", trained, file, "--out", out, "--resume")
    assert "no part of it is left to continue" in done.stderr


def test_another_command_or_file_is_not_continued(
    umpteen_command, fails, trained, monkeypatch, tmp_path
):
    monkeypatch.setattr("umpteen.cli.predict.TEXTS_AT_ONCE", 2)
    file, out = write_rows(tmp_path, "a.csv"), tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        umpteen_command("predict", trained, file, "--out", out)
    command = ("predict", trained, file, "--out", out, "--resume")
    assert "another k (10, now 3)" in fails(umpteen_command(*command, "-k", 3))
    file.write_text(file.read_text() + "more,red apple,1,s\n")
    assert "another size of the file" in fails(umpteen_command(*command))
    fresh = umpteen_command("predict", trained, file, "--out", out)
    assert fresh.exit_code == 0, fresh.stderr
    assert len(out.read_text().splitlines()) == 10


def test_a_place_that_cannot_be_written_is_named_before_anything_is_read(
    umpteen_command, fails, trained, tmp_path
):
    file = write_rows(tmp_path, "a.jsonl")
    (tmp_path / "folder").mkdir()
    before = file.read_bytes()
    for out, says in (
        (tmp_path / "folder", "is a folder; name a file"),
        ("", "is a folder; name a file"),
        (tmp_path / "nowhere" / "out.csv", "there is no folder"),
        (file, "is the file of the texts; name another file"),
    ):
        assert says in fails(umpteen_command("predict", trained, file, "--out", out))
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "folder"]


@pytest.mark.parametrize("damage", [{"key": None}, {"rows": -1}, {"bytes": -9}, {"kinds": "x"}])
def test_a_damaged_count_of_rows_is_not_continued(
    damage, umpteen_command, fails, trained, monkeypatch, tmp_path
):
    monkeypatch.setattr("umpteen.cli.predict.TEXTS_AT_ONCE", 2)
    file, out = write_rows(tmp_path, "a.csv"), tmp_path / "out.jsonl"
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        umpteen_command("predict", trained, file, "--out", out)
    state = tmp_path / "out.jsonl.part.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), **damage}))
    said = fails(umpteen_command("predict", trained, file, "--out", out, "--resume"))
    assert "is damaged; leave --resume out" in said


def test_a_full_disk_is_a_sentence_and_the_file_is_continued(
    umpteen_command, fails, trained, monkeypatch, tmp_path
):
    monkeypatch.setattr("umpteen.cli.predict.TEXTS_AT_ONCE", 2)
    file, out = write_rows(tmp_path, "a.csv"), tmp_path / "out.jsonl"
    with no_room(2000):
        said = fails(umpteen_command("predict", trained, file, "--out", out))
    assert "could not be written" in said
    assert "--resume" in said
    assert not out.exists()
    made = umpteen_command("predict", trained, file, "--out", out, "--resume")
    assert made.exit_code == 0, made.stderr
    assert "Continuing after" in made.stderr
    assert len(out.read_text().splitlines()) == len(ROWS)


def test_more_labels_than_there_are_can_be_asked_for(umpteen_command, trained):
    made = umpteen_command("predict", trained, "-k", 10**26, stdin="red apple\n")
    assert made.exit_code == 0, made.stderr
    assert len(json.loads(made.stdout)["labels"]) == len(umpteen.Predictor.load(trained).labels)


def test_two_processes_do_not_write_one_file(umpteen_command, fails, trained, tmp_path):
    file, out = write_rows(tmp_path, "a.csv"), tmp_path / "out.jsonl"
    first = RecordFile(out, "jsonl", RecordLines("jsonl", []), {"k": 1}, resume=False)
    first.append([{"text": "red apple"}])
    said = fails(umpteen_command("predict", trained, file, "--out", out))
    assert "another process writes" in said
    first.close()
    assert RecordFile(out, "jsonl", RecordLines("jsonl", []), {"k": 1}, resume=True).rows == 1


@pytest.mark.processes
def test_a_process_that_is_killed_loses_and_doubles_nothing(umpteen_command, trained, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"red apple {n}\n" for n in range(6000)))
    out, part = tmp_path / "out.jsonl", tmp_path / "out.jsonl.part"
    words = ["predict", str(trained), str(texts), "-k", "1", "--out", str(out), "--device", "cpu"]
    process = fork(forks.__file__, "command", *words)
    while process.poll() is None and not (part.is_file() and part.stat().st_size > 10_000):
        time.sleep(0.01)
    process.kill()
    process.wait()
    again = umpteen_command(*words, "--resume")
    assert again.exit_code == 0, again.stderr
    found = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert found == texts.read_text().splitlines()


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message", "code"),
    [
        (("--to", "parquet"), "name a file with --out", 1),
        (("--resume",), "--resume needs --out", 2),
        (("--explain", "--to", "csv"), "--explain is written as jsonl", 2),
        (("--out", "no/such/folder/out.csv"), "is no folder", 1),
        (("--text-column", "nothing"), "nothing", 1),
    ],
)
def test_what_cannot_be_written_is_a_sentence(
    flags, message, code, umpteen_command, fails, trained, tmp_path
):
    file = write_rows(tmp_path, "a.csv")
    assert message in fails(umpteen_command("predict", trained, file, *flags), code=code)


def test_a_damaged_parquet_file_is_a_sentence(umpteen_command, fails, trained, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and then nothing of the kind")
    said = fails(umpteen_command("predict", trained, tmp_path / "a.parquet"))
    assert "a.parquet" in said


def test_a_folder_is_a_sentence(umpteen_command, fails, trained, tiny_data_folder):
    assert "name a file in it" in fails(umpteen_command("predict", trained, tiny_data_folder))


def test_label_ids_with_every_separator_are_written_as_a_list():
    record = {"text": "a", "labels": [{"id": "x;y", "score": 0.5}, {"id": "z|\t", "score": 0.25}]}
    lines = RecordLines("csv", ["text", "labels", "scores"], None)
    (cells,) = csv.reader([lines.lines([record]).rstrip("\n")])
    assert json.loads(cells[1]) == ["x;y", "z|\t"]
    assert json.loads(cells[2]) == [0.5, 0.25]


def test_an_ending_that_is_no_format_is_refused_and_a_replaced_file_is_named(
    umpteen_command, fails, trained, tmp_path
):
    said = fails(
        umpteen_command("predict", trained, "--out", tmp_path / "x.xlsx", stdin="red apple\n")
    )
    assert "ends in .csv, .jsonl or .parquet" in said
    assert list(tmp_path.iterdir()) == []
    out = tmp_path / "p.csv"
    first, second = (
        umpteen_command("predict", trained, "--out", out, stdin="red apple\n") for _ in range(2)
    )
    assert first.stderr.endswith(f"Wrote 1 row to {out}\n")
    assert second.stderr.endswith(f"Wrote 1 row to {out}, which replaced the file that was there\n")
