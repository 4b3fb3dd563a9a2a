"""Runs with and without a re-ranking stage: several data sets and seeds side by side.

    python -m bench training rerank DATA ... [--encoder ENCODER] [--kind KIND] [--text title]
        [--seeds 17 18 19] [--jobs 3] [--seconds 590] [--epochs N] [--pair-seconds S] [--folds N]
        [--mps] [--peer] [--set KEY=VALUE ...] [--out FOLDER]

Every data set and seed is a process of its own, ``--jobs`` at once on one device. Each trains a run
with its ensemble and a re-ranking stage on it: KIND, or a cross-encoder, or without an ENCODER the
default run with a stage that reads features. Validation decides about the stage; then the test
split is read once, with and without it. A row is printed and a JSON file is written to FOLDER as
each ends, with the first labels of each text and which of five were right (.npz); DATA.md there has
means over seeds with paired differences: the mean difference of a text and twice its standard
error. ``--seconds`` is for all of it: processes that have not ended by then are stopped, and no
further one is started. With ``--peer`` a sentence-transformers bi-encoder and cross-encoder with
the same encoder are trained too, each for as long as ours took (``bench/peers/bi_and_cross.py``).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import Table, cell
from bench.common.training_runs import scratch_folder
from bench.training.studies import shared_gpu

METRICS = (
    *("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"),
    *("RP@5", "nDCG@5", "ECE", "micro-F1"),
)
COLUMNS = ("data", "seed", "texts", "ranked by", *METRICS, "ms a text")
PAIRED = (1, 3, 5)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="+", help="data sets that `umpteen data check` accepts")
    parser.add_argument("--encoder", help="a Hugging Face folder, for a transformer")
    parser.add_argument("--kind", help="of the stage; with an encoder a cross-encoder by default")
    options.add_text(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[17, 18, 19])
    parser.add_argument("--jobs", type=int, default=3, help="processes at once")
    parser.add_argument("--seconds", type=float, default=590.0, help="for all of it")
    parser.add_argument("--epochs", type=int, help="of the transformer")
    parser.add_argument("--pair-seconds", type=float, help="for training a transformer, at most")
    parser.add_argument("--folds", type=int, help="of five, as in `umpteen rerank`")
    parser.add_argument("--candidates", type=int, default=50)
    parser.add_argument("--mps", action="store_true", help="let processes share the GPU (MPS)")
    parser.add_argument("--peer", action="store_true", help="sentence-transformers too")
    options.add_settings(parser)
    options.add_device(parser)
    parser.add_argument("--out", type=Path, default=Path("rerank-results"), help="a folder")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)


def main(given: argparse.Namespace) -> None:
    given.out.mkdir(parents=True, exist_ok=True)
    if given.alone:
        one(given)
        return
    if given.mps:
        print(shared_gpu(), flush=True)
    print_facts(facts(given.device))
    Table(COLUMNS)
    stop, waiting = time.monotonic() + given.seconds, plans(given)
    running: list[subprocess.Popen] = []
    while waiting or running:
        while waiting and len(running) < given.jobs and time.monotonic() < stop:
            left = stop - time.monotonic()
            running.append(subprocess.Popen([*waiting.pop(0), "--seconds", f"{left:.0f}"]))
        if time.monotonic() >= stop:
            print(f"stopped: {len(running)} unfinished, {len(waiting)} not started", flush=True)
            for process in running:
                process.terminate()
            break
        running = [process for process in running if process.poll() is None]
        time.sleep(0.2)
    for process in running:
        process.wait()
    for data in given.data:
        print(*summary(given.out, Path(data).name), sep="\n", flush=True)


def plans(given: argparse.Namespace) -> list[list[str]]:
    """The command of each process, data set by data set."""
    own = [sys.executable, "-m", "bench", "training", "rerank"]
    shared = ["--alone", "--text", given.text, "--device", given.device]
    shared += ["--encoder", given.encoder] if given.encoder else []
    shared += ["--kind", given.kind] if given.kind else []
    shared += ["--candidates", str(given.candidates)]
    shared += ["--out", str(given.out), *(["--peer"] if given.peer else [])]
    for name in ("folds", "epochs", "pair_seconds"):
        if getattr(given, name) is not None:
            shared += [f"--{name.replace('_', '-')}", str(getattr(given, name))]
    shared += ["--set", *given.settings] if given.settings else []
    return [
        [*own, data, "--seeds", str(seed), *shared] for data in given.data for seed in given.seeds
    ]


def one(given: argparse.Namespace) -> None:
    """One data set and seed in this process."""
    import umpteen

    stop, (name,), (seed,) = time.monotonic() + given.seconds, given.data, given.seeds
    label, data = f"{Path(name).name}-{seed}", umpteen.load_dataset(name)
    result: dict[str, Any] = {"data": Path(name).name, "seed": seed, "rows": [], "log": []}
    with scratch_folder() as folder:
        run, seconds = trained(given, data, seed, folder, result["log"].append)
        result["train_s"] = seconds
        outcome, result["rerank_s"] = reranked(given, run, stop, result["log"].append)
        hits = measure(result, run, data, outcome)
        np.savez_compressed(given.out / f"{label}.npz", **hits)
        show(given, result, label)
        if given.peer:
            from bench.peers.bi_and_cross import peer_row

            spent = result["train_s"], result["rerank_s"]
            found = peer_row(data, given, spent, run.judge, seed=seed)
            result["rows"].append({"texts": "test", **found})
            show(given, result, label)


def show(given: argparse.Namespace, result: dict[str, Any], label: str) -> None:
    """Print the rows that are new and keep all of them."""
    shown = result.setdefault("shown", 0)
    for row in result["rows"][shown:]:
        own = {**row, "data": result["data"], "seed": result["seed"]}
        print("| " + " | ".join(cell(own.get(name)) for name in COLUMNS) + " |", flush=True)
    result["shown"] = len(result["rows"])
    parts = ", ".join(f"{k} {result[k]:.0f}" for k in ("train_s", "rerank_s") if k in result)
    print(f"{label}: {parts}; {result.get('stage', '')}", flush=True)
    kept = {key: value for key, value in result.items() if key not in ("rows", "shown")}
    save(given.out / f"{label}.json", result["rows"], **facts(given.device), **kept)


def trained(given: argparse.Namespace, data: Any, seed: int, folder: Path, log: Any) -> Any:
    """Train a run with its ensemble, and load it as the stage needs it."""
    import umpteen
    from umpteen.config.settings import from_mapping
    from umpteen.run_folder import RunFolder
    from umpteen.training.run_to_rerank import load_run

    settings = [f"seed={seed}", f"data.text={given.text}"]
    settings += [f"encoder.name={given.encoder}"] if given.encoder else []
    started = time.monotonic()
    umpteen.train(data, out=folder / "run", overrides=[*settings, *given.settings],
                  device=given.device, cache=folder / "tokens", progress=False)  # fmt: skip
    seconds = time.monotonic() - started
    log(f"trained in {seconds:.1f} s")
    place = RunFolder(folder / "run").require()
    own = from_mapping(place.read_settings(to_build=True), source=str(place.path))
    return load_run(place, data, own, given.device), seconds


def reranked(given: argparse.Namespace, run: Any, stop: float, log: Any) -> tuple[Any, float]:
    """Fit the stage, in the time that is left; a quarter of it is kept for the test split."""
    from umpteen.ranking.reranking.text_match import TextMatch
    from umpteen.training.rerank import fit_and_decide, texts_apart
    from umpteen.training.rerank_pairs import PairOptions
    from umpteen.training.run_to_rerank import RerankOptions

    started = time.monotonic()
    match = TextMatch.of(run.predictor.labels.encoder_texts(run.predictor.text_config.text))
    kind = given.kind or ("cross-encoder" if given.encoder else "features")
    how = RerankOptions(kind, given.encoder, given.candidates, given.folds, keep="never")

    def timed_log(line: str) -> None:
        log(f"{time.monotonic() - started:.1f} s: {line}")

    apart = texts_apart(run, match, how, device=given.device, log=timed_log)
    left = max(1.0, 0.75 * (stop - time.monotonic()))
    pairs = PairOptions(epochs=given.epochs, seconds=min(left, given.pair_seconds or left))
    how = RerankOptions(**{**vars(how), "pairs": pairs})
    outcome = fit_and_decide(run, match, apart, how, log=timed_log)
    return outcome, time.monotonic() - started


def measure(result: dict[str, Any], run: Any, data: Any, outcome: Any) -> dict[str, np.ndarray]:
    """Add the rows of validation and of test, and the paired differences.

    Returns:
        By what ranked the texts, (N, 5) which first labels of a test text are right.
    """
    from bench.ensemble.rerank import judged

    spec, decision = outcome.after.reranking, outcome.decision
    result["stage"] = f"{spec.in_words}; weight {spec.weight:g}, p {decision.p_value:.2g}"
    result["spec"] = spec.as_json()
    kinds = {"ensemble": (outcome.before, run.stored), spec.kind: (outcome.after, outcome.ensemble)}
    for kind, (variant, _) in kinds.items():
        result["rows"].append({"texts": "validation", "ranked by": kind, **variant.validation})
    hits = {}
    for kind, (_, stored) in kinds.items():
        metrics, hits[kind], hits[f"{kind}-rows"] = judged(run, data, stored)
        result["rows"].append({"texts": "test", "ranked by": kind, **metrics})
    gaps = 100.0 * (hits[spec.kind].astype(float) - hits["ensemble"])
    result["paired"] = {
        f"P@{k}": {"mean": float(own.mean()), "variance": float(own.var()), "n": len(own)}
        for k in PAIRED
        for own in [gaps[:, :k].mean(axis=1)]
    }
    return hits


def summary(folder: Path, data: str) -> list[str]:
    """Means over the seeds that ended, with paired differences; also written to DATA.md."""
    found = [json.loads(file.read_text("utf-8")) for file in sorted(folder.glob(f"{data}-*.json"))]
    found = [each for each in found if each["data"] == data]
    lines = [f"{data}, seeds {', '.join(str(each['seed']) for each in found) or 'none'}", ""]
    names = [name for name in COLUMNS if name not in ("data", "seed")]
    lines += ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    kinds = dict.fromkeys((r["texts"], r["ranked by"]) for each in found for r in each["rows"])
    for texts, kind in kinds:
        rows = [
            r for e in found for r in e["rows"] if (r["texts"], r["ranked by"]) == (texts, kind)
        ]
        cells = [texts, kind, *(spread_of([r.get(n) for r in rows]) for n in names[2:])]
        lines.append("| " + " | ".join(cells) + " |")
    for metric in (f"P@{k}" for k in PAIRED):
        own = [each["paired"][metric] for each in found if "paired" in each]
        n = sum(each["n"] for each in own)
        if n:
            mean = sum(each["mean"] * each["n"] for each in own) / n
            error = 2 * np.sqrt(sum(each["variance"] * each["n"] for each in own)) / n
            lines.append(f"\n{metric}, with - without, text by text: {mean:+.2f} ± {error:.2f}")
    (folder / f"{data}.md").write_text("\n".join(lines) + "\n", "utf-8")
    return lines


def spread_of(values: list[Any]) -> str:
    """The mean, and the standard deviation over seeds where there are several."""
    known = [float(value) for value in values if value is not None]
    if not known:
        return ""
    text = f"{np.mean(known):.2f}"
    return text if len(known) < 2 else f"{text} ±{np.std(known, ddof=1):.2f}"
