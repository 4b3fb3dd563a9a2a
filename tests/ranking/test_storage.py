"""The folder of the ensemble: written and read back, and damage is a sentence."""

import json
import shutil

import numpy as np
import pytest

import umpteen
from umpteen.errors import LabelMismatch, RunError
from umpteen.ranking import RETRIEVERS
from umpteen.ranking.storage import load_ensemble, save_ensemble

ARRAYS = [
    "label_counts.npy",
    "examples/vectors.npy",
    "examples/digests.npy",
    "examples/targets_indices.npy",
    "examples/targets_indptr.npy",
    "examples/terms_data.npy",
    "examples/terms_indices.npy",
    "examples/terms_indptr.npy",
    "examples/texts.npy",
    "lexical_ranker/pairs.npy",
    "lexical_ranker/idf.npy",
    "lexical_ranker/weights.npy",
    "lexical_ranker/indices.npy",
    "lexical_ranker/indptr.npy",
]
FILES = ["ensemble.json", "lexical_ranker/words.json", *ARRAYS]


@pytest.fixture(scope="module")
def trained(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


@pytest.fixture
def place(tiny_run, tmp_path):
    return shutil.copytree(tiny_run / "ensemble", tmp_path / "ensemble")


def read(place, trained, **options):
    given = {"model": trained.ensemble.model, "again": "umpteen fit-ensemble RUN DATA", **options}
    return load_ensemble(place, trained.label_vectors, encoder=trained.encoder, **given)


def contents(folder):
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_what_is_saved_is_read_back(place, trained, tmp_path, tiny_data):
    stored = read(place, trained)
    save_ensemble(tmp_path / "again", stored)
    assert contents(tmp_path / "again") == contents(place)
    again = read(tmp_path / "again", trained)
    assert list(again.retrievers) == list(stored.retrievers)
    other = umpteen.Predictor.load(trained.folder, device="cpu", with_ensemble=False)
    other.use_ensemble(again)
    texts = tiny_data["test"].texts()
    ours, theirs = other.predict(texts, 5), trained.predict(texts, 5)
    np.testing.assert_array_equal(ours.rows, theirs.rows)
    np.testing.assert_array_equal(ours.scores, theirs.scores)


def test_saving_replaces_the_folder_as_a_whole(place, trained):
    stored = read(place, trained)
    (place / "left over").write_text("from before")
    save_ensemble(place, stored)
    assert not (place / "left over").exists()
    assert [p.name for p in place.parent.iterdir()] == ["ensemble"]


def test_no_folder_means_no_ensemble(trained, tmp_path):
    assert read(tmp_path / "nothing", trained) is None


def test_every_file_is_covered_by_these_tests(place):
    assert set(contents(place)) - {"examples/texts_offsets.npy"} == set(FILES)
    assert {p.name for p in place.iterdir() if p.is_dir()} <= {"examples", *RETRIEVERS}


@pytest.mark.parametrize("damage", ["remove", "empty", "truncate", "garbage", "other json"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_a_sentence(name, damage, place, trained):
    file = place / name
    raw = file.read_bytes()
    if damage == "remove":
        file.unlink()
    else:
        changed = {"empty": b"", "truncate": raw[: len(raw) // 2], "garbage": b"\x93garbage\xff"}
        file.write_bytes(changed.get(damage, b"[1, 2]"))
    with pytest.raises(RunError) as caught:
        read(place, trained)
    assert str(place) in str(caught.value)
    assert str(caught.value).count("\n") <= 1


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("change", ["longer", "two dimensions"])
def test_arrays_that_do_not_fit_are_refused(name, change, place, trained):
    values = np.load(place / name)
    if change == "longer":
        values = np.concatenate([values, values[:1] if len(values) else values])
    else:
        values = values.reshape(1, *values.shape)
    np.save(place / name, values)
    with pytest.raises(RunError) as caught:
        read(place, trained)
    assert str(place) in str(caught.value)


@pytest.mark.parametrize("name", ARRAYS)
def test_nothing_is_unpickled(name, place, trained):
    np.save(place / name, np.array([{"a": 1}, None], dtype=object), allow_pickle=True)
    with pytest.raises(RunError):
        read(place, trained)


@pytest.mark.parametrize("name", ["examples", "lexical_ranker"])
def test_a_folder_that_the_ensemble_needs_is_missed(name, place, trained):
    shutil.rmtree(place / name)
    with pytest.raises(
        RunError, match=r"cannot be loaded; fit it again with: umpteen fit-ensemble"
    ):
        read(place, trained)


def test_an_ensemble_of_another_model_is_a_mismatch(place, trained):
    with pytest.raises(LabelMismatch, match="uses epoch-0777; fit it again with: umpteen"):
        read(place, trained, model="epoch-0777")


def changed_json(place, change):
    file = place / "ensemble.json"
    value = json.loads(file.read_text())
    change(value)
    file.write_text(json.dumps(value))


CHANGES = {
    "another format": lambda value: value.update(format=99),
    "no variants": lambda value: value.update(variants=[]),
    "a field too many": lambda value: value.update(more=1),
    "a field too few": lambda value: value.pop("propensity"),
    "no neighbours": lambda value: value["knn"].update(neighbours=0),
    "an unknown retriever": lambda value: value["variants"][0]["weights"].update(
        retrievers=["magic"]
    ),
    "too few weights": lambda value: value["variants"][0]["weights"]["weights"].pop(),
    "no number": lambda value: value["variants"][0]["weights"]["weights"].__setitem__(0, "x"),
    "not finite": lambda value: value["variants"][0]["weights"]["weights"].__setitem__(0, 1e999),
    "a list": lambda value: value.update(variants=[[]]),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_damaged_values_are_a_sentence(change, place, trained):
    changed_json(place, CHANGES[change])
    with pytest.raises(RunError, match=r"ensemble\.json is damaged: .* Fit the ensemble again"):
        read(place, trained)
