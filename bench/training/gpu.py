"""All that should be fast, in one table: ours, plain, the floor, the aim and what was predicted.

    python -m bench training gpu [--rows step bce ...] [--out new.json] [--compare old.json]
    python -m bench training gpu --load new.json --compare old.json
    python -m bench training gpu --scale 0.0002          # to try it on a CPU

Rows: ``search`` (8,192 queries of 384, k 100), ``bce`` (with a step of plain descent) and
``softmax`` (decoupled; forward and backward) over label vectors of 768 with a batch of 512,
``dexml`` (131,073 labels, batch 3,000), ``step`` (UniDEC, 1,098 queries, a pool of 3,000),
``refresh`` and ``epoch`` (2.25 million queries, ``training synthetic``). 1,305,265 labels where
nothing else is said; encoders are DistilBERT-sized with random weights.

The plain version runs in the same process (``plain.py`` for the last three); a plain refresh
is a hundredth of one, without clusters, extrapolated, and a plain epoch its steps. A row that fails
says why and the others go on. An epoch is ``--steps`` steps after a refresh, extrapolated to all
of them with a fifth of the refresh, as for a refresh every five epochs. Floors and aims belong to
one H200. ``plan`` is what ``umpteen plan`` says, and by how much it is off.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.common import options as shared_options
from bench.common.results import facts, load, print_facts, save
from bench.common.timing import Stopwatch, best_device, empty, peak_gib, reset_peak, timed, wait
from bench.objectives.classifier import classifier_steps
from bench.objectives.dual import dual_row
from bench.search.vectors import clustered_vectors, plain_search
from bench.training import plain, step, synthetic
from bench.training.gpu_table import HEADER, Row, compare, line
from bench.training.step_data import LABELS, MINED, Sizes, store
from bench.training.step_data import synthetic as step_data

REFRESH_EPOCHS = 5


@dataclass
class Setting:
    """Where and how large."""

    device: torch.device
    scale: float
    steps: int
    data: Path | None

    def sized(self, n: int, least: int = 16) -> int:
        """A size at the scale."""
        return max(least, round(n * self.scale))

    @property
    def precision(self) -> str:
        """Of encoders."""
        return "bf16" if self.device.type == "cuda" else "fp32"


def predicted(job: Any, what: str) -> tuple[float, float]:
    """Milliseconds and GiB by ``umpteen plan``, of one part of a job on an H200."""
    from umpteen.plan import formulas
    from umpteen.plan.estimate import ALWAYS, IN_A_STEP, estimate
    from umpteen.plan.machines import find_machine

    parts = ALWAYS | ({what: formulas.refresh_buffers} if what == "refresh" else IN_A_STEP)
    held = sum(formula(job) for formula in parts.values())
    return 1000 * estimate(job, find_machine("h200")).seconds[what], held / 2**30


def unidec_job(setting: Setting, **changes: Any) -> Any:
    """The step's job for a plan."""
    from umpteen.plan.encoders import ENCODER_SHAPES
    from umpteen.plan.job import Job

    job = Job(labels=setting.sized(1_305_265), queries=setting.sized(2_250_000),
              encoder=ENCODER_SHAPES["distilbert"], positives=min(22, setting.sized(22, 2)),
              batch=setting.sized(1098, 4), drawn=8, max_labels=setting.sized(3000, 9),
              refresh_epochs=REFRESH_EPOCHS)  # fmt: skip
    return replace(job, **changes)


def attempt(plain: Callable[[], Any], otherwise: Any) -> Any:
    """A plain version's figures; where it fails, ours are still worth having."""
    try:
        return plain()
    except Exception as error:
        print(f"plain: {type(error).__name__}: {str(error)[:300]}", flush=True)
        return otherwise


DEXML = {"classifier": False, "scope": "all", "dim": 768, "chunk_tokens": 65536, "clustered": False}


def dexml_job(setting: Setting) -> Any:
    """The same of a step against all labels."""
    labels, batch = setting.sized(131_073, 64), setting.sized(3000, 8)
    return unidec_job(setting, labels=labels, batch=batch, **DEXML)


# -- rows ------------------------------------------------------------------------------------------


