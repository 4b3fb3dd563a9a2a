"""Stages of a training at several numbers of ranks: time, parallel share, bytes exchanged.

    OMP_NUM_THREADS=1 python -m bench training ranks [--data DATA] [--ranks 1 2 4]
        [--queries 20000] [--labels 14000] [--set key=value ...] [--out rows.json]

Takes DATA or makes synthetic data (22 labels a text), trains one epoch of --steps steps after a
refresh on CPU processes that exchange by gloo, validates, writes a checkpoint, fits the ensemble.
Seconds are those of the first rank, without stages inside a stage: wall, and CPU time, which other
processes hardly change. The parallel share p of a stage follows from the CPU time at 1 and n ranks:
T(n) = T(1) (1 - p + p / n). Bytes are what a rank sends on average: a sum of b bytes over n ranks
sends 2 b (n - 1) / n around a ring, gathering b bytes of each rank (n - 1) b. The last table has
them beside the formulas of ``umpteen plan --gpus``; and beside what the kernel counts on the
loopback device, which other processes use too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import Table
from umpteen.compute.distributed.sharding import Ranks, start_ranks
from umpteen.training.stage_log import StageLog

STEPS = "Training, steps"
GROUPS = {
    "read and tokenize": ("read", "tokenize"),
    "first label vectors": ("Computing the first label vectors",),
    "step": (STEPS,),
    "refresh: encode": ("training texts", "label texts"),
    "refresh: cluster": ("clusters", "label clusters"),
    "refresh: mine": ("mining",),
    "refresh: gather": ("refresh",),
    "validation": ("validation",),
    "checkpoint": ("Writing a checkpoint",),
    "ensemble: examples": ("examples", "example index"),
    "ensemble: lexical scorers": ("lexical",),
    "ensemble: candidates": ("candidates",),
    "ensemble: variants": ("variants",),
}
"""Rows of the table, and the kinds of stages in them."""


class Stages(StageLog):
    """Keeps the wall and CPU seconds of each stage without those inside it."""

    def __init__(self) -> None:
        super().__init__(lambda text: None)
        self.kinds = ["outside"]
        self.own: dict[str, list[float]] = {}
        self._since = time.monotonic(), time.process_time()

    def turn(self) -> None:
        """Add the time since the last change to the innermost stage."""
        now = time.monotonic(), time.process_time()
        entry = self.own.setdefault(self.kinds[-1], [0.0, 0.0])
        for place in (0, 1):
            entry[place] += now[place] - self._since[place]
        self._since = now

    @contextlib.contextmanager
    def stage(self, text: str, *, kind: str | None = None, announced: bool = True) -> Iterator[Any]:
        self.turn()
        self.kinds.append(kind or text)
        try:
            with super().stage(text, kind=kind, announced=announced) as progress:
                yield progress
        finally:
            self.turn()
            self.kinds.pop()


@dataclass(frozen=True)
class CountedRanks(Ranks):
    """Counts the bytes that this rank sends, by stage."""

    stages: Stages = field(default_factory=Stages)
    sent: dict[str, float] = field(default_factory=dict)

    def _count(self, size: float) -> None:
        kind = self.stages.kinds[-1]
        self.sent[kind] = self.sent.get(kind, 0.0) + size

    def sum_(self, values: Any) -> Any:
        self._count(2 * values.nbytes * (self.world - 1) / self.world)
        return super().sum_(values)

    def stack(self, own: Any) -> Any:
        self._count(own.nbytes * (self.world - 1))
        return super().stack(own)

    def from_first(self, values: Any) -> Any:
        self._count(values.nbytes * (self.world - 1) / self.world)
        return super().from_first(values)

    def highest(self, *numbers: float) -> list[float]:
        self._count(2 * 8 * len(numbers) * (self.world - 1) / self.world)
        return super().highest(*numbers)

    def rows_to_first(self, own: Any, bounds: Any) -> Any:
        self._count(0 if self.first else own.nbytes)
        return super().rows_to_first(own, bounds)


def inside(args: argparse.Namespace) -> None:
    """Train on this rank and leave what was counted."""
    import torch

    from umpteen.data.formats import load_dataset
    from umpteen.training.run import train

    folder, stages = Path(args.inside), Stages()
    own = start_ranks(torch.device("cpu"))
    ranks = CountedRanks(own.rank, own.world, stages=stages)
    changes = [
        *("train.epochs=1", f"train.max_steps={args.steps}", "batches.first_refresh=0"),
        *("validation.share=0.02", f"ensemble.seconds={args.ensemble_seconds}", *args.settings),
    ]
    before = _loopback()
    train(
        lambda: load_dataset(folder / "data"),
        out=folder / f"run-{ranks.world}",
        overrides=changes,
        device="cpu",
        cache=folder / f"tokens-{ranks.world}",
        ranks=ranks,
        log=stages,
    )
    stages.turn()
    found = {
        "seconds": stages.own, "sent": ranks.sent, "loopback": _loopback() - before,
    }  # fmt: skip
    (folder / f"{ranks.world}-{ranks.rank}.json").write_text(json.dumps(found))
    own.close()


def _loopback() -> int:
    """Bytes that the loopback device has sent since the machine started."""
    file = Path("/sys/class/net/lo/statistics/tx_bytes")
    return int(file.read_text()) if file.is_file() else 0


def run_job(world: int, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One number of ranks: seconds of the first rank by group, bytes a rank sends on average."""
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *(f"--nproc-per-node={world}", "-m", "bench", "training", "ranks"),
        *("--inside", str(folder), "--steps", str(args.steps)),
        *("--ensemble-seconds", str(args.ensemble_seconds)),
        *(("--set", *args.settings) if args.settings else ()),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, stdout=sys.stderr)
    each = [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]
    seconds, sent = {}, {}
    for group, kinds in GROUPS.items():
        times = [each[0]["seconds"].get(kind, [0.0, 0.0]) for kind in kinds]
        seconds[group] = [sum(time[place] for time in times) for place in (0, 1)]
        sent[group] = sum(one["sent"].get(kind, 0.0) for one in each for kind in kinds) / world
    everything = sum(sum(one["sent"].values()) for one in each) / world
    loopback = each[0]["loopback"] / world
    return {
        "ranks": world, "seconds": seconds, "sent": sent, "all": everything, "loopback": loopback,
    }  # fmt: skip


