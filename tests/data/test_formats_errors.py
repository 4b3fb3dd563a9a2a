"""Every kind of bad input has a sentence of its own that names the file and the place."""

from __future__ import annotations

import gzip
import io
import json
import re

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.formats import load_dataset
from umpteen.errors import ConfigError, DataError, UmpteenError

LF = {
    "lbl.json": '{"uid": "a", "title": "A", "content": ""}\n{"uid": "b", "title": "B"}\n',
    "trn.json": '{"uid": 1, "title": "x", "target_ind": [0]}\n'
    '{"uid": 2, "title": "y", "target_ind": [1, 0], "target_rel": [1.0, 0.5]}\n',
}
XC = {
    "trn_X.txt": "x\ny\n",
    "Y.txt": "A\nB\n",
    "trn_X_Y.txt": "2 2\n0:1.0\n0:1 1:0.5\n",
}
JSONL = {
    "labels.jsonl": '{"id": "a", "text": "A"}\n{"id": 7, "text": "B"}\n',
    "train.jsonl": '{"text": "x", "labels": ["a"]}\n{"text": "y", "labels": [7, "A"]}\n'.replace(
        '[7, "A"]', '["B", "a"]'
    ),
}
CSV = {
    "labels.csv": "id,text\na,A\n7,B\n",
    "train.csv": 'text,labels\nx,a\n"y, z",a;7\n',
}


def _fill(folder, files):
    for name, content in files.items():
        raw = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(raw)
    return folder


def _line(**record):
    return json.dumps({"uid": 2, "title": "y", "target_ind": [1], **record}) + "\n"


@pytest.mark.parametrize("files", [LF, XC, JSONL, CSV])
def test_the_good_originals_are_read(files, tmp_path):
    data = load_dataset(_fill(tmp_path, files))
    assert data["train"].targets.toarray().astype(bool).tolist() == [[True, False], [True, True]]


FIRST = LF["trn.json"].partition("\n")[0] + "\n"
NAN = '{"uid": 2, "title": "y", "target_ind": [1], "target_rel": [NaN]}\n'

LF_CASES = {
    "out of range": (FIRST + _line(target_ind=[2]), "line 2: label 2 is out of range; there are 2"),
    "negative": (FIRST + _line(target_ind=[-1]), "line 2: label -1 is out of range"),
    "beyond 64 bits": (FIRST + _line(target_ind=[10**30]), "line 2: a number is too large"),
    "not numbers": (FIRST + _line(target_ind=["1"]), "line 2: 'target_ind' holds a string"),
    "true": (FIRST + _line(target_ind=[True]), "line 2: 'target_ind' holds true or false"),
    "float": (FIRST + _line(target_ind=[1.0]), "line 2: 'target_ind' holds a number \\(1.0\\)"),
    "not a list": (
        FIRST + _line(target_ind=1),
        "line 2: 'target_ind' is a number; expected a list",
    ),
    "relevance 0": (FIRST + _line(target_rel=[0.0]), r"line 2: relevance 0 is not in \(0, 1\]"),
    "relevance 2": (FIRST + _line(target_rel=[2]), r"line 2: relevance 2 is not in \(0, 1\]"),
    "relevance nan": (FIRST + NAN, "line 2: relevance nan is not in"),
    "relevance text": (FIRST + _line(target_rel=["1"]), "line 2: 'target_rel' must hold numbers"),
    "relevance count": (FIRST + _line(target_rel=[1, 1]), "line 2: 1 labels but 2 relevances"),
    "no title": (FIRST + '{"uid": 2, "target_ind": [1]}\n', "line 2: 'title' is missing; found"),
    "no labels field": (FIRST + '{"uid": 2, "title": ""}\n', "line 2: 'target_ind' is missing"),
    "title null": (FIRST + _line(title=None), "line 2: 'title' is null; expected a string"),
    "content list": (FIRST + _line(content=[]), "line 2: 'content' is a list"),
    "uid list": (FIRST + _line(uid=[]), "line 2: 'uid' must be a string or a whole number"),
    "uid in some": (FIRST + '{"title": "", "target_ind": []}\n', "line 2: some rows have 'uid'"),
    "not JSON": (FIRST + '{"uid": \n', "line 2: the line is not JSON"),
    "not an object": (FIRST + "[1]\n", "line 2: the line holds a list; expected a JSON object"),
    "empty line": (FIRST + "\n" + FIRST, "line 2: the line is empty"),
    "deep": (FIRST + "[" * 100_000 + "\n", "line 2: the line is not JSON"),
    "half a character": (FIRST + _line(title="\ud83d"), "line 2: a .u escape gives half"),
    "not UTF-8": (FIRST.encode() + b'{"title": "caf\xe9"}\n', "line 2: byte 0xe9 at position 15"),
    "no rows": ("", "there are no rows"),
    "no positives": (_line(target_ind=[]), "no row has any label"),
    "broken gzip": (gzip.compress(FIRST.encode())[:-9], "the gzip data is broken or cut off"),
    "gzip junk": (b"\x1f\x8b junk", "the gzip data is broken or cut off"),
}


