"""Exact search, mining and clustering: the plain version and ours, one table.

    python bench/search.py [--queries 8192] [--labels 1305265] [--dim 384] [-k 100] [--tiles]
    python bench/search.py --refresh [--queries 2250000] [--labels 1305265] [--dim 256] [-k 30]

The first compares searches: time, peak memory, share of the exact top k, and how many queries had
to be searched again. --tiles times the first pass with each shape of tile, and the other stages.
The second times clustering and mining as a refresh does them, without encoding. Both run on a GPU
where there is one; on a CPU ask for less. --json FILE keeps the rows.

Labels are unit vectors around random centres, queries lie near labels, as in bench/index_recall.py.
"""

import argparse
import json

import numpy as np
import scipy.sparse as sp
import torch
from timing import timed

from umpteen.data.clusters import balanced_clusters
from umpteen.data.samplers import cluster_levels
from umpteen.index.exact import ExactIndex
from umpteen.index.groups import members, plain_maxima, plain_scores
from umpteen.index.topk import keys_of
from umpteen.index.two_pass import best_groups
from umpteen.training.mining import mine

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def make(n_queries, n_labels, dim):
    generator = torch.Generator(DEVICE).manual_seed(0)
    options = {"generator": generator, "device": DEVICE}
    centres = torch.randn(max(1, n_labels // 100), dim, **options)
    labels = centres[torch.randint(len(centres), (n_labels,), **options)]
    labels += 0.7 * torch.randn(n_labels, dim, **options)
    labels = torch.nn.functional.normalize(labels, dim=1)
    queries = labels[torch.randint(n_labels, (n_queries,), **options)]
    queries += torch.randn(n_queries, dim, **options) / dim**0.5
    return torch.nn.functional.normalize(queries, dim=1), labels


def measure(function, *arguments, repeat=5, **options):
    """Median milliseconds after one call to warm up, peak GiB, and what the last call gave."""
    took = timed(lambda: function(*arguments, **options), repeats=repeat, device=DEVICE)
    return took.ms, took.gib, took.result


def plain(queries, labels, k):
    """Product, then topk, as one would write it; few queries at a time, for the memory."""
    rows = [(some @ labels.T).topk(k).indices for some in queries.split(1024)]
    return torch.cat(rows).cpu().numpy()


def share(found, wanted, n_labels):
    base = np.arange(len(wanted))[:, None] * n_labels
    return float(np.isin(base + wanted, base + found).mean())


def show(rows, name, milliseconds, peak, **more):
    rows.append({"name": name, "ms": milliseconds, "peak_gib": peak, **more})
    rest = "".join(f"  {key} {value:.5g}" for key, value in more.items())
    print(f"{name:44}{milliseconds:>11.2f} ms{peak:>8.2f} GiB{rest}", flush=True)


def compare(given, rows):
    queries, labels = make(given.queries, given.labels, given.dim)
    work = 2 * given.queries * given.labels * given.dim
    wanted = ExactIndex.build(labels).search(queries, given.k).rows
    for dtype in (torch.float32, torch.bfloat16):
        pair = queries.to(dtype), labels.to(dtype)
        took, peak, found = measure(plain, *pair, given.k, repeat=3)
        name = f"plain product and topk, {str(dtype)[6:]}"
        show(rows, name, took, peak, recall=share(found, wanted, given.labels))
        del pair
    kinds = [("float32", None), ("bfloat16", None), ("float32", "bfloat16")]
    kinds += [("bfloat16", "bfloat16"), ("float32", "float8")]
    for dtype, first_pass in kinds:
        for recheck in [True, False] if first_pass else [True]:
            index = ExactIndex.build(labels, dtype=dtype, first_pass=first_pass, recheck=recheck)
            took, peak, top = measure(index.search, queries, given.k)
            more = {"recall": share(top.rows, wanted, given.labels), "tflops": work / took / 1e9}
            if first_pass:
                nothing = np.empty((0, 2), np.int64), np.empty(0, np.int64)
                some = queries.to(index.vectors.dtype)
                more["unsure"] = index.two_pass.search(some, given.k, *nothing)[1].mean()
            name = f"exact {dtype}" + (f", first pass {first_pass}" if first_pass else "")
            show(rows, name + ("" if recheck else ", no recheck"), took, peak, **more)
            del index
    if given.tiles:
        stages(given, rows, queries, labels)


def stages(given, rows, queries, labels):
    """The parts of a search with a first pass, one by one."""
    for first_pass in ("bfloat16", "float8"):
        two_pass = ExactIndex.build(labels, first_pass=first_pass).two_pass
        start, stop, width = two_pass._blocks(np.zeros(len(queries), np.int64), given.k, 1)[0]
        some = queries[start:stop]
        rounded, _, _ = two_pass._round(some)
        bias = torch.zeros(two_pass.n_padded, device=DEVICE)
        inputs = rounded, two_pass.few_bits, bias
        work = 2 * len(some) * two_pass.n_padded * two_pass.dim_padded
        print(f"stages with {first_pass}: {len(some)} queries, {width} groups each")
        if two_pass.kernels:
            from umpteen.index import kernels

            for name, tile in kernels.TILES.items():
                try:
                    took, peak, _ = measure(kernels.group_maxima, *inputs, tile=tile)
                except Exception as error:  # a shape that does not fit says so and is skipped
                    print(f"maxima, {name}: {type(error).__name__}: {str(error)[:300]}")
                    continue
                show(rows, f"maxima, {name}", took, peak, tflops=work / took / 1e9)
        group_maxima, candidate_scores = two_pass._passes()
        took, peak, _ = measure(plain_maxima, *inputs, repeat=2)
        show(rows, "maxima, plain", took, peak, tflops=work / took / 1e9)
        maxima, best = group_maxima(*inputs)
        took, peak, (groups, _) = measure(best_groups, maxima, best, width)
        show(rows, "best groups", took, peak)
        took, peak, scores = measure(candidate_scores, some, labels, groups)
        read = scores.numel() * labels.shape[1] * labels.element_size()
        show(rows, "candidates' scores", took, peak, tb_per_s=read / took / 1e9)
        if CUDA and len(some) <= 4096:
            took, peak, _ = measure(plain_scores, some, labels, groups, repeat=1)
            show(rows, "candidates' scores, plain", took, peak)
        took, peak, _ = measure(choose, scores, groups, given.k)
        show(rows, "the k best by score and row", took, peak)


def choose(scores, groups, k):
    return keys_of(scores, members(groups).flatten(1)).topk(k, dim=1)


def cluster(vectors, n_levels):
    return balanced_clusters(vectors, n_levels, generator=torch.Generator().manual_seed(0))


def refresh(given, rows):
    queries, labels = make(given.queries, given.labels, given.dim)
    rng = np.random.default_rng(0)
    counts = rng.geometric(1 / given.positives, len(queries))
    indptr = np.concatenate([[0], np.cumsum(counts)])
    # Few labels take most of the pairs: the square of a uniform number, rounded down.
    drawn = (rng.random(indptr[-1], dtype=np.float32) ** 2 * given.labels).astype(np.int32)
    shape = len(queries), given.labels
    targets = sp.csr_matrix((np.ones(len(drawn), np.bool_), drawn, indptr), shape)
    nothing = np.empty((0, 2), np.int64)
    levels = cluster_levels(len(queries), given.cluster_size)
    for vectors in (queries, queries.bfloat16()):
        took, peak, _ = measure(cluster, vectors, levels, repeat=1)
        show(rows, f"{2**levels} clusters of {str(vectors.dtype)[6:]}", took, peak)
    del vectors
    work = 2 * given.queries * given.labels * given.dim
    for first_pass in ["bfloat16", "float8"] if CUDA else [None]:
        inputs = queries, labels, targets, nothing, given.k
        took, peak, found = measure(mine, *inputs, first_pass=first_pass, repeat=1)
        sample = np.sort(rng.choice(len(queries), min(512, len(queries)), replace=False))
        wanted = mine(
            queries[torch.from_numpy(sample).to(DEVICE)].cpu(), labels.cpu(), targets[sample],
            nothing, given.k,
        )  # fmt: skip
        recall = share(found[sample], wanted, given.labels)
        name = f"mine {given.k}, first pass {first_pass}"
        show(rows, name, took, peak, recall=recall, tflops=work / took / 1e9)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--refresh", action="store_true")
    parser.add_argument("--queries", type=int)
    parser.add_argument("--labels", type=int, default=1_305_265)
    parser.add_argument("--dim", type=int)
    parser.add_argument("-k", type=int)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--positives", type=int, default=22, help="per query, on average")
    parser.add_argument("--cluster-size", type=int, default=1098)
    parser.add_argument("--json")
    given = parser.parse_args()
    given.queries = given.queries or (2_250_000 if given.refresh else 8192)
    given.dim = given.dim or (256 if given.refresh else 384)
    given.k = given.k or (30 if given.refresh else 100)
    sizes = f"{given.queries:,} queries, {given.labels:,} labels of {given.dim}, k {given.k}"
    print(f"{sizes}; {torch.cuda.get_device_name() if CUDA else 'CPU'}, torch {torch.__version__}")
    rows: list[dict] = []
    with torch.no_grad():
        (refresh if given.refresh else compare)(given, rows)
    if given.json:
        with open(given.json, "w") as out:
            json.dump({"sizes": sizes, "rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
