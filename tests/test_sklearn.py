"""The scikit-learn estimator: its checks, forms of labels, pipelines, searches and dumps."""

import copy
import json
import pickle
from functools import partial

import forks
import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC
from sklearn.utils import get_tags

from umpteen.errors import ConfigError, DataError
from umpteen.sklearn import UmpteenClassifier, ranking_scorer

SETTINGS = {
    "encoder.table": "random",
    "encoder.dim": 16,
    "model.dim": 16,
    "batches.size": 20,
    "validation.share": 0.3,
    "ensemble.min_queries": 5,
    "ensemble.seconds": 1.0,
}


QUICK = SETTINGS | {"ensemble.lexical": False, "ensemble.seconds": 0.1}


def make(**options):
    given = {"settings": SETTINGS, "epochs": 4, "random_state": 0, **options}
    return UmpteenClassifier(**given)


@pytest.fixture(scope="module")
def texts(tiny_data):
    return tiny_data["train"].texts()


@pytest.fixture(scope="module")
def lists(tiny_data):
    matrix = tiny_data["train"].targets
    return [[tiny_data.labels.ids[row] for row in line.indices] for line in matrix]


@pytest.fixture(scope="module")
def indicator(tiny_data):
    return tiny_data["train"].targets.toarray().astype(np.int64)


@pytest.fixture(scope="module")
def fitted(texts, indicator):
    return make().fit(texts, indicator)


def test_tags_say_texts_in_and_many_labels_out():
    tags = get_tags(UmpteenClassifier())
    assert tags.input_tags.string
    assert tags.input_tags.one_d_array
    assert not tags.input_tags.two_d_array
    assert tags.classifier_tags.multi_label
    assert tags.target_tags.required
    assert tags.estimator_type == "classifier"


def test_parameters_are_kept_and_cloned():
    model = make(threshold=0.3)
    assert model.get_params()["threshold"] == 0.3
    other = clone(model).set_params(threshold="auto", epochs=1)
    assert (other.threshold, other.epochs, model.threshold) == ("auto", 1, 0.3)
    assert other.settings == SETTINGS


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
def test_neither_order_nor_company_of_texts_matters(method, fitted, texts):
    whole = getattr(fitted, method)(texts)
    order = np.random.default_rng(1).permutation(len(texts))
    shuffled = getattr(fitted, method)([texts[row] for row in order])
    np.testing.assert_allclose(shuffled, whole[order], atol=1e-6)
    alone = np.concatenate([getattr(fitted, method)([text]) for text in texts[:5]])
    np.testing.assert_allclose(alone, whole[:5], atol=1e-6)


def test_what_can_only_become_an_array_is_read(fitted, texts):
    class OnlyArray:
        def __array__(self, dtype=None, copy=None):
            return np.array(texts, object)

    np.testing.assert_array_equal(fitted.predict(OnlyArray()), fitted.predict(texts))


def test_wrong_input_is_a_value_error(texts):
    with pytest.raises(ValueError, match="X is a table") as caught:
        make().fit(pytest.importorskip("pandas").DataFrame({"a": texts}), [["x"]] * len(texts))
    assert isinstance(caught.value, DataError)
    with pytest.raises(ValueError, match="Unknown label type"):
        make().fit(texts, np.linspace(0, 1, len(texts)))


def test_an_indicator_matrix_comes_back_as_one(fitted, texts, indicator):
    found = fitted.predict(texts)
    assert found.shape == indicator.shape
    assert set(np.unique(found)) <= {0, 1}
    assert fitted.classes_.tolist() == list(range(40))
    proba = fitted.predict_proba(texts)
    assert proba.shape == indicator.shape
    assert (proba >= 0).all()
    assert (proba <= 1).all()
    np.testing.assert_array_equal(proba, fitted.decision_function(texts))
    # What is predicted is above the threshold, and nothing above it is left out.
    threshold = fitted.model_.ensemble.variant(()).calibration.threshold
    np.testing.assert_array_equal(found, proba >= threshold)
    wanted = f1_score(indicator, found, average="micro")
    assert fitted.score(texts, indicator) == pytest.approx(wanted)
    assert wanted > 0.3


