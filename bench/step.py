"""A UniDEC step at full size, through the parts that train, beside the plain version.

    python bench/step.py [--scale 1.0] [--steps 40] [--labels 1305265] [--out row.json]
    python bench/step.py --profile        # the device's time of a step, kernel by kernel

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
import gc
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from torch.nn.functional import normalize, softplus

BATCH, POOL, LABELS, QUERIES, DIM = 1098, 3000, 1_305_265, 300_000, 256
LONGEST, VOCABULARY = 32, 30_522
POSITIVES, NEGATIVES, MINED = 2, 6, 30


@dataclass
class Sizes:
    """How large everything is."""

    batch: int
    pool: int
    labels: int
    queries: int

    @classmethod
    def scaled(cls, scale: float, labels: int) -> Sizes:
        """All sizes times a factor, none below what a step needs."""
        pool = max(9, round(POOL * scale))
        return cls(
            batch=max(4, round(BATCH * scale)),
            pool=pool,
            labels=max(2 * pool, round(labels * scale)),
            queries=max(64, round(QUERIES * scale)),
        )


# -- data ------------------------------------------------------------------------------------------


def zipf(rng: np.random.Generator, n: int, shape) -> np.ndarray:
    """Numbers below n, the r-th about 1 / r as often as the first."""
    return np.minimum(np.exp(rng.random(shape) * np.log(n)).astype(np.int64) - 1, n - 1)


def store(rng: np.random.Generator, n: int):
    """Random titles: 12 tokens on average, 3 to 32."""
    from umpteen.data.tokens import TokenStore

    lengths = np.clip(3 + rng.gamma(3.0, 3.0, n), 3, LONGEST).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = 999 + zipf(rng, VOCABULARY - 999, int(offsets[-1]))
    return TokenStore(ids.astype(np.uint16), offsets)


def synthetic(sizes: Sizes, seed: int = 0):
    """Tokens of queries and labels, CSR targets of about 22 labels a query, mined negatives."""
    rng = np.random.default_rng(seed)
    cols = zipf(rng, sizes.labels, (sizes.queries, 24))
    rows = np.repeat(np.arange(sizes.queries), cols.shape[1])
    ones = np.ones(cols.size, np.float32)
    targets = sp.csr_matrix((ones, (rows, cols.ravel())), shape=(sizes.queries, sizes.labels))
    targets.data[:] = 1.0  # a label drawn twice is one
    negatives = rng.integers(0, sizes.labels, (sizes.queries, MINED)).astype(np.int32)
    return store(rng, sizes.queries), store(rng, sizes.labels), targets, negatives


def network() -> torch.nn.Module:
    """A DistilBERT of the usual size with random weights."""
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    return DistilBertModel(DistilBertConfig(attn_implementation="sdpa"))


# -- ours ------------------------------------------------------------------------------------------


def our_loop(sizes: Sizes, data, device: torch.device, precision: str):
    """The training loop with everything in it but files and validation."""
    from umpteen.build import build_losses, load_config
    from umpteen.data.pool import PoolBuilder
    from umpteen.data.pool_on_device import DevicePoolBuilder
    from umpteen.model.model import Model
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.training.batch import BatchMaker
    from umpteen.training.batch_on_device import DeviceBatchMaker
    from umpteen.training.loop import Loop
    from umpteen.training.optim import Optimizers
    from umpteen.training.refresh import Refreshed
    from umpteen.training.step import batch_loss

    queries, labels, targets, negatives = data
    filters = np.zeros((0, 2), np.int64)
    encoder = TransformerEncoder(network())
    model = Model(encoder, heads=("dual", "classifier"), dim=DIM, n_labels=sizes.labels)
    model = model.to(device).train()
    options = {
        "positives_per_query": POSITIVES,
        "negatives_per_query": NEGATIVES,
        "max_labels": sizes.pool,
    }
    if device.type == "cuda":
        maker = DeviceBatchMaker(
            queries,
            labels,
            DevicePoolBuilder(targets, filters, device, **options),
            device,
            seed=0,
            encode_labels=True,
            layout=getattr(encoder, "layout", None),
        )
    else:
        pools = PoolBuilder(targets, filters, **options)
        maker = BatchMaker(queries, labels, pools, seed=0, encode_labels=True)
    losses = build_losses(load_config("unidec", []).loss)
    order = np.arange(sizes.queries)
    return Loop(
        model=model,
        optimizers=Optimizers(
            model, lr_encoder=1e-4, lr_heads=2e-4, lr_labels=1e-3, weight_decay=0.01
        ),
        loss_of=lambda model, batch, seed: batch_loss(model, batch, losses, precision=precision),
        maker=maker,
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
        refreshed=Refreshed(order, np.array([0, sizes.queries]), negatives),
    )


class Clock:
    """Moments on the device's own clock, read at the end."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._moments: list = []

    def tick(self) -> None:
        """Remember this moment."""
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._moments.append(event)
        else:
            self._moments.append(time.perf_counter())

    def gaps(self) -> np.ndarray:
        """Milliseconds between one moment and the next."""
        if not self._cuda:
            return 1000 * np.diff(self._moments)
        torch.cuda.synchronize()
        pairs = zip(self._moments[:-1], self._moments[1:], strict=True)
        return np.array([first.elapsed_time(second) for first, second in pairs])


