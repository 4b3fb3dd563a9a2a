"""What a user would pick instead, on any data set, scored as we score ourselves.

    python -m venv peers && peers/bin/pip install -r bench/peers/requirements.txt
    python -m bench peers table DATA --python peers/bin/python [--text title|all]
        [--peers bonsai ...] [--out rows.json]

DATA is any folder ``umpteen data check`` accepts. Linear peers read tf-idf of words (one- and
two-word terms for titles, single words with contents), with their default settings;
``linear-svc`` adds character n-grams.
``xr-transformer`` runs when ``--encoder`` names a Hugging Face folder. A table is printed last;
times are seconds of training and milliseconds a query of prediction, on ``--threads`` cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from bench.common import options
from bench.common.results import facts, save
from bench.common.tables import print_rows

SCRIPTS = Path(__file__).parent / "scripts"
PEERS = {
    "parabel": ("omikuji_trees.py", "parabel"),
    "bonsai": ("omikuji_trees.py", "bonsai"),
    "xr-linear": ("pecos_linear.py", ""),
    "plt": ("napkinxc_plt.py", ""),
    "nearest": ("nearest.py", ""),
    "linear-svc": ("linear_svc.py", ""),
    "xr-transformer": ("pecos_transformer.py", ""),
}
# Scores above which a peer itself assigns a label; micro-F1 is of these sets.
THRESHOLDS = {"linear-svc": 0.0}
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5", "nDCG@5", "R@10", "R@100", "C@5")


def export(data, text: str, folder: Path) -> None:
    """Texts one a line and the targets, where the peers read them."""
    for name in ("train", "test"):
        lines = (" ".join(one.split()) for one in data.splits[name].texts(text))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    sp.save_npz(folder / "train_y.npz", data.splits["train"].filtered_targets())


def call(python: str, script: str, *arguments: str) -> None:
    """Run a script in the peers' environment; its talk is shown only when it fails."""
    done = subprocess.run(
        [python, str(SCRIPTS / script), *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{script} failed:\n{done.stderr[-2000:]}")


def scored(out: Path, data, threshold: float | None) -> dict[str, float]:
    """Score what a peer left; micro-F1 only of peers that assign sets of labels."""
    from umpteen.ranking.thresholds import f1_scores
    from umpteen.scoring import drop_filtered, score
    from umpteen.types import TopK

    train = data.splits["train"]
    top = TopK(np.load(out / "rows.npy"), np.load(out / "scores.npy"), data.labels)
    report = score(
        top,
        data.splits["test"],
        label_counts=np.asarray((train.targets > 0).sum(axis=0)).ravel().astype(np.int64),
        n_train=len(train),
        propensity=data.propensity,
        metrics=METRICS,
    )
    if threshold is None:
        return {**report.values, "micro-F1": float("nan")}
    test = data.splits["test"]
    kept = drop_filtered(top, test.filters, len(data.labels))
    sets = f1_scores(kept, test.filtered_targets(), threshold)
    return {**report.values, "micro-F1": sets["micro_f1"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    parser.add_argument("--python", required=True, help="the peers' interpreter")
    options.add_text(parser, "all")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS)[:6])
    parser.add_argument("--encoder", default="", help="of xr-transformer: a Hugging Face folder")
    parser.add_argument("--tokens", type=int, help="it reads of a text; 32 of titles, else 128")
    parser.add_argument("--epochs", type=int, default=5, help="it trains at each level of its tree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--k", type=int, default=100)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    if "xr-transformer" in args.peers and not args.encoder:
        sys.exit("xr-transformer needs --encoder, a Hugging Face folder")
    if args.encoder and not Path(args.encoder).is_dir():
        sys.exit(f"--encoder {args.encoder}: no such folder")
    if shutil.which(args.python) is None:
        sys.exit(f"--python {args.python}: no such program; make the peers' environment first")
    from umpteen import load_dataset
    from umpteen.errors import UmpteenError

    try:
        data = load_dataset(args.data)
    except UmpteenError as error:
        sys.exit(str(error))
    for name in ("train", "test"):
        if name not in data:
            sys.exit(f"{args.data} has no {name} split, which peers are compared on")
    rows = []
    with tempfile.TemporaryDirectory(prefix="umpteen-peers-") as temporary:
        folder = Path(temporary)
        export(data, args.text, folder)
        call(args.python, "features.py", temporary, temporary, "--variant", args.text)
        for name in args.peers:
            print(f"{name} ...", file=sys.stderr)
            rows.append(peer_row(name, data, folder, args))
    print_rows(rows)
    save(args.out, rows, **facts("cpu"))


def peer_row(name: str, data, folder: Path, args: argparse.Namespace) -> dict:
    """Train and score one peer."""
    script, variant = PEERS[name]
    out = folder / name
    words = ["--k", str(args.k), "--threads", str(args.threads), "--variant", variant]
    if name == "xr-transformer":
        tokens = str(args.tokens or (32 if args.text == "title" else 128))
        words += ["--encoder", args.encoder, "--tokens", tokens, "--epochs", str(args.epochs)]
    call(args.python, script, str(folder), str(out), *words)
    seconds = json.loads((out / "seconds.json").read_text())
    each = 1000 * seconds["predict"] / len(data.splits["test"])
    values = scored(out, data, THRESHOLDS.get(name))
    return {"peer": name, **values, "train_s": seconds["train"], "ms": each}
