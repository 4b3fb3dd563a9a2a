"""All that should be fast, in one table: ours, plain, the floor, the aim and what was predicted.

    python bench/gpu.py [--rows step bce ...] [--out new.json] [--compare old.json]
    python bench/gpu.py --load new.json --compare old.json
    python bench/gpu.py --scale 0.0002                           # to try it on a CPU

Rows: ``search`` (8,192 queries of 384, k 100), ``bce`` (with a step of plain descent) and
``softmax`` (decoupled; forward and backward) over label vectors of 768 with a batch of 512,
``dexml`` (131,073 labels, batch 3,000), ``step`` (UniDEC, 1,098 queries, a pool of 3,000),
``refresh`` and ``epoch`` (2.25 million queries, ``bench/synthetic.py``). 1,305,265 labels where
nothing else is said; encoders are DistilBERT-sized with random weights.

The plain version runs in the same process (``bench/plain.py`` for the last three); a plain refresh
is a hundredth of one, without clusters, extrapolated, and a plain epoch its steps. A row that fails
says why and the others go on. An epoch is ``--steps`` steps after a refresh, extrapolated to all
of them with a fifth of the refresh, as for a refresh every five epochs. Floors and aims belong to
one H200. ``plan`` is what ``umpteen plan`` says, and by how much it is off.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import timed, wait

REFRESH_EPOCHS = 5
TARGETS = {  # floor and aim in ms, aim in GiB
    "search": (10, 35, None),
    "bce": (4, 9, 2.6),
    "softmax": (4, 12, 5),
    "dexml": (680, 1500, 16),
    "step": (16, 35, 10),
    "refresh": (8000, 60_000, None),
    "epoch": (None, 100_000, None),
}


@dataclass
class Row:
    """One line of the table; what is not known is None."""

    name: str
    work: str
    ms: float
    gib: float | None = None
    wall_ms: float | None = None
    plain_ms: float | None = None
    plain_gib: float | None = None
    plan_ms: float | None = None
    plan_gib: float | None = None


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
    import search

    from umpteen.index.exact import ExactIndex

    queries, labels = search.make(setting.sized(8192), setting.sized(1_305_265, 512), 384)
    k = min(100, len(labels))
    first = "bfloat16" if setting.device.type == "cuda" else None
    index = ExactIndex.build(labels, first_pass=first)
    ours = timed(lambda: index.search(queries, k), repeats=5, device=setting.device)
    half = queries.bfloat16(), labels.bfloat16()
    plain = timed(lambda: search.plain(*half, k), repeats=2, device=setting.device)
    work = f"exact search, {len(queries):,} x {len(labels):,} x 384, k {k}"
    yield Row("search", work, ours.ms, ours.gib, ours.wall_ms, plain.ms, plain.gib)


def classifier_row(setting: Setting, name: str, objective: str, code: str) -> Iterator[Row]:
    """An objective over all labels, as ``bench/all_labels.py`` has it."""
    from all_labels import classifier_steps

    sizes = setting.sized(1_305_265, 64), setting.sized(512), 768
    found = {}
    for work, how, step in classifier_steps(setting.device, *sizes, None):
        if work == objective and how in (code, "whole scores"):
            found[how] = timed(step, repeats=10, device=setting.device, warm=2)
            if setting.device.type == "cuda":
                torch.cuda.empty_cache()
        if len(found) == 2:
            break
    ours, plain = found[code], found["whole scores"]
    work = f"{objective}, {sizes[0]:,} x {sizes[2]}, batch {sizes[1]}"
    yield Row(name, work, ours.ms, ours.gib, ours.wall_ms, plain.ms, plain.gib)


def dexml_row(setting: Setting) -> Iterator[Row]:
    """Every label encoded at every step."""
    import all_labels
    import plain
    import step

    job = dexml_job(setting)
    labels, batch, chunk = job.labels, job.batch, job.chunk_tokens
    found = all_labels.dexml_row(labels, batch, setting.device, repeats=3, chunk_tokens=chunk)
    plan = predicted(job, "step")
    empty(setting.device)
    rng = np.random.default_rng(0)
    pairs = np.column_stack([np.repeat(np.arange(batch), 3), rng.integers(0, labels, 3 * batch)])
    tokens = step.store(rng, batch), step.store(rng, labels)

    def slow() -> tuple[float, float]:
        whole = plain.dexml_step(*tokens, pairs, setting.device, setting.precision)
        took = timed(whole, repeats=2, device=setting.device)
        return took.ms, took.gib

    yield Row("dexml", found["work"], found["ms"], found["peak_gib"], found["wall_ms"],
              *attempt(slow, (None, None)), *plan)  # fmt: skip


def step_row(setting: Setting) -> Iterator[Row]:
    """A step of UniDEC in its loop."""
    import step

    sizes = step.Sizes.scaled(setting.scale, step.LABELS)
    data = step.synthetic(sizes)
    rest = (setting.device, setting.precision, setting.steps, 10 if setting.scale == 1 else 1)
    ours = step.run_ours(sizes, data, *rest)
    empty(setting.device)
    plain = step.run_plain(sizes, data, *rest)
    plan = predicted(unidec_job(setting), "step")
    work = f"UniDEC step, {sizes.batch:,} queries, pool {sizes.pool:,}, {sizes.labels:,} labels"
    yield Row("step", work, ours["ms"], ours["gib"], ours["wall"], plain["ms"], plain["gib"], *plan)


def our_whole(setting: Setting, data: Any, sizes: Any, parts: Any) -> tuple[Any, float, int, float]:
    """A refresh, and steps on what it left: its timing, ms a step, steps of an epoch, peak GiB."""
    import step

    from umpteen.training.refresh import Refresher

    nothing = np.zeros((0, 2), np.int64)
    loop = step.our_loop(sizes, parts, setting.device, setting.precision)
    refresher = Refresher(data.queries, data.labels, data.targets, nothing, lambda _: sizes.batch,
                          min(step.MINED, sizes.labels), 0, setting.precision)  # fmt: skip
    refresh = timed(lambda: refresher(loop.model, 0), repeats=1, device=setting.device, warm=0)
    loop.refreshed, loop.clustered = refresh.result, True
    loop.cluster_size = lambda _: sizes.batch
    ticks = loop.ticks()
    for _ in range(3):
        next(ticks)
    step.reset_peak(setting.device)
    started, steps = time.perf_counter(), min(setting.steps * 5, loop.n_batches - 4)
    for _ in range(steps):
        next(ticks)
    wait(setting.device)
    each = 1000 * (time.perf_counter() - started) / max(1, steps)
    ticks.close()
    return refresh, each, loop.n_batches, max(step.peak(setting.device), refresh.gib)


def whole_rows(setting: Setting) -> Iterator[Row]:
    """A refresh of everything, then steps on what it left."""
    import plain
    import step
    import synthetic

    n_queries, n_labels = setting.sized(2_250_000, 64), setting.sized(1_305_265, 64)
    data = synthetic.load(setting.data) if setting.data else synthetic.generate(n_queries, n_labels)
    n_queries, n_labels = data.targets.shape
    sizes = step.Sizes(setting.sized(1098, 4), setting.sized(3000, 9), n_labels, n_queries)
    mined = np.zeros((n_queries, 1), np.int32) - 1
    parts = (data.queries, data.labels, data.targets, mined)
    refresh, each, n_batches, gib = our_whole(setting, data, sizes, parts)
    empty(setting.device)
    rest = setting.device, setting.precision
    slow = attempt(lambda: plain.refresh_ms(data, *rest, share=0.01, k=step.MINED), None)
    plan = predicted(unidec_job(setting), "refresh")
    work = f"refresh, {n_queries:,} queries, {n_labels:,} labels: encode, cluster, mine"
    yield Row("refresh", work, refresh.ms, refresh.gib, refresh.wall_ms, slow,
              plan_ms=plan[0], plan_gib=plan[1])  # fmt: skip
    empty(setting.device)
    few = 5 if setting.scale == 1 else 1
    nothing = {"ms": None, "gib": None}
    one = attempt(lambda: step.run_plain(sizes, parts, *rest, few, few), nothing)
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


# -- the table -------------------------------------------------------------------------------------

COLUMNS = ("work", "ms", "wall", "plain", "GiB", "plain GiB", "floor", "of it", "aim", "plan ms",
           "plan GiB")  # fmt: skip
HEADER = "| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS)


def number(value: float | None, unit: str = "") -> str:
    """A few digits, or a dash."""
    if value is None or math.isnan(value):
        return "-"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}") + unit


def beside(prediction: float | None, measured: float | None) -> str:
    """A prediction, and by how much it is off."""
    if prediction is None or measured is None or math.isnan(measured) or not measured:
        return number(prediction)
    return f"{number(prediction)} ({prediction / measured - 1:+.0%})"


def line(row: Row, *, whole: bool) -> str:
    """A row of the table; floors and aims only where sizes are whole."""
    floor, aim_ms, aim_gib = TARGETS[row.name] if whole else (None, None, None)
    aim = number(aim_ms) + (f", {aim_gib} GiB" if aim_gib else "")
    cells = (row.work, number(row.ms), number(row.wall_ms), number(row.plain_ms), number(row.gib),
             number(row.plain_gib), number(floor), f"{floor / row.ms:.0%}" if floor else "-", aim,
             beside(row.plan_ms, row.ms), beside(row.plan_gib, row.gib))  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def compare(new: dict[str, Any], old: dict[str, Any]) -> Iterator[str]:
    """Each row's time and memory over those of the older results."""
    before = {row["name"]: row for row in old["rows"]}
    yield f"{new['commit'][:12]} over {old['commit'][:12]}"
    for what in ("machine", "torch", "scale"):
        if new.get(what) != old.get(what):
            yield f"not alike: {what} {new.get(what)} over {old.get(what)}"
    for row in new["rows"]:
        if row["name"] in before:
            ratios = [
                number(row[key] / before[row["name"]][key])
                if row[key] and before[row["name"]][key]
                else "-"
                for key in ("ms", "gib", "plain_ms")
            ]
            yield f"| {row['name']} | time {ratios[0]} | memory {ratios[1]} | plain {ratios[2]} |"


def empty(device: torch.device) -> None:
    """Let go of what the row before held."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


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


def commit() -> str:
    """Of the working tree, marked if it was changed since."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--data", type=Path, help="What bench/synthetic.py --out wrote.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--load", type=Path, help="Results to show again instead of running.")
    parser.add_argument("--compare", type=Path, help="Older results.")
    options = parser.parse_args()
    if options.load:
        results = json.loads(options.load.read_text())
        print(HEADER)
        for row in results["rows"]:
            print(line(Row(**row), whole=results.get("scale") == 1))
    else:
        device = torch.device(options.device)
        machine = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
        about = {"commit": commit(), "machine": machine, "torch": torch.__version__,
                 "scale": options.scale}  # fmt: skip
        print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
        setting = Setting(device, options.scale, options.steps, options.data)
        started = time.perf_counter()
        results = about | {"rows": [asdict(row) for row in run(setting, options.rows)]}
        print(f"{time.perf_counter() - started:.0f} s in all")
        if options.out:
            options.out.write_text(json.dumps(results, indent=1))
    if options.compare:
        print("\n".join(compare(results, json.loads(options.compare.read_text()))))


if __name__ == "__main__":
    main()
