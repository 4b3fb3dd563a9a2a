"""The ensemble head and changes without training: corrections, labels, thresholds, one snapshot."""

import shutil
import threading

import numpy as np
import pytest

import umpteen
from umpteen.errors import ConfigError, DataError
from umpteen.ranking.adjustments import EMPTY, UNKNOWN
from umpteen.store import NewLabel

NOVEL = "quite another lantern text"


@pytest.fixture(scope="module")
def model(tiny_run):
    return umpteen.Predictor.load(tiny_run, device="cpu")


@pytest.fixture
def run(tiny_run, tmp_path):
    return shutil.copytree(tiny_run, tmp_path / "run")


@pytest.fixture
def own(run):
    """A model whose run may be changed."""
    return umpteen.Predictor.load(run, device="cpu")


def test_the_ensemble_is_the_default_and_returns_probabilities(model, tiny_data):
    assert model.heads == ("dual", "classifier", "combined", "ensemble")
    texts = tiny_data["test"].texts()
    top = model.predict(texts, 5)
    np.testing.assert_array_equal(top.rows, model.predict(texts, 5, head="ensemble").rows)
    assert ((top.scores >= 0) & (top.scores <= 1)).all()
    assert (np.diff(top.scores, axis=1) <= 0).all()
    assert top.ids[0] == [tiny_data.labels.ids[row] for row in top.rows[0]]
    assert top.notes == [None] * len(texts)
    assert top.explanations is None


@pytest.mark.parametrize("scorer", ["dual", "classifier", "knn", "lexical"])
def test_every_scorer_can_be_left_out(scorer, model, tiny_data):
    texts = tiny_data["test"].texts()
    assert scorer not in model.ensemble.variant([scorer]).scorers
    whole, less = model.predict(texts, 5), model.predict(texts, 5, without=[scorer])
    assert not np.array_equal(whole.scores, less.scores)


def test_scorers_that_do_not_exist_or_were_not_fitted_are_a_sentence(model):
    with pytest.raises(ConfigError, match="no scorer 'magic'; use one of dual, classifier, knn"):
        model.predict("a", without=["magic"])
    with pytest.raises(ConfigError, match="No variant was fitted without classifier, dual"):
        model.predict("a", without=["dual", "classifier"])


# -- explanations ---------------------------------------------------------------------------------


def test_explanations_have_the_scores_and_contributions_of_every_prediction(model, tiny_data):
    texts = tiny_data["test"].texts()[:3]
    top = model.predict(texts, 4, explain=True)
    assert [len(line) for line in top.explanations] == [4, 4, 4]
    np.testing.assert_array_equal(top.rows, model.predict(texts, 4).rows)
    queries = model.vectors(texts).numpy()
    variant = model.ensemble.variants[0]
    for query in range(3):
        for rank, entry in enumerate(top.explanations[query]):
            row = top.rows[query, rank]
            dual = model.label_vectors.numpy("dual")[row] @ queries[query, :16]
            assert entry["scores"]["dual"] == pytest.approx(float(dual), abs=1e-5)
            assert set(entry["scores"]) == set(variant.retrievers)
            assert set(entry["contributions"]) == {*variant.scorers, "frequency"}
        totals = [sum(entry["contributions"].values()) for entry in top.explanations[query]]
        assert totals == sorted(totals, reverse=True) or variant.tail_boost
    assert sum(variant.contributions.values()) == pytest.approx(100)


def test_explaining_encodes_and_retrieves_once(own, monkeypatch):
    counts = {}

    def counted(holder, name):
        original = getattr(holder, name)

        def call(*given, **options):
            key = (type(holder).__name__, name)
            counts[key] = counts.get(key, 0) + 1
            return original(*given, **options)

        monkeypatch.setattr(holder, name, call)

    counted(own.encoder, "vectors")
    counted(own.label_vectors, "search")
    for name in ("knn", "lexical_knn"):
        counted(own._ranker.retrievers[name], "nearest")
    for name in ("lexical_ranker", "knn", "lexical_knn"):
        counted(own._ranker.retrievers[name], "retrieve")
    own.predict(["red apple", "old river"], 3, explain=True)
    assert counts
    assert set(counts.values()) == {1}


