"""The files between ``run.py`` (umpteen's environment) and the peers (theirs). Needs SciPy alone.

A folder holds ``train.txt`` and ``test.txt`` (one text a line), ``train_y.npz`` (CSR targets),
``train_x.npz`` and ``test_x.npz`` (tf-idf, made by ``features.py``). A peer leaves ``rows.npy`` and
``scores.npy``, (N, k) label rows in descending order of scores, -1 where it found fewer, and
``seconds.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import scipy.sparse as sp

SECONDS: dict[str, float] = {}


def arguments(doc: str) -> argparse.Namespace:
    """What every peer's script is called with."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variant", default="")
    parser.add_argument("--encoder", default="")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=5)
    return parser.parse_args()


def read(folder: Path) -> tuple[sp.csr_matrix, sp.csr_matrix, sp.csr_matrix]:
    """Features of train and test, and the targets of train."""
    return tuple(
        sp.load_npz(folder / name).tocsr() for name in ("train_x.npz", "test_x.npz", "train_y.npz")
    )


@contextmanager
def timed(what: str):
    """Count the seconds of a block under a name."""
    start = time.perf_counter()
    yield
    SECONDS[what] = time.perf_counter() - start


def write(out: Path, rows: np.ndarray, scores: np.ndarray) -> None:
    """Leave the predictions and the times."""
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "rows.npy", rows.astype(np.int64), allow_pickle=False)
    np.save(out / "scores.npy", scores.astype(np.float32), allow_pickle=False)
    (out / "seconds.json").write_text(json.dumps(SECONDS))


def top(matrix: sp.csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest entries of each row of a sparse matrix of scores."""
    matrix = matrix.tocsr()
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    order = np.lexsort((matrix.indices, -matrix.data, rows))
    place = np.arange(len(rows)) - matrix.indptr[rows]
    kept = place < k
    found = np.full((matrix.shape[0], k), -1, np.int64)
    scores = np.full((matrix.shape[0], k), -np.inf, np.float32)
    found[rows[kept], place[kept]] = matrix.indices[order][kept]
    scores[rows[kept], place[kept]] = matrix.data[order][kept]
    return found, scores
