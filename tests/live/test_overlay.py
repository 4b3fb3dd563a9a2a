"""A predictor answers by its run's changes: added labels found, retired ones never, by any head."""

import shutil
import threading

import numpy as np
import pytest
from small_runs import fit

import umpteen
from umpteen.errors import JournalDamaged
from umpteen.live.book import FILE_NAME, LabelBook
from umpteen.live.changes import NewLabel

TEXTS = ["about red apple quite", "old river mirror", "tiny window near", ""]
HEADS = ["dual", "classifier", "combined"]


@pytest.fixture(scope="module")
def small_run(tiny_data, tmp_path_factory):
    run = tmp_path_factory.mktemp("overlay") / "run"
    fit(tiny_data, run)
    return run


@pytest.fixture
def run(small_run, tmp_path):
    return shutil.copytree(small_run, tmp_path / "run")


@pytest.fixture
def model(run):
    return umpteen.Predictor.load(run, device="cpu")


def vector_of(model, labels, text):
    """[text vector ; weighted mean of the 8 nearest labels' classifier vectors, of length one]."""
    own = model.vectors([text]).numpy()[0].astype(np.float64)[:16]
    cosines = labels[:, :16] @ own
    near = np.argsort(-cosines)[:8]
    weights = np.exp(20 * cosines[near])
    mean = weights @ labels[near, 16:] / weights.sum()
    return np.concatenate([own, mean / np.linalg.norm(mean)])


def scores_of(model, head):
    """(texts, labels of now) by plain arithmetic."""
    columns = model.columns(head)
    added = model.live.book.changes.added
    labels = np.asarray(model.label_vectors("combined"), np.float64)
    if added:
        labels = np.concatenate([labels, [vector_of(model, labels, x.text) for x in added]])
    return model.vectors(TEXTS).numpy().astype(np.float64)[:, columns] @ labels[:, columns].T


