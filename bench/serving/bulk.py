"""Bulk prediction of parquet files: one process, and Ray with two workers.

    python -m bench serving bulk RUN PLACE [--rows 200000] [--workers 2] [--head combined]
        [--ray-alone]

PLACE gets the texts (the run's examples, each with a number) and the predictions; it is removed in
the end. Reports rows per second of wall time, loading included, CPU seconds (of Ray those of its
workers), the highest memory of a process, by how much it grew after a quarter of the time, and
whether all answers are equal. Without Ray the one process is measured alone; with ``--ray-alone``
Ray is, and no answers are compared.
"""

import argparse
import contextlib
import itertools
import json
import resource
import shutil
import threading
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as parquet

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch
from umpteen.arrow_predictions import ArrowPredictor, plan_parts, predict_part
from umpteen.extras import installed

GROUP = 10_000


def write_texts(run: Path, place: Path, n_rows: int) -> None:
    lines = (run / "examples.jsonl").read_text("utf-8").split("\n")
    texts = [json.loads(line)["text"] for line in lines if line]
    place.mkdir(parents=True)
    schema = pa.schema([("number", pa.int64()), ("text", pa.string())])
    with parquet.ParquetWriter(place / "texts.parquet", schema) as writer:
        for start in range(0, n_rows, GROUP):
            numbers = list(range(start, min(start + GROUP, n_rows)))
            own = [f"{texts[n % len(texts)]} {n}" for n in numbers]
            writer.write_table(pa.table([numbers, own], schema=schema))


class Workers(threading.Thread):
    """Looks at the Ray workers of this process while they live: their CPU time and memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.seconds: dict[int, float] = {}
        self.peaks: list[float] = []

    def run(self) -> None:
        peak = 0.0
        while not self.ended.wait(0.5):
            for each in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.Error, OSError):
                    if "PartPredictor" in " ".join(each.cmdline()):
                        self.seconds[each.pid] = sum(each.cpu_times()[:2])
                        lines = Path(f"/proc/{each.pid}/status").read_text().splitlines()
                        own = next(line for line in lines if line.startswith("VmHWM"))
                        peak = max(peak, int(own.split()[1]) / 1024)
            if peak:
                self.peaks.append(peak)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument("place", type=Path)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--head", default="combined")
    parser.add_argument("--ray-alone", action="store_true", help="without the one process")
    options.add_out(parser)


def one_process(given, asked) -> dict:
    out, peaks = given.place / "one", []
    with Stopwatch() as watch:
        parts = plan_parts(
            given.run, [given.place / "texts"], out, options=asked, rows_per_part=GROUP
        )
        predictor = ArrowPredictor(given.run, device="cpu", **asked)
        for part in parts:
            predict_part(predictor, part, out)
            peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return {"how": "one process", "rows/s": given.rows / watch.wall, "CPU s": watch.cpu,
            **memory(peaks)}  # fmt: skip


def memory(peaks: list[float]) -> dict[str, float]:
    """The highest memory so far as a process goes on: at the end, and since the first quarter."""
    return {"peak MiB": peaks[-1], "grown MiB": peaks[-1] - peaks[len(peaks) // 4]}


def with_ray(given, asked) -> dict:
    import ray

    from umpteen.ray import predict_files

    ray.init(num_cpus=given.workers, include_dashboard=False, log_to_driver=False)
    workers = Workers()
    workers.start()
    with Stopwatch() as watch:
        texts, out = given.place / "texts", given.place / "ray"
        predict_files(given.run, texts, out, workers=given.workers, rows_per_part=GROUP, **asked)
    workers.ended.set()
    row = {"how": f"Ray, {given.workers} workers", "rows/s": given.rows / watch.wall,
           "CPU s": sum(workers.seconds.values()), **memory(workers.peaks)}  # fmt: skip
    ray.shutdown()
    return row


def equal(one: Path, other: Path) -> bool:
    files = [sorted(place.glob("part-*")) for place in (one, other)]
    pairs = itertools.zip_longest(*files)
    return all(parquet.read_table(a).equals(parquet.read_table(b)) for a, b in pairs)


def main(given: argparse.Namespace) -> None:
    about = {"texts": given.rows, "head": given.head, **facts("cpu")}
    print_facts(about)
    asked = {"k": 10, "head": given.head}
    try:
        write_texts(Path(given.run), given.place / "texts", given.rows)
        columns, rows = ("how", "rows/s", "CPU s", "peak MiB", "grown MiB", "equal"), []
        if not given.ray_alone:
            rows.append(one_process(given, asked))
            print_rows(rows, columns, 1)
        if given.ray_alone or installed("ray"):
            rows.append(with_ray(given, asked))
            if not given.ray_alone:
                rows[-1]["equal"] = str(equal(given.place / "one", given.place / "ray"))
            print_rows(rows[-1:], columns, 1)
        save(given.out, rows, **about)
    finally:
        shutil.rmtree(given.place, ignore_errors=True)