def test_a_threshold_keeps_the_explanations_of_what_it_keeps(model, tiny_data):
    texts = tiny_data["test"].texts()
    whole = model.predict(texts, 5, explain=True)
    cut = model.predict(texts, 5, explain=True, threshold="groups")
    for query in range(len(texts)):
        assert len(cut.explanations[query]) == len(cut.ids[query])
        for label_id, entry in zip(cut.ids[query], cut.explanations[query], strict=True):
            assert entry == whole.explanations[query][whole.ids[query].index(label_id)]
    first = whole.cut(2)
    assert [len(line) for line in first.explanations] == [2] * len(texts)


# -- thresholds -----------------------------------------------------------------------------------


def test_a_threshold_leaves_out_smaller_probabilities(model, tiny_data):
    texts = tiny_data["test"].texts()
    whole = model.predict(texts, 10)
    for threshold in (0.0, 0.3, 0.9, 1.0, "auto"):
        limit = model.ensemble.variants[0].calibration.threshold
        limit = limit if threshold == "auto" else threshold
        cut = model.predict(texts, 10, threshold=threshold)
        for query in range(len(texts)):
            kept = whole.rows[query][whole.scores[query] >= np.float32(limit)]
            np.testing.assert_array_equal(cut.rows[query][cut.rows[query] >= 0], kept)
        assert np.isneginf(cut.scores[cut.rows < 0]).all()


@pytest.mark.parametrize("threshold", [-0.1, 1.5, 50, float("nan"), "high"])
def test_a_threshold_that_is_no_probability_is_refused(threshold, model):
    with pytest.raises(ConfigError, match="threshold"):
        model.predict("red apple", threshold=threshold)


@pytest.mark.parametrize("head", ["dual", "classifier", "combined"])
def test_heads_without_probabilities_refuse_what_needs_them(head, model):
    for options, what in (
        ({"threshold": 0.5}, "a threshold"),
        ({"threshold": "auto"}, "a threshold"),
        ({"explain": True}, "an explanation"),
        ({"without": ["knn"]}, "leaving out knn"),
    ):
        with pytest.raises(ConfigError, match=f"{what} needs the head 'ensemble'.* is '{head}'"):
            model.predict("red apple", head=head, **options)


# -- texts without evidence -----------------------------------------------------------------------


def test_texts_without_evidence_have_a_note_and_no_label_above_the_threshold(model):
    texts = ["", "  \n", "zzz qqq xyzzy", "red apple"]
    top = model.predict(texts, 5)
    assert top.notes == [EMPTY, EMPTY, UNKNOWN, None]
    for threshold in ("auto", "groups"):
        cut = model.predict(texts, 5, threshold=threshold)
        assert [bool(ids) for ids in cut.ids] == [False, False, False, True]
        assert cut.notes == top.notes
    assert (np.diff(top.scores, axis=1) <= 0).all()


def test_a_correction_gives_an_unknown_text_its_label(own):
    own.add_examples(["zzz qqq xyzzy"], [["L07"]])
    top = own.predict("zzz qqq xyzzy", 3, threshold="auto")
    assert top.ids[0][0] == "L07"
    assert top.scores[0, 0] >= 0.99
    assert top.notes == [None]


# -- corrections ----------------------------------------------------------------------------------


