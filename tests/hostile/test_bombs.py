"""Small files that decompress to more than there is memory: one sentence, soon."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data.formats import lines, load_dataset
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.scoring import read_predictions

BOMB = "decompresses to more than 200 times its size"
ROW = b'{"text": "a", "labels": ["x"]}\n'


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """As with 128 MiB, but faster."""
    monkeypatch.setattr(lines, "UNCHECKED_BYTES", 1 << 20)


def zipped(content):
    return gzip.compress(content, compresslevel=9)


MANY = 1 << 18
CONTENTS = {
    "train.jsonl": [b'{"text": "' + b"a" * (8 << 20), ROW * MANY, b"\n" * (8 << 20)],
    "train.csv": [b"text,labels\na" + b"a" * (8 << 20), b"text,labels\n" + b"aaaaaa,x\n" * MANY],
    "train.tsv": [b"text\tlabels\na" + b"a" * (8 << 20), b"text\tlabels\n" + b"aaaaaa\tx\n" * MANY],
    "lbl.json.gz": [b'{"title": "' + b"a" * (8 << 20)],
}


@pytest.mark.parametrize(
    ("file", "content"), [(file, content) for file, all_ in CONTENTS.items() for content in all_]
)
def test_gzip_data_that_grows_without_end_is_refused(tmp_path, file, content):
    for other in ("trn", "tst") if file == "lbl.json.gz" else ():
        (tmp_path / f"{other}.json.gz").write_bytes(zipped(b'{"title": "a", "target_ind": [0]}\n'))
    (tmp_path / file).write_bytes(zipped(content))
    with pytest.raises(DataError, match=BOMB):
        load_dataset(tmp_path)


def test_predictions_that_grow_without_end_are_refused(tmp_path):
    labels = LabelSet(["x"], ["x"])
    (tmp_path / "p.gz").write_bytes(zipped(b'{"labels": ["' + b"x" * (8 << 20)))
    with (tmp_path / "p.gz").open("rb") as handle, pytest.raises(DataError, match=BOMB):
        read_predictions(handle, labels, 1)


def test_ordinary_data_is_read_as_before(tmp_path):
    """Ordinary text, and any text that is small."""
    rows = [{"text": f"text {n} {n * n}", "labels": [f"x{n % 7}"]} for n in range(60_000)]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert len(content) > 2 << 20
    (tmp_path / "train.jsonl").write_bytes(zipped(content))
    assert len(load_dataset(tmp_path)["train"]) == 60_000
    (tmp_path / "train.jsonl").write_bytes(zipped(ROW * 9000))
    assert len(load_dataset(tmp_path)["train"]) == 9000


def npz_folder(tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "trn_X.txt").write_text("a\nb\n")
    (tmp_path / "raw" / "tst_X.txt").write_text("a\nb\n")
    (tmp_path / "raw" / "Y.txt").write_text("x\ny\n")
    for name in ("trn", "tst"):
        sp.save_npz(tmp_path / f"Y.{name}.npz", sp.eye(2, format="csr", dtype=np.float32))
    return tmp_path / "Y.trn.npz"


def test_a_matrix_that_takes_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    npz_folder(tmp_path)
    assert len(load_dataset(tmp_path, "npz")["train"]) == 2
    monkeypatch.setattr(lines.os, "sysconf", lambda name: 10)
    with pytest.raises(DataError, match="more than the .* GiB of this machine"):
        load_dataset(tmp_path, "npz")


def test_an_array_that_claims_more_values_than_it_has_is_refused(tmp_path):
    file = npz_folder(tmp_path)
    members = {}
    with zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            members[name] = archive.read(name)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<i4", "fortran_order": False, "shape": (1 << 45,)}
    )
    members["indices.npy"] = header.getvalue()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DataError):
        load_dataset(tmp_path, "npz")


def test_a_table_that_claims_more_rows_than_fit_is_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    tables = pytest.importorskip("pyarrow.parquet")
    # A run of one repeated value: a few bytes for any number of rows.
    table = arrow.table({"text": ["a"] * 1000, "labels": [["x"]] * 1000})
    tables.write_table(table, tmp_path / "train.parquet")
    assert len(load_dataset(tmp_path, "parquet")["train"]) == 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines.os, "sysconf", lambda name: 20)
        with pytest.raises(DataError, match="more than the .* GiB of this machine"):
            load_dataset(tmp_path, "parquet")


def test_no_memory_is_a_sentence(tmp_path, monkeypatch):
    from umpteen.data import formats

    def fail(*given):
        raise MemoryError

    (tmp_path / "train.jsonl").write_bytes(ROW)
    monkeypatch.setattr(formats, "read_format", fail)
    with pytest.raises(DataError, match="does not fit into the memory"):
        load_dataset(tmp_path)
