"""A UniDEC step at full size, through the parts that train, beside the plain version.

    python -m bench training step [--scale 1.0] [--steps 40] [--labels 1305265] [--out row.json]
    python -m bench training step --rows ours --labels 1305265 450000000 --batch 2048 --pool 6000 \
        --dim 64 --encoder minilm --storage bf16 --moments int8     # 450 million labels on one GPU
    python -m bench training step --profile        # the device's time of a step, kernel by kernel

1,098 queries, a pool of at most 3,000 labels, titles of 12 tokens on average and 32 at most, 1.3
million labels, a DistilBERT-sized encoder, two heads of 256, decoupled softmax both ways. Data are
Zipf-shaped random arrays and weights are random: only time and memory are looked at.

``ours`` is the training loop itself: batches made ahead, row-wise AdamW, no padding where the
encoder can do without; ``plain`` pads every text to 32 tokens, has its batches ready beforehand,
scores with dense masks, and runs AdamW over the whole label table. All in the same process, one
after the other; ``--rows`` chooses. ``--scale 0.01`` shrinks queries, pool and labels alike, to try
the script on a CPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch

from bench.common import options as shared_options
from bench.common.results import facts, save
from bench.common.tables import Table, print_rows
from bench.common.timing import (
    DeviceClock,
    Stopwatch,
    best_device,
    empty,
    peak_gib,
    reset_peak,
    wait,
)  # fmt: skip
from bench.training.plain import run_plain
from bench.training.step_data import (
    BATCH,
    DIM,
    LABELS,
    NEGATIVES,
    POOL,
    POSITIVES,
    Sizes,
    network,
    synthetic,
)  # fmt: skip


def batch_maker(sizes: Sizes, data, device: torch.device, encoder):
    """What makes batches on this device in training."""
    from umpteen.data.pool import PoolBuilder
    from umpteen.data.pool_on_device import DevicePoolBuilder
    from umpteen.training.batch import BatchMaker
    from umpteen.training.batch_on_device import DeviceBatchMaker

    queries, labels, targets, _ = data
    filters = np.zeros((0, 2), np.int64)
    drawn = {"positives_per_query": POSITIVES, "negatives_per_query": NEGATIVES}
    drawn["max_labels"] = sizes.pool
    rest = {"seed": 0, "encode_labels": True}
    if device.type != "cuda":
        return BatchMaker(queries, labels, PoolBuilder(targets, filters, **drawn), **rest)
    pools = DevicePoolBuilder(targets, filters, device, **drawn)
    rest["layout"] = getattr(encoder, "layout", None)
    return DeviceBatchMaker(queries, labels, pools, device, **rest)


@dataclass(frozen=True)
class Shape:
    """Of the model, and how label vectors and their moments are kept."""

    encoder: str = "distilbert"
    dim: int = DIM
    storage: str = "fp32"
    moments: str = "fp32"


def our_loop(sizes: Sizes, data, device: torch.device, precision: str, shape: Shape = Shape()):  # noqa: B008
    """The training loop with everything in it but files and validation."""
    from umpteen.config.loading import load_config
    from umpteen.model.model import Model
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.training.factories import build_losses
    from umpteen.training.loop import Loop
    from umpteen.training.optim import Optimizers
    from umpteen.training.refresh import Refreshed
    from umpteen.training.step import batch_loss

    encoder = TransformerEncoder(network(shape.encoder))
    heads, n_labels = ("dual", "classifier"), sizes.labels
    with device:  # label vectors of half the device's memory are made where they stay
        model = Model(
            encoder, heads=heads, dim=shape.dim, n_labels=n_labels, label_storage=shape.storage
        )
    model = model.to(device).train()
    losses = build_losses(load_config("unidec", []).loss)
    order = np.arange(sizes.queries)
    return Loop(
        model=model,
        optimizers=Optimizers(
            model,
            lr_encoder=1e-4,
            lr_heads=2e-4,
            lr_labels=1e-3,
            weight_decay=0.01,
            label_moments=shape.moments,
        ),
        loss_of=lambda model, batch, seed: batch_loss(model, batch, losses, precision=precision),
        maker=batch_maker(sizes, data, device, encoder),
        refresh=None,
        keep_refresh=lambda refreshed, epoch: None,
        n_queries=sizes.queries,
        batch_size=sizes.batch,
        first_epoch=0,
        n_epochs=10**6,
        refresh_epochs=10**6,
        first_refresh=10**6,
        clustered=False,
        cluster_size=lambda epoch: 1,
        warmup=0.1,
        clip_norm=1.0,
        seed=0,
        refreshed=Refreshed(order, np.array([0, sizes.queries]), data[3]),
    )


def run_ours(
    sizes: Sizes,
    data,
    device: torch.device,
    precision: str,
    steps: int,
    warm: int,
    shape: Shape = Shape(),  # noqa: B008
):
    """Time per step of the loop as it trains, then the parts of a step."""
    loop = our_loop(sizes, data, device, precision, shape)
    clock, ticks = DeviceClock(device), loop.ticks()
    for step in range(warm + steps):
        if step == warm:
            clock = DeviceClock(device)
            reset_peak(device)
            started = time.perf_counter()
            clock.tick()
        next(ticks)
        clock.tick()
    row = {
        "row": "ours",
        "labels": sizes.labels,
        "ms": statistics.median(clock.gaps()),
        "gib": peak_gib(device),
    }
    row["wall"] = 1000 * (time.perf_counter() - started) / steps  # the gaps waited for the device
    ticks.close()
    return row | parts_of_a_step(loop, device, steps)


def parts_of_a_step(loop, device: torch.device, steps: int) -> dict[str, float]:
    """Batch making with nothing beside it, the host's work in a step, and the device's phases."""
    plan = loop.batch_rows()[:steps]
    making, host = [], []
    for step, rows in enumerate(plan):
        started = time.perf_counter()
        batch = loop.maker.make(rows, step)
        wait(device)
        made = time.perf_counter()
        loop.loss_of(loop.model, batch, step).backward()
        loop.optimizers.step(0.5, clip_norm=loop.clip_norm)
        host.append(1000 * (time.perf_counter() - made))  # without waiting for the device
        wait(device)
        making.append(1000 * (made - started))
    clock = DeviceClock(device)
    for step, rows in enumerate(plan):
        batch = loop.maker.make(rows, step)
        clock.tick()
        loss = loop.loss_of(loop.model, batch, step)
        clock.tick()
        loss.backward()
        clock.tick()
        loop.optimizers.step(0.5, clip_norm=loop.clip_norm)
        clock.tick()
    phases = np.append(clock.gaps(), np.nan).reshape(-1, 4)[:, :3]
    texts = len(batch.tokens)
    print(
        f"a batch: {len(batch.queries)} queries, {len(batch.pool.labels)} labels, "
        f"{texts} texts of {batch.tokens.offsets[-1] / texts:.1f} tokens, "
        f"{len(batch.pool.positives)} positives"
    )
    names = ("forward", "backward", "optimizer")
    medians = {"batch": statistics.median(making), "host": statistics.median(host)}
    return medians | dict(zip(names, np.median(phases, axis=0).tolist(), strict=True))


def profile(sizes: Sizes, data, device: torch.device, precision: str, steps: int) -> None:
    """Print what a step's kernels take on the device, the dearest first."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    ticks = our_loop(sizes, data, device, precision).ticks()
    for _ in range(10):
        next(ticks)
    wait(device)
    with watch(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            next(ticks)
        wait(device)
    ticks.close()
    events = [event for event in seen.key_averages() if event.self_device_time_total > 0]
    events.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in events) / 1000 / steps
    calls = sum(event.count for event in events) / steps
    print(f"the device works {total:.2f} ms a step, in {calls:.0f} calls")
    table = Table(["kernel", "ms a step", "calls a step"], 3)
    for event in events[:30]:
        table.add(event.key[:80], event.self_device_time_total / 1000 / steps, event.count / steps)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=("ours", "plain"), default=["ours", "plain"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--labels", type=int, nargs="+", default=[LABELS])
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--pool", type=int, default=POOL)
    parser.add_argument("--dim", type=int, default=DIM, help="of ours, as what follows")
    parser.add_argument("--encoder", choices=("distilbert", "minilm"), default="distilbert")
    parser.add_argument("--storage", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--moments", choices=("fp32", "int8"), default="fp32")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--device", default=str(best_device()))
    parser.add_argument("--precision", default=None, choices=("bf16", "fp32"))
    parser.add_argument("--profile", action="store_true")
    shared_options.add_out(parser)


def main(options: argparse.Namespace) -> None:
    device = torch.device(options.device)
    precision = options.precision or ("bf16" if device.type == "cuda" else "fp32")
    shape = Shape(options.encoder, options.dim, options.storage, options.moments)
    rows = []
    for labels in options.labels:
        sizes = Sizes.scaled(options.scale, labels, options.batch, options.pool)
        with Stopwatch() as making:
            data = synthetic(sizes)
        print(f"{sizes}, {shape}, {device}, {precision}; data made in {making.wall:.0f} s")
        if options.profile:
            profile(sizes, data, device, precision, options.steps)
            continue
        times = (options.steps, options.warm)
        for name in options.rows:
            if name == "plain":
                rows.append(run_plain(sizes, data, device, precision, *times))
            else:
                rows.append(run_ours(sizes, data, device, precision, *times, shape))
            print(rows[-1], flush=True)
            empty(device)
    if options.profile:
        return
    columns = ("row", "labels", "ms", "wall", "gib", "batch", "host")
    print_rows(rows, (*columns, "forward", "backward", "optimizer"))
    print("medians in ms; batch: made with nothing beside it; host: launching a step's work")
    about = {"shape": vars(shape), "sizes": vars(sizes), "precision": precision, **facts(device)}
    save(options.out, rows, **about)