@pytest.mark.parametrize("case", LF_CASES)
def test_lf_json_sentences(case, tmp_path):
    content, says = LF_CASES[case]
    _fill(tmp_path, {**LF, "trn.json": content})
    with pytest.raises(DataError, match=f"trn.json.*{says}"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            LF["lbl.json"] + '{"uid": "a", "title": ""}\n',
            "line 3: label id 'a' is there already at",
        ),
        ('{"uid": 1, "title": ""}\n{"uid": "1", "title": ""}\n', "line 2: label id '1'"),
        ("", "the file has no labels"),
        ('{"uid": "", "title": "A"}\n', "line 1: the label's 'uid' must be"),
        ('{"uid": 1.5, "title": "A"}\n', "line 1: the label's 'uid' must be"),
    ],
)
def test_lf_json_label_sentences(content, says, tmp_path):
    _fill(tmp_path, {**LF, "lbl.json": content})
    with pytest.raises(DataError, match=f"lbl.json.*{says}"):
        load_dataset(tmp_path)


XC_CASES = {
    "out of range": ("trn_X_Y.txt", "2 2\n0:1\n2:1\n", "line 3: label 2 is out of range"),
    "relevance 0": ("trn_X_Y.txt", "2 2\n0:1\n1:0\n", "line 3: relevance 0 is not in"),
    "relevance inf": ("trn_X_Y.txt", "2 2\n0:1\n1:1e99\n", "line 3: relevance inf is not in"),
    "not a pair": ("trn_X_Y.txt", "2 2\n0:1\n1\n", "line 3: '1' is not a pair label:relevance"),
    "negative": ("trn_X_Y.txt", "2 2\n0:1\n-1:1\n", "line 3: '-1:1' is not a pair"),
    "no number": ("trn_X_Y.txt", "2 2\n0:1\n1:x\n", "line 3: '1:x' is not a pair"),
    "cut off": ("trn_X_Y.txt", "2 2\n0:1\n", "first line declares 2 rows, but 1 follow"),
    "other labels": ("trn_X_Y.txt", "2 3\n0:1\n1:1\n", "line 1: the first line declares 3 labels"),
    "more texts": ("trn_X.txt", "x\ny\nz\n", "2 rows of labels, but trn_X.txt has 3 texts"),
    "no positives": ("trn_X_Y.txt", "2 2\n\n\n", "no row has any label"),
    "no texts": ("trn_X.txt", "", "there are no rows"),
    "not UTF-8": ("Y.txt", b"A\n\xff\n", "line 2: byte 0xff at position 1"),
    "broken gzip": ("trn_X.txt", gzip.compress(b"x\ny\n")[:-3], "the gzip data is broken"),
}