def search_row(setting: Setting) -> Iterator[Row]:
    """Exact top 100."""
    from umpteen.index.exact import ExactIndex

    sizes = setting.sized(8192), setting.sized(1_305_265, 512), 384
    queries, labels = clustered_vectors(*sizes, setting.device)
    k = min(100, len(labels))
    first = "bfloat16" if setting.device.type == "cuda" else None
    index = ExactIndex.build(labels, first_pass=first)
    ours = timed(lambda: index.search(queries, k), repeats=5, device=setting.device)
    half = queries.bfloat16(), labels.bfloat16()
    slow = timed(lambda: plain_search(*half, k), repeats=2, device=setting.device)
    work = f"exact search, {len(queries):,} x {len(labels):,} x 384, k {k}"
    yield Row("search", work, ours.ms, ours.gib, ours.wall_ms, slow.ms, slow.gib)


def classifier_row(setting: Setting, name: str, objective: str, code: str) -> Iterator[Row]:
    """An objective over all labels, as ``objectives classifier`` has it."""
    sizes = setting.sized(1_305_265, 64), setting.sized(512), 768
    found = {}
    for work, how, one_step in classifier_steps(setting.device, *sizes, None):
        if work == objective and how in (code, "whole scores"):
            found[how] = timed(one_step, repeats=10, device=setting.device, warm=2)
            empty(setting.device)
        if len(found) == 2:
            break
    ours, whole = found[code], found["whole scores"]
    work = f"{objective}, {sizes[0]:,} x {sizes[2]}, batch {sizes[1]}"
    yield Row(name, work, ours.ms, ours.gib, ours.wall_ms, whole.ms, whole.gib)


def dexml_row(setting: Setting) -> Iterator[Row]:
    """Every label encoded at every step."""
    job = dexml_job(setting)
    labels, batch, chunk = job.labels, job.batch, job.chunk_tokens
    found = dual_row(labels, batch, setting.device, repeats=3, chunk_tokens=chunk)
    plan = predicted(job, "step")
    empty(setting.device)
    rng = np.random.default_rng(0)
    pairs = np.column_stack([np.repeat(np.arange(batch), 3), rng.integers(0, labels, 3 * batch)])
    tokens = store(rng, batch), store(rng, labels)

    def slow() -> tuple[float, float]:
        whole = plain.dexml_step(*tokens, pairs, setting.device, setting.precision)
        took = timed(whole, repeats=2, device=setting.device)
        return took.ms, took.gib

    yield Row("dexml", found["work"], found["ms"], found["peak_gib"], found["wall_ms"],
              *attempt(slow, (None, None)), *plan)  # fmt: skip


def step_row(setting: Setting) -> Iterator[Row]:
    """A step of UniDEC in its loop."""
    sizes = Sizes.scaled(setting.scale, LABELS)
    data = step_data(sizes)
    rest = (setting.device, setting.precision, setting.steps, 10 if setting.scale == 1 else 1)
    ours = step.run_ours(sizes, data, *rest)
    empty(setting.device)
    slow = plain.run_plain(sizes, data, *rest)
    plan = predicted(unidec_job(setting), "step")
    work = f"UniDEC step, {sizes.batch:,} queries, pool {sizes.pool:,}, {sizes.labels:,} labels"
    yield Row("step", work, ours["ms"], ours["gib"], ours["wall"], slow["ms"], slow["gib"], *plan)


def our_whole(setting: Setting, data: Any, sizes: Any, parts: Any) -> tuple[Any, float, int, float]:
    """A refresh, and steps on what it left: its timing, ms a step, steps of an epoch, peak GiB."""
    from umpteen.training.refresh import Refresher

    nothing = np.zeros((0, 2), np.int64)
    loop = step.our_loop(sizes, parts, setting.device, setting.precision)
    refresher = Refresher(data.queries, data.labels, data.targets, nothing, lambda _: sizes.batch,
                          min(MINED, sizes.labels), 0, setting.precision)  # fmt: skip
    refresh = timed(lambda: refresher(loop.model, 0), repeats=1, device=setting.device, warm=0)
    loop.refreshed, loop.clustered = refresh.result, True
    loop.cluster_size = lambda _: sizes.batch
    ticks = loop.ticks()
    for _ in range(3):
        next(ticks)
    reset_peak(setting.device)
    steps = min(setting.steps * 5, loop.n_batches - 4)
    with Stopwatch() as watch:
        for _ in range(steps):
            next(ticks)
        wait(setting.device)
    each = 1000 * watch.wall / max(1, steps)
    ticks.close()
    return refresh, each, loop.n_batches, max(peak_gib(setting.device), refresh.gib)


