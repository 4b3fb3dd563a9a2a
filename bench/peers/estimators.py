"""umpteen and OneVsRest(LinearSVC) as scikit-learn estimators on one data set, in one table.

    python -m bench peers estimators DATA [--texts 2000] [--cv 2] [--seeds 0 1 2]
        [--out rows.json]

Both are pipelines. ``cross_val_score`` (nDCG@5) and a ``GridSearchCV`` run on so many training
texts, drawn by the seed; the best settings are fitted on all of these texts and judged on the test
split once. With several seeds the table has means; the JSON file has each. joblib then takes each
estimator to a new process, whose scores must be the same. Seconds are CPU seconds of this process
and its threads.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import f1_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import LinearSVC

import umpteen
from bench.common import options
from bench.common.results import facts, save
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch
from umpteen.sklearn import UmpteenClassifier, ranking_scorer

METRICS = ("P@1", "P@5", "nDCG@5", "PSP@1", "PSP@5")
AGAIN = """
import sys, joblib
model, texts = joblib.load(sys.argv[1])
joblib.dump(model.decision_function(texts), sys.argv[2])
"""


def squeeze(texts: list[str]) -> list[str]:
    """Return texts with single spaces."""
    return [" ".join(text.split()) for text in texts]


def pipelines(seed: int) -> dict[str, tuple[Pipeline, dict[str, list[Any]]]]:
    """The estimators with what is searched."""
    ours = Pipeline(
        [("clean", FunctionTransformer(squeeze)), ("model", UmpteenClassifier(random_state=seed))]
    )
    linear = Pipeline(
        [
            ("clean", FunctionTransformer(squeeze)),
            ("words", TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))),
            ("model", OneVsRestClassifier(LinearSVC())),
        ]
    )
    return {
        "UmpteenClassifier": (ours, {"model__epochs": [5, 15, 30]}),
        "OneVsRest(LinearSVC)": (linear, {"model__estimator__C": [0.3, 1.0, 3.0]}),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--cv", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    warnings.filterwarnings("ignore", message="Label not")  # rare labels that a fold lacks
    data, rows = umpteen.load_dataset(args.data), []
    for seed in args.seeds:
        args.seed = seed
        for row in one_seed(data, args):
            rows.append({"seed": seed, **row})
            save(args.out, rows, **facts("cpu"))
    print_rows(means(rows), digits=1)


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average numbers over seeds; list what is no number."""
    made = []
    for name in dict.fromkeys(row["estimator"] for row in rows):
        own = [row for row in rows if row["estimator"] == name]
        shown = {"estimator": name, "seeds": len(own)}
        for key in (key for key in own[0] if key not in ("seed", "estimator")):
            values = [row[key] for row in own]
            numbers = all(isinstance(value, float) for value in values)
            shown[key] = float(np.mean(values)) if numbers else " / ".join(dict.fromkeys(values))
        made.append(shown)
    return made


def one_seed(data: umpteen.Dataset, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the row of each estimator."""
    train, test = data["train"], data["test"]
    rng = np.random.default_rng(args.seed)
    drawn = np.sort(rng.permutation(len(train))[: args.texts])
    targets = sp.csr_matrix(train.targets[drawn] > 0, dtype=np.int64)
    kept = np.flatnonzero(targets.getnnz(axis=0))  # labels that occur in the drawn texts
    y, texts = targets[:, kept].toarray(), [train.texts()[row] for row in drawn]
    y_test = (test.targets[:, kept] > 0).toarray().astype(np.int64)
    print(f"{len(texts)} texts, {len(kept)} labels, {len(test)} test texts", file=sys.stderr)
    for name, (pipe, grid) in pipelines(args.seed).items():
        yield {"estimator": name, **measured(pipe, grid, texts, y, test.texts(), y_test, args)}


class LackingLast:
    """A fitted OneVsRest pipeline whose labels without a text in the fold rank last.

    scikit-learn gives such a label the score 0, which is above those of most other labels.
    """

    def __init__(self, pipe: Pipeline) -> None:
        self.pipe, self.classes_ = pipe, pipe.classes_
        each = pipe[-1].estimators_
        self.lacking = [number for number, one in enumerate(each) if not hasattr(one, "coef_")]

    def decision_function(self, texts: list[str]) -> np.ndarray:
        scores = self.pipe.decision_function(texts)
        scores[:, self.lacking] = scores.min() - 1
        return scores


def select(pipe: Pipeline, texts: list[str], y: np.ndarray) -> float:
    """nDCG@5, by which settings are chosen."""
    judged = LackingLast(pipe) if hasattr(pipe[-1], "estimators_") else pipe
    return ranking_scorer("nDCG@5")(judged, texts, y)


def measured(pipe, grid, texts, y, test_texts, y_test, args) -> dict[str, Any]:
    cv = KFold(args.cv, shuffle=True, random_state=args.seed)
    scores = cross_val_score(pipe, texts, y, cv=cv, scoring=select, error_score="raise")
    search = GridSearchCV(pipe, grid, scoring=select, cv=cv, refit=False, error_score="raise")
    search.fit(texts, y)
    pipe.set_params(**search.best_params_)
    with Stopwatch() as fitting:
        pipe.fit(texts, y)
    values = {
        metric: 100 * ranking_scorer(metric, y_train=y)(pipe, test_texts, y_test)
        for metric in METRICS
    }
    found = pipe.predict(test_texts)
    micro, macro = (
        100 * f1_score(y_test, found, average=kind, zero_division=0) for kind in ("micro", "macro")
    )
    best = ", ".join(f"{k.rpartition('__')[2]} {v}" for k, v in search.best_params_.items())
    return {
        "cross-validated nDCG@5": float(100 * scores.mean()),
        "best of the grid": best,
        **values,
        "micro-F1": micro,
        "macro-F1": macro,
        "fit, CPU s": fitting.cpu,
        **round_trip(pipe, test_texts[:200]),
    }


def round_trip(pipe: Pipeline, texts: list[str]) -> dict[str, Any]:
    """Dump, load in a new process, and compare all scores."""
    with tempfile.TemporaryDirectory() as folder:
        model, scores = Path(folder) / "model", Path(folder) / "scores"
        pipe.set_params(clean="passthrough")  # its function is of this file
        joblib.dump((pipe, squeeze(texts)), model)
        subprocess.run([sys.executable, "-c", AGAIN, model, scores], check=True)
        here, there = pipe.decision_function(squeeze(texts)), joblib.load(scores)
        here, there = (x.toarray() if sp.issparse(x) else x for x in (here, there))
        same = bool(np.allclose(here, there, atol=1e-6))
        size = model.stat().st_size / 1e6
    return {"joblib file, MB": size, "same in a new process": "yes" if same else "no"}
