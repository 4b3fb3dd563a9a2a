"""The IVF-PQ index over vectors in a file: build time, recall, time per query, resident memory.

    python -m bench search beyond-memory PLACE [--labels 2000000] [--dim 64] [--nprobe 16 64]
        [--max-memory 2GiB] [--queries 500] [-k 10] [--keep] [--out rows.json]

PLACE gets clustered vectors in float16, written in chunks, and the index; both are removed unless
--keep. Each row is a new process that opens the index and searches one query after the other.
Resident memory is that of the whole process, torch and faiss included (230 MiB without an index).
Recall is against the exact top k over the same vectors.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import Stopwatch
from umpteen.cli._options import memory_size
from umpteen.index.mapped_rows import MappedRows

CHUNK = 1 << 18
COLUMNS = ("nprobe", "recall", "ms p50", "ms p99", "CPU ms", "RSS MiB", "PSS MiB", "open s")

SEARCH = """
import json, sys, time
import faiss, numpy as np
from umpteen.index.ivfpq import IvfPqIndex
place, k, nprobe = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
vectors = np.load(place + "/vectors.npy", mmap_mode="r")
queries = np.load(place + "/queries.npy")
wanted = np.load(place + "/wanted.npy")
start = time.perf_counter()
index = IvfPqIndex.load(place + "/index", vectors=vectors, nprobe=nprobe)
opened = time.perf_counter() - start
index.search(queries[:1], k)
found, times, used = [], [], []
for query in queries[:, None]:
    start = time.perf_counter(), time.process_time()
    found.append(index.search(query, k).rows[0])
    times.append(1000 * (time.perf_counter() - start[0]))
    used.append(1000 * (time.process_time() - start[1]))
hit = np.mean([np.isin(a, b).mean() for a, b in zip(wanted, found)])
sizes = {line.split(":")[0]: int(line.split()[1]) / 1024
         for line in open("/proc/self/smaps_rollup") if line.startswith(("Rss", "Pss:"))}
print(json.dumps({"nprobe": nprobe, "recall": hit, "ms p50": np.median(times),
    "ms p99": np.percentile(times, 99),
    "CPU ms": np.mean(used), "RSS MiB": sizes["Rss"], "PSS MiB": sizes["Pss"],
    "open s": opened}))
"""

BUILD = """
import json, sys
import numpy as np
from umpteen.index.ivfpq import IvfPqIndex
place, memory = sys.argv[1], int(sys.argv[2])
vectors = np.load(place + "/vectors.npy", mmap_mode="r")
index = IvfPqIndex.build(vectors, max_memory=memory, workspace=place)
index.save(place + "/index", with_vectors=False)
# Not ru_maxrss: that begins at the peak of the process that starts this one.
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if "VmHWM" in line)
print(json.dumps({**index.describe(), "peak RSS MiB": round(peak / 1024)}))
"""


def write_vectors(place: Path, n_labels: int, dim: int, n_queries: int) -> None:
    """Write unit vectors around centres (about 100 labels each) and queries near some of them.

    Variances fall with the dimension j as j^-0.75: the effective dimension is 25 of 64 and 60 of
    256. Trained label vectors of 256 dimensions had 57 (MDN) and 64 (WordNet), and queries a cosine
    of 0.8 to their nearest label.
    """
    rng = np.random.default_rng(0)
    spread = (np.arange(1, dim + 1) ** -0.375).astype(np.float32)

    def draw(n):
        drawn = rng.standard_normal((n, dim), np.float32) * spread
        return drawn / np.linalg.norm(spread)

    centres = draw(max(1, n_labels // 100))
    out = np.lib.format.open_memmap(place / "vectors.npy", "w+", np.float16, (n_labels, dim))
    for start in range(0, n_labels, CHUNK):
        n = min(CHUNK, n_labels - start)
        block = centres[rng.integers(len(centres), size=n)]
        block += 0.6 * draw(n)
        out[start : start + n] = block / np.linalg.norm(block, axis=1, keepdims=True)
    queries = np.array(out[np.sort(rng.integers(n_labels, size=n_queries))], np.float32)
    out.flush()
    queries += 0.75 * draw(n_queries)
    np.save(place / "queries.npy", queries / np.linalg.norm(queries, axis=1, keepdims=True))


def write_wanted(place: Path, k: int) -> None:
    """Write the exact top k of the queries, block by block."""
    import torch

    queries = torch.from_numpy(np.load(place / "queries.npy"))
    best, found = torch.empty(len(queries), 0), torch.empty(len(queries), 0, dtype=torch.int64)
    for start, block in MappedRows(np.load(place / "vectors.npy", mmap_mode="r")).blocks():
        scores, rows = torch.topk(queries @ torch.from_numpy(block).T, min(k, len(block)))
        best, found = torch.cat([best, scores], 1), torch.cat([found, rows + start], 1)
        best, order = torch.topk(best, min(k, best.shape[1]))
        found = found.gather(1, order)
    np.save(place / "wanted.npy", found.numpy())


def in_process(code: str, *arguments: object) -> dict:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("place", type=Path)
    parser.add_argument("--labels", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--nprobe", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--max-memory", type=memory_size, default="2GiB")
    parser.add_argument("--keep", action="store_true")
    options.add_out(parser)


def main(given: argparse.Namespace) -> None:
    about = {"labels": given.labels, "dim": given.dim, "queries": given.queries, "k": given.k,
             "max_memory": given.max_memory, **facts("cpu")}  # fmt: skip
    print_facts(about)
    given.place.mkdir(parents=True, exist_ok=True)
    try:
        if not (given.place / "wanted.npy").exists():
            write_vectors(given.place, given.labels, given.dim, given.queries)
            write_wanted(given.place, given.k)
        if not (given.place / "index").exists():
            with Stopwatch() as building:
                built = in_process(BUILD, given.place, given.max_memory)
            size = (given.place / "index" / "labels.faiss").stat().st_size / 2**20
            about["build"] = {**built, "seconds": building.wall, "file MiB": size}
            print(f"built in {building.wall:.0f} s, {size:.0f} MiB: {built}", flush=True)
        rows = [in_process(SEARCH, given.place, given.k, probes) for probes in given.nprobe]
        print_rows(rows, COLUMNS, 3)
        save(given.out, rows, **about)
    finally:
        if not given.keep:
            shutil.rmtree(given.place, ignore_errors=True)