def test_a_correction_counts_at_once_here_and_elsewhere(run):
    ours, theirs = (umpteen.Predictor.load(run, device="cpu") for _ in range(2))
    before = ours.predict([NOVEL, "red apple"], 40)
    last = before.ids[0][-1]
    assert ours.add_examples([NOVEL], [[last]]) == 1
    for model in (ours, theirs, umpteen.Predictor.load(run, device="cpu")):
        after = model.predict([NOVEL, "red apple"], 40)
        assert after.ids[0][0] == last
        assert after.scores[0, 0] >= 0.99
        assert after.scores[0, 1] < 0.99
        assert (np.diff(after.scores, axis=1) <= 0).all()
    assert after.ids[1][0] == before.ids[1][0]  # another text, far away
    near = ours.predict(NOVEL + " very", 40, explain=True)
    entry = near.explanations[0][near.ids[0].index(last)]
    assert entry["scores"]["knn"] > 0.05
    assert entry["scores"]["lexical_knn"] > 0.05


def test_a_correction_never_lowers_the_label_that_it_names(own, tiny_data):
    texts = tiny_data["test"].texts()
    for place, text in enumerate(texts[:8]):
        before = own.predict(text, 40)
        for rank in (0, 5):
            label = before.ids[0][rank]
            own.add_examples([text], [[label]])
            after = own.predict(text, 40)
            assert after.ids[0][0] == label, place
            assert after.scores[0, 0] >= max(np.float32(0.99), before.scores[0, rank])


def test_a_correction_lowers_the_labels_it_leaves_out(own, tiny_data):
    for text in tiny_data["test"].texts()[:8]:
        before = own.predict(text, 40)
        chances = dict(zip(before.ids[0], before.scores[0].tolist(), strict=True))
        own.add_examples([text], [[before.ids[0][3]]])
        assert own.predict(text, 40, threshold="auto").ids[0] == [before.ids[0][3]]
        after = own.predict(text, 40)
        others = dict(zip(after.ids[0], after.scores[0].tolist(), strict=True))
        del others[before.ids[0][3]]
        assert all(chance <= chances[label] for label, chance in others.items())


def test_a_training_text_can_be_corrected(own, tiny_data):
    text = tiny_data["train"].texts()[0]
    wrong = own.predict(text, 40).ids[0][-1]
    own.add_examples([text], [[wrong]])
    top = own.predict(text, 2, explain=True)
    assert top.ids[0][0] == wrong
    # The training text that the correction replaces does not vote any more.
    assert top.explanations[0][0]["scores"]["knn"] > top.explanations[0][1]["scores"]["knn"]


def test_a_second_correction_of_a_text_replaces_the_first(own):
    own.add_examples([NOVEL], [["L07"]])
    own.add_examples([NOVEL], [["L08", "L09"]])
    top = own.predict(NOVEL, 3)
    assert set(top.ids[0][:2]) == {"L08", "L09"}
    assert (top.scores[0, :2] >= 0.99).all()
    assert top.scores[0, 2] < 0.99
    assert own.snapshot().examples.n_corrections == 1


def test_bad_corrections_are_refused_as_a_whole(own):
    with pytest.raises(DataError, match="add the label first"):
        own.add_examples(["a", "b"], [["L00"], ["nobody"]])
    with pytest.raises(DataError, match="blank text"):
        own.add_examples(["a", " "], [["L00"], ["L00"]])
    assert own.snapshot().examples.n_corrections == 0


# -- labels ---------------------------------------------------------------------------------------


def test_added_labels_can_be_predicted_corrected_and_retired(own):
    own.add_labels([NewLabel("N1", "purple lantern")])
    own.add_examples([NOVEL], [["N1", "L01"]])
    assert set(own.predict(NOVEL, 2).ids[0]) == {"N1", "L01"}
    top = own.predict("purple lantern", 41, explain=True)
    entry = top.explanations[0][top.ids[0].index("N1")]
    assert entry["scores"]["lexical_ranker"] > 1
    dual = own.predict("purple lantern", 41, head="dual")
    assert entry["scores"]["dual"] == pytest.approx(
        dual.scores[0][dual.ids[0].index("N1")], abs=1e-5
    )
    assert own.retire_labels(["N1"]) == 1
    assert own.predict(NOVEL, 40).ids[0][0] == "L01"
    for head in own.heads:
        assert "N1" not in own.predict([NOVEL, "purple lantern"], 41, head=head).ids[0]
    assert own.restore_labels(["N1"]) == 1
    assert "N1" in own.predict("purple lantern", 3).ids[0]


