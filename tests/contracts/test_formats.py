"""The laws of every row of FORMATS: what is written is read again, plain or compressed."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.data.formats import FORMATS, LOOKED_FOR, READ_ONLY, find_format, load_dataset
from umpteen.data.formats.writing import ALL, features, losses
from umpteen.data.labels import LabelSet
from umpteen.errors import DataError
from umpteen.registry import resolve

TITLES = [
    '\ufeffmark first, quoted "twice", and a comma',
    "tab\there; semicolon | bar",
    "two\nlines\r\nand a third\rend",
    "",
    "žluťoučký 日本語 🎈 \u2028 separators \x85 kept",
    '"starts with a quote',
    " blanks around ",
    "[looks, like, a, list]",
    "\ufeff",
]
CONTENTS = ["", "more\nwords", "", "", "ï", "a,b", "", '""', "c"]
IDS = ["a;b", "c|d", "[e", " f ", "7", "ü\t", 'g"h']


def _part(name):
    if name == "parquet":
        pytest.importorskip("pyarrow")
    return resolve(FORMATS, name, kind="format")


def _split(seed: int, *, titles=TITLES, contents=CONTENTS, ids=True, n_labels=7) -> Split:
    """Targets with row 3 unlabelled, a label in neighbouring rows, and odd relevances."""
    random = np.random.default_rng(seed)
    dense = (random.random((len(titles), n_labels)) < 0.4) * random.random(
        (len(titles), n_labels)
    ).astype(np.float32)
    dense[:, 0] = 1.0
    dense[3] = 0
    names = [f"q{row}" for row in range(len(titles))] if ids else None
    return Split(
        list(titles),
        sp.csr_matrix(dense.astype(np.float32)),
        contents,
        names,
        np.array([[0, 2], [4, 1]], np.int64),
    )


def odd_dataset() -> Dataset:
    labels = LabelSet(
        IDS,
        [f"label {name}\nx" for name in IDS],
        ["", "d", "", "", "", "", "é"],
        [{"broader": ["7"]}, {}, {"notation": "4.2"}, {}, {}, {}, {}],
    )
    splits = {name: _split(seed) for seed, name in enumerate(("train", "validation", "test"))}
    return Dataset(labels, splits, Propensity(0.6, 2.6), "Ödd")


def plain_dataset() -> Dataset:
    """What every format can hold: one-line titles, rows as label ids, nothing optional."""
    titles = ["one", "two words", "three", "", "five"]
    split = replace(
        _split(3, titles=titles, contents=None, ids=False, n_labels=3),
        filters=np.zeros((0, 2), np.int64),
    )
    split.targets.data[:] = 1
    return Dataset(LabelSet(["0", "1", "2"], ["x", "y", "z"]), {"train": split})


def _one_line(text: str) -> str:
    return " ".join(" ".join(text.split("\r\n")).replace("\r", "\n").split("\n"))


def held(dataset: Dataset, holds: frozenset[str]) -> Dataset:
    """The same data with what a format cannot hold taken away; written apart from the formats."""
    labels, splits = dataset.labels, dict(dataset.splits)
    if "contents" not in holds:
        labels = LabelSet(labels.ids, labels.encoder_texts("all"))
        splits = {k: replace(s, titles=s.texts("all"), contents=None) for k, s in splits.items()}
    if "line breaks" not in holds:
        labels = replace(labels, titles=[_one_line(text) for text in labels.titles])
        splits = {
            k: replace(s, titles=[_one_line(text) for text in s.titles]) for k, s in splits.items()
        }
    if "tabs" not in holds:
        labels = replace(labels, titles=[text.replace("\t", " ") for text in labels.titles])
        splits = {
            k: replace(s, titles=[text.replace("\t", " ") for text in s.titles])
            for k, s in splits.items()
        }
    if "relevance" not in holds:
        splits = {
            k: replace(s, targets=(s.targets > 0).astype(np.float32)) for k, s in splits.items()
        }
    if "label metadata" not in holds:
        labels = replace(labels, metadata=None)
    if "label ids" not in holds:
        labels = replace(labels, ids=[str(row) for row in range(len(labels))])
    if "query ids" not in holds:
        splits = {k: replace(s, ids=None) for k, s in splits.items()}
    return replace(dataset, labels=labels, splits=splits)


def assert_same(got: Dataset, expected: Dataset) -> None:
    assert got.name == expected.name
    assert got.propensity == expected.propensity
    assert list(got.labels.ids) == list(expected.labels.ids)
    assert list(got.labels.titles) == list(expected.labels.titles)
    assert got.labels.contents == expected.labels.contents
    if expected.labels.metadata is not None:  # some formats hold a part of it
        assert got.labels.metadata == expected.labels.metadata
    assert list(got.splits) == list(expected.splits)
    for name, split in expected.splits.items():
        assert list(got[name].titles) == list(split.titles)
        assert got[name].contents == split.contents
        assert got[name].ids == split.ids
        assert got[name].filters.tolist() == split.filters.tolist()
        assert got[name].targets.dtype == np.float32
        assert got[name].targets.has_sorted_indices
        assert got[name].targets.shape == split.targets.shape
        assert np.array_equal(got[name].targets.toarray(), split.targets.toarray())


def test_every_format_says_what_it_looks_for():
    assert set(LOOKED_FOR) == {*FORMATS.own, *READ_ONLY}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("make", [odd_dataset, plain_dataset])
def test_written_data_is_read_again_up_to_what_the_format_holds(name, make, tmp_path):
    part, dataset = _part(name), make()
    assert part.HOLDS <= ALL
    part.write(dataset, tmp_path)
    assert find_format(tmp_path)[0] == name
    assert_same(load_dataset(tmp_path), held(dataset, part.HOLDS))


@pytest.mark.parametrize("name", FORMATS)
def test_plain_and_gzip_read_alike_under_either_name(name, tmp_path):
    part, dataset = _part(name), odd_dataset()
    part.write(dataset, tmp_path)
    written = [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "dataset.json"]
    before = load_dataset(tmp_path)
    for file in written:
        raw = file.read_bytes()
        file.unlink()
        if raw.startswith(b"\x1f\x8b"):
            file.with_suffix("").write_bytes(gzip.decompress(raw))
        else:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(raw))
    assert_same(load_dataset(tmp_path), before)
    for file in [p for p in tmp_path.rglob("*") if p.is_file() and p.name != "dataset.json"]:
        raw = file.read_bytes()
        # Now the name lies about the content: only the first bytes count.
        is_gzip = raw.startswith(b"\x1f\x8b")
        file.write_bytes(gzip.decompress(raw) if is_gzip else gzip.compress(raw))
    assert_same(load_dataset(tmp_path), before)


@pytest.mark.parametrize("name", FORMATS)
def test_writing_twice_gives_the_same_bytes(name, tmp_path):
    part = _part(name)
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        part.write(odd_dataset(), folder)
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".npz")
        contents.append({str(p.relative_to(folder)): p.read_bytes() for p in files})
    assert contents[0] == contents[1]
    # Both were written within a second, so look at the time that gzip stores, too.
    zipped = [raw for raw in contents[0].values() if raw.startswith(b"\x1f\x8b")]
    assert all(raw[4:8] == bytes(4) for raw in zipped)


@pytest.mark.parametrize("name", FORMATS)
def test_the_files_of_every_split_are_named(name, tmp_path):
    part = _part(name)
    part.write(odd_dataset(), tmp_path)
    files = part.files(tmp_path)
    assert list(files) == ["train", "validation", "test"]
    assert all(file.exists() for file in files.values())
    assert part.UNIT in ("line", "row")


@pytest.mark.parametrize("name", FORMATS)
def test_reading_changes_nothing_on_disk(name, tmp_path):
    _part(name).write(odd_dataset(), tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    load_dataset(tmp_path)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_without_dataset_json_is_named_after_itself(name, tmp_path):
    folder = tmp_path / "Näme"
    folder.mkdir()
    _part(name).write(plain_dataset(), folder)
    (folder / "dataset.json").unlink()
    data = load_dataset(folder)
    assert data.name == "Näme"
    assert data.propensity == Propensity(0.55, 1.5)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "settings_text",
    [
        "[]",
        "{",
        '{"name": 3}',
        '{"propensity": 1}',
        '{"propensity": {"a": true}}',
        '{"propensity": {"b": 0}}',
        '{"propensity": {"b": NaN}}',
    ],
)
def test_bad_settings_are_refused_by_name(name, settings_text, tmp_path):
    _part(name).write(plain_dataset(), tmp_path)
    (tmp_path / "dataset.json").write_text(settings_text)
    with pytest.raises(DataError, match=r"dataset\.json"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("0", "not a pair"),
        ("0 x", "not a pair"),
        ("0 3", "out of range"),
        ("5 0", "out of range"),
    ],
)
def test_bad_filters_name_file_and_line(name, line, says, tmp_path):
    _part(name).write(plain_dataset(), tmp_path)
    (tmp_path / "filter_labels_train.txt").write_text(f"0 0\n{line}\n")
    with pytest.raises(DataError, match=rf"filter_labels_train\.txt, line 2: .*{says}"):
        load_dataset(tmp_path)


@pytest.mark.parametrize("name", FORMATS)
def test_filters_are_found_under_their_other_name_but_not_under_both(name, tmp_path):
    _part(name).write(plain_dataset(), tmp_path)
    (tmp_path / "trn_filter_labels.txt").write_text("1 2\n")
    assert load_dataset(tmp_path)["train"].filters.tolist() == [[1, 2]]
    (tmp_path / "filter_labels_train.txt").write_text("1 2\n")
    with pytest.raises(DataError, match="keep one of them"):
        load_dataset(tmp_path)


def test_losses_name_only_what_the_data_really_has():
    assert features(plain_dataset()) == frozenset()
    assert features(odd_dataset()) == ALL
    assert losses(plain_dataset(), frozenset()) == ""
    assert losses(odd_dataset(), ALL) == ""
    assert losses(odd_dataset(), ALL - {"filters"}) == "filter pairs"


texts = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\n\r\t,;|[]{}\\\x00\ufeff'),
    max_size=12,
)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.tuples(texts, texts, st.sets(st.integers(0, 3))), min_size=1, max_size=5),
    ids=st.lists(texts.filter(bool), min_size=4, max_size=4, unique=True),
)
def test_any_text_survives(name, rows, ids, tmp_path_factory):
    part = _part(name)
    dense = np.zeros((len(rows), 4), np.float32)
    for row, (_, _, labels) in enumerate(rows):
        dense[row, list(labels)] = 1
    dense[0, 0] = 1
    contents = [content for _, content, _ in rows]
    split = Split(
        [title for title, _, _ in rows],
        sp.csr_matrix(dense),
        contents if any(contents) else None,
    )
    dataset = Dataset(LabelSet(ids, [json.dumps(name) for name in ids]), {"train": split})
    folder = tmp_path_factory.mktemp("any")
    part.write(dataset, folder)
    assert_same(load_dataset(folder), held(dataset, part.HOLDS))