def whole_rows(setting: Setting) -> Iterator[Row]:
    """A refresh of everything, then steps on what it left."""
    n_queries, n_labels = setting.sized(2_250_000, 64), setting.sized(1_305_265, 64)
    data = synthetic.load(setting.data) if setting.data else synthetic.generate(n_queries, n_labels)
    n_queries, n_labels = data.targets.shape
    sizes = Sizes(setting.sized(1098, 4), setting.sized(3000, 9), n_labels, n_queries)
    mined = np.zeros((n_queries, 1), np.int32) - 1
    parts = (data.queries, data.labels, data.targets, mined)
    refresh, each, n_batches, gib = our_whole(setting, data, sizes, parts)
    empty(setting.device)
    rest = setting.device, setting.precision
    slow = attempt(lambda: plain.refresh_ms(data, *rest, share=0.01, k=MINED), None)
    plan = predicted(unidec_job(setting), "refresh")
    work = f"refresh, {n_queries:,} queries, {n_labels:,} labels: encode, cluster, mine"
    yield Row("refresh", work, refresh.ms, refresh.gib, refresh.wall_ms, slow,
              plan_ms=plan[0], plan_gib=plan[1])  # fmt: skip
    empty(setting.device)
    few = 5 if setting.scale == 1 else 1
    nothing = {"ms": None, "gib": None}
    one = attempt(lambda: plain.run_plain(sizes, parts, *rest, few, few), nothing)
    total = each * n_batches + refresh.wall_ms / REFRESH_EPOCHS
    plan = predicted(unidec_job(setting), "epoch")
    steps = min(setting.steps * 5, n_batches - 4)
    work = f"epoch of {n_batches:,} steps, from {steps} and a fifth of a refresh"
    slow = one["ms"] * n_batches + slow / REFRESH_EPOCHS if one["ms"] and slow else None
    yield Row("epoch", work, total, gib, total, slow, one["gib"], plan_ms=plan[0])


ROWS: dict[str, Callable[[Setting], Iterator[Row]]] = {
    "search": search_row,
    "bce": lambda setting: classifier_row(setting, "bce", "bce + SGD", "in place"),
    "softmax": lambda setting: classifier_row(setting, "softmax", "decoupled_softmax", "streamed"),
    "dexml": dexml_row,
    "step": step_row,
    "whole": whole_rows,
}
"""``whole`` makes both refresh and epoch."""


def run(setting: Setting, names: list[str]) -> list[Row]:
    """The rows, printed as they come."""
    print(HEADER, flush=True)
    rows = []
    for name in names:
        try:
            for row in ROWS[name](setting):
                rows.append(row)
                print(line(row, whole=setting.scale == 1), flush=True)
        except Exception as error:  # the others are worth having
            print(f"| {name}: {type(error).__name__}: {str(error)[:300]} |", flush=True)
        empty(setting.device)
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--data", type=Path, help="what `training synthetic --out` wrote")
    parser.add_argument("--device", default=str(best_device()))
    shared_options.add_out(parser)
    parser.add_argument("--load", type=Path, help="results to show again instead of running")
    parser.add_argument("--compare", type=Path, help="older results")


def main(options: argparse.Namespace) -> None:
    if options.load:
        results = load(options.load)
        print(HEADER)
        for row in results["rows"]:
            print(line(Row(**row), whole=results.get("scale") == 1))
    else:
        device = torch.device(options.device)
        about = {**facts(device), "scale": options.scale}
        print_facts(about)
        setting = Setting(device, options.scale, options.steps, options.data)
        started = time.perf_counter()
        results = about | {"rows": [asdict(row) for row in run(setting, options.rows)]}
        print(f"{time.perf_counter() - started:.0f} s in all")
        save(options.out, **results)
    if options.compare:
        print("\n".join(compare(results, load(options.compare))))
