"""Fit the prior weights of the ensemble on small parts of training splits, and judge them.

    python -m bench ensemble prior DATA [DATA ...] [--texts 20 60 200] [--held 400] [--seeds 2]

For each data set, number of texts and seed, a model is trained on so many texts of the train split,
and the weights of all retrievers are fitted to other texts of the same split, without a prior. The
prior to enter in ``ranking/prior.py`` is the mean over data sets. Each data set is judged with the
present prior and with the prior of the *other* data sets, by nDCG@5, P@1 and the calibration error.
Test splits are not read.
"""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from bench.common.tables import print_rows
from bench.common.training_runs import scratch_folder
from umpteen import Dataset, load_dataset
from umpteen.config.settings import from_mapping
from umpteen.ranking.calibration import PLACES, QUERY_INPUTS, calibration_inputs
from umpteen.ranking.candidates import best_candidates, top_k
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.ensemble_fitting import DECAY, ConditionalLogit, fit_unseen
from umpteen.ranking.features import feature_owners, matrix
from umpteen.ranking.prior import prior_calibration, prior_weights, unseen_share
from umpteen.ranking.solver import minimize_convex
from umpteen.ranking.thresholds import set_metrics
from umpteen.ranking.unseen_labels import UnseenWeights, text_feature_owners
from umpteen.ranking.variant_fitting import positives_of
from umpteen.run_folder import RunFolder
from umpteen.training.ensemble_validation import Judge, collect
from umpteen.training.fit_retrievers import with_retrievers
from umpteen.training.fit_time import FitTime
from umpteen.training.run import train
from umpteen.types import TopK

KEYS = ("mean", "scale", "weights")


def part_of(data, n_train, n_held, seed):
    """A data set of some training texts, others as validation, with the labels of both."""
    split = data["train"]
    order = np.random.default_rng(seed).permutation(len(split))
    targets = split.filtered_targets().tocsr()
    order = order[np.diff(targets.indptr)[order] > 0][: n_train + n_held]
    texts = split.texts("title")
    used = np.unique(targets[order].indices)
    small = targets[order][:, used]
    names = [data.labels.titles[row] for row in used.tolist()]
    chosen = [texts[row] for row in order.tolist()]
    ids = [str(row) for row in used.tolist()]
    whole = Dataset.from_lists(
        chosen[:n_train],
        small[:n_train],
        label_texts=names,
        classes=ids,
        test_texts=chosen[n_train:],
        test_labels=small[n_train:],
        propensity=data.propensity,
    )
    return replace(whole, splits={"train": whole["train"]}), whole["test"]


def candidates_of(data, held, seed):
    """Candidates of held-out texts by a model of the training texts alone, and their judge."""
    with scratch_folder() as folder:
        overrides = ["ensemble.enabled=off", f"seed={seed}"]
        predictor = train(data, out=folder / "run", overrides=overrides)
        run = RunFolder(folder / "run")
        settings = from_mapping(run.read_settings(), source="settings")
        limit = FitTime(time.monotonic() + 60.0, strict=False)
        predictor, stored = with_retrievers(
            run, predictor.as_trained(), data, settings, limit=limit, log=lambda line: None
        )
        judge = Judge(held, data.label_counts, len(data["train"]), data.propensity)
        return collect(predictor, stored, judge), judge


def fit_nonnegative(candidates, positive, names):
    """The fit of ``fit_ensemble`` without a prior, no weight of a retriever below 0."""
    part = candidates.seen
    raw = matrix(candidates, names)
    mean, scale = raw[part].mean(dim=0), raw[part].std(dim=0).clamp_min(1e-6)
    inputs = (raw - mean) / scale * part[:, :, None]
    center = np.zeros(raw.shape[2])
    loss = ConditionalLogit(inputs, positive & part, ~positive & part, center, DECAY)
    lower = [0.0 if owner in names else None for owner in feature_owners(names)]
    solution = minimize_convex(loss, center, name="prior weights", lower=lower)
    return EnsembleWeights(names, mean.numpy(), scale.numpy(), solution.x)


class Case:
    """One data set, number of texts and seed: candidates and the weights fitted to them."""

    def __init__(self, name, n_train, found, judge, seed):
        self.name, self.n_train, self.judge = name, n_train, judge
        self.candidates, self.names = found.candidates, found.names
        self.truth = judge.truth
        self.share = unseen_share(judge.label_counts)
        self.log_odds = np.log(self.share / (1.0 - self.share))
        self.per_text = self.truth.nnz / self.truth.shape[0]
        self.positive = positives_of(self.candidates, self.truth)
        fitted = fit_nonnegative(self.candidates, self.positive, self.names)
        text_scores = found.text_scores
        self.weights = fit_unseen(fitted, self.candidates, self.positive, text_scores, seed=seed)

    def scores(self, weights):
        """Scores of the candidates by some weights."""
        return weights.scores(self.candidates, torch.float64)

    def calibration_inputs(self, weights):
        """Log share and entropy of the best candidates, and which of them are right."""
        scores = self.scores(weights)
        logs, given = calibration_inputs(scores, self.candidates, self.names)
        places = top_k(scores, self.candidates.rows, PLACES)
        queries, _ = (places >= 0).nonzero(as_tuple=True)
        taken = places[places >= 0]
        entropy = given[queries, QUERY_INPUTS.index("entropy")]
        inputs = torch.stack([logs[queries, taken], entropy], dim=1).numpy()
        return inputs, self.positive[queries, taken].numpy()

    def measure(self, weights, calibration):
        """nDCG@5, P@1, P@5 and calibration error of the held-out texts."""
        scores = self.scores(weights)
        chances = calibration.probabilities(scores, self.candidates)
        rows, best = best_candidates(scores, chances, self.candidates.rows, PLACES)
        top = TopK(rows.numpy(), best.float().numpy())
        values = self.judge(top, ("nDCG@5", "P@1", "P@5"))
        sets = set_metrics(top, self.truth, calibration, self.judge.label_counts)
        values["ECE"] = sets["expected_calibration_error"]
        values["micro-F1"] = sets["auto"]["micro_f1"]
        return values


