"""Presets under one time budget each: what a given number of seconds of training buys.

    python -m bench training time-budget DATA ENCODER --seconds 120 [--presets unidec ...]
        [--set key=value ...] [--out rows.json]

DATA is any data set, ENCODER a Hugging Face folder. Titles only. For each preset a short trial
measures the time of a step; the number of epochs is then what fits the budget, so that the learning
rate comes down to zero within it. Loading, the tokens and the test are not part of the budget.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.training_runs import Variant, print_table, run_variant, scratch_folder

PRESETS = ("unidec", "depsl", "unidec-bank", "dexml")
FIRST, LAST = 10, 30  # steps between which a trial is timed: the first ones warm up


class TrialOver(Exception):
    """Enough steps were seen."""


def seconds_per_step(variant: Variant, data, *, device: str) -> tuple[float, int]:
    """Seconds of a step after the first refresh, and steps of an epoch."""
    import umpteen
    from umpteen.training.reporters import Silent

    class Clock(Silent):
        def __init__(self) -> None:
            self.times: dict[int, float] = {}
            self.progress = 0.0

        def step(self, info, epoch: float) -> None:
            self.times[info.step] = time.perf_counter()
            self.progress = epoch / info.step
            if info.step >= LAST:
                raise TrialOver

    clock = Clock()
    with scratch_folder() as folder, suppress(TrialOver):
        umpteen.train(
            data,
            out=folder / "run",
            preset=variant.preset,
            overrides=[*variant.settings, "validation.every_epochs=1000"],
            device=device,
            cache=folder / "tokens",
            reporters=[clock],
        )
    seen = sorted(clock.times)
    first = next(step for step in seen if step >= min(FIRST, seen[-1] // 3))
    seconds = (clock.times[seen[-1]] - clock.times[first]) / (seen[-1] - first)
    return seconds, round(1 / clock.progress)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_data(parser)
    parser.add_argument("encoder", help="a Hugging Face folder")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--presets", nargs="*", default=list(PRESETS))
    options.add_settings(parser)
    options.add_device(parser)
    options.add_out(parser)


def main(args: argparse.Namespace) -> None:
    from umpteen import load_dataset

    data = load_dataset(args.data)
    # Heads are compared here; what the ensemble adds to each has its own table.
    shared = ["data.text=title", "ensemble.enabled=off", f"encoder.name={args.encoder}"]
    shared += args.settings
    rows, about = [], facts(args.device)
    for preset in args.presets:
        trial = Variant(preset, preset, shared)
        each, steps = seconds_per_step(trial, data, device=args.device)
        epochs = max(1, int(args.seconds / (each * steps)))
        print(
            f"{preset}: {1000 * each:.0f} ms a step, {steps} steps an epoch, {epochs} epochs",
            file=sys.stderr,
        )
        settings = [f"train.epochs={epochs}", f"validation.every_epochs={max(1, epochs // 8)}"]
        variant = Variant(f"{preset}, {epochs} epochs", preset, [*shared, *settings])
        rows += run_variant(variant, data, device=args.device, show=False)
        print_table(rows)
        save(args.out, rows, **about)
    print_facts(about)