def predicted(world: int, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Bytes that a rank sends, by the formulas of a plan."""
    from umpteen.config.settings import from_mapping
    from umpteen.data.formats import load_dataset
    from umpteen.plan import exchange
    from umpteen.plan.encoders import find_encoder
    from umpteen.plan.from_data import data_numbers
    from umpteen.plan.job import job_of
    from umpteen.run_folder import RunFolder

    run = RunFolder(folder / f"run-{world}")
    settings = from_mapping(run.read_settings(to_build=True), source=str(run.config))
    data = load_dataset(folder / "data")
    numbers = vars(data_numbers(data, text=settings.data.text, max_tokens=settings.data.max_tokens))
    if "validation" in data:
        held_out = len(data["validation"])
    else:
        held_out = round(settings.validation.share * len(data["train"]))
        numbers["queries"] = len(data["train"]) - held_out
    shape = find_encoder(settings.encoder.name)
    job = job_of(settings, shape, gpus=world, **numbers)
    refresh = exchange.refresh_bytes(job)
    return {
        "step": args.steps * exchange.step_bytes(job),
        "refresh": refresh,
        "validation": exchange.validation_bytes(job, held_out),
    }


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Seconds and shares by stage, then bytes beside the model."""
    one = rows[0]
    names = [f"{row['ranks']} rank{'s' * (row['ranks'] > 1)}" for row in rows]
    columns = [*(f"{name}, wall s" for name in names), *(f"{name}, CPU s" for name in names)]
    table = Table(["stage", *columns, "parallel share"])
    for group in GROUPS:
        wall, cpu = ([row["seconds"][group][place] for row in rows] for place in (0, 1))
        world, alone = rows[-1]["ranks"], cpu[0]
        known = one["ranks"] == 1 < world and alone > 0.2
        share = (1 - cpu[-1] / alone) / (1 - 1 / world) if known else None
        table.add(group, *wall, *cpu, share)
    print()
    table = Table(["ranks", "stage", "MB a rank sends", "formula", "formula / measured"])
    for row in rows:
        for group, formula in row.get("predicted", {}).items():
            found = sum(size for name, size in row["sent"].items() if name.startswith(group))
            ratio = formula / found if found else None
            table.add(row["ranks"], group, found / 1e6, formula / 1e6, ratio)
        if row["ranks"] > one["ranks"]:
            table.add(row["ranks"], "all, by calls", row["all"] / 1e6, None, None)
            table.add(row["ranks"], "all, on loopback", row["loopback"] / 1e6, None, None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--data", help="a data set, instead of a synthetic one")
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--labels", type=int, default=14_000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ensemble-seconds", type=float, default=20.0)
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options.add_settings(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    from umpteen.data.sources.synthetic import build

    if args.inside:
        inside(args)
        return
    about = facts("cpu")
    print_facts(about)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if args.data:
            (folder / "data").symlink_to(Path(args.data).absolute())
        else:
            (folder / "data").mkdir()
            build(queries=args.queries, labels=args.labels, test_share=0.01).write(folder / "data")
        rows = []
        for world in args.ranks:
            rows.append(run_job(world, folder, args))
            if world > 1:
                rows[-1]["predicted"] = predicted(world, folder, args)
            save(args.out, rows, **about)
    print_tables(rows)
