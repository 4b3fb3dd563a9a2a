"""Few texts: hold some out for the ensemble, or fit it on models of folds and train on all.

    python -m bench training held-out DATA [--text title] [--sizes 1200 2000] [--seeds 17 18 19]
        [--folds 1] [--ways held more folds] [--share 0.1] [--brief]
        [--against held] [--out rows.jsonl]

Subsets and judges are those of ``small-data``; the data's own validation and test splits are never
read. Ways share their models, so that a comparison costs few trainings:

``held``     3 % of the texts are held out, at least 64, at most a tenth of few
``held back``  the same model and weights; retrievers are fitted again with the held-out texts
``more``     the same with ``--share`` of the texts held out; ``more back`` likewise
``fold``     the model without a fifth, and the ensemble fitted on that fifth
``fold back``  the same, its retrievers fitted again on all texts
``folds N``  a model of all texts; the ensemble is fitted on N of five folds
``folds N known``  the same, without labels that have no training text outside the fold

A line of JSON for each way has metrics, calibration error, micro-F1 at the threshold ``auto``, CPU
seconds, and the precisions of each judge. ``--brief`` measures ``held`` and ``folds N known`` of
the last N only. The table at the end is of all lines of ``--out``, to which further calls append;
``--against`` names the way that others are compared with.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import options
from bench.common.timing import Stopwatch
from bench.common.training_runs import scratch_folder
from bench.training.held_out_table import print_table
from bench.training.small_data import METRICS, subset

HELD, SHARE = 64, 0.03
SECONDS = 600.0
"""For fits, which are not cut short."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    options.add_text(parser)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1200, 2000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    parser.add_argument("--folds", type=int, default=1)
    parser.add_argument("--judges", type=int, default=1000)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--ways", nargs="+", default=["held", "folds"])
    parser.add_argument("--brief", action="store_true", help="what a rule can choose, and no more")
    parser.add_argument("--against", default="held")
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    import torch

    import umpteen

    torch.set_num_threads(1)
    data = umpteen.load_dataset(args.data)
    lines: list[dict[str, Any]] = []
    for size in args.sizes:
        for seed in args.seeds:
            small = subset(data, size, args.judges, seed)
            name = f"{Path(args.data).name}{' all' if args.text == 'all' else ''}"
            about = {"data": name, "size": size, "seed": seed, "labels": len(small.labels)}
            trial = Trial(small, args.text, seed, about, lines, args.out, args.brief)
            shares = {"held": max(min(HELD / size, 0.1), SHARE), "more": args.share}
            for way in [way for way in shares if way in args.ways]:
                trial.held_out(way, shares[way])
            if "folds" in args.ways:
                trial.folds(args.folds)
    if args.out is not None:
        lines = [json.loads(line) for line in args.out.read_text(encoding="utf-8").splitlines()]
    print_table(lines, args.against)


