"""Arrays that move to a file when they grow, and data sets read into them."""

import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from umpteen.data import csr, growing_array, mapped_strings, string_column, text_scan
from umpteen.data.checks import find_warnings
from umpteen.data.csr import column_counts, row_sizes, row_sums
from umpteen.data.dataset import Dataset
from umpteen.data.formats import load_dataset, records, table_rows, tables, targets
from umpteen.data.growing_array import GrowingArray, forget, mapping_of
from umpteen.data.statistics import find_oddities
from umpteen.errors import DataError


@pytest.fixture
def small_limits(monkeypatch):
    """Everything beyond a few hundred rows goes to files."""
    monkeypatch.setattr(growing_array, "IN_MEMORY_BYTES", 256)
    for place in (targets, table_rows):
        monkeypatch.setattr(place, "ROWS_IN_MEMORY", 64)
    for place in (string_column, mapped_strings, csr):
        monkeypatch.setattr(place, "AT_ONCE", 64)
    monkeypatch.setattr(string_column, "PACKED_ROWS", 128)
    monkeypatch.setattr(text_scan, "TEXTS_AT_ONCE", 64)
    monkeypatch.setattr(text_scan, "ROWS_OF_PART", 256)


@pytest.mark.parametrize("size", [0, 10, 1000])
def test_the_values_come_back_in_their_order(size, monkeypatch):
    monkeypatch.setattr(growing_array, "IN_MEMORY_BYTES", 1024)
    given, array = np.arange(size, dtype=np.int64), GrowingArray(np.int64)
    for start in range(0, size, 7):
        array.extend(given[start : start + 7])
    found = array.finish()
    assert array.length == size
    assert found.dtype == np.int64
    assert isinstance(found, np.memmap) == (size == 1000)
    forget(found)
    np.testing.assert_array_equal(found, given)


def test_arrays_in_memory_are_not_forgotten():
    values = np.arange(5)
    forget(values[1:])
    assert values.tolist() == [0, 1, 2, 3, 4]


def test_a_temporary_folder_that_cannot_be_written_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(growing_array, "IN_MEMORY_BYTES", 1)
    monkeypatch.setattr(growing_array.tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(DataError, match="set TMPDIR to a folder with more space"):
        GrowingArray(np.int64).extend(np.arange(5))


def test_counts_in_blocks_are_those_of_the_matrix(small_limits):
    matrix = sp.random(701, 37, 0.1, "csr", random_state=0)
    weights = np.random.default_rng(0).integers(1, 2**62, 37, np.int64)
    np.testing.assert_array_equal(column_counts(matrix), matrix.getnnz(axis=0))
    np.testing.assert_array_equal(np.concatenate(list(row_sizes(matrix))), matrix.getnnz(axis=1))
    wanted = (matrix != 0).astype(np.int64).toarray()[50:300] @ weights
    np.testing.assert_array_equal(row_sums(matrix, weights, slice(50, 300)), wanted)


def test_targets_in_files_are_those_in_memory(small_limits, tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, 40, rng.integers(0, 5)).tolist() for _ in range(301)]

    def collect(limit):
        monkeypatch.setattr(targets, "ROWS_IN_MEMORY", limit)
        found = targets.TargetRows(tmp_path / "data.jsonl")
        for number, row in enumerate(rows, 1):
            found.add(row, [0.5] * len(row), number)
        return found

    plain, stored = collect(1 << 20), collect(7)
    assert stored.labels_of(2) == plain.labels_of(2)
    one, other = plain.matrix(40), stored.matrix(40)
    for name in ("data", "indices", "indptr"):
        assert mapping_of(getattr(other, name)) is not None
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert plain.notes() == stored.notes() != []
    largest = max(max(row, default=0) for row in rows)
    place = next(number for number, row in enumerate(rows, 1) if largest in row)
    with pytest.raises(DataError, match=rf"line {place}.*label {largest} is out of range"):
        collect(7).matrix(largest)