@pytest.mark.parametrize("case", XC_CASES)
def test_xc_text_sentences(case, tmp_path):
    name, content, says = XC_CASES[case]
    _fill(tmp_path, {**XC, name: content})
    with pytest.raises(DataError, match=says):
        load_dataset(tmp_path)


def test_xc_text_needs_no_first_line_and_takes_windows_line_ends(tmp_path):
    content = {"trn_X.txt": b"\xef\xbb\xbfx\r\ny", "trn_X_Y.txt": b"1:1\r\n0:1 1:1"}
    data = load_dataset(_fill(tmp_path, {**XC, **content}))
    assert data["train"].titles == ["x", "y"]
    assert data["train"].targets.toarray().tolist() == [[0, 1], [1, 1]]


def _npz(folder, matrix):
    (folder / "raw").mkdir()
    _fill(folder / "raw", {"trn_X.txt": "x\ny\n", "Y.txt": "A\nB\n"})
    if isinstance(matrix, bytes):
        (folder / "Y.trn.npz").write_bytes(matrix)
    else:
        sp.save_npz(folder / "Y.trn.npz", matrix)
    return folder


def _repeated():
    return sp.csr_matrix(([1.0, 1.0], [1, 1], [0, 0, 2]), shape=(2, 2))


def _pickled():
    buffer = io.BytesIO()
    np.savez(buffer, data=np.array([object()]), format=np.array(b"csr"))
    return buffer.getvalue()


def _outside():
    buffer = io.BytesIO()
    np.savez(
        buffer,
        data=np.ones(1),
        indices=np.array([9_000_000]),
        indptr=np.array([0, 1, 1]),
        shape=np.array([2, 2]),
        format=np.array(b"csr"),
    )
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sp.csr_matrix(np.ones((3, 2))), "3 rows of labels, but trn_X.txt has 2 texts"),
        (lambda: sp.csr_matrix(np.eye(2, 3)), "3 columns, but raw/Y.txt has 2 labels"),
        (lambda: sp.csr_matrix((2, 2)), "no row has any label"),
        (lambda: sp.csr_matrix([[1.0, 0], [0, 3.0]]), "row 2: relevance 3 is not in"),
        (lambda: sp.csr_matrix([[1.0, 0], [0, -1.0]]), "row 2: relevance -1 is not in"),
        (lambda: sp.csr_matrix([[1.0, 0], [0, np.nan]]), "row 2: relevance nan is not in"),
        (lambda: sp.csr_matrix(np.eye(2) * 1j), "values are complex128"),
        (lambda: sp.dia_matrix(np.eye(2)), "it is in dia form"),
        (lambda: _repeated().tocoo(), "a pair of query and label twice"),
        (_repeated, "row 2: a label is there twice"),
        (_pickled, "without pickle"),
        (_outside, "not a sparse matrix that SciPy can read"),
        (lambda: b"junk", "not a sparse matrix that SciPy can read"),
    ],
)
def test_npz_sentences(make, says, tmp_path):
    with pytest.raises(DataError, match=f"Y.trn.npz.*{says}"):
        load_dataset(_npz(tmp_path, make()))


@pytest.mark.parametrize("kind", [sp.csc_matrix, sp.coo_matrix, sp.csr_array])
def test_npz_takes_other_sparse_forms_and_stored_zeros(kind, tmp_path):
    matrix = kind(np.array([[1, 0], [1, 1]], np.int8))
    data = load_dataset(_npz(tmp_path, matrix))
    assert data["train"].targets.toarray().tolist() == [[1, 0], [1, 1]]


