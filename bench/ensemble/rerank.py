"""What re-ranking the ensemble's best candidates gains and costs, kind by kind.

    python -m bench ensemble rerank RUN DATA [--encoder ENCODER] [--folds N] [--candidates 50]
        [--epochs N] [--device auto] [--test] [--out rows.json]

RUN is a run with an ensemble, DATA what it was trained on. Models of the folds are trained once
(as long as RUN took, for each fold; with 0 folds validation texts are used); then each kind is
trained and judged: ``features``, and with an ENCODER the transformers too. Metrics are of the
validation texts, cross-fitted; the p-value is of the paired test on them and on out-of-fold texts.
With --test the test split is read once, after all choices. The run is not changed. Needs neither
faiss nor a network.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from umpteen.config.settings import from_mapping
from umpteen.data.formats import load_dataset
from umpteen.ranking.calibration import PLACES
from umpteen.ranking.queries import Queries
from umpteen.ranking.reranking.spec import PAIR_SCORERS
from umpteen.ranking.reranking.text_match import TextMatch
from umpteen.ranking.thresholds import set_metrics
from umpteen.ranking.variants import VARIANT_METRICS
from umpteen.run_folder import RunFolder
from umpteen.scoring import score
from umpteen.training.rerank import fit_and_decide, texts_apart
from umpteen.training.rerank_pairs import PairOptions
from umpteen.training.run_to_rerank import RerankOptions, RunToRerank, load_run

METRICS = (*VARIANT_METRICS, "ECE", "micro-F1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_data(parser)
    parser.add_argument("--encoder", help="a Hugging Face folder, for the transformers")
    parser.add_argument("--folds", type=int, help="of five, to train the re-ranker on")
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--epochs", type=int, help="of the transformers")
    parser.add_argument("--test", action="store_true", help="also read the test split")
    options.add_device(parser)
    options.add_out(parser)


def judged(run: RunToRerank, data, stored) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    """Metrics of the ensemble on the test split.

    And (N, 5) which first labels are right, and (N, PLACES) the label rows of each text.
    """
    predictor, test = run.predictor, data["test"]
    predictor.use_ensemble(stored)
    texts = list(test.texts(predictor.text_config.text))
    predictor.predict(texts[:8], 10)
    started = time.perf_counter()
    predictor.predict(texts[:512], 10)
    each = 1000 * (time.perf_counter() - started) / len(texts[:512])
    queries = Queries(texts, predictor.vectors(texts))
    found = predictor.rank(queries, predictor.snapshot(), PLACES, exclude=test.filters)
    truth = test.filtered_targets()
    about = {"label_counts": data.label_counts, "n_train": len(data["train"])}
    report = score(found, test, **about, propensity=predictor.propensity or data.propensity,
                   metrics=(*VARIANT_METRICS, "RP@5", "nDCG@5"))  # fmt: skip
    sets = set_metrics(found, truth, stored.model.variants[0].calibration, data.label_counts)
    first = found.rows[:, :5]
    hits = np.asarray(truth[np.arange(len(first))[:, None], np.maximum(first, 0)].todense()) > 0
    metrics = {
        **report.values,
        "ECE": sets["expected_calibration_error"],
        "micro-F1": sets["auto"]["micro_f1"],
        "ms a text": each,
    }
    return metrics, hits & (first >= 0), found.rows.astype(np.int32)


def main(given: argparse.Namespace) -> None:
    folder, data = RunFolder(given.run).require(), load_dataset(given.data)
    settings = from_mapping(folder.read_settings(to_build=True), source=given.run)
    run = load_run(folder, data, settings, given.device)
    about = facts(device=run.predictor.encoder.device.type)
    print_facts(about)
    match = TextMatch.of(run.predictor.labels.encoder_texts(run.predictor.text_config.text))
    started = time.monotonic()
    features = RerankOptions(candidates=given.candidates, folds=given.folds, keep="never")
    apart = texts_apart(run, match, features, device=given.device, log=print)
    print(f"Texts apart in {time.monotonic() - started:.0f} s")
    rows = []
    for kind in ("features", *(PAIR_SCORERS if given.encoder else ())):
        own = replace(features, kind=kind, encoder=given.encoder)
        if given.epochs:
            own = replace(own, pairs=PairOptions(epochs=given.epochs))
        began = time.monotonic()
        found = fit_and_decide(run, match, apart, own, log=print)
        seconds, spec = time.monotonic() - began, found.after.reranking
        assert spec is not None
        if not rows:
            rows.append(row("validation", "ensemble", found.before.validation))
        extra = {
            "weight": spec.weight, "p": found.decision.p_value, "kept": found.decision.kept,
            "candidates": spec.reranked, "fit s": seconds,
            "ms alone": spec.cost.of(spec.candidates),
        }  # fmt: skip
        rows.append(row("validation", kind, found.after.validation, **extra))
        if given.test:
            if not any(each["texts"] == "test" for each in rows):
                rows.append(row("test", "ensemble", judged(run, data, run.stored)[0]))
            rows.append(row("test", kind, judged(run, data, found.ensemble)[0]))
            run.predictor.use_ensemble(run.stored)
    columns = ["texts", "ranked by", *METRICS, "weight", "p", "kept", "candidates", "fit s",
               "ms alone", "ms a text"]  # fmt: skip
    print_rows([{name: each.get(name, "") for name in columns} for each in rows])
    save(given.out, rows, **about)


def row(texts: str, kind: str, values: dict[str, float], **extra) -> dict:
    """One line of the table."""
    own = {name: round(float(values[name]), 2) for name in METRICS if name in values}
    more = {k: round(v, 4) if isinstance(v, float) else v for k, v in extra.items()}
    if "ms a text" in values:
        more["ms a text"] = round(values["ms a text"], 3)
    return {"texts": texts, "ranked by": kind, **own, **more}
