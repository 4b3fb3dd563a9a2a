"""The run folder: which model is in force, and the label list."""

import json
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umpteen.data import label_columns
from umpteen.data.label_columns import read_columns
from umpteen.data.labels import LabelSet
from umpteen.errors import LabelMismatch, RunError
from umpteen.run_folder import RunFolder

COUNTS = np.array([3, 0, 12])
LABELS = LabelSet(["a", "b\u2028c", "ü"], ["apple", "", "two words"])


def make_models(folder: RunFolder, *names: str) -> list:
    places = [folder.models / name for name in names]
    for place in places:
        place.mkdir(parents=True)
        (place / "model.json").write_text("{}")
    return places


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def test_a_folder_without_settings_is_no_run(folder):
    with pytest.raises(RunError, match="is not a run folder"):
        folder.require()
    folder.config.write_text("{}")
    assert folder.require() is folder


def test_models_that_are_no_longer_named_are_removed(folder):
    one, two, three = make_models(folder, "epoch-0001", "epoch-0002", "epoch-0003")
    folder.point(best=one, last=two)
    assert one.is_dir()
    assert two.is_dir()
    assert not three.exists()
    folder.point(last=one)
    assert (folder.model("best"), folder.model("last")) == (one, one)
    assert not two.exists()


def test_an_index_goes_with_the_model_it_was_built_for(folder):
    one, two = make_models(folder, "epoch-0001", "epoch-0002")
    folder.point(best=one, last=two)
    folder.index.mkdir()
    folder.point(last=two)
    folder.point(best=one)
    assert folder.index.is_dir()
    folder.point(best=two)
    assert not folder.index.exists()


@pytest.mark.parametrize(
    ("raw", "message"),
    [(None, "is missing"), ("[]", "is damaged"), ("{", "cannot be read"), ("{}", "has no 'best'")],
)
def test_a_model_list_that_is_not_whole_is_a_sentence(raw, message, folder):
    if raw is not None:
        (folder.path / "models.json").write_text(raw)
    with pytest.raises(RunError, match=message):
        folder.model("best")


@pytest.mark.parametrize("contents", [None, ["more", "", "x"]])
def test_labels_go_there_and_back(contents, folder):
    labels = LabelSet(LABELS.ids, LABELS.titles, contents)
    folder.write_labels(labels, COUNTS)
    found, counts = folder.read_labels(labels.fingerprint)
    assert (found.ids, found.titles, found.contents) == (labels.ids, labels.titles, contents)
    np.testing.assert_array_equal(counts, COUNTS)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(
    st.lists(
        st.tuples(TEXTS, TEXTS, st.integers(0, 9)), min_size=1, max_size=9, unique_by=lambda r: r[0]
    )
)
def test_columns_say_what_the_list_says(rows):
    ids, titles, counts = map(list, zip(*rows, strict=True))
    labels = LabelSet(ids, titles, titles[::-1])
    with tempfile.TemporaryDirectory() as place:
        folder = RunFolder(place)
        folder.write_labels(labels, np.array(counts))
        assert read_columns(folder.path / "labels.columns", folder.path / "labels.jsonl")
        for mapped_from in (1, 10, 10):  # mapped, read into lists, then without columns
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(label_columns, "MAPPED_LABELS", mapped_from)
                found, read = folder.read_labels()
            assert isinstance(found.ids, list) == (mapped_from == 10)
            assert {label_id: found.rows[label_id] for label_id in ids} == labels.rows
            assert found.rows.get("no such label") is None
            assert (found.ids[:], found.texts[:], found.ids[-1]) == (ids, labels.texts[:], ids[-1])
            assert (found.ids, found.titles, found.contents) == (ids, titles, titles[::-1])
            assert read.tolist() == counts
            assert found.fingerprint == labels.fingerprint
            if mapped_from == 10:
                (folder.path / "labels.columns").unlink(missing_ok=True)


@pytest.mark.parametrize("place", ["first", "middle", "last", "list", "all"])
def test_columns_that_do_not_fit_are_left_alone(place, folder):
    folder.write_labels(LABELS, COUNTS)
    file, listed = folder.path / "labels.columns", folder.path / "labels.jsonl"
    if place == "list":
        lines = listed.read_text("utf-8").split("\n")
        listed.write_text("\n".join([*lines[1:-1], lines[0], ""]), "utf-8")
        assert folder.read_labels()[0].ids == [*LABELS.ids[1:], LABELS.ids[0]]
        return
    raw = bytearray(file.read_bytes())
    at = {"first": 3, "middle": len(raw) // 2, "last": len(raw) - 1, "all": 0}[place]
    raw[at] ^= 1
    file.write_bytes(b"" if place == "all" else bytes(raw))
    found, counts = folder.read_labels(LABELS.fingerprint)
    assert (found.ids, found.titles) == (LABELS.ids, LABELS.titles)
    assert counts.tolist() == COUNTS.tolist()


def test_another_label_list_is_a_mismatch(folder):
    folder.write_labels(LABELS, COUNTS)
    with pytest.raises(LabelMismatch, match="fingerprint"):
        folder.read_labels("0" * 32)


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "null", '{"id": "a"}', '{"id": 3, "text": "x", "count": 1}',
     '{"id": "z", "text": "x", "count": "many"}', '{"id": "a", "text": "double", "count": 1}'],
)  # fmt: skip
def test_a_damaged_label_list_is_a_sentence(line, folder):
    folder.write_labels(LABELS, COUNTS)
    file = folder.path / "labels.jsonl"
    file.write_text(file.read_text("utf-8") + line + "\n", "utf-8")
    with pytest.raises((RunError, LabelMismatch), match="labels.jsonl"):
        folder.read_labels(LABELS.fingerprint)


def test_a_missing_label_list_is_a_sentence(folder):
    with pytest.raises(RunError, match="labels.jsonl"):
        folder.read_labels()


def test_counts_are_kept_as_they_are(folder):
    folder.write_labels(LABELS, COUNTS)
    lines = (folder.path / "labels.jsonl").read_text("utf-8").split("\n")[:-1]
    assert [json.loads(line)["count"] for line in lines] == COUNTS.tolist()
