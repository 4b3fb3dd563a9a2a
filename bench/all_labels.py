"""Objectives over all labels: time and peak memory of a step, beside the plain version.

    python bench/all_labels.py [--rows classifier dexml dexml-large] [--scale 1.0] [--out rows.json]
        [--blocks 16384 65536] [--chunk-tokens 65536]

Rows:
    classifier     bce, decoupled softmax and softmax over 1,305,265 label vectors of 768, batch
                   512, forward and backward, and with a step of plain descent on the vectors: with
                   the whole (B, L) score matrix, streamed as for any objective, with explicit
                   gradients (with and without kernels), updated in place, with scores in fp8; and
                   the products alone
    dexml          a full-label step of a DistilBERT-sized dual encoder: 131,073 labels, batch
                   3,000, up to 32 tokens, both passes through the label encoder
    dexml-large    the same at 1,305,265 labels

``--scale 0.001`` shrinks labels and batch alike, to try the script on a CPU. Weights are random:
only time and memory are looked at. Medians of steps queued one behind the other, by the device's
clock (``timing.py``), and beside them the host's; the plain version runs in the same process. The
floor of a classifier row is its matrix products at 790 TFLOP/s, the measured rate of large bfloat16
products on an H200: three for bce with its update, else four, since the scores are needed twice.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from timing import timed

LABELS_131K, LABELS_1M = 131_073, 1_305_265
FLOP_PER_SECOND = 790e12


def positives_of(n_queries: int, n_labels: int, per_query: int, seed: int):
    from umpteen.types import Positives

    rng = np.random.default_rng(seed)
    cols = rng.integers(0, n_labels, (n_queries, per_query))
    rows = np.repeat(np.arange(n_queries), per_query)
    pairs = np.unique(np.column_stack([rows, cols.ravel()]), axis=0)
    return Positives(pairs[:, 0], pairs[:, 1], np.ones(len(pairs), np.float32))


class AnyObjective:
    """The same objective without the name of its summary: streamed as one of a user's would be."""

    def __init__(self, base) -> None:
        self.row_stats, self.merge, self.loss = base.row_stats, base.merge, base.loss


def products_alone(queries, labels, block: int, *, scores: int) -> None:
    """The matrix products of a step in blocks, and nothing else: the floor as it can be had."""
    from umpteen.compute.label_products import multiply, sum_over_labels

    wide = torch.promote_types(labels.dtype, torch.float32)
    slopes = labels.new_zeros(block, len(queries))
    target = labels.new_empty(block, labels.shape[1])
    for part in labels.split(block):
        for _ in range(scores):
            multiply(part, queries.T, wide)
        sum_over_labels(slopes[: len(part)], part, wide)
        torch.mm(slopes[: len(part)], queries, out=target[: len(part)])


