"""Word scores alone against linear trees, trained on the same queries, on validation or on test.

    python bench/words_alone.py DATA --text title [--split validation] [--python PEERS/bin/python]

Validation is what training would hold out of train (or the data's own validation split): neither
side learns from it. ``--split test`` is for a last look. PEERS is the environment that
``bench/peers/run.py`` describes; without it our row alone is printed. Seconds are of learning,
by the wall and by the processor; ``--threads`` is what both sides may use.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import run as peers

METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "nDCG@5", "R@10", "R@100")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("--text", choices=["title", "all"], default="title")
    parser.add_argument("--split", choices=["validation", "test"], default="validation")
    parser.add_argument("--python", help="the peers' interpreter")
    parser.add_argument("--peers", nargs="*", choices=list(peers.PEERS), default=["bonsai"])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], help="of LexicalRecipe")
    args = parser.parse_args()
    from umpteen import load_dataset
    from umpteen.config import RunConfig
    from umpteen.training.prepare import training_splits

    data = load_dataset(args.data)
    held = training_splits(data, RunConfig())
    splits = {"train": held["train"], "test": held["validation"]}
    if args.split == "test":
        splits = {"train": data["train"], "test": data["test"]}
    both = dataclasses.replace(data, splits=splits)
    show(["scorer", *METRICS, "train s", "of CPU"])
    show(["---"] * (len(METRICS) + 3))
    for name, row in ours(both, args):
        show([name, *row])
    if args.python:
        with tempfile.TemporaryDirectory(prefix="umpteen-words-") as temporary:
            for name, row in theirs(both, args, Path(temporary)):
                show([name, *row])


def show(cells: list[Any]) -> None:
    told = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells]
    print("| " + " | ".join(told) + " |", flush=True)


def ours(data: Any, args: argparse.Namespace) -> Any:
    """Name, metrics and seconds of the word scorers as a run would learn them, both together."""
    import torch
    from umpteen.answers.lexical import MARGIN_WORDS
    from umpteen.answers.lexical_training import LexicalRecipe, learn_lexical

    torch.set_num_threads(args.threads)
    told = {key: json.loads(value) for key, value in (one.split("=") for one in args.settings)}
    told = {key: tuple(v) if isinstance(v, list) else v for key, v in told.items()}
    train = data["train"]
    wall, cpu = time.perf_counter(), time.process_time()
    lexical, _ = learn_lexical(
        train.texts(args.text),
        train.filtered_targets(),
        data.labels.encoder_texts(args.text),
        filters=train.filters,
        recipe=LexicalRecipe(seconds=args.seconds, **told),
        device=args.device,
        log=lambda text: print(text, file=sys.stderr),
    )
    seconds = [time.perf_counter() - wall, time.process_time() - cpu]
    weighted = lexical.words.weighted(data["test"].texts(args.text))
    ways = {"words alone": (lexical.words.cut(weighted), lexical.weights)}
    if lexical.margins is not None:
        ways["margins alone"] = (lexical.words.cut(weighted, MARGIN_WORDS), lexical.margins)
    for name, (vectors, weights) in ways.items():
        print(f"{name}: {weights.nnz:,} weights, {weights.shape[0]:,} words", file=sys.stderr)
        yield name, [*judged(data, vectors, weights), *seconds]


def judged(data: Any, vectors: Any, weights: Any) -> list[float]:
    """Metrics of a linear scorer."""
    import numpy as np
    from umpteen.answers.lexical import best_columns, dense_blocks

    from umpteen.scoring import score
    from umpteen.types import TopK

    tops = [best_columns(block, 150) for _, block in dense_blocks(vectors, weights)]
    train = data["train"]
    report = score(
        TopK(
            np.concatenate([t.rows for t in tops]),
            np.concatenate([t.scores for t in tops]),
            data.labels,
        ),
        data["test"],
        label_counts=np.asarray((train.targets > 0).sum(axis=0)).ravel().astype(np.int64),
        n_train=len(train),
        propensity=data.propensity,
        metrics=METRICS,
    )
    return [float(report.values[m]) for m in METRICS]


def theirs(data: Any, args: argparse.Namespace, folder: Path) -> Any:
    """Name and row of each peer."""
    peers.export(data, args.text, folder)
    peers.call(args.python, "features.py", str(folder), str(folder), "--variant", args.text)
    for name in args.peers:
        script, variant = peers.PEERS[name]
        out = folder / name
        options = ["--k", "100", "--threads", str(args.threads), "--variant", variant]
        peers.call(args.python, script, str(folder), str(out), *options)
        values = peers.scored(out, data)
        seconds = json.loads((out / "seconds.json").read_text())
        yield name, [*(float(values[m]) for m in METRICS), seconds["train"], ""]


if __name__ == "__main__":
    main()
