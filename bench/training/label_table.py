"""The update of a label table's rows: plain expression against kernel, in every storage.

    python -m bench training label-table [--labels 1305265] [--dim 256] [--pool 3000]
        [--out rows.json]

A step's gradient names ``--pool`` distinct rows. ``plain`` is ``row_update.plain_update_``,
``kernel`` the fused one (GPUs only), ``host`` a whole visit of rows from a table in host memory:
fetched, updated, written back, waited for, with nothing else to do meanwhile. The floor is what
must be read and written, at the bandwidth of a copy on the same device.
"""

from __future__ import annotations

import argparse
import statistics
from itertools import count

import numpy as np
import torch

from bench.common import options as shared_options
from bench.common.results import facts, save
from bench.common.tables import Table
from bench.common.timing import best_device, seconds
from umpteen.compute.optim.quantization import rounding_key
from umpteen.compute.optim.row_update import RowTable, StepNumbers, plain_update_, update_rows_

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def median_ms(work, device: torch.device, repeats: int) -> float:
    """Of the work alone; the first calls, which compile, are left out."""
    steps = count(1)
    took = seconds(lambda: work(next(steps)), repeats=repeats, warm=5, device=device)
    return 1000 * statistics.median(took)


def bandwidth(device: torch.device) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.zeros(1 << (28 if device.type == "cuda" else 24), dtype=torch.uint8)
    source = source.to(device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (median_ms(lambda _: target.copy_(source), device, 9) / 1000)


def numbers(step: int) -> StepNumbers:
    return StepNumbers(step, 1e-3, (0.9, 0.999), 1e-8, 0.01, rounding_key(0, step))


def update_rows(options, device: torch.device, storage: str, moments: str, copy: float):
    """One line for each way of updating."""
    table = RowTable.new(
        torch.zeros(options.labels, options.dim, dtype=KINDS[storage], device=device),
        moments=moments,
    )
    rng = np.random.default_rng(0)
    rows = torch.as_tensor(rng.choice(options.labels, options.pool, replace=False)).to(device)
    values = torch.randn(options.pool, options.dim, device=device).to(KINDS[storage])
    held = sum(part.nbytes for part in table.parts().values())
    moved = 2 * held / options.labels * options.pool + values.nbytes + rows.nbytes
    ways = {"plain": lambda step: plain_update_(table, rows, values, numbers(step), ids=rows)}
    if device.type == "cuda":
        ways["kernel"] = lambda step: update_rows_(table, rows, values, numbers(step))
    for name, work in ways.items():
        yield {
            "row": name,
            "vectors": storage,
            "moments": moments,
            "ms": median_ms(work, device, options.repeats),
            "floor_ms": 1000 * moved / copy,
            "table_gib": held / 2**30,
        }


def visit(options, device: torch.device, storage: str, moments: str):
    """A visit of rows from the host; what a step would hide behind its own work."""
    from umpteen.data.pool import Pool
    from umpteen.model.frugal.bag import BagEncoder
    from umpteen.model.model import Model, place_model
    from umpteen.training.batch import Batch
    from umpteen.training.host_table import HostTable
    from umpteen.training.row_adamw import RowAdamW
    from umpteen.types import Positives, Ragged

    model = Model(
        BagEncoder(torch.zeros(2, 4)), heads=("classifier",), dim=options.dim,
        n_labels=options.labels, label_storage=storage,
    )  # fmt: skip
    place_model(model, device, labels_on_host=True)
    host = HostTable(model, RowAdamW([model.label_vectors], moments=moments, unique_rows=True))
    rng = np.random.default_rng(0)
    nothing = np.zeros(0, np.int64)
    tokens = Ragged(nothing, np.zeros(1, np.int64))

    def work(_: int) -> None:
        labels = rng.choice(options.labels, options.pool, replace=False)
        pool = Pool(labels, 0, Positives(nothing, nothing, nothing), nothing.reshape(0, 2))
        for _batch in host.ahead(iter([Batch(nothing, tokens, pool)])):
            model.fetched.grad = torch.ones_like(model.fetched)
            host.leave()

    ms = median_ms(work, device, options.repeats)
    return {"row": "host", "vectors": storage, "moments": moments, "ms": ms}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=int, default=1_305_265)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--pool", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=50)
    shared_options.add_out(parser)


def main(options: argparse.Namespace) -> None:
    device = best_device()
    copy = bandwidth(device)
    found = []
    table = Table(["update", "vectors", "moments", "ms", "floor ms", "table GiB"], 4)
    for storage in KINDS:
        for moments in ("fp32", "int8"):
            rows = [*update_rows(options, device, storage, moments, copy)]
            rows.append(visit(options, device, storage, moments))
            for row in rows:
                values = (row.get(name) for name in ("ms", "floor_ms", "table_gib"))
                table.add(row["row"], storage, moments, *values)
            found += rows
    save(options.out, found, copy_bytes_per_second=copy, **facts(device))