def classifier_steps(device: torch.device, n_labels: int, batch: int, dim: int, block: int | None):
    """(objective, code, step) of every way to do a step over label vectors."""
    from umpteen.compute import label_closed
    from umpteen.compute.label_blocks import streamed_loss, streamed_update
    from umpteen.compute.label_products import descend
    from umpteen.objectives import OBJECTIVES, REDUCTIONS
    from umpteen.objectives.base import block_loss
    from umpteen.registry import resolve
    from umpteen.training.optim import step_in_blocks
    from umpteen.training.row_adamw import RowAdamW
    from umpteen.types import Positives

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(0)
    labels = (torch.randn(n_labels, dim, device=device, dtype=dtype) * 0.02).requires_grad_()
    queries = torch.randn(batch, dim, device=device).requires_grad_()
    rounded = queries.detach().to(dtype)
    positives = positives_of(batch, n_labels, 5, 1)
    placed = Positives(*(torch.from_numpy(a).to(device) for a in vars(positives).values()))
    rate = 1e-6

    def streamed(objective, reduction, **options) -> None:
        labels.grad = queries.grad = None
        streamed_loss(
            objective, reduction, queries, labels, positives, block_size=block, **options
        ).backward()

    sgd = partial(descend, rate=rate)

    def in_place(objective, reduction, *, apply=sgd, **options) -> None:
        labels.grad = queries.grad = None
        given = queries, labels, positives, apply(labels)
        streamed_update(objective, reduction, *given, block_size=block, **options).backward()

    def without_kernels(step, objective, reduction) -> None:
        kept = label_closed.USE_KERNELS
        label_closed.USE_KERNELS = False
        try:
            step(objective, reduction)
        finally:
            label_closed.USE_KERNELS = kept

    def plain(objective, reduction, *, update: bool) -> None:
        labels.grad = queries.grad = None
        scores = (queries.to(dtype) @ labels.T).float()
        block_loss(objective, reduction, scores, placed).backward()
        del scores
        if update:
            with torch.no_grad():
                labels.add_(labels.grad, alpha=-rate)

    def products(scores: int) -> None:
        labels.grad = queries.grad = None
        products_alone(rounded, labels.detach(), block or 65536, scores=scores)

    for name, weigh in (("bce", "pal"), ("decoupled_softmax", "pal-n"), ("softmax", "pal-n")):
        pair = (
            resolve(OBJECTIVES, name, kind="objective")(),
            resolve(REDUCTIONS, weigh, kind="reduction"),
        )
        generic = AnyObjective(pair[0]), pair[1]
        yield name, "whole scores", partial(plain, *pair, update=False)
        yield name, "streamed, any objective", partial(streamed, *generic)
        yield name, "streamed, no kernels", partial(without_kernels, streamed, *pair)
        yield name, "streamed", partial(streamed, *pair)
        yield f"{name} + SGD", "whole scores", partial(plain, *pair, update=True)
        yield f"{name} + SGD", "in place, no kernels", partial(without_kernels, in_place, *pair)
        yield f"{name} + SGD", "in place", partial(in_place, *pair)
        yield f"{name} + SGD", "in place, fp8 scores", partial(in_place, *pair, precision="fp8")
    bce = (
        resolve(OBJECTIVES, "bce", kind="objective")(),
        resolve(REDUCTIONS, "pal", kind="reduction"),
    )
    for moments in ("fp32", "int8"):
        adam = RowAdamW([labels], lr=rate, moments=moments)
        step = partial(in_place, *bce, apply=partial(step_in_blocks, adam))
        yield f"bce + row AdamW, {moments} moments", "in place", step
        adam.state.clear()
    yield "score, gradient, gradient", "products alone", partial(products, 1)
    yield "score twice, gradient, gradient", "products alone", partial(products, 2)


def classifier_rows(scale: float, device: torch.device, blocks: list[int | None]) -> list[dict]:
    n_labels, batch, dim = max(64, int(LABELS_1M * scale)), max(16, int(512 * scale)), 768
    rows = []
    for block in blocks:
        for work, code, step in classifier_steps(device, n_labels, batch, dim, block):
            whole = code == "whole scores"
            if whole and block != blocks[0]:
                continue  # it has no blocks
            try:
                took = timed(step, repeats=5, device=device)
            except RuntimeError as error:  # a row that cannot be, on this device
                print(f"{work}, {code}: {error}")
                continue
            one_pass = work.startswith(("bce + ", "score, "))
            flop = (3 if one_pass else 4) * 2 * n_labels * batch * dim
            rows.append(
                {
                    "work": f"{work}, {n_labels:,} x {dim}, batch {batch}",
                    "code": code if block is None or whole else f"{code}, blocks of {block:,}",
                    "ms": took.ms,
                    "wall_ms": took.wall_ms,
                    "peak_gib": took.gib,
                    "floor_ms": 1000 * flop / FLOP_PER_SECOND,
                }
            )
            if device.type == "cuda":
                torch.cuda.empty_cache()
    return rows


def dexml_row(
    n_labels: int, batch: int, device: torch.device, *, repeats: int, chunk_tokens: int
) -> dict:
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ["classifier", "dexml", "dexml-large"]
    parser.add_argument("--rows", nargs="*", default=known[:2], choices=known)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--out")
    parser.add_argument("--blocks", nargs="*", type=int, help="labels at once; else by the memory")
    parser.add_argument("--chunk-tokens", nargs="*", type=int, default=[65536])
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[dict] = []
    batch = max(8, int(3000 * args.scale))
    if "classifier" in args.rows:
        rows += classifier_rows(args.scale, device, args.blocks or [None])
    for kind, labels, repeats in (("dexml", LABELS_131K, 3), ("dexml-large", LABELS_1M, 1)):
        for chunk_tokens in args.chunk_tokens if kind in args.rows else ():
            n_labels = max(64, int(labels * args.scale))
            rows.append(
                dexml_row(n_labels, batch, device, repeats=repeats, chunk_tokens=chunk_tokens)
            )
    print(f"torch {torch.__version__}, {device}")
    print("| work | code | ms | wall ms | peak GiB | of the floor |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        floor = row.get("floor_ms")
        share = f"{floor / row['ms']:.0%}" if floor and device.type == "cuda" else "-"
        times = f"{row['ms']:.1f} | {row['wall_ms']:.1f}"
        print(f"| {row['work']} | {row['code']} | {times} | {row['peak_gib']:.2f} | {share} |")
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
