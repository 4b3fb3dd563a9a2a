"""The data sets of a study: read once, cut or with hidden labels where the study asks for it."""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
import scipy.sparse as sp

from umpteen.data.dataset import Dataset
from umpteen.data.formats import load_dataset
from umpteen.study.definition import Source

FEW = 50
"""Training queries of the largest rare label, as in EURLEX57K's few-shot group."""


class LoadedSource:
    """The data set of the last run, which is read once for runs that follow each other."""

    def __init__(self) -> None:
        self._last: tuple[Source, Dataset, str] | None = None

    def get(self, source: Source) -> tuple[Dataset, str]:
        """Return a data set and its fingerprint."""
        if self._last is None or self._last[0] != source:
            data = load_source(source)
            self._last = source, data, data_fingerprint(data)
        return self._last[1:]


def load_source(source: Source) -> Dataset:
    """Return a study's data set, with fewer training queries or hidden labels where asked for.

    The draws are the same for every run, whatever its seed. Whole sets keep their order.
    """
    data = load_dataset(source.path)
    if source.hidden:
        data = hide_labels(data, source.hidden)
    if source.queries == 1:
        return data
    n = len(data["train"])
    drawn = np.random.default_rng(0x5B).permutation(n)[: max(1, round(source.queries * n))]
    splits = {**data.splits, "train": data["train"].select(np.sort(drawn))}
    return dataclasses.replace(data, splits=splits)


def hide_labels(data: Dataset, n: int) -> Dataset:
    """Take some rare labels out of all splits but test: for them a model has the text alone.

    Returns:
        The same labels and texts; the pairs of the drawn labels are left in test only.
    """
    few = np.flatnonzero((data.label_counts >= 1) & (data.label_counts <= FEW))
    kept = np.ones(len(data.labels), np.float32)
    kept[np.random.default_rng(0x5B).permutation(few)[:n]] = 0
    splits = dict(data.splits)
    for name in set(splits) - {"test"}:
        targets = sp.csr_matrix(splits[name].targets @ sp.diags(kept))
        targets.eliminate_zeros()
        splits[name] = dataclasses.replace(splits[name], targets=targets)
    return dataclasses.replace(data, splits=splits)


def data_fingerprint(data: Dataset) -> str:
    """Return a digest of labels, texts, targets and filters of all splits."""
    digest = hashlib.sha256(data.labels.fingerprint.encode())
    for name in sorted(data.splits):
        targets = data[name].targets
        for array in (targets.indptr, targets.indices, targets.data, data[name].filters):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(data[name].texts()).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
