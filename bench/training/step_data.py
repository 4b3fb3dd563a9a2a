"""Sizes, random data and the encoder of the UniDEC step that benchmarks time.

Data are Zipf-shaped random arrays and weights are random: only time and memory are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

BATCH, POOL, LABELS, QUERIES, DIM = 1098, 3000, 1_305_265, 300_000, 256
LONGEST, VOCABULARY = 32, 30_522
POSITIVES, NEGATIVES, MINED = 2, 6, 30


@dataclass
class Sizes:
    """How large everything is."""

    batch: int
    pool: int
    labels: int
    queries: int

    @classmethod
    def scaled(cls, scale: float, labels: int) -> Sizes:
        """All sizes times a factor, none below what a step needs."""
        pool = max(9, round(POOL * scale))
        return cls(
            batch=max(4, round(BATCH * scale)),
            pool=pool,
            labels=max(2 * pool, round(labels * scale)),
            queries=max(64, round(QUERIES * scale)),
        )


def zipf(rng: np.random.Generator, n: int, shape) -> np.ndarray:
    """Numbers below n, the r-th about 1 / r as often as the first."""
    return np.minimum(np.exp(rng.random(shape) * np.log(n)).astype(np.int64) - 1, n - 1)


def store(rng: np.random.Generator, n: int):
    """Random titles: 12 tokens on average, 3 to 32."""
    from umpteen.data.tokens import TokenStore

    lengths = np.clip(3 + rng.gamma(3.0, 3.0, n), 3, LONGEST).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = 999 + zipf(rng, VOCABULARY - 999, int(offsets[-1]))
    return TokenStore(ids.astype(np.uint16), offsets)


def synthetic(sizes: Sizes, seed: int = 0):
    """Tokens of queries and labels, CSR targets of about 22 labels a query, mined negatives."""
    rng = np.random.default_rng(seed)
    cols = zipf(rng, sizes.labels, (sizes.queries, 24))
    rows = np.repeat(np.arange(sizes.queries), cols.shape[1])
    ones = np.ones(cols.size, np.float32)
    targets = sp.csr_matrix((ones, (rows, cols.ravel())), shape=(sizes.queries, sizes.labels))
    targets.data[:] = 1.0  # a label drawn twice is one
    negatives = rng.integers(0, sizes.labels, (sizes.queries, MINED)).astype(np.int32)
    return store(rng, sizes.queries), store(rng, sizes.labels), targets, negatives


def network() -> torch.nn.Module:
    """A DistilBERT of the usual size with random weights."""
    from transformers import DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    return DistilBertModel(DistilBertConfig(attn_implementation="sdpa"))
