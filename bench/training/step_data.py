"""Sizes, random data and the encoder of the UniDEC step that benchmarks time.

Data are Zipf-shaped random arrays and weights are random: only time and memory are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.data.tokens import TokenStore
from umpteen.types import Ragged

BATCH, POOL, LABELS, QUERIES, DIM = 1098, 3000, 1_305_265, 300_000, 256
LONGEST, VOCABULARY = 32, 30_522
POSITIVES, NEGATIVES, MINED = 2, 6, 30
MOST_TEXTS = 20_000_000


@dataclass
class Sizes:
    """How large everything is."""

    batch: int
    pool: int
    labels: int
    queries: int

    @classmethod
    def scaled(
        cls, scale: float, labels: int, batch: int = BATCH, largest_pool: int = POOL
    ) -> Sizes:
        """All sizes times a factor, none below what a step needs."""
        pool = max(9, round(largest_pool * scale))
        return cls(
            batch=max(4, round(batch * scale)),
            pool=pool,
            labels=max(2 * pool, round(labels * scale)),
            queries=max(64, round(QUERIES * scale)),
        )


def zipf(rng: np.random.Generator, n: int, shape) -> np.ndarray:
    """Numbers below n, the r-th about 1 / r as often as the first."""
    return np.minimum(np.exp(rng.random(shape) * np.log(n)).astype(np.int64) - 1, n - 1)


def store(rng: np.random.Generator, n: int):
    """Random titles: 12 tokens on average, 3 to 32."""
    lengths = np.clip(3 + rng.gamma(3.0, 3.0, n), 3, LONGEST).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = 999 + zipf(rng, VOCABULARY - 999, int(offsets[-1]))
    return TokenStore(ids.astype(np.uint16), offsets)


@dataclass
class RepeatedTexts:
    """A store of more texts than are kept: text i is text i modulo the number of kept ones."""

    kept: TokenStore
    n_texts: int

    def __len__(self) -> int:
        return self.n_texts

    def take(self, rows: np.ndarray) -> Ragged:
        """Return the tokens of some texts."""
        return self.kept.take(np.asarray(rows) % len(self.kept))


def label_store(rng: np.random.Generator, n: int):
    """Random titles of labels; from 20 million labels on, titles repeat."""
    return store(rng, n) if n <= MOST_TEXTS else RepeatedTexts(store(rng, LABELS), n)


def synthetic(sizes: Sizes, seed: int = 0):
    """Tokens of queries and labels, CSR targets of about 22 labels a query, mined negatives."""
    rng = np.random.default_rng(seed)
    cols = zipf(rng, sizes.labels, (sizes.queries, 24))
    rows = np.repeat(np.arange(sizes.queries), cols.shape[1])
    ones = np.ones(cols.size, np.float32)
    targets = sp.csr_matrix((ones, (rows, cols.ravel())), shape=(sizes.queries, sizes.labels))
    targets.data[:] = 1.0  # a label drawn twice is one
    negatives = rng.integers(0, sizes.labels, (sizes.queries, MINED)).astype(np.int32)
    return store(rng, sizes.queries), label_store(rng, sizes.labels), targets, negatives


def network(kind: str = "distilbert") -> torch.nn.Module:
    """A DistilBERT or a MiniLM of the usual size with random weights."""
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

    torch.manual_seed(0)
    if kind == "minilm":
        shape = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}
        return BertModel(BertConfig(**shape, attn_implementation="sdpa"), add_pooling_layer=False)
    return DistilBertModel(DistilBertConfig(attn_implementation="sdpa"))
