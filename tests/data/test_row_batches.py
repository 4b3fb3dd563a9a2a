"""Files of texts are read in batches, whatever they are, with bounded memory."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc

import pytest

from umpteen.data.formats.row_batches import open_rows
from umpteen.data.formats.table_options import TableOptions
from umpteen.errors import DataError

ROWS = [{"id": f"k{i}", "text": f'text "{i}", more', "n": str(i)} for i in range(7)]


def as_csv(delimiter=","):
    quoted = [
        delimiter.join('"{}"'.format(value.replace('"', '""')) for value in row.values())
        for row in ROWS
    ]
    return "\n".join([delimiter.join(ROWS[0]), *quoted]) + "\n"


FILES = {
    "a.csv": as_csv(),
    "b.csv": as_csv(";"),
    "c.tsv": as_csv("\t"),
    "no_suffix": as_csv(),
    "d.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "e.json": json.dumps(ROWS, indent=1),
}


def check(reader):
    batches = list(reader.batches(3))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert [text for batch in batches for text in batch.texts()] == [row["text"] for row in ROWS]
    assert [each for batch in batches for each in batch.ids] == [row["id"] for row in ROWS]
    assert [n for batch in batches for n in batch.columns["n"]] == [row["n"] for row in ROWS]
    assert reader.others == ["n"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("stdin", [False, True])
def test_labels_of_fasttext_lines_are_not_part_of_the_text(packed, stdin, tmp_path, monkeypatch):
    raw = b"__label__a __label__b red shoes\n__label__c wool coat\nplain line\n"
    raw = gzip.compress(raw) if packed else raw
    (tmp_path / "test.txt").write_bytes(raw)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(raw))))
    reader = open_rows("-" if stdin else tmp_path / "test.txt")
    [batch] = reader.batches()
    assert batch.texts() == ["red shoes", "wool coat", "plain line"]
    assert batch.columns == {"labels": [["a", "b"], ["c"], []]}
    assert reader.format == "fasttext"
    if not stdin:
        [plain] = open_rows(tmp_path / "test.txt", format="lines").batches()
        assert plain.texts()[1] == "__label__c wool coat"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_read_in_batches(name, packed, tmp_path):
    raw = FILES[name].encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if packed else raw)
    check(open_rows(tmp_path / name))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("peekable", [False, True])
@pytest.mark.parametrize("name", FILES)
def test_standard_input_is_recognised(name, packed, peekable, monkeypatch):
    raw = FILES[name].encode()
    stream = io.BytesIO(gzip.compress(raw) if packed else raw)
    given = io.TextIOWrapper(io.BufferedReader(stream) if peekable else stream)
    monkeypatch.setattr("sys.stdin", given)
    check(open_rows("-"))


def test_parquet_is_read_in_batches_and_not_from_standard_input(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(ROWS), tmp_path / "a")
    reader = open_rows(tmp_path / "a")
    assert reader.format == "parquet"
    check(reader)
    raw = (tmp_path / "a").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    with pytest.raises(DataError, match="parquet cannot be read from standard input"):
        open_rows("-")


def test_lines_are_texts(tmp_path):
    (tmp_path / "a.txt").write_text("first, with a comma\n\n[third]\n")
    reader = open_rows(tmp_path / "a.txt")
    [batch] = reader.batches()
    assert (reader.format, reader.note) == ("lines", "")
    assert batch.titles == ["first, with a comma", "", "[third]"]
    assert (batch.numbers, batch.ids, batch.columns) == ([1, 2, 3], None, {})


def test_a_header_is_never_a_text(tmp_path):
    for name in ("a.csv", "a.txt"):
        (tmp_path / name).write_text("title,body,label\nA,B,x\n")
        reader = open_rows(tmp_path / name)
        [batch] = reader.batches()
        assert (batch.titles, batch.contents) == (["A"], ["B"])
        assert batch.columns == {"label": ["x"]}
        assert batch.texts("title") == ["A"]
        assert "title from 'title', content from 'body'" in reader.note


def test_columns_can_be_named_and_rows_left_out(tmp_path):
    (tmp_path / "a.csv").write_text("key,blurb,x\n1,A,u\n2,B,v\n3,C,w\n")
    with pytest.raises(DataError, match=r"a.csv: found the columns key, blurb, x; none"):
        open_rows(tmp_path / "a.csv")
    options = TableOptions(["blurb"], id_column="key")
    [batch] = open_rows(tmp_path / "a.csv", options).batches(start=1)
    assert (batch.titles, batch.ids, batch.columns) == (["B", "C"], ["2", "3"], {"x": ["v", "w"]})
    assert batch.numbers == [3, 4]


def test_a_broken_row_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": 3}\n')
    with pytest.raises(DataError, match=r"a.jsonl, line 2: 'text' is a number"):
        list(open_rows(tmp_path / "a.jsonl").batches())
    with pytest.raises(DataError, match="does not exist"):
        open_rows(tmp_path / "nothing.csv")
    with pytest.raises(DataError, match="is a folder"):
        open_rows(tmp_path)
    with pytest.raises(DataError, match="format 'xml' is not one of csv"):
        open_rows(tmp_path / "a.jsonl", format="xml")


def write_many(file, kind, n):
    row = {"text": "word " * 50, "n": 1}
    with file.open("w") as out:
        if kind == "csv":
            out.write("text,n\n")
            out.writelines(f"{row['text']},1\n" for _ in range(n))
        elif kind == "json":
            out.write("[" + ",".join([json.dumps(row)] * n) + "]")
        elif kind == "jsonl":
            out.writelines(json.dumps(row) + "\n" for _ in range(n))
        else:
            out.writelines(row["text"] + "\n" for _ in range(n))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "txt"])
def test_memory_does_not_grow_with_the_file(kind, tmp_path):
    peaks = []
    for n in (6_000, 24_000):
        file = tmp_path / f"{n}.{kind}"
        write_many(file, kind, n)
        tracemalloc.start()
        try:
            assert sum(len(batch) for batch in open_rows(file).batches(256)) == n
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert file.stat().st_size > 6_000_000
    assert peaks[1] < 1.1 * peaks[0]
