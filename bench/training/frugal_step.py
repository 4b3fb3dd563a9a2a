"""A training step of the frugal encoder on a CPU: this version against another one's, taking turns.

    python -m bench training frugal-step DATA --other TREE [--text all|title]
        [--tokens 32] [--steps 40]

TREE is a checkout of an earlier commit, such as one made by `git worktree add TREE COMMIT`. Both
versions are given the same tokens, targets, batches and mined negatives, at the settings of
`unidec-frugal`, one thread, and take turns, so that a busy machine is busy for both. Times are the
thread's own (medians, lower quartiles in brackets); without dropout both must arrive at the same
losses, and the largest difference is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.common import options
from bench.common.results import ROOT
from bench.common.tables import Table

PARTS = ("batch", "forward", "backward", "update", "step")
BATCH = 128


class Size(int):
    """A cluster size that earlier versions take as a number and later ones as a function."""

    def __call__(self, epoch: int) -> int:
        return self


def prepare_data(given: argparse.Namespace, folder: Path) -> None:
    """Tokens, targets and first token vectors in a file that every version can read."""
    from umpteen import load_dataset
    from umpteen.config.loading import load_config
    from umpteen.training.build_loop import build_untrained_model
    from umpteen.training.prepare import prepare, training_splits
    from umpteen.training.resolve import resolve_open_settings

    changes = [f"data.text={given.text}", f"data.max_tokens={given.tokens}"]
    config = resolve_open_settings(load_config("unidec-frugal", changes))
    dataset = training_splits(load_dataset(given.data), config)
    model, tokenizer = build_untrained_model(config, dataset)
    data = prepare(dataset, config, tokenizer, cache=folder / "cache", log=lambda text: None)
    targets = dataset["train"].filtered_targets()
    np.savez(
        folder / "data.npz",
        query_ids=data.queries.ids,
        query_offsets=data.queries.offsets,
        label_ids=data.labels.ids,
        label_offsets=data.labels.offsets,
        values=targets.data,
        indices=targets.indices,
        indptr=targets.indptr,
        filters=dataset["train"].filters,
        table=model.encoder.table.detach().numpy(),
    )


def child(folder: Path, steps: int, dropout: float) -> None:
    """Steps of whichever version is imported, as a line of JSON."""
    import scipy.sparse as sp
    import torch

    from umpteen.config.loading import load_config
    from umpteen.data.pool import PoolBuilder
    from umpteen.data.tokens import TokenStore
    from umpteen.model.frugal.bag import BagEncoder
    from umpteen.model.model import Model
    from umpteen.training.batch import BatchMaker
    from umpteen.training.factories import build_losses
    from umpteen.training.optim import Optimizers
    from umpteen.training.refresh import Refresher
    from umpteen.training.step import batch_loss

    torch.set_num_threads(1)
    held = np.load(folder / "data.npz")
    queries = TokenStore(held["query_ids"], held["query_offsets"])
    labels = TokenStore(held["label_ids"], held["label_offsets"])
    shape = (len(queries), len(labels))
    targets = sp.csr_matrix((held["values"], held["indices"], held["indptr"]), shape=shape)
    torch.manual_seed(0)
    encoder = BagEncoder(torch.from_numpy(held["table"]), dropout=dropout)
    shape = {"heads": ("dual", "classifier"), "dim": 256, "dropout": dropout}
    model = Model(encoder, n_labels=len(labels), **shape).train()
    torch.nn.init.normal_(model.label_vectors, std=1 / 16)
    losses = build_losses(load_config("unidec-frugal", []).loss)
    pools = PoolBuilder(targets, held["filters"], positives_per_query=3, negatives_per_query=6)
    maker = BatchMaker(queries, labels, pools, seed=0, encode_labels=True)
    rates = {"lr_encoder": 4e-3, "lr_heads": 4e-3, "lr_labels": 5e-3, "weight_decay": 0.01}
    optimizers = Optimizers(model, **rates)
    mined = folder / "negatives.npy"
    if not mined.is_file():
        refresher = Refresher(
            queries, labels, targets, held["filters"], Size(BATCH), 30, seed=0, precision="fp32"
        )
        refreshed = refresher(model, 0)
        whole = refreshed.order[: len(queries) // BATCH * BATCH].reshape(-1, BATCH)
        np.save(folder / "batches.npy", np.random.default_rng(0).permutation(whole))
        np.save(mined, refreshed.negatives)
    batches = np.load(folder / "batches.npy")  # neighbours in the order of clusters
    maker.negatives = np.load(mined)
    times, found = [], []
    for step in range(steps):
        moments = [time.thread_time()]
        batch = maker.make(batches[step % len(batches)], step)
        moments.append(time.thread_time())
        loss = batch_loss(model, batch, losses, precision="fp32")
        moments.append(time.thread_time())
        loss.backward()
        moments.append(time.thread_time())
        optimizers.step(0.5, clip_norm=1.0)
        moments.append(time.thread_time())
        times.append(np.diff(moments).tolist())
        found.append(float(loss.detach()))
    sizes = f"{len(batch.tokens)} texts, {int(batch.tokens.offsets[-1])} tokens"
    print(json.dumps({"times": times, "losses": found, "sizes": sizes}))


def turn(tree: Path, folder: Path, steps: int, dropout: float) -> dict:
    """One process of one version."""
    command = [sys.executable, "-m", "bench", "training", "frugal-step", "--child", str(folder)]
    command += ["--steps", str(steps), "--dropout", str(dropout)]
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve() / "src")}
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.decode().splitlines()[-1])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="?")
    parser.add_argument("--other", type=Path)
    options.add_text(parser)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--dropout", type=float, default=0.1, help=argparse.SUPPRESS)


def main(given: argparse.Namespace) -> None:
    if given.child:
        child(given.child, given.steps, given.dropout)
        return
    if not given.data or not given.other:
        sys.exit("frugal-step needs DATA and --other TREE, a checkout of another version")
    trees = {"this version": ROOT, "the other": given.other}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare_data(given, folder)
        times: dict[str, list] = {which: [] for which in trees}
        for _ in range(given.rounds):
            for which, tree in trees.items():
                result = turn(tree, folder, given.steps, 0.1)
                times[which] += result["times"][3:]  # the first ones fill caches and moments
        plain = [turn(tree, folder, given.steps, 0.0)["losses"] for tree in trees.values()]
    print(f"{given.data}, {given.text}: {result['sizes']} in the last batch")
    table = Table(["version", *PARTS])
    for which, rows in times.items():
        parts = 1000 * np.column_stack([rows, np.sum(rows, axis=1)])
        cells = zip(np.median(parts, axis=0), np.percentile(parts, 25, axis=0), strict=True)
        table.add(which, *(f"{middle:.2f} ({low:.1f})" for middle, low in cells))
    gaps = np.abs(np.subtract(*plain)) / np.abs(plain[0])
    print(f"losses of {given.steps} steps without dropout differ by {gaps.max():.1e} at most")