def test_the_predictions_do_not_depend_on_other_texts(fitted, texts):
    whole = fitted.predict_proba(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    mixed = fitted.predict_proba([texts[place] for place in order])
    np.testing.assert_allclose(mixed, whole[order], atol=1e-5)
    np.testing.assert_allclose(fitted.predict_proba(texts[3:4]), whole[3:4], atol=1e-5)
    assert fitted.predict([]).shape == (0, 40)


def test_the_same_seed_gives_the_same_model(fitted, texts, indicator):
    again = make().fit(np.array(texts, object), indicator)
    np.testing.assert_array_equal(again.predict_proba(texts), fitted.predict_proba(texts))
    other = make(random_state=1).fit(texts, indicator)
    assert (other.predict_proba(texts) != fitted.predict_proba(texts)).any()


@pytest.mark.slow
def test_lists_and_sparse_and_frames_come_back_in_their_form(texts, lists, indicator, tiny_data):
    make_named = partial(make, label_texts=tiny_data.labels.titles)
    named = make_named().fit(texts, indicator)
    listed = make_named().fit(pd.Series(texts), lists)
    assert listed.classes_.tolist() == [f"L{row:02d}" for row in range(40)]
    found = listed.predict(texts)
    assert found.shape == (60,)
    dense = named.predict(texts)
    assert [[int(name[1:]) for name in row] for row in map(sorted, found)] == [
        np.flatnonzero(row).tolist() for row in dense
    ]
    assert listed.score(texts, lists) == pytest.approx(named.score(texts, indicator))
    assert listed.score(texts, [[*row, "unseen"] for row in lists]) < listed.score(texts, lists)
    sparse = make_named().fit(texts, sp.csr_matrix(indicator))
    assert sp.issparse(sparse.predict(texts))
    np.testing.assert_array_equal(sparse.predict(texts).toarray(), dense)
    names = [f"c{column}" for column in range(40)]
    framed = make_named().fit(texts, pd.DataFrame(indicator, columns=names))
    assert framed.classes_.tolist() == names
    np.testing.assert_array_equal(framed.predict(texts), dense)


@pytest.mark.slow
def test_one_label_for_each_text_is_a_classification(texts):
    y = np.array(["fruit" if "apple" in text else "thing" for text in texts])
    model = make().fit(texts, y)
    assert model.classes_.tolist() == ["fruit", "thing"]
    assert model.predict(texts).dtype == y.dtype
    proba = model.predict_proba(texts)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(texts))
    decision = model.decision_function(texts)
    assert decision.shape == (60,)
    np.testing.assert_array_equal(model.classes_[(decision > 0).astype(int)], model.predict(texts))
    assert model.score(texts, y) == pytest.approx((model.predict(texts) == y).mean())
    scores = cross_val_score(make(epochs=1, settings=QUICK), texts, y, cv=2)
    assert scores.shape == (2,)


def test_many_labels_give_sparse_scores(fitted, texts):
    few = copy.copy(fitted).set_params(max_dense_labels=10, top_k=5)
    scores = few.decision_function(texts)
    assert sp.issparse(scores)
    assert scores.shape == (60, 40)
    assert (np.diff(scores.indptr) == 5).all()
    whole = fitted.predict_proba(texts)
    np.testing.assert_allclose(scores.toarray()[scores.toarray() > 0],
                               whole[scores.toarray() > 0])  # fmt: skip
    assert sp.issparse(few.predict_proba(texts))
    assert sp.issparse(few.predict(texts))


def in_skops():
    import skops.io  # takes a second, so where it is used

    return skops.io


@pytest.mark.parametrize(
    ("dump", "load"),
    [
        (pickle.dumps, pickle.loads),
        (copy.deepcopy, lambda model: model),
        (lambda model: in_skops().dumps(model), lambda data: in_skops().loads(data, TRUSTED)),
    ],
)
def test_a_dumped_estimator_predicts_the_same(dump, load, fitted, texts):
    again = load(dump(fitted))
    np.testing.assert_array_equal(again.predict_proba(texts), fitted.predict_proba(texts))
    assert again.model_.folder != fitted.model_.folder
    assert again.get_params() == fitted.get_params()


TRUSTED = ["umpteen.sklearn.classifier.UmpteenClassifier"]


def test_skops_finds_nothing_else_to_trust(fitted):
    skops = in_skops()
    assert skops.get_untrusted_types(data=skops.dumps(fitted)) == TRUSTED


def print_probabilities(file):
    """Called in another process."""
    model, texts = joblib.load(file)
    print(json.dumps(model.predict_proba(texts).tolist()))


@pytest.mark.slow
def test_joblib_brings_an_estimator_to_another_process(fitted, texts, tmp_path):
    joblib.dump((make_pipeline(fitted), texts[:4]), tmp_path / "model.joblib")
    said = tmp_path / "said.txt"
    code, printed = forks.run(
        __file__, "print_probabilities", str(tmp_path / "model.joblib"), file=said
    )
    assert code == 0, printed
    np.testing.assert_allclose(json.loads(printed), fitted.predict_proba(texts[:4]), atol=1e-6)