def test_an_added_label_whose_text_is_given_word_for_word_is_first(own):
    texts = ["purple umbrella stand", "velvet", "green cucumber, sliced"]
    own.add_labels({f"N{place}": text for place, text in enumerate(texts)})
    top = own.predict(texts, 5)
    assert [ids[0] for ids in top.ids] == ["N0", "N1", "N2"]
    for text in ("red apple", "old river"):
        top = own.predict(text, 10)
        added = [place for place, id_ in enumerate(top.ids[0]) if id_.startswith("N")]
        assert all(top.scores[0][added] < 0.05)
        assert not {"N0", "N1", "N2"} & set(top.ids[0][:2])


def test_as_trained_ignores_changes(own):
    before = own.predict(["red apple", NOVEL], 5)
    own.add_examples([NOVEL], [["L07"]])
    own.retire_labels([before.ids[0][0]])
    trained = own.as_trained().predict(["red apple", NOVEL], 5)
    np.testing.assert_array_equal(trained.rows, before.rows)
    np.testing.assert_array_equal(trained.scores, before.scores)
    assert own.predict("red apple", 5).ids[0][0] != before.ids[0][0]


# -- one snapshot per request ---------------------------------------------------------------------


def check_one_moment(top, head):
    """Ids belong to the rows of one label set; pairs that change together are there together."""
    labels = top.labels
    assert top.rows.max() < len(labels)
    for line, ids in zip(top.rows, top.ids, strict=True):
        assert ids == [labels.ids[row] for row in line if row >= 0]
        assert len(set(ids)) == len(ids)
        if head != "ensemble" and len(ids) < len(line):  # all labels that are not retired
            added = {label_id for label_id in ids if label_id.startswith("N")}
            assert added == {label_id[:-1] + "ba"["ab".index(label_id[-1])] for label_id in added}


def change_often(model, n_changes):
    """Add, correct, retire and restore, some labels only in pairs."""
    for place in range(n_changes):
        pair = [f"N{place}a", f"N{place}b"]
        model.add_labels({pair[0]: f"purple lantern {place}", pair[1]: f"velvet {place}"})
        model.add_examples([f"{NOVEL} {place}", NOVEL], [[pair[0]], ["L07", pair[1]]])
        model.retire_labels([*pair, "L05"])
        if place % 3 == 0:
            model.restore_labels(pair)
        model.restore_labels(["L05"])


