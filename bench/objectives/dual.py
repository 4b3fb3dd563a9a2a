"""A DEXML step that encodes all labels: time and peak memory.

    python -m bench objectives dual [--labels 131073] [--chunk-tokens 65536] [--scale 1.0]
        [--out rows.json]

A full-label step of a DistilBERT-sized dual encoder with random weights: batch 3,000, up to 32
tokens, both passes through the label encoder. ``--labels 1305265`` is the largest published size.
``--scale 0.001`` shrinks labels and batch alike, to try it on a CPU.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sp
import torch

from bench.common.timing import best_device, timed
from bench.objectives.rows import LABELS_1M, LABELS_131K, add_scale, positives_of, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", nargs="+", type=int, default=[LABELS_131K])
    parser.add_argument("--chunk-tokens", nargs="+", type=int, default=[65536])
    add_scale(parser)


def main(args: argparse.Namespace) -> None:
    device = best_device()
    batch = max(8, int(3000 * args.scale))
    rows = []
    for labels in args.labels:
        n_labels, repeats = max(64, int(labels * args.scale)), 1 if labels >= LABELS_1M else 3
        for chunk_tokens in args.chunk_tokens:
            options = {"repeats": repeats, "chunk_tokens": chunk_tokens}
            rows.append(dual_row(n_labels, batch, device, **options))
    show(rows, device, args.out)


def dual_row(
    n_labels: int, batch: int, device: torch.device, *, repeats: int, chunk_tokens: int
) -> dict:
    from transformers import DistilBertConfig, DistilBertModel

    from umpteen.config.loading import load_config
    from umpteen.data.pool import AllLabels
    from umpteen.data.tokens import TokenStore
    from umpteen.model.model import Model
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.training.all_labels import AllLabelLoss
    from umpteen.training.batch import BatchMaker
    from umpteen.training.factories import build_losses

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
    loss_of = AllLabelLoss(
        losses, labels, precision, chunk_tokens=chunk_tokens, memory_bytes=1 << 30
    )
    one = maker.make(np.arange(batch), 0)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, one, 7).backward()
        optimizer.step()

    took = timed(step, repeats=repeats, device=device)
    return {
        "work": f"DEXML step, {n_labels:,} labels, batch {batch:,}",
        "code": f"umpteen, chunks of {chunk_tokens:,} tokens",
        "ms": took.ms,
        "wall_ms": took.wall_ms,
        "peak_gib": took.gib,
    }
