"""Training with CUDA graphs and without: what a step takes on real data, and what comes of it.

    python bench/graphs.py DATA ENCODER [--epochs 6] [--presets unidec ...] [--set key=value ...]
        [--out rows.json]

DATA is any data set, ENCODER a Hugging Face folder. Titles only. Each preset is trained twice in
the same process, ``train.graphs`` off and on, without an ensemble; the first also compiles
kernels. ``ms`` is a step's mean in an epoch by the host's clock, refreshes apart, the median over
epochs after the first; ``first_epoch_s`` has the recording in it. Metrics are of validation. Memory
is the peak of the last epoch but one, with what graphs hold between replays; where a graph is
recorded in it, that counts twice.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from step import peak
from training_table import print_machine, print_rows

COLUMNS = ("P@1", "P@5", "PSP@1")


def trained(data, preset: str, settings: list[str]) -> dict:
    """A row of the table."""
    import torch

    import umpteen
    from umpteen.training.reporters import Silent

    class Clock(Silent):
        def __init__(self) -> None:
            self.times: list[tuple[int, float]] = []
            self.peak = 0.0

        def step(self, info, epoch: float) -> None:
            if self.times and self.times[-1][0] != info.epoch:
                self.peak = peak(torch.device("cuda"))
                torch.cuda.reset_peak_memory_stats()
            self.times.append((info.epoch, time.perf_counter()))

    torch.cuda.empty_cache()
    clock = Clock()
    folder = Path(tempfile.mkdtemp(prefix="umpteen-graphs-"))
    start = time.perf_counter()
    try:
        umpteen.train(
            data,
            out=folder / "run",
            preset=preset,
            overrides=settings,
            cache=folder / "tokens",
            reporters=[clock],
        )
        seconds = time.perf_counter() - start
        history = json.loads((folder / "run" / "metrics.json").read_text())["validation"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    epochs = sorted({epoch for epoch, _ in clock.times})
    spans = []
    for epoch in epochs:
        own = [moment for number, moment in clock.times if number == epoch]
        spans.append((own[-1] - own[0]) / max(1, len(own) - 1))
    last = list(history[-1]["heads"].values())[-1]
    steps = sum(epoch == epochs[0] for epoch, _ in clock.times)
    return {
        "ms": 1000 * statistics.median(spans[1:] or spans),
        "first_epoch_s": spans[0] * steps,
        "train_s": seconds,
        "gib": clock.peak,
        **{name: last[name] for name in COLUMNS},
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data")
    parser.add_argument("encoder")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--presets", nargs="+", default=["unidec"])
    parser.add_argument("--set", dest="settings", nargs="*", default=[])
    parser.add_argument("--out")
    args = parser.parse_args()
    import umpteen

    data = umpteen.load_dataset(args.data)
    rows = []
    for preset in args.presets:
        for graphs in ("off", "on"):
            settings = [
                "data.text=title",
                "ensemble.enabled=off",
                f"encoder.name={args.encoder}",
                f"train.epochs={args.epochs}",
                f"validation.every_epochs={args.epochs}",
                *args.settings,
                f"train.graphs={graphs}",
            ]
            rows.append({"preset": preset, "graphs": graphs, **trained(data, preset, settings)})
            print(rows[-1], flush=True)
    print_machine("cuda")
    print_rows(rows, list(rows[0]))
    if args.out:
        Path(args.out).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