@dataclasses.dataclass
class Trial:
    """One subset with all ways."""

    data: Any
    text: str
    seed: int
    about: dict[str, Any]
    lines: list[dict[str, Any]]
    out: Path | None
    brief: bool = False

    def settings(self, *more: str) -> list[str]:
        return [f"seed={self.seed}", f"data.text={self.text}", "train.threads=1", *more]

    def held_out(self, way: str, share: float) -> None:
        """Train a model with texts held out, then put these back into its retrievers."""
        import umpteen
        from umpteen.config.loading import load_config
        from umpteen.predictor import Predictor

        with scratch_folder() as place:
            with Stopwatch() as training:
                model = umpteen.train(
                    self.data, out=place / "run", device="cpu",
                    overrides=self.settings(f"validation.share={share}"),
                    cache=place / "tokens",
                )  # fmt: skip
            self.judge(model, way, training.cpu)
            if self.brief:
                return
            settings = load_config(str(place / "run" / "config.json"))
            predictor = Predictor.load(place / "run", device="cpu", with_ensemble=False)
            fitted = model.ensemble
            with Stopwatch() as again:
                predictor, stored = self.retrievers(place / "run", predictor, settings)
                predictor.use_ensemble(self.with_weights(stored, fitted))
            self.judge(predictor, f"{way} back", training.cpu + again.cpu)

    def folds(self, n: int) -> None:
        """Train a model of all texts and models of folds."""
        import umpteen
        from umpteen.config.loading import load_config
        from umpteen.predictor import Predictor
        from umpteen.training import cross_validation as folding
        from umpteen.training.ensemble_validation import collect, joined

        train = self.data["train"]
        whole = dataclasses.replace(self.data, splits={"train": train})
        with scratch_folder() as place:
            off = ["ensemble.enabled=off", "validation.share=0"]
            with Stopwatch() as training:
                umpteen.train(
                    whole, out=place / "run", overrides=self.settings(*off), device="cpu",
                    cache=place / "tokens",
                )  # fmt: skip
                settings = load_config(str(place / "run" / "config.json"))
                predictor = Predictor.load(place / "run", device="cpu", with_ensemble=False)
                predictor, stored = self.retrievers(place / "run", predictor, settings)
            cost = training.cpu
            labelled = np.flatnonzero(np.diff(train.filtered_targets().indptr))
            order = np.random.default_rng([settings.seed, 0xF01D]).permutation(labelled)
            every: list[tuple[Any, Any]] = []
            known: list[tuple[Any, Any]] = []

            def use(own: Any, of_fold: Any, judge: Any) -> None:
                found = collect(own, of_fold, judge)
                every.append((found, judge.split))
                counts = self.data.label_counts
                known.append(folding._collect_known(own, of_fold, judge, counts=counts))
                if not self.brief and len(every) == 1 and len(known[0][1]):
                    with Stopwatch() as side:
                        alone = known[0][0], dataclasses.replace(judge, split=known[0][1])
                        self.fold_alone(own, of_fold, alone, settings, place, started)
                    self.aside = side.cpu

            for fold in range(n):
                self.aside = 0.0
                started = time.process_time()
                with Stopwatch() as one:
                    folding.run_fold(
                        whole, np.sort(order[fold::folding.FOLDS]), folding.fold_settings(settings),
                        cache=place / "tokens", device="cpu", use=use,
                        fit_fold=lambda run, own, part: self.retrievers(
                            run.path, own, settings, part
                        ),
                    )  # fmt: skip
                cost += one.cpu - self.aside
                if fold + 1 not in ((n,) if self.brief else (1, 2, folding.FOLDS)):
                    continue
                ways = {"": every, " known": known}
                for kind in [" known"] if self.brief else ways:
                    way, parts = f"folds {fold + 1}{kind}", ways[kind]
                    if not any(len(split) for _, split in parts):
                        continue
                    judge = folding._judge_of(whole, [split for _, split in parts])
                    with Stopwatch() as fit:
                        model = self.fitted(joined([part for part, _ in parts]), judge, settings)
                    predictor.use_ensemble(self.with_weights(stored, model))
                    self.judge(predictor, way, cost + fit.cpu)

    def fold_alone(
        self, own: Any, stored: Any, found: Any, settings: Any, place: Path, started: float
    ) -> None:
        """Judge the model of a fold, as if that had been held out."""
        model = self.fitted(*found, settings)
        own.use_ensemble(self.with_weights(stored, model))
        cost = time.process_time() - started
        self.judge(own, "fold", cost)
        own, again = self.retrievers(place / "run", own, settings)
        own.use_ensemble(self.with_weights(again, model))
        self.judge(own, "fold back", time.process_time() - started - self.last)
        own.use_ensemble(stored)

    def fitted(self, found: Any, judge: Any, settings: Any) -> Any:
        """Fit all variants, as training does."""
        from umpteen.training.fit_ensemble import fit_variants
        from umpteen.training.stage_log import QUIET

        return fit_variants(found, judge, settings=settings, seconds=SECONDS, log=QUIET)

    def retrievers(self, run: Path, predictor: Any, settings: Any, data: Any = None) -> Any:
        """Fit the retrievers of a model on all training texts, or on those of some data."""
        from umpteen.run_folder import RunFolder
        from umpteen.training.fit_retrievers import with_retrievers
        from umpteen.training.fit_time import FitTime
        from umpteen.training.stage_log import QUIET

        limit = FitTime(time.monotonic() + SECONDS, strict=False)
        data = data or dataclasses.replace(self.data, splits={"train": self.data["train"]})
        return with_retrievers(RunFolder(run), predictor, data, settings, limit, QUIET)

    @staticmethod
    def with_weights(stored: Any, model: Any) -> Any:
        """Return an ensemble with the weights of another one."""
        from umpteen.ranking.storage import with_knn_configs

        own = stored.model
        model = dataclasses.replace(model, model=own.model, propensity=own.propensity)
        retrievers = with_knn_configs(stored.retrievers, model)
        return dataclasses.replace(stored, model=model, retrievers=retrievers)

    def judge(self, predictor: Any, way: str, cpu: float) -> None:
        """Evaluate on the judges and write a line."""
        import umpteen

        with Stopwatch() as watch:
            found = umpteen.evaluate(
                predictor, self.data, split="test", head="ensemble", metrics=METRICS,
                per_query=True,
            )  # fmt: skip
        self.last = watch.cpu
        report = found.heads["ensemble"]
        best = predictor.ensemble.variants[0]
        line = {
            **self.about,
            "way": way,
            "cpu": round(cpu, 1),
            **{name: round(report.values[name], 3) for name in METRICS},
            "ECE": found.sets["expected_calibration_error"],
            "micro-F1": found.sets["auto"]["micro_f1"],
            "fitted": predictor.ensemble.fitted_on,
            "scorers": list(best.scorers),
            "said": best.validation,
        }
        print(json.dumps(line), file=sys.stderr)
        texts = {name: np.asarray(report.per_query[name]).tolist() for name in report.per_query}
        self.lines.append({**line, "texts": texts})
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.lines[-1]) + "\n")