def mean_weights(cases, names):
    """Weights of some retrievers: means over the cases that have them."""
    seen = _mean_table([(case.weights, feature_owners(case.names)) for case in cases])
    unseen = _mean_table(
        [
            (case.weights.unseen, text_feature_owners(case.names))
            for case in cases
            if case.weights.unseen is not None
        ]
    )

    def arrays(table, owners):
        return np.concatenate([table[owner] for owner in dict.fromkeys(owners)]).T.copy()

    own = arrays(unseen, text_feature_owners(names))
    own[2, -1] = np.median([case.weights.unseen.weights[-1] - case.log_odds for case in cases])
    return EnsembleWeights(names, *arrays(seen, feature_owners(names)), UnseenWeights(*own))


def with_share(weights, case):
    """The weights with the log-odds of a case's share of unseen labels."""
    values = weights.unseen.weights.copy()
    values[-1] += case.log_odds
    return replace(weights, unseen=replace(weights.unseen, weights=values))


def _mean_table(fits):
    """Owner to the (features, 3) mean of mean, scale and standardized weight."""
    found = {}
    for weights, owners in fits:
        values = np.stack([weights.mean, weights.scale, weights.weights], axis=1)
        places = np.array(owners)
        for owner in dict.fromkeys(owners):
            found.setdefault(owner, []).append(values[places == owner])
    return {owner: np.mean(values, axis=0) for owner, values in found.items()}


def mean_calibration(cases):
    """Slope, constant and weight of the entropy: the means of fits to each case."""
    found = []
    for case in cases:
        inputs, right = case.calibration_inputs(with_share(mean_weights(cases, case.names), case))
        if 0 < right.sum() < len(right):
            fit = LogisticRegression(C=1e6, max_iter=1000).fit(inputs, right)
            constant = fit.intercept_[0] - np.log(case.per_text)
            found.append((fit.coef_[0, 0], constant, fit.coef_[0, 1]))
    return np.mean(found, axis=0)


def calibration_of(case, values):
    """The prior calibration with other coefficients."""
    slope, constant, entropy = values
    present = prior_calibration(case.names, case.per_text)
    shift = present.shift.copy()
    shift[QUERY_INPUTS.index("constant")] = constant + np.log(case.per_text)
    shift[QUERY_INPUTS.index("entropy")] = entropy
    return replace(present, slope=float(slope), shift=shift)


def report(cases):
    """Judge each data set by the present prior and by that of the other data sets."""
    rows = []
    for name in dict.fromkeys(case.name for case in cases):
        others = [case for case in cases if case.name != name] or cases
        values = mean_calibration(others)
        for case in (case for case in cases if case.name == name):
            present = prior_weights(case.names, case.share)
            weights = with_share(mean_weights(others, case.names), case)
            calibration = prior_calibration(case.names, case.per_text)
            for kind, measured in (
                ("present", case.measure(present, calibration)),
                ("of the others", case.measure(weights, calibration_of(case, values))),
                ("own fit", case.measure(case.weights, calibration_of(case, values))),
            ):
                rows.append({"data": name, "texts": case.n_train, "prior": kind, **measured})
    print_rows(rows)
    for kind in ("present", "of the others", "own fit"):
        own = [row for row in rows if row["prior"] == kind]
        keys = ("nDCG@5", "P@1", "P@5", "ECE", "micro-F1")
        print(kind, " ".join(f"{key} {np.mean([row[key] for row in own]):.2f}" for key in keys))


def show_table(cases):
    """Print the prior of all data sets as ``ranking/prior.py`` has it."""
    weights = mean_weights(cases, max((case.names for case in cases), key=len))
    for title, values, owners in (
        ("seen", weights, feature_owners(weights.retrievers)),
        ("unseen", weights.unseen, text_feature_owners(weights.retrievers)),
    ):
        for owner in dict.fromkeys(owners):
            own = [place for place, other in enumerate(owners) if other == owner]
            table = np.stack([getattr(values, key)[own] for key in KEYS], axis=1)
            print(title, owner, [tuple(row) for row in np.round(table, 3).tolist()])
    print("slope, constant, entropy", np.round(mean_calibration(cases), 2))


def add_arguments(parser):
    """Options of the command line."""
    parser.add_argument("data", nargs="+")
    parser.add_argument("--texts", nargs="+", type=int, default=[20, 60, 200])
    parser.add_argument("--held", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=2)


def main(options):
    """Fit, judge and print."""
    cases = []
    for path in options.data:
        data = load_dataset(path)
        for n_train in options.texts:
            for seed in range(options.seeds):
                part, held = part_of(data, n_train, options.held, seed)
                found, judge = candidates_of(part, held, seed)
                cases.append(Case(Path(path).name, n_train, found, judge, seed))
                print(Path(path).name, n_train, seed, *found.names, flush=True)
    report(cases)
    show_table(cases)
