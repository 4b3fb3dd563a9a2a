"""The checks of scikit-learn itself, on texts.

``check_estimator`` runs one check on an estimator whose input is strings in one dimension
(``check_estimator_cloneable``) and skips all others: its data are matrices of numbers. It shapes
them with one function, ``_enforce_estimator_tags_X``, which knows no strings. Here that function
makes texts of the numbers, and the checks that apply to texts are called one by one. Not among
them: checks of features (``n_features_in_``, dtypes, sparse X, NaN in X, memory layout), of sample
weights, class weights, ``partial_fit`` and ``transform``, which the estimator does not have, and
``check_classifier_data_not_an_array``, which fits a table of one column; the estimator refuses
tables. Order and subsets, whose checks count features, are tested in ``test_sklearn.py``.
"""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn", minversion="1.6")

from sklearn.utils import estimator_checks

from umpteen.sklearn import UmpteenClassifier

WITHOUT_FIT = [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_unfitted",
]
WITH_FIT = [
    "check_classifiers_classes",
    "check_classifiers_multilabel_output_format_decision_function",
    "check_classifiers_multilabel_output_format_predict",
    "check_classifiers_multilabel_output_format_predict_proba",
    "check_classifiers_multilabel_representation_invariance",
    "check_classifiers_one_label",
    "check_classifiers_regression_target",
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_pipeline_consistency",
    "check_readonly_memmap_input",
    "check_requires_y_none",
    "check_supervised_y_2d",
    "check_supervised_y_no_nan",
]
SMALL = {
    "encoder.table": "random",
    "encoder.dim": 8,
    "model.dim": 8,
    "batches.size": 32,
    "ensemble.lexical": False,
    "ensemble.min_queries": 5,
    "ensemble.seconds": 0.1,
    "validation.share": 0.3,
    "train.checkpoint_seconds": 1000,
}


class Texts(np.ndarray):
    """Texts made of rows of numbers; a column of the numbers can still be read, for y."""

    numbers = None

    def __getitem__(self, key):
        column = isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], int)
        return self.numbers[key] if column else super().__getitem__(key)


def as_words(rows):
    """Return a text for each row: a word for each number, after its column and its size."""
    rows = np.asarray(rows).reshape(len(rows), -1)
    texts = [
        " ".join(f"{chr(97 + column % 26)}{round(2 * float(x))}" for column, x in enumerate(row))
        for row in rows
    ]
    made = np.array(texts, object).view(Texts)
    made.numbers = rows
    return made


@pytest.fixture
def on_texts(monkeypatch):
    """Give the checks texts instead of numbers."""

    def enforce(estimator, X, X_test=None, **_):  # noqa: N803
        return as_words(X) if X_test is None else (as_words(X), as_words(X_test))

    monkeypatch.setattr(estimator_checks, "_enforce_estimator_tags_X", enforce)


def run_check(name, estimator):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(estimator_checks, name)("UmpteenClassifier", estimator)


def test_check_estimator_passes_and_says_what_it_skips():
    with pytest.warns(estimator_checks.SkipTestWarning, match="requires input"):
        estimator_checks.check_estimator(UmpteenClassifier())


@pytest.mark.parametrize("name", WITHOUT_FIT)
def test_checks_without_a_fit(name):
    run_check(name, UmpteenClassifier())


@pytest.mark.parametrize("name", WITH_FIT)
def test_checks_on_texts(name, on_texts):
    estimator = UmpteenClassifier(
        settings=SMALL, epochs=1, threshold=0.5, random_state=0, device="cpu"
    )
    run_check(name, estimator)
