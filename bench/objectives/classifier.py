"""A step over the vectors of all labels: time and peak memory beside the plain version.

    python -m bench objectives classifier [--scale 1.0] [--blocks 16384 65536] [--out rows.json]

bce, decoupled softmax and softmax over 1,305,265 label vectors of 768, batch 512, forward and
backward, and with a step of plain descent on the vectors: with the whole (B, L) score matrix,
streamed as for any objective, with explicit gradients (with and without kernels), updated in place;
and the products alone.

``--scale 0.001`` shrinks labels and batch alike, to try it on a CPU. Weights are random: only time
and memory are measured. Medians of steps queued one behind the other, by the device's clock, and
beside them the host's; the plain version runs in the same process. The floor is the matrix products
at 790 TFLOP/s: three for bce with its update, else four, since the scores are needed twice.
"""

from __future__ import annotations

import argparse
from functools import partial

import torch

from bench.common.timing import best_device, empty, timed
from bench.objectives.rows import FLOP_PER_SECOND, LABELS_1M, add_scale, positives_of, show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--blocks", nargs="*", type=int, help="labels at once; else by the memory")
    add_scale(parser)


def main(args: argparse.Namespace) -> None:
    device = best_device()
    show(classifier_rows(args.scale, device, args.blocks or [None]), device, args.out)


class AnyObjective:
    """The same objective without the name of its summary: streamed as one of a user's would be."""

    def __init__(self, base) -> None:
        self.row_stats, self.merge, self.loss = base.row_stats, base.merge, base.loss


def products_alone(queries, labels, block: int, *, scores: int) -> None:
    """The matrix products of a step in blocks, and nothing else: the floor as it can be had."""
    from umpteen.compute.streaming.label_products import multiply, sum_over_labels

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
    from umpteen.compute.streaming import explicit_gradients
    from umpteen.compute.streaming.label_blocks import streamed_loss, streamed_update
    from umpteen.compute.streaming.label_products import descend
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
        kept = explicit_gradients.USE_KERNELS
        explicit_gradients.USE_KERNELS = False
        try:
            step(objective, reduction)
        finally:
            explicit_gradients.USE_KERNELS = kept

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
            empty(device)
    return rows
