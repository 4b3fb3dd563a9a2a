"""Time, recall and size of the label indexes, and the exact one against a plain product.

    python bench/index_recall.py [--labels 131072] [--dim 256] [--queries 512] [-k 10]
                                  [--device cpu] [--factory HNSW32 IVF1024,Flat]

Label vectors are unit vectors around random centres, queries lie near labels; real label vectors
are clustered too. On vectors without any structure every approximate index looks bad.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

from umpteen.extras import installed
from umpteen.index.exact import ExactIndex
from umpteen.index.faiss_index import FaissIndex
from umpteen.index.recall import recall


def make(n_labels, dim, n_queries, device):
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(max(1, n_labels // 100), dim, generator=generator)
    home = torch.randint(len(centres), (n_labels,), generator=generator)
    labels = centres[home] + 0.7 * torch.randn(n_labels, dim, generator=generator)
    labels = torch.nn.functional.normalize(labels, dim=1)
    chosen = torch.randint(n_labels, (n_queries,), generator=generator)
    noise = torch.randn(n_queries, dim, generator=generator) / dim**0.5
    queries = torch.nn.functional.normalize(labels[chosen] + noise, dim=1)
    return labels.to(device), queries.to(device)


def seconds(function, device, repeat=3):
    """The best of several; the device is waited for."""
    best = float("inf")
    for _ in range(repeat + 1):
        start = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def plain(labels, queries, k):
    scores, rows = (queries @ labels.T).topk(k)
    return scores.cpu(), rows.cpu()


def line(name, took, n_queries, share="", built="", size=""):
    print(f"{name:32}{n_queries / took:>12,.0f}{took * 1e3:>12.1f}{share:>9}{built:>10}{size:>10}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, default=131_072)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--factory", nargs="*", default=["", "IVF1024,Flat", "HNSW32"])
    given = parser.parse_args()
    labels, queries = make(given.labels, given.dim, given.queries, given.device)
    print(f"{given.labels:,} labels, {given.dim} dimensions, {given.queries} queries, k {given.k}")
    print(f"{'':32}{'queries/s':>12}{'ms':>12}{'recall':>9}{'build s':>10}{'MiB':>10}")
    took = seconds(lambda: plain(labels, queries, given.k), given.device)
    line("plain product and topk", took, given.queries)
    exact = ExactIndex.build(labels)
    for dtype in ("float32", "bfloat16"):
        index = ExactIndex.build(labels, dtype=dtype)
        took = seconds(lambda index=index: index.search(queries, given.k), given.device)
        share = f"{recall(index, exact, queries, given.k):.3f}"
        line(f"exact {dtype}", took, given.queries, share)
    # The worst case: nine different scores, so every query is searched a second time, by keys.
    few = torch.arange(given.dim, device=given.device) < 8
    tied, signs = ExactIndex.build(labels.sign() * few), queries.sign() * few
    took = seconds(lambda: tied.search(signs, given.k), given.device)
    line("exact float32, ties everywhere", took, given.queries)
    for factory in given.factory if installed("faiss") and given.device == "cpu" else []:
        start = time.perf_counter()
        index = FaissIndex.build(labels, factory=factory or None)
        built = f"{time.perf_counter() - start:.1f}"
        took = seconds(lambda index=index: index.search(queries, given.k), given.device)
        share = f"{recall(index, exact, queries, given.k):.3f}"
        with tempfile.TemporaryDirectory() as folder:
            index.save(Path(folder) / "index")
            size = sum(path.stat().st_size for path in Path(folder).rglob("*.faiss")) / 2**20
        name = f"faiss {index.factory} effort {index.effort}"
        line(name, took, given.queries, share, built, f"{size:.0f}")


if __name__ == "__main__":
    main()
