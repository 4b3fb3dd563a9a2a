"""Exact search over hundreds of millions of labels on one GPU, beside the floor of its products.

    python -m bench search many-labels [--labels 100000000 200000000 450000000] [--queries 1024]
        [--dim 64] [-k 10] [--mined 20480] [--encoded 2000000] [--checked 8] [--out rows.json]

Label vectors are bfloat16, made on the device in chunks around random centres; queries lie near
labels. ``floor`` is the time of the products alone at 770 TFLOP/s, what a large bfloat16 product
reaches on an H200. ``exact`` is the share of the top k of --checked queries that a plain float32
search over the same vectors finds too. Mining excludes 22 labels of each query and keeps 30.
--encoded label texts of 12 tokens are encoded by a MiniLM-sized encoder: with the mining of
--mined queries, what a refresh costs a label and a query.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch.nn.functional import normalize

from bench.common import options
from bench.common.results import facts, print_facts, save
from bench.common.tables import print_rows
from bench.common.timing import best_device, empty, peak_gib, reset_peak, timed, wait
from umpteen.index.exact import ExactIndex

FLOOR_FLOPS = 770e12
CHUNK = 1 << 22
COLUMNS = ("work", "labels", "queries", "ms", "floor_ms", "ratio", "gib", "exact", "per_second")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    sizes = [100_000_000, 200_000_000, 450_000_000]
    parser.add_argument("--labels", type=int, nargs="+", default=sizes)
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--mined", type=int, default=20_480, help="queries to mine, 0 for none")
    parser.add_argument("--mined-labels", type=int, default=100_000_000)
    parser.add_argument("--encoded", type=int, default=2_000_000, help="texts, 0 for none")
    parser.add_argument("--checked", type=int, default=8, help="queries to search plainly too")
    options.add_out(parser)


def main(given: argparse.Namespace) -> None:
    device = best_device()
    about = facts(device)
    print_facts(about)
    rows = []

    def add(row):
        rows.append(row)
        print(row, flush=True)

    with torch.no_grad():
        for n_labels in given.labels:
            add(search(given, n_labels, device))
            if given.mined and n_labels == given.mined_labels:
                add(mine(given, n_labels, device))
            empty(device)
        if given.encoded:
            add(encode(given.encoded, device))
    print_rows(rows, COLUMNS)
    save(given.out, rows, **about)


def table_and_queries(n_labels: int, n_queries: int, dim: int, device):
    """Unit vectors in bfloat16; at no time a second copy."""
    random = {"generator": torch.Generator(device).manual_seed(0), "device": device}
    centres = torch.randn(min(1 << 20, max(1, n_labels // 100)), dim, **random)
    table = torch.empty(n_labels, dim, dtype=torch.bfloat16, device=device)
    for chunk in table.split(CHUNK):
        near = centres[torch.randint(len(centres), (len(chunk),), **random)]
        chunk.copy_(normalize(near + 0.7 * torch.randn(len(chunk), dim, **random), dim=1))
    queries = table[torch.randint(n_labels, (n_queries,), **random)].float()
    queries += torch.randn(n_queries, dim, **random) / dim**0.5
    return table, normalize(queries, dim=1).bfloat16()


def row(work: str, n_labels: int, n_queries: int, dim: int, took, **more):
    floor = 1000 * 2 * n_queries * n_labels * dim / FLOOR_FLOPS
    sizes = {"work": work, "labels": n_labels, "queries": n_queries, "ms": took.ms}
    return {**sizes, "floor_ms": floor, "ratio": took.ms / floor, "gib": took.gib, **more}


def search(given: argparse.Namespace, n_labels: int, device):
    """Time of one search, and its agreement with a plain one."""
    table, queries = table_and_queries(n_labels, given.queries, given.dim, device)
    index = ExactIndex(table, first_pass="bfloat16")
    took = timed(lambda: index.search(queries, given.k), repeats=3, device=device)
    wanted = plain_rows(queries[: given.checked], table, given.k)
    found = torch.from_numpy(took.result.rows[: given.checked])
    exact = (found[:, :, None] == wanted.cpu()[:, None, :]).any(dim=2).float().mean().item()
    return row("search", n_labels, given.queries, given.dim, took, exact=exact)


def plain_rows(queries, table, k: int):
    """The k best of every query by a float32 product, chunk by chunk."""
    scores = torch.empty(len(queries), 0, device=table.device)
    rows = torch.empty(len(queries), 0, dtype=torch.int64, device=table.device)
    for number, chunk in enumerate(table.split(CHUNK)):
        top = (queries.float() @ chunk.float().T).topk(min(k, len(chunk)), dim=1)
        scores = torch.cat([scores, top.values], dim=1)
        rows = torch.cat([rows, top.indices + number * CHUNK], dim=1)
        kept = scores.topk(min(k, scores.shape[1]), dim=1)
        scores, rows = kept.values, rows.gather(1, kept.indices)
    return rows


def mine(given: argparse.Namespace, n_labels: int, device):
    """Time of mining as a refresh does it, positives excluded."""
    table, queries = table_and_queries(n_labels, given.mined, given.dim, device)
    index = ExactIndex(table, first_pass="bfloat16", recheck=False)
    rng = np.random.default_rng(0)
    own = rng.integers(0, n_labels, (given.mined, 22))
    pairs = np.stack([np.repeat(np.arange(given.mined), 22), own.ravel()], axis=1)
    took = timed(lambda: index.search(queries, 30, exclude=pairs), repeats=1, device=device)
    per_second = 1000 * given.mined / took.ms
    return row("mine", n_labels, given.mined, given.dim, took, per_second=per_second)


def encode(n_texts: int, device):
    """Texts a second of a MiniLM-sized encoder, 12 tokens each on average."""
    from bench.training.step_data import network, store
    from umpteen.model.model import Model
    from umpteen.model.transformer import TransformerEncoder
    from umpteen.model.vectors import encode_texts

    encoder = TransformerEncoder(network("minilm"))
    model = Model(encoder, heads=("dual",), dim=64, n_labels=0).to(device).eval()
    tokens = store(np.random.default_rng(0), n_texts)
    precision = "bf16" if device.type == "cuda" else "fp32"
    some = store(np.random.default_rng(1), min(n_texts, 20_000))
    encode_texts(model, some, model.dual, precision=precision)
    reset_peak(device)
    start = time.perf_counter()
    encode_texts(model, tokens, model.dual, precision=precision, dtype=torch.bfloat16)
    wait(device)
    seconds = time.perf_counter() - start
    return {
        "work": "encode",
        "labels": n_texts,
        "ms": 1000 * seconds,
        "gib": peak_gib(device),
        "per_second": n_texts / seconds,
    }