@pytest.mark.parametrize("heads", ["dual", "classifier"])
def test_models_of_one_head_take_labels_too(tiny_data, tmp_path, heads):
    fit(tiny_data, tmp_path / "run", f"model.heads=['{heads}']", "train.epochs=1")
    model = umpteen.Predictor.load(tmp_path / "run", device="cpu")
    model.live.add([NewLabel("N1", TEXTS[0])])
    model.live.retire(["L00"])
    top = model.predict(TEXTS, 50)
    assert all(len(ids) == 40 and "N1" in ids and "L00" not in ids for ids in top.ids)
    norms = np.linalg.norm(model.live.refresh().vectors.numpy(), axis=1)
    np.testing.assert_allclose(norms, 1.0, atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_added_labels_are_scored_by_their_text_and_retired_ones_are_gone(model, head):
    model.live.add([NewLabel("N1", "red apple quite"), NewLabel("N2", "old river bank")])
    first = model.predict(TEXTS, 1, head=head).ids
    gone = {ids[0] for ids in first} | {"L05"}
    model.live.retire(sorted(gone))
    scores = scores_of(model, head)
    rows = [model.live.labels.rows[i] for i in gone]
    scores[:, rows] = -np.inf
    top = model.predict(TEXTS, 50, head=head)
    n = 42 - len(gone)
    np.testing.assert_allclose(top.scores[:, :n], -np.sort(-scores, axis=1)[:, :n], atol=1e-5)
    assert (top.rows[:, n:] == -1).all()
    for ids in top.ids:
        assert not gone & set(ids)
    model.live.restore(sorted(gone))
    assert model.predict(TEXTS, 1, head=head).ids == first


def test_an_added_label_is_first_for_its_own_text(model):
    model.live.add([NewLabel("N1", "about red apple quite")])
    top = model.predict("about red apple quite", 1, head="dual")
    assert (top.ids, top.texts) == ([["N1"]], [["about red apple quite"]])
    np.testing.assert_allclose(top.scores, [[1.0]], atol=1e-5)
    assert top.rows[0, 0] == 40
    assert len(model.labels) == 40


def test_every_predictor_of_the_run_answers_by_a_change_in_its_next_call(run, model):
    other = umpteen.Predictor.load(run, device="cpu")
    model.live.add([NewLabel("N1", TEXTS[1])])
    assert other.predict(TEXTS[1], 1, head="dual").ids == [["N1"]]
    LabelBook.open(run).retire(["N1"])  # as the command line does
    for each in (model, other, umpteen.Predictor.load(run, device="cpu")):
        assert "N1" not in each.predict(TEXTS[1], 50, head="dual").ids[0]
    other.live.restore(["N1"])
    assert model.predict(TEXTS[1], 1, head="dual").ids == [["N1"]]


def test_loading_again_finds_the_same(run, model):
    model.live.add([NewLabel(f"N{n}", f"{text} {n}") for n, text in enumerate(TEXTS)])
    model.live.retire(["L00", "N2"])
    again = umpteen.Predictor.load(run, device="cpu")
    for head in HEADS:
        one, two = model.predict(TEXTS, 9, head=head), again.predict(TEXTS, 9, head=head)
        assert one.ids == two.ids
        np.testing.assert_allclose(one.scores, two.scores, atol=1e-6)


def test_a_faiss_index_never_returns_a_retired_label_and_finds_added_ones(run):
    pytest.importorskip("faiss")
    from umpteen.cli.index import build

    build(run, kind="faiss", factory="HNSW8", heads=(), k=5)
    model = umpteen.Predictor.load(run, device="cpu")
    assert model.index("dual").describe()["kind"] == "faiss"
    model.live.add([NewLabel("N1", TEXTS[0])])
    gone = model.predict(TEXTS, 3, head="dual").ids[1]
    model.live.retire(gone)
    for head in HEADS:
        top = model.predict(TEXTS, 50, head=head)
        assert {len(ids) for ids in top.ids} == {41 - len(gone)}
        assert not set(gone) & {i for ids in top.ids for i in ids}
    assert model.predict(TEXTS[0], 1, head="dual").ids == [["N1"]]


def test_exclusion_and_masks_reach_added_labels(model):
    model.live.add([NewLabel("N1", TEXTS[0]), NewLabel("N2", TEXTS[1])])
    top = model.predict(TEXTS[:2], 3, head="dual", exclude=np.array([[0, 40]]))
    assert "N1" not in top.ids[0]
    assert top.ids[1][0] == "N2"
    allowed = np.zeros(42, np.bool_)
    allowed[[3, 41]] = True
    top = model.predict(TEXTS, 5, allowed=allowed)
    assert {frozenset(ids) for ids in top.ids} == {frozenset({"L03", "N2"})}


def test_metrics_are_those_of_the_training(run, model, tiny_data):
    before = umpteen.evaluate(model, tiny_data).as_json()
    model.live.add([NewLabel("N1", tiny_data["test"].texts()[0])])
    model.live.retire(["L03"])
    assert umpteen.evaluate(model, tiny_data).as_json() == before


def test_contents_are_read_where_the_model_reads_them(model):
    model.live.add([NewLabel("N1", "old", "lantern pocket"), NewLabel("N2", "old")])
    top = model.predict("old lantern pocket", 1, head="dual")
    assert top.ids == [["N1"]]
    np.testing.assert_allclose(top.scores, [[1.0]], atol=1e-5)


def test_another_file_in_the_journals_place_is_encoded_anew(run, model):
    kept = (run / FILE_NAME).with_name("kept")
    model.live.add([NewLabel("N1", "one")])
    shutil.copy(run / FILE_NAME, kept)
    model.live.add([NewLabel("N2", TEXTS[0])])
    model.predict(TEXTS, 1)
    shutil.copy(kept, run / FILE_NAME)  # an older copy is put back
    LabelBook.open(run).add([NewLabel("N2", TEXTS[1])])
    assert model.predict(TEXTS[1], 1, head="dual").ids == [["N2"]]
    np.testing.assert_allclose(model.predict(TEXTS[1], 1, head="dual").scores, 1.0, atol=1e-5)


def test_a_damaged_journal_stops_loading_unless_told_otherwise(run, model):
    model.live.retire(["L01"])
    model.live.retire(["L02"])
    file = run / FILE_NAME
    file.write_bytes(file.read_bytes().replace(b"L01", b"L03"))
    with pytest.raises(JournalDamaged, match="line 2"):
        umpteen.Predictor.load(run)
    patient = umpteen.Predictor.load(run, device="cpu", tolerant=True)
    assert "L02" not in patient.predict(TEXTS, 50).ids[0]
    with pytest.raises(JournalDamaged):
        patient.live.retire(["L04"])


def test_threads_that_search_and_change_see_whole_states(model):
    stop, wrong = threading.Event(), []

    def search():
        while not stop.is_set():
            top = model.predict(TEXTS[:2], 45, head="dual")
            for ids in top.ids:
                if len(set(ids)) != len(ids) or len(ids) < 40:
                    wrong.append(ids)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(30):
        model.live.add([NewLabel(f"N{n}", f"red {n}")])
        model.live.retire([f"N{n}"])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