JSONL_CASES = {
    "unknown label": (
        '{"text": "x", "labels": ["zz"]}',
        "line 1, column 'labels': label 'zz' is neither an id nor",
    ),
    "label float": ('{"text": "x", "labels": [1.5]}', "line 1, column 'labels': a label is a numb"),
    "label object": ('{"text": "x", "labels": [{}]}', "line 1, column 'labels': a label is an obj"),
    "no text": (
        '{"txt": "x", "words": "y", "labels": ["a"]}',
        "found the columns txt, words, labels; none has a name that is known for texts",
    ),
    "text in some": (
        '{"text": "x", "labels": ["a"]}\n{"txt": "x", "labels": ["a"]}',
        "line 2: 'text' is missing; found 'txt', 'labels'",
    ),
    "text number": ('{"text": 3, "labels": ["a"]}', "line 1: 'text' is a number"),
    "id in some": (
        '{"id": 1, "text": "x", "labels": ["a"]}\n{"text": "x", "labels": ["a"]}',
        "line 2: some rows have 'id' and some do not",
    ),
    "no positives": ('{"text": "x", "labels": []}', "no row has any label"),
    "cut array": ('[{"text": "x", "labels": ["a"]},', "row 2: is not JSON"),
    "array of texts": ('["x"]', "row 1: holds a string; expected a JSON object"),
    "array without commas": ('[{"text": "x"} {"text": "y"}]', "row 1: expected ',' after the obj"),
    "array not UTF-8": (b'[{"text": "caf\xe9"}]', "row 1: is not UTF-8"),
}


@pytest.mark.parametrize("case", JSONL_CASES)
def test_jsonl_sentences(case, tmp_path):
    content, says = JSONL_CASES[case]
    _fill(tmp_path, {**JSONL, "train.jsonl": content})
    with pytest.raises(DataError, match=f"train.jsonl.*{says}"):
        load_dataset(tmp_path)


def test_a_text_shared_by_two_labels_names_neither(tmp_path):
    labels = '{"id": "a", "text": "A"}\n{"id": 7, "text": "A"}\n'
    _fill(tmp_path, {"labels.jsonl": labels, "train.jsonl": '{"text": "x", "labels": ["A"]}'})
    with pytest.raises(DataError, match="line 1, .*: label 'A' is the text of several"):
        load_dataset(tmp_path)


def test_labels_without_a_file_are_in_order_of_first_appearance(tmp_path):
    _fill(
        tmp_path,
        {
            "test.jsonl": '{"text": "t", "labels": ["new", 3]}\n',
            "train.jsonl": '{"text": "x", "labels": ["b", 3]}\n{"text": "y", "labels": ["a"]}\n\n',
            "validation.jsonl": '{"text": "v", "labels": ["mid"]}\n',
        },
    )
    data = load_dataset(tmp_path)
    assert data.labels.ids == ["b", "3", "a", "mid", "new"]
    assert list(data.splits) == ["train", "validation", "test"]


CSV_CASES = {
    "wrong column": (
        "train.csv",
        "txt,words,labels\nx,y,a\n",
        "found the columns txt, words, labels; none has a name that is known for texts. Name it "
        "with --text-column, or use --no-header",
    ),
    "no labels column": (
        "train.csv",
        "text,colour\nx,a\n",
        "found the columns text, colour; none has a name that is known for labels. Name it with "
        "--label-column",
    ),
    "twice a column": (
        "train.csv",
        "text,text,labels\nx,y,a\n",
        "column 'text' is there twice; rename one",
    ),
    "fields": ("train.csv", "text,labels\nx,a\ny,a,b\n", "line 3: the row has 3 fields"),
    "unknown label": ("train.csv", "text,labels\nx,zz\n", "line 2, column 'labels': label 'zz'"),
    "after breaks": ("train.csv", 'text,labels\n"x\n\n",a\ny,zz\n', "line 5, column 'labels'"),
    "broken list": ("train.csv", 'text,labels\nx,"[""a"""\n', "line 2, column 'labels': looks"),
    "relevance": (
        "train.csv",
        "text,labels,relevance\nx,a,high\n",
        "line 2, column 'relevance': 'high' is not a number",
    ),
    "quote": ("train.csv", 'text,labels\n"x"y,a\n', "line 2: the fields cannot be separated"),
    "open quote": ("train.csv", 'text,labels\n"x,a\n', "line 2: the fields cannot be separated"),
    "empty": ("train.csv", "", "the file is empty"),
    "header only": ("train.csv", "text,labels\n", "there are no rows"),
    "no positives": ("train.csv", "text,labels\nx,\n", "no row has any label"),
    "label id twice": (
        "labels.csv",
        "id,text\na,A\na,B\n",
        "line 3: label id 'a' is there already",
    ),
    "not UTF-8": ("train.csv", b"text,labels\ncaf\xe9,a\n", "line 2: byte 0xe9"),
}


