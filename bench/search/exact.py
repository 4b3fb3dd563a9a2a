"""Exact search: the plain version and ours, in every precision.

    python -m bench search exact [--queries 8192] [--labels 1305265] [--dim 384] [-k 100] [--tiles]

Time, peak memory, the share of the exact top k, and how many queries had to be searched again.
--tiles times the first pass with each shape of tile, and the other stages. Runs on a GPU where
there is one; on a CPU ask for less.
"""

import argparse

import numpy as np
import torch

from bench.common.results import facts, print_facts, save
from bench.common.timing import best_device, is_cuda, timed
from bench.search.vectors import (
    SearchTable,
    add_sizes,
    clustered_vectors,
    plain_search,
    share,
    sizes_of,
)  # fmt: skip
from umpteen.index.exact import ExactIndex
from umpteen.index.groups import members, plain_maxima, plain_scores
from umpteen.index.topk import keys_of
from umpteen.index.two_pass import best_groups


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_sizes(parser, queries=8192, dim=384, k=100)
    parser.add_argument("--tiles", action="store_true", help="time the stages of a search")


def main(given: argparse.Namespace) -> None:
    device = best_device()
    about = {"sizes": sizes_of(given), **facts(device)}
    print_facts(about)
    table = SearchTable()
    with torch.no_grad():
        queries, labels = clustered_vectors(given.queries, given.labels, given.dim, device)
        compare(given, table, queries, labels)
        if given.tiles:
            stages(given, table, queries, labels)
    save(given.out, table.rows, **about)


def measure(function, *arguments, repeat=5, **options):
    """Time calls after one to warm up."""
    device = arguments[0].device
    return timed(lambda: function(*arguments, **options), repeats=repeat, device=device)


def compare(given, table, queries, labels):
    work = 2 * given.queries * given.labels * given.dim
    wanted = ExactIndex.build(labels).search(queries, given.k).rows
    for dtype in (torch.float32, torch.bfloat16):
        pair = queries.to(dtype), labels.to(dtype)
        took = measure(plain_search, *pair, given.k, repeat=3)
        name = f"plain product and topk, {str(dtype)[6:]}"
        table.add(name, took, recall=share(took.result, wanted, given.labels))
        del pair
    kinds = [("float32", None), ("bfloat16", None), ("float32", "bfloat16")]
    kinds += [("bfloat16", "bfloat16"), ("float32", "float8")]
    for dtype, first_pass in kinds:
        for recheck in [True, False] if first_pass else [True]:
            index = ExactIndex.build(labels, dtype=dtype, first_pass=first_pass, recheck=recheck)
            took = measure(index.search, queries, given.k)
            more = {"recall": share(took.result.rows, wanted, given.labels)}
            more["tflops"] = work / took.ms / 1e9
            if first_pass:
                nothing = np.empty((0, 2), np.int64), np.empty(0, np.int64)
                some = queries.to(index.vectors.dtype)
                more["unsure"] = index.two_pass.search(some, given.k, *nothing)[1].mean()
            name = f"exact {dtype}" + (f", first pass {first_pass}" if first_pass else "")
            table.add(name + ("" if recheck else ", no recheck"), took, **more)
            del index


def stages(given, table, queries, labels):
    """The parts of a search with a first pass, one by one."""
    for first_pass in ("bfloat16", "float8"):
        two_pass = ExactIndex.build(labels, first_pass=first_pass).two_pass
        start, stop, width = two_pass._blocks(np.zeros(len(queries), np.int64), given.k, 1)[0]
        some = queries[start:stop]
        rounded, _, _ = two_pass._round(some)
        bias = torch.zeros(two_pass.n_padded, device=queries.device)
        inputs = rounded, two_pass.few_bits, bias
        work = 2 * len(some) * two_pass.n_padded * two_pass.dim_padded
        print(f"stages with {first_pass}: {len(some)} queries, {width} groups each")
        if two_pass.kernels:
            from umpteen.index import kernels

            for name, tile in kernels.TILES.items():
                try:
                    took = measure(kernels.group_maxima, *inputs, tile=tile)
                except Exception as error:  # a shape that does not fit says so and is skipped
                    print(f"maxima, {name}: {type(error).__name__}: {str(error)[:300]}")
                    continue
                table.add(f"maxima, {name}", took, tflops=work / took.ms / 1e9)
        group_maxima, candidate_scores = two_pass._passes()
        took = measure(plain_maxima, *inputs, repeat=2)
        table.add("maxima, plain", took, tflops=work / took.ms / 1e9)
        maxima, best = group_maxima(*inputs)
        took = measure(best_groups, maxima, best, width)
        table.add("best groups", took)
        groups, _ = took.result
        took = measure(candidate_scores, some, labels, groups)
        scores = took.result
        read = scores.numel() * labels.shape[1] * labels.element_size()
        table.add("candidates' scores", took, tb_per_s=read / took.ms / 1e9)
        if is_cuda(queries.device) and len(some) <= 4096:
            took = measure(plain_scores, some, labels, groups, repeat=1)
            table.add("candidates' scores, plain", took)
        took = measure(choose, scores, groups, given.k)
        table.add("the k best by score and row", took)


def choose(scores, groups, k):
    return keys_of(scores, members(groups).flatten(1)).topk(k, dim=1)
