"""Objectives over all labels: time and peak memory of a step, beside the plain version.

    python bench/all_labels.py [--rows classifier dexml dexml-large] [--scale 1.0] [--out rows.json]

Rows:
    classifier     bce and decoupled softmax over 1,305,265 label vectors of 768, batch 512,
                   forward and backward, streamed and with the whole (B, L) score matrix
    dexml          a full-label step of a DistilBERT-sized dual encoder: 131,073 labels, batch
                   3,000, up to 32 tokens, both passes through the label encoder
    dexml-large    the same at 1,305,265 labels

``--scale 0.001`` shrinks labels and batch alike, to try the script on a CPU. Weights are random:
only time and memory are looked at. Medians of repeated steps; the plain version runs in the same
process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

LABELS_131K, LABELS_1M = 131_073, 1_305_265


def timed(step, *, repeats: int, device: torch.device) -> tuple[float, float]:
    """Median milliseconds and peak GiB of a step, after one warm-up."""
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    return statistics.median(times), peak


def positives_of(n_queries: int, n_labels: int, per_query: int, seed: int):
    from umpteen.types import Positives

    rng = np.random.default_rng(seed)
    cols = rng.integers(0, n_labels, (n_queries, per_query))
    rows = np.repeat(np.arange(n_queries), per_query)
    pairs = np.unique(np.column_stack([rows, cols.ravel()]), axis=0)
    return Positives(pairs[:, 0], pairs[:, 1], np.ones(len(pairs), np.float32))


def classifier_rows(scale: float, device: torch.device) -> list[dict]:
    from umpteen.compute.label_blocks import streamed_loss
    from umpteen.objectives import OBJECTIVES, REDUCTIONS
    from umpteen.objectives.base import block_loss
    from umpteen.registry import resolve
    from umpteen.types import Positives

    n_labels, batch, dim = max(64, int(LABELS_1M * scale)), max(8, int(512 * scale)), 768
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    labels = (torch.randn(n_labels, dim, device=device, dtype=dtype) * 0.02).requires_grad_()
    queries = torch.randn(batch, dim, device=device).requires_grad_()
    positives = positives_of(batch, n_labels, 5, 1)
    placed = Positives(*(torch.from_numpy(a).to(device) for a in vars(positives).values()))
    rows = []
    for name, reduction_name in (("bce", "pal"), ("decoupled_softmax", "pal-n")):
        objective = resolve(OBJECTIVES, name, kind="objective")()
        reduction = resolve(REDUCTIONS, reduction_name, kind="reduction")

        def streamed(objective=objective, reduction=reduction) -> None:
            labels.grad = queries.grad = None
            streamed_loss(objective, reduction, queries, labels, positives).backward()

        def plain(objective=objective, reduction=reduction) -> None:
            labels.grad = queries.grad = None
            scores = (queries.to(dtype) @ labels.T).float()
            block_loss(objective, reduction, scores, placed).backward()

        for how, step in (("streamed", streamed), ("plain", plain)):
            milliseconds, peak = timed(step, repeats=5, device=device)
            rows.append(
                {
                    "work": f"{name}, {n_labels:,} x {dim}, batch {batch}",
                    "code": how,
                    "ms": milliseconds,
                    "peak_gib": peak,
                }
            )
    return rows


def dexml_row(n_labels: int, batch: int, device: torch.device, *, repeats: int) -> dict:
    from transformers import DistilBertConfig, DistilBertModel

    from umpteen.build import build_losses, load_config
    from umpteen.data.pool import AllLabels
    from umpteen.data.tokens import TokenStore
    from umpteen.model.model import Model
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.training.all_labels import AllLabelLoss
    from umpteen.training.batch import BatchMaker

    small = device.type == "cpu"
    shape = {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 2} if small else {}
    encoder = TransformerEncoder(DistilBertModel(DistilBertConfig(**shape)), pooling="first")
    model = Model(encoder, heads=("dual",), dim=encoder.dim, n_labels=n_labels).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def store(n: int, seed: int) -> TokenStore:
        # Title lengths: 4 to 32 tokens, 12 on average.
        rng = np.random.default_rng(seed)
        lengths = np.clip(rng.poisson(8, n) + 4, 4, 32)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return TokenStore(rng.integers(1000, 30000, offsets[-1]).astype(np.uint16), offsets)

    import scipy.sparse as sp

    positives = positives_of(batch, n_labels, 3, 2)
    targets = sp.csr_matrix(
        (positives.targets, (positives.rows, positives.cols)), shape=(batch, n_labels)
    )
    nothing = np.zeros((0, 2), np.int64)
    queries, labels = store(batch, 3), store(n_labels, 4)
    pools = AllLabels(targets, nothing)
    maker = BatchMaker(queries, labels, pools, seed=1, encode_labels=False)
    losses = build_losses(load_config("dexml").loss)
    precision = "bf16" if device.type == "cuda" else "fp32"
    loss_of = AllLabelLoss(losses, labels, precision, chunk_tokens=65536, memory_bytes=1 << 30)
    one = maker.make(np.arange(batch), 0)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, one, 7).backward()
        optimizer.step()

    milliseconds, peak = timed(step, repeats=repeats, device=device)
    return {
        "work": f"DEXML step, {n_labels:,} labels, batch {batch:,}",
        "code": "umpteen",
        "ms": milliseconds,
        "peak_gib": peak,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ["classifier", "dexml", "dexml-large"]
    parser.add_argument("--rows", nargs="*", default=known[:2], choices=known)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[dict] = []
    batch = max(8, int(3000 * args.scale))
    if "classifier" in args.rows:
        rows += classifier_rows(args.scale, device)
    if "dexml" in args.rows:
        n_labels = max(64, int(LABELS_131K * args.scale))
        rows.append(dexml_row(n_labels, batch, device, repeats=3))
    if "dexml-large" in args.rows:
        n_labels = max(64, int(LABELS_1M * args.scale))
        rows.append(dexml_row(n_labels, batch, device, repeats=1))
    print(f"torch {torch.__version__}, {device}")
    print("| work | code | ms | peak GiB |")
    print("|---|---|---|---|")
    for row in rows:
        print(f"| {row['work']} | {row['code']} | {row['ms']:.1f} | {row['peak_gib']:.2f} |")
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