@pytest.mark.parametrize("case", CSV_CASES)
def test_csv_sentences(case, tmp_path):
    name, content, says = CSV_CASES[case]
    _fill(tmp_path, {**CSV, name: content})
    with pytest.raises(DataError, match=f"{name}.*{says}"):
        load_dataset(tmp_path)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["a;b", "c"], [["a", "b"], ["c"]]),
        (["a|b", "c"], [["a", "b"], ["c"]]),
        (["a|b;c", "d"], [["a|b", "c"], ["d"]]),
        ([" a ; b;", ""], [["a", "b"], []]),
        (['"[""a;b"", 3]"', "c|d"], [["a;b", "3"], ["c", "d"]]),
    ],
)
def test_the_separator_of_labels_is_found_in_the_data(cells, expected, tmp_path):
    file = tmp_path / "some.csv"
    file.write_text("text,labels\n" + "".join(f"x,{cell}\n" for cell in cells))
    data = load_dataset(file)
    ids = data.labels.ids
    rows = data["train"].targets
    got = [sorted(ids[i] for i in rows[row].indices) for row in range(rows.shape[0])]
    assert got == [sorted(row) for row in expected]
    assert data.name == "some"


def test_a_long_document_fits_into_a_cell(tmp_path):
    file = tmp_path / "long.tsv"
    file.write_text(f"text\tlabels\n{'word ' * 50_000}\ta\n")
    assert len(load_dataset(file)["train"].titles[0]) == 250_000


class TestParquet:
    @pytest.fixture(autouse=True)
    def _needs_pyarrow(self):
        self.arrow = pytest.importorskip("pyarrow")
        self.parquet = pytest.importorskip("pyarrow.parquet")

    def _write(self, tmp_path, columns):
        self.parquet.write_table(self.arrow.table(columns), tmp_path / "train.parquet")
        return tmp_path

    @pytest.mark.parametrize(
        "labels", [[["1"], ["2", "1"]], [[1], [2, 1]], ["1", "2;1"], ["1", "[2, 1]"]]
    )
    def test_labels_may_be_lists_or_text(self, labels, tmp_path):
        data = load_dataset(self._write(tmp_path, {"text": ["x", "y"], "labels": labels}))
        assert data.labels.ids == ["1", "2"]
        assert data["train"].targets.toarray().tolist() == [[1, 0], [1, 1]]

    @pytest.mark.parametrize(
        ("columns", "says"),
        [
            ({"txt": ["x"], "n": [1], "labels": [["a"]]}, "found the columns txt, n, labels; none"),
            ({"text": ["x"], "colour": [["a"]]}, "found the columns text, colour; none has a name"),
            ({"text": [3], "labels": [["a"]]}, "row 1: 'text' is a number"),
            ({"text": ["x"], "labels": [1.5]}, "row 1, column 'labels': a label is a number"),
            ({"text": ["x"], "labels": [None]}, "no row has any label"),
        ],
    )
    def test_sentences(self, columns, says, tmp_path):
        with pytest.raises(DataError, match=f"train.parquet.*{says}"):
            load_dataset(self._write(tmp_path, columns))

    def test_junk_is_named(self, tmp_path):
        (tmp_path / "train.parquet").write_bytes(b"PAR1 junk PAR1")
        with pytest.raises(DataError, match="train.parquet: the file cannot be read as parquet"):
            load_dataset(tmp_path)