def test_every_request_uses_one_snapshot_while_labels_and_examples_change(own):
    n_threads, n_changes = 8, 24
    failures, done, n_answers = [], threading.Event(), [0] * n_threads

    def guarded(work, *given):
        try:
            work(*given)
        except BaseException as error:
            failures.append(error)
            done.set()

    def predict(number):
        head = ("ensemble", "ensemble", "combined", "dual")[number % 4]
        while not done.is_set() or not n_answers[number]:
            before = own.snapshot()
            top = own.predict(["red apple", NOVEL, "purple lantern 3", ""], 200, head=head)
            assert len(top.labels) >= before.n_labels
            check_one_moment(top, head)
            n_answers[number] += 1

    def change():
        change_often(own, n_changes)
        done.set()

    threads = [
        threading.Thread(target=guarded, args=(predict, number)) for number in range(n_threads)
    ]
    threads.append(threading.Thread(target=guarded, args=(change,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert min(n_answers) > 0
    ours = own.snapshot()
    assert ours.n_labels == 40 + 2 * n_changes
    assert ours.examples.n_corrections == n_changes + 1
    again = umpteen.Predictor.load(own.folder, device="cpu")
    assert list(again.snapshot().labels.ids) == list(ours.labels.ids)
    np.testing.assert_array_equal(again.snapshot().allowed, ours.allowed)
    assert own.predict(NOVEL, 1).ids == again.predict(NOVEL, 1).ids == [["L07"]]


def test_predict_takes_one_snapshot(own, monkeypatch):
    taken = []
    current = own._source.current

    def counted(**options):
        taken.append(current(**options))
        return taken[-1]

    monkeypatch.setattr(own._source, "current", counted)
    for head in own.heads:
        taken.clear()
        top = own.predict(["red apple"], 3, head=head)
        assert len(taken) == 1
        assert top.labels is taken[0].labels


def test_a_copy_is_of_one_moment_while_others_change_the_run(run, tmp_path):
    """The store is copied by SQLite: its log may hold changes that its file does not."""
    model = umpteen.Predictor.load(run, device="cpu")
    model.add_labels({"first": "purple lantern"})
    other = umpteen.Predictor.load(run, device="cpu")
    other.add_labels({f"n{n}": f"label {n}" for n in range(50)})
    assert (run / "changes.sqlite-wal").exists()
    model.save(tmp_path / "copy")
    names = {place.name for place in (tmp_path / "copy").iterdir()}
    assert "changes.sqlite" in names
    assert not names & {"changes.sqlite-wal", "changes.sqlite-shm", "cache"}
    copied = umpteen.Predictor.load(tmp_path / "copy", device="cpu")
    assert len(copied.snapshot().labels) == len(model.snapshot().labels)
    assert copied.add_labels({"last": "of the copy alone"}) == 1
    assert len(model.snapshot().labels) == len(copied.snapshot().labels) - 1


def test_a_run_of_other_labels_in_its_place_does_not_stop_predictions(run, tmp_path, caplog):
    from umpteen.data.labels import LabelSet
    from umpteen.errors import LabelMismatch
    from umpteen.store import ChangeStore, NewLabel

    model = umpteen.Predictor.load(run, device="cpu")
    model.add_labels({"new": "purple lantern"})
    assert model.predict("purple lantern", 1, head="dual").ids == [["new"]]
    run.rename(tmp_path / "before")
    run.mkdir()
    ChangeStore.open(run, LabelSet(["z"], ["other"])).add_labels([NewLabel("y", "and another")])
    assert model.predict("purple lantern", 1, head="dual").ids == [["new"]]
    assert "predicting with the changes read before" in caplog.text
    with pytest.raises(LabelMismatch):
        model.add_labels({"more": "refused"})


def test_one_text_takes_its_labels_as_one_list(run):
    model = umpteen.Predictor.load(run, device="cpu")
    assert model.add_examples("a purple thing", ["L01", "L02"]) == 1
    assert model.add_examples("a yellow thing", [["L01"]]) == 1
    assert set(model.predict("a purple thing", 2).ids[0]) == {"L01", "L02"}
    with pytest.raises(DataError, match="no list of labels"):
        model.add_examples(["a purple thing"], ["L01"])
    assert model.add_examples("a black thing", "L02") == 1
    assert model.predict("a black thing", 1).ids == [["L02"]]
    with pytest.raises(DataError, match="found 2 texts and labels for 1; give a list of label ids"):
        model.add_examples(["one thing", "two things"], "L01")


def test_one_label_is_retired_and_restored_by_its_id(own):
    assert own.retire_labels("L01") == 1
    assert own.retire_labels(["L01"]) == 0
    assert own.restore_labels("L01") == 1


@pytest.mark.parametrize("labels", [["sweet cherry"], "sweet cherry", [("N1", "sweet cherry")]])
def test_labels_without_ids_are_refused(own, labels):
    with pytest.raises(DataError, match="pass a dict"):
        own.add_labels(labels)