def write_rows(folder, n, suffix):
    folder.mkdir(exist_ok=True)
    for name, first, size in (("train", 0, n), ("test", n - 3, 40)):
        numbers = [i % (n - 20) for i in range(first, first + size)]
        texts = [f"text {i} {'x ' * (i % 3)}" if i % 50 else "" for i in numbers]
        labels = [[f"l{i % 17}", f"m{i % 5}"][: i % 3] for i in range(first, first + size)]
        pairs = zip(texts, labels, strict=True)
        if suffix == "csv":
            lines = ["text,content,labels", *(f"{t},more {len(t)},{';'.join(own)}"
                     for t, own in pairs)]  # fmt: skip
        else:
            lines = [f'{{"text": "{t}", "labels": {own}}}'.replace("'", '"') for t, own in pairs]
        (folder / f"{name}.{suffix}").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_data_in_files_is_read_and_checked_as_in_memory(suffix, tmp_path, request):
    folder = write_rows(tmp_path / "data", 900, suffix)

    def read():
        data = load_dataset(folder)
        said = [*find_oddities(data), *find_warnings(data, max_tokens=3)]
        rows = {name: (list(split.texts()), split.targets) for name, split in data.splits.items()}
        return data, said, rows

    _, plain, rows = read()
    request.getfixturevalue("small_limits")
    data, said, stored = read()
    assert mapping_of(data["train"].targets.indices)
    assert said == plain
    assert any("repeat another" in line for line in said)
    assert any("leakage" in line for line in said)
    assert any("empty text" in line for line in said) or suffix == "csv"
    for name, (texts, matrix) in rows.items():
        assert stored[name][0] == texts
        assert (stored[name][1] != matrix).nnz == 0


def write_labels(folder, n):
    """Write n labels, and texts that name them by id or by text."""
    folder.mkdir(exist_ok=True)
    lines = [
        {"id": f"l{i}", "text": f"label {i}", "content": "c" * (i % 3), "metadata": {"n": i}}
        if i % 7
        else {"id": f"l{i}", "text": f"label {i}"}
        for i in range(n)
    ]
    names = [f"label {i * i % n}" if i % 5 == 0 else f"l{i * i % n}" for i in range(n)]
    rows = [{"text": f"t {i}", "labels": names[i : i + 1 + i % 3]} for i in range(n)]
    for name, given in (("labels", lines), ("train", rows)):
        text = "".join(f"{json.dumps(record)}\n" for record in given)
        (folder / f"{name}.jsonl").write_text(text)
    return folder


def test_many_labels_are_found_in_an_index_of_hashes(small_limits, tmp_path, monkeypatch):
    folder = write_labels(tmp_path / "data", 900)
    with monkeypatch.context() as patch:
        patch.setattr(string_column, "PACKED_ROWS", 1 << 20)
        plain = load_dataset(folder)
    monkeypatch.setattr(table_rows, "LABELS_FOUND_AT_ONCE", 70)
    monkeypatch.setattr(records, "ROWS_IN_MEMORY", 64)
    many = load_dataset(folder)
    assert isinstance(plain.labels.rows, dict)
    assert isinstance(many.labels.rows, mapped_strings.StringRows)
    for field in ("ids", "titles", "contents", "metadata", "fingerprint"):
        assert getattr(many.labels, field) == getattr(plain.labels, field)
    assert (many["train"].targets != plain["train"].targets).nnz == 0
    assert find_warnings(many) == find_warnings(plain)


@pytest.mark.parametrize(("place", "line"), [(140, 141), (899, 900)])
def test_a_repeated_id_of_many_labels_has_its_line(small_limits, tmp_path, place, line):
    folder = write_labels(tmp_path / "data", 900)
    lines = (folder / "labels.jsonl").read_text().splitlines()
    lines[place] = lines[17]
    (folder / "labels.jsonl").write_text("\n".join(lines))
    says = rf"labels\.jsonl, line {line}: label id 'l17' is there already at line 18"
    with pytest.raises(DataError, match=says):
        load_dataset(folder)


def test_an_unknown_label_among_many_has_its_line(small_limits, tmp_path):
    folder = write_labels(tmp_path / "data", 400)
    with (folder / "train.jsonl").open("a") as out:
        out.write('{"text": "t", "labels": ["l3", "l400"]}\n')
    with pytest.raises(DataError, match=r"train\.jsonl, line 401.*'l400' is neither an id nor"):
        load_dataset(folder)


def test_memory_does_not_grow_with_the_rows(small_limits, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLED_CELLS", 64)

    def peak(n):
        folder = write_rows(tmp_path / str(n), n, "csv")
        tracemalloc.start()
        try:
            data = load_dataset(folder)
            assert find_warnings(data, max_tokens=64)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2_000)  # imports and caches
    assert peak(16_000) < 1.5 * peak(2_000)


def test_a_text_with_other_labels_is_found_among_many(small_limits):
    texts = [f"text {i}" for i in range(1_000)]
    labels = [[f"l{i % 7}"] for i in range(1_000)]
    texts[900], texts[700], labels[700] = "Text  400", "text 20", ["l6"]
    said = find_warnings(Dataset.from_lists(texts, labels))
    assert said[0].startswith("train: 2 texts repeat another (row 701 is as row 21: 'text 20')")
    assert said[1].startswith(
        "train: 1 text has different labels in different rows (first rows 401 and 901)"
    )
