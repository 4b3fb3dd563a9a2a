"""MixUp: queries' vectors mixed with other queries' or labels', and their targets alike.

Drawn on the host with the batch, because pairs that meet must become one; vectors are mixed on the
device, after the encoder and before the heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from umpteen.data.pool import Pool
from umpteen.model.encoder import to_device
from umpteen.types import Positives

KINDS = ("mixup", "label-mixup")


@dataclass(frozen=True)
class Mix:
    """What each query of a batch is mixed with."""

    partners: NDArray[np.int64]
    """(B,) rows among the batch's encoded texts: its queries, then its pool's labels."""
    weights: NDArray[np.float32]
    """(B,) how much of a query stays; the rest is its partner's."""

    def vectors(self, encoded: Tensor) -> Tensor:
        """Return encoded texts (B + n_text, E) to mixed queries (B, E)."""
        n = len(self.partners)
        weights = to_device(self.weights, encoded.device).unsqueeze(1)
        partners = encoded[to_device(self.partners, encoded.device)]
        return weights * encoded[:n] + (1 - weights) * partners


@dataclass(frozen=True)
class Mixing:
    """Draws who is mixed with whom.

    Args:
        kind: ``mixup``: with another query of the batch; ``label-mixup``: with a label of the pool,
            whose own targets are itself.
        alpha: Shares are drawn from Beta(alpha, alpha).
    """

    kind: str
    alpha: float

    def __call__(self, pool: Pool, n_queries: int, rng: np.random.Generator) -> tuple[Pool, Mix]:
        """Return the pool with mixed positives, and what to do with the vectors.

        A pair that counts neither way for a query or for its partner counts neither way.
        """
        weights = rng.beta(self.alpha, self.alpha, n_queries).astype(np.float32)
        pairs = pool.positives
        rows, cols = [pairs.rows], [pairs.cols]
        targets = [pairs.targets * weights[pairs.rows]]
        ignored = pool.ignored
        if self.kind == "mixup":
            partners = rng.permutation(n_queries)
            holder = np.argsort(partners)  # whose partner each query is
            rows.append(holder[pairs.rows])
            cols.append(pairs.cols)
            targets.append(pairs.targets * (1 - weights[rows[1]]))
            theirs = np.column_stack([holder[ignored[:, 0]], ignored[:, 1]])
            ignored = np.unique(np.concatenate([ignored, theirs]), axis=0)
        elif pool.n_text:
            labels = rng.integers(0, pool.n_text, n_queries)
            partners = n_queries + labels
            rows.append(np.arange(n_queries))
            cols.append(labels)
            targets.append(1 - weights)
        else:  # nothing to mix with
            partners, weights = np.arange(n_queries), np.ones_like(weights)
        positives = _merged(
            np.concatenate(rows), np.concatenate(cols), np.concatenate(targets), ignored, pool
        )
        mixed = Pool(pool.labels, pool.n_text, positives, ignored)
        return mixed, Mix(partners.astype(np.int64), weights)


def _merged(
    rows: NDArray[np.int64],
    cols: NDArray[np.int64],
    targets: NDArray[np.float32],
    ignored: NDArray[np.int64],
    pool: Pool,
) -> Positives:
    """Return each pair once with the sum of its targets; ignored pairs and targets of 0 are out."""
    width = len(pool.labels)
    keys, place = np.unique(rows * width + cols, return_inverse=True)
    sums = np.bincount(place, weights=targets, minlength=len(keys)).astype(np.float32)
    keep = (sums > 0) & ~np.isin(keys, ignored[:, 0] * width + ignored[:, 1])
    return Positives(keys[keep] // width, keys[keep] % width, np.minimum(sums[keep], 1.0))