def run_ours(
    sizes: Sizes, data, device: torch.device, precision: str, steps: int, warm: int
):  # fmt: skip
    """Time per step of the loop as it trains, then the parts of a step."""
    loop = our_loop(sizes, data, device, precision)
    clock, ticks = Clock(device), loop.ticks()
    for step in range(warm + steps):
        if step == warm:
            clock = Clock(device)
            reset_peak(device)
            started = time.perf_counter()
            clock.tick()
        next(ticks)
        clock.tick()
    row = {
        "row": "ours",
        "ms": statistics.median(clock.gaps()),
        "gib": peak(device),
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
    clock = Clock(device)
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
    print("| kernel | ms a step | calls a step |\n|---|---|---|")
    for event in events[:30]:
        took = event.self_device_time_total / 1000 / steps
        print(f"| {event.key[:80]} | {took:.3f} | {event.count / steps:.1f} |")


# -- plain -----------------------------------------------------------------------------------------


class Plain(torch.nn.Module):
    """The same model, written down as it comes."""

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.network = network()
        self.dual = torch.nn.Linear(768, DIM)
        self.classifier = torch.nn.Linear(768, DIM)
        self.dropout = torch.nn.Dropout(0.1)
        self.table = torch.nn.Parameter(torch.zeros(n_labels, DIM))

    def forward(self, ids, mask, rows, n_queries, precision):
        """Scores of both heads, (B, C)."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
            hidden = self.network(input_ids=ids, attention_mask=mask)[0]
        weights = mask.unsqueeze(-1).float()
        encoded = (hidden.float() * weights).sum(1) / weights.sum(1)
        dual = normalize(self.dropout(self.dual(encoded).tanh()), dim=1)
        queries = self.dropout(self.classifier(encoded[:n_queries]))
        return dual[:n_queries] @ dual[n_queries:].T / 0.05, queries @ self.table[rows].T


def plain_loss(scores: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    """Decoupled softmax, the mean over a query's positives; positive is (B, C) of 0 and 1."""
    below = torch.logsumexp(scores.masked_fill(positive.bool(), float("-inf")), 1, keepdim=True)
    terms = softplus(below - scores) * positive
    return (terms.sum(1) / positive.sum(1).clamp(min=1)).mean()


def plain_batches(sizes: Sizes, data, device: torch.device, n: int) -> list:
    """Padded to the longest title there may be, with a dense mask of positives."""
    from umpteen.data.pool import PoolBuilder
    from umpteen.training.batch import BatchMaker

    queries, labels, targets, negatives = data
    pools = PoolBuilder(
        targets,
        np.zeros((0, 2), np.int64),
        positives_per_query=POSITIVES,
        negatives_per_query=NEGATIVES,
        max_labels=sizes.pool,
    )
    maker = BatchMaker(queries, labels, pools, seed=0, encode_labels=True)
    maker.negatives = negatives
    rng, batches = np.random.default_rng(1), []
    for step in range(n):
        batch = maker.make(rng.permutation(sizes.queries)[: sizes.batch], step)
        lengths = np.diff(batch.tokens.offsets)
        mask = np.arange(LONGEST)[None, :] < lengths[:, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = batch.tokens.ids
        positive = np.zeros((sizes.batch, len(batch.pool.labels)), np.float32)
        positive[batch.pool.positives.rows, batch.pool.positives.cols] = 1
        arrays = (ids, mask, batch.pool.labels, positive)
        batches.append([torch.from_numpy(array).to(device) for array in arrays])
    return batches


def run_plain(sizes: Sizes, data, device: torch.device, precision: str, steps: int, warm: int):
    """Time and memory of the plain step; its batches are there before the clock starts."""
    batches = plain_batches(sizes, data, device, 4)
    model = Plain(sizes.labels).to(device).train()
    groups = [
        {"params": model.network.parameters(), "lr": 1e-4},
        {"params": [*model.dual.parameters(), *model.classifier.parameters()], "lr": 2e-4},
        {"params": [model.table], "lr": 1e-3},
    ]
    optimizer = torch.optim.AdamW(groups, fused=device.type == "cuda")
    clock = Clock(device)
    for step in range(warm + steps):
        if step == warm:
            clock = Clock(device)
            reset_peak(device)
            clock.tick()
        ids, mask, rows, positive = batches[step % len(batches)]
        loss = torch.zeros((), device=device)
        for scores in model(ids, mask, rows, sizes.batch, precision):
            loss = loss + 0.25 * plain_loss(scores, positive)
            loss = loss + 0.25 * plain_loss(scores.T, positive.T)
        clock.tick()
        loss.backward()
        clock.tick()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.tick()
    phases = clock.gaps()[-3 * steps :].reshape(-1, 3)
    names = ("forward", "backward", "optimizer")
    return {
        "row": "plain",
        "ms": statistics.median(phases.sum(axis=1)),
        "gib": peak(device),
    } | dict(zip(names, np.median(phases, axis=0).tolist(), strict=True))


# -- both ------------------------------------------------------------------------------------------


def wait(device: torch.device) -> None:
    """Until the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def reset_peak(device: torch.device) -> None:
    """Count memory from here on."""
    wait(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak(device: torch.device) -> float:
    """GiB at most since then."""
    if device.type != "cuda":
        return float("nan")
    return torch.cuda.max_memory_allocated() / 2**30


def main() -> None:
    """Run the rows and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", nargs="+", choices=("ours", "plain"), default=["ours", "plain"])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--labels", type=int, default=LABELS)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--precision", default=None, choices=("bf16", "fp32"))
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    precision = options.precision or ("bf16" if device.type == "cuda" else "fp32")
    sizes = Sizes.scaled(options.scale, options.labels)
    started = time.perf_counter()
    data = synthetic(sizes)
    print(f"{sizes}, {device}, {precision}; data made in {time.perf_counter() - started:.0f} s")
    if options.profile:
        profile(sizes, data, device, precision, options.steps)
        return
    rows = []
    for name in options.rows:
        rest = (sizes, data, device, precision, options.steps, options.warm)
        rows.append(run_plain(*rest) if name == "plain" else run_ours(*rest, name == "ours"))
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    columns = ("row", "ms", "wall", "gib", "batch", "host", "forward", "backward", "optimizer")
    print("  ".join(f"{name:>9}" for name in columns))
    for row in rows:
        cells = (row.get(name, float("nan")) for name in columns)
        print("  ".join(f"{c:>9}" if isinstance(c, str) else f"{c:>9.2f}" for c in cells))
    print("medians in ms; batch: made with nothing beside it; host: launching a step's work")
    if options.out:
        facts = {"sizes": vars(sizes), "device": str(device), "precision": precision}
        options.out.write_text(json.dumps(facts | {"torch": torch.__version__, "rows": rows}))


if __name__ == "__main__":
    main()
