"""What re-ranking the ensemble's best candidates gains and costs, kind by kind.

    python -m bench ensemble rerank RUN DATA [--encoder ENCODER] [--folds 1] [--candidates 50]
        [--epochs N] [--device auto] [--test] [--out rows.json]

RUN is a run with an ensemble, DATA what it was trained on. Models of the folds are trained once
(as long as RUN took, for each fold); then each kind is trained and judged: ``features``, and with
an ENCODER the cross-encoder too. Metrics are of the validation texts, cross-fitted; the p-value is
of the paired test on them and on out-of-fold texts. With --test the test split is read once, after
all choices. The run is not changed. Needs neither faiss nor a network.
"""

from __future__ import annotations

import argparse
import time

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from umpteen.config.settings import from_mapping
from umpteen.data.formats import load_dataset
from umpteen.evaluation import evaluate
from umpteen.ranking.reranking.text_match import TextMatch
from umpteen.ranking.variants import VARIANT_METRICS
from umpteen.run_folder import RunFolder
from umpteen.training.prepare import default_cache
from umpteen.training.rerank import RerankOptions, RunToRerank, fit_and_decide, load_run
from umpteen.training.rerank_texts import out_of_fold

METRICS = (*VARIANT_METRICS, "ECE", "micro-F1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_data(parser)
    parser.add_argument("--encoder", help="a Hugging Face folder, for the cross-encoder")
    parser.add_argument("--folds", type=int, default=1, help="of five, to train the re-ranker on")
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--epochs", type=int, help="of the cross-encoder")
    parser.add_argument("--test", action="store_true", help="also read the test split")
    options.add_device(parser)
    options.add_out(parser)


def test_metrics(run: RunToRerank, data, stored) -> dict[str, float]:
    """Metrics of the ensemble on the test split, and milliseconds a text in one batch."""
    predictor = run.predictor
    predictor.use_ensemble(stored)
    texts = data["test"].texts(predictor.text_config.text)[:512]
    predictor.predict(texts[:8], 10)
    started = time.perf_counter()
    predictor.predict(texts, 10)
    each = 1000 * (time.perf_counter() - started) / len(texts)
    found = evaluate(predictor, data, head="ensemble", metrics=VARIANT_METRICS)
    sets = found.sets or {}
    return {
        **found["ensemble"].values,
        "ECE": sets["expected_calibration_error"],
        "micro-F1": sets["auto"]["micro_f1"],
        "ms a text": each,
    }


def main(given: argparse.Namespace) -> None:
    folder, data = RunFolder(given.run).require(), load_dataset(given.data)
    settings = from_mapping(folder.read_settings(to_build=True), source=given.run)
    run = load_run(folder, data, settings, given.device)
    about = facts(device=run.predictor.encoder.device.type)
    print_facts(about)
    match = TextMatch.of(run.predictor.labels.encoder_texts(run.predictor.text_config.text))
    started = time.monotonic()
    examples, texts = out_of_fold(
        run.dataset, settings, run.model, match, folds=given.folds, n=given.candidates,
        cache=default_cache(), device=given.device, log=print,
    )  # fmt: skip
    print(f"{len(texts):,} out-of-fold texts in {time.monotonic() - started:.0f} s")
    rows = []
    for kind in ("features", *(["cross-encoder"] if given.encoder else [])):
        own = RerankOptions(
            kind, given.encoder if kind == "cross-encoder" else None, given.candidates,
            given.folds, given.epochs if kind == "cross-encoder" else None, keep="never",
        )  # fmt: skip
        began = time.monotonic()
        found = fit_and_decide(run, match, examples, texts, own, log=print)
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
                rows.append(row("test", "ensemble", test_metrics(run, data, run.stored)))
            rows.append(row("test", kind, test_metrics(run, data, found.ensemble)))
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