def test_an_unfitted_estimator_can_be_dumped(texts):
    again = pickle.loads(pickle.dumps(make()))
    with pytest.raises(NotFittedError):
        again.predict(texts)
    for method in ("predict_proba", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(again, method)(texts)
    with pytest.raises(NotFittedError):
        again.score(texts, texts)


@pytest.mark.slow
def test_pipelines_searches_and_cross_validation_work(texts, indicator):
    pipe = make_pipeline(FunctionTransformer(lowered), make(epochs=1, settings=QUICK))
    search = GridSearchCV(
        pipe,
        {"umpteenclassifier__threshold": [0.05, 0.9]},
        scoring={name: ranking_scorer(name) for name in ("P@1", "nDCG@3", "PSP@3")},
        refit="P@1",
        cv=2,
        error_score="raise",
    ).fit(texts, indicator)
    assert search.best_estimator_.predict(texts).shape == indicator.shape
    assert {"mean_test_P@1", "mean_test_PSP@3", "mean_test_nDCG@3"} <= set(search.cv_results_)
    scores = cross_val_score(pipe, texts, indicator, cv=KFold(2), error_score="raise")
    assert ((scores >= 0) & (scores <= 1)).all()
    found = cross_val_predict(make(epochs=1, settings=QUICK), np.array(texts), indicator, cv=2)
    assert found.shape == indicator.shape


def lowered(texts):
    return [text.lower() for text in texts]


def test_scorers_rank_as_the_metrics_define(fitted, texts, indicator, lists):
    proba = fitted.predict_proba(texts)
    best = proba.argsort(axis=1, kind="stable")[:, ::-1]
    order = np.argsort(-proba, axis=1, kind="stable")
    wanted = np.take_along_axis(indicator, order[:, :3], 1).mean()
    assert best.shape == order.shape
    assert ranking_scorer("P@3")(fitted, texts, indicator) == pytest.approx(wanted)
    few = copy.copy(fitted).set_params(max_dense_labels=10)
    for metric in ("P@1", "nDCG@5", "PSP@3"):
        dense, sparse = (ranking_scorer(metric)(each, texts, indicator) for each in (fitted, few))
        assert dense == pytest.approx(sparse)
    # A label that the estimator does not have is a miss, and counts as a positive.
    framed = pd.DataFrame(indicator, columns=range(40))
    more = framed.assign(other=1)
    recall = [ranking_scorer("R@5")(fitted, texts, each) for each in (framed, more)]
    assert recall[1] < recall[0]


def test_scorers_take_other_estimators(texts, indicator):
    other = make_pipeline(TfidfVectorizer(), OneVsRestClassifier(LinearSVC())).fit(texts, indicator)
    scores = other.decision_function(texts)
    best = (-scores).argsort(axis=1, kind="stable")[:, :1]
    wanted = np.take_along_axis(indicator, best, 1).mean()
    assert ranking_scorer("P@1")(other, texts, indicator) == pytest.approx(wanted)
    with pytest.raises(DataError, match=r"use ranking_scorer\('PSP@1', y_train=y_train\)"):
        ranking_scorer("PSP@1")(other, texts, indicator)
    assert 0 < ranking_scorer("PSP@1", y_train=indicator)(other, texts, indicator) <= 1
    with pytest.raises(DataError, match="no decision_function or predict_proba"):
        ranking_scorer("P@1")(OnlyPredicts(), texts, indicator)
    with pytest.raises(ConfigError, match="nothing@1"):
        ranking_scorer("nothing@1")


class OnlyPredicts:
    classes_ = np.arange(40)


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        (pd.DataFrame({"text": ["a", "b"]}), [["x"], ["y"]], r"such as table\['text'\]"),
        (np.zeros((2, 3)), [["x"], ["y"]], r"X has the shape \(2, 3\)"),
        ([1, 2], [["x"], ["y"]], r"X\[0\] is int, not text"),
        (["a", "b"], None, "the target y is None"),
        (["a", "b"], [["x"]], "X has 2 texts, but y has labels for 1"),
        (["a", "b"], [["x"], "y"], r"y\[1\] is 'y'; give a list of labels"),
        (["a", "b"], [["x"], [1.5]], "y holds 1.5; labels are text or whole numbers"),
        (["a", "b"], ["x", float("nan")], "without missing values"),
        (["a", "b"], np.array([[0, 2], [1, 0]]), "y holds 2; an indicator matrix holds 0 and 1"),
        (["a", "b"], np.array([[0.5, 0], [1, 0]]), "y holds 0.5"),
        (["a", "b"], np.array([["x", "y"], ["z", "w"]]), "y is an array of <U1"),
        (["a", "b"], np.zeros((2, 2, 2)), r"y has the shape \(2, 2, 2\)"),
        (["a", "b"], np.zeros((2, 3), int), "no text of y has any label"),
        (["a", "b"], [[1], ["1"]], "the label '1' is there twice"),
    ],
)
def test_wrong_values_are_sentences(X, y, sentence):
    with pytest.raises(DataError, match=sentence):
        make().fit(X, y)


def test_label_texts_are_read(texts, indicator, tiny_data):
    names = tiny_data.labels.titles
    model = make(label_texts=names, epochs=1, settings=QUICK).fit(texts, indicator)
    assert model.model_.labels.texts[3] == names[3]
    by_label = make(label_texts={3: "three"}, epochs=1, settings=QUICK).fit(texts, indicator)
    assert by_label.model_.labels.texts[3] == "three"
    assert by_label.model_.labels.texts[4] == "4"
    with pytest.raises(DataError, match="2 label texts for 40 labels"):
        make(label_texts=["a", "b"]).fit(texts, indicator)


def test_settings_are_a_mapping_or_strings():
    strings = ["seed=3", "train.epochs=9"]
    model = UmpteenClassifier(settings=strings, epochs=2)
    assert model._overrides() == [*strings, "train.epochs=2"]
    assert UmpteenClassifier(settings={"seed": 3})._overrides() == ["seed=3"]
    with pytest.raises(ConfigError, match="give a list"):
        UmpteenClassifier(settings="seed=3")._overrides()