def test_standard_input_is_a_train_split_of_jsonl(monkeypatch):
    content = JSONL["train.jsonl"].encode()
    for raw in (content, gzip.compress(content)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
        data = load_dataset("-")
        assert data["train"].titles == ["x", "y"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    with pytest.raises(DataError, match=r"standard input: found the columns \(none\); none"):
        load_dataset("-")
    with pytest.raises(DataError, match="standard input is read as csv, tsv, jsonl, not as npz"):
        load_dataset("-", "npz")


@pytest.mark.parametrize("format", [None, "csv"])
def test_standard_input_may_be_a_table(format, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(CSV["train.csv"].encode())))
    assert load_dataset("-", format)["train"].titles == ["x", "y, z"]


def test_what_is_no_data_set_is_answered_with_what_was_looked_for(tmp_path):
    with pytest.raises(
        DataError, match="folder in none of the known formats: found nothing; .*train.csv"
    ):
        load_dataset(tmp_path)
    (tmp_path / "notes").write_text("hello\n")
    with pytest.raises(DataError, match=re.escape("notes is a file in none of the known formats")):
        load_dataset(tmp_path / "notes")
    with pytest.raises(DataError, match="does not exist"):
        load_dataset(tmp_path / "nothing")


def test_two_formats_in_one_folder_must_be_told_apart(tmp_path):
    _fill(tmp_path, {**JSONL, **CSV})
    with pytest.raises(DataError, match="could be csv or jsonl"):
        load_dataset(tmp_path)
    assert len(load_dataset(tmp_path, "csv")["train"]) == 2


def test_plain_and_compressed_side_by_side_are_refused(tmp_path):
    _fill(tmp_path, {**LF, "trn.json.gz": gzip.compress(LF["trn.json"].encode())})
    with pytest.raises(DataError, match="trn.json and trn.json.gz are the same part"):
        load_dataset(tmp_path)


def test_missing_parts_are_named(tmp_path):
    _fill(tmp_path, {"trn.json": LF["trn.json"]})
    with pytest.raises(DataError, match="the labels are missing; looked for lbl.json"):
        load_dataset(tmp_path)
    with pytest.raises(ConfigError, match="Did you mean 'lf-json'"):
        load_dataset(tmp_path, "lf_json")
    with pytest.raises(DataError, match="no queries are here; looked for train.csv"):
        load_dataset(tmp_path, "csv")


@pytest.mark.parametrize("name", ["lf-json", "xc-text", "npz"])
def test_formats_of_folders_say_so_when_given_a_file(name, tmp_path):
    (tmp_path / "trn.json").write_text(LF["trn.json"])
    with pytest.raises(DataError, match="expected a folder with"):
        load_dataset(tmp_path / "trn.json", name)


def test_a_folder_in_place_of_a_file_is_an_error_of_ours(tmp_path):
    _fill(tmp_path, LF)
    (tmp_path / "tst.json").mkdir()
    with pytest.raises(UmpteenError, match=r"tst\.json: the file cannot be read"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.tsv", "rows.jsonl", "rows.json", "rows.txt"])
def test_utf16_text_is_named_as_such(name, encoding, tmp_path):
    rows = '{"text": "x", "labels": ["a"]}\n' if "json" in name else "text,labels\nx,a\n"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / name).write_bytes((mark + rows).encode(encoding))
    with pytest.raises(DataError, match=f"{name}: the file is UTF-16 text; save it as UTF-8"):
        load_dataset(tmp_path / name)


@pytest.mark.parametrize(
    "content", [b"", b"\n", gzip.compress(b"")], ids=["no byte", "a line end", "gzip"]
)
def test_an_empty_file_of_any_name_is_said_to_be_empty(content, tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"rows.jsonl is empty; expected labelled texts"):
        load_dataset(tmp_path / "rows.jsonl")
