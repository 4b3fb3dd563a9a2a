"""Vectors to search, the plain search, and the rows of a search table.

Labels are unit vectors around random centres, queries lie near labels, because real label vectors
are clustered too. On vectors without any structure every approximate index looks bad.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch.nn.functional import normalize

from bench.common import options
from bench.common.tables import Table
from bench.common.timing import Timing


def clustered_vectors(n_queries, n_labels, dim, device):
    """Unit vectors of queries and labels."""
    generator = torch.Generator(device).manual_seed(0)
    random = {"generator": generator, "device": device}
    centres = torch.randn(max(1, n_labels // 100), dim, **random)
    labels = centres[torch.randint(len(centres), (n_labels,), **random)]
    labels += 0.7 * torch.randn(n_labels, dim, **random)
    labels = normalize(labels, dim=1)
    queries = labels[torch.randint(n_labels, (n_queries,), **random)]
    queries += torch.randn(n_queries, dim, **random) / dim**0.5
    return normalize(queries, dim=1), labels


def plain_search(queries, labels, k):
    """Product, then topk, as one would write it; few queries at a time, for the memory."""
    rows = [(some @ labels.T).topk(k).indices for some in queries.split(1024)]
    return torch.cat(rows).cpu().numpy()


def share(found, wanted, n_labels):
    """The share of the wanted labels that was found."""
    base = np.arange(len(wanted))[:, None] * n_labels
    return float(np.isin(base + wanted, base + found).mean())


def add_sizes(parser: argparse.ArgumentParser, *, queries: int, dim: int, k: int) -> None:
    """The sizes that searches take."""
    parser.add_argument("--queries", type=int, default=queries)
    parser.add_argument("--labels", type=int, default=1_305_265)
    parser.add_argument("--dim", type=int, default=dim)
    parser.add_argument("-k", type=int, default=k)
    options.add_out(parser)


def sizes_of(given: argparse.Namespace) -> str:
    """One line."""
    return f"{given.queries:,} queries, {given.labels:,} labels of {given.dim}, k {given.k}"


class SearchTable:
    """Rows that are printed as they come and kept."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.table = Table(["search", "ms", "peak GiB", "recall", "TFLOP/s", "unsure", "TB/s"], 4)

    def add(self, name: str, took: Timing, **more: float) -> None:
        """Add a row; what is not known of it is left out."""
        self.rows.append({"name": name, "ms": took.ms, "peak_gib": took.gib, **more})
        rest = (more.get(key) for key in ("recall", "tflops", "unsure", "tb_per_s"))
        self.table.add(name, took.ms, took.gib, *rest)
