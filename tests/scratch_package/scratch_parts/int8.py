"""Label vectors in 8 bits with one scale for each vector."""

import torch
from safetensors.torch import load_file, save_file

from umpteen.index.base import (
    check_allowed,
    check_exclude,
    check_search,
    check_vectors,
    read_about,
    save_index,
)
from umpteen.types import TopK


class Int8Index:
    """Exact search over vectors that are rounded to 8 bits: a quarter of the memory."""

    score_error = 0.02

    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales

    @classmethod
    def build(cls, vectors):
        vectors = check_vectors(vectors).float()
        scales = vectors.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127
        return cls(torch.round(vectors / scales).to(torch.int8), scales)

    @property
    def n_labels(self):
        return len(self.codes)

    @property
    def dim(self):
        return self.codes.shape[1]

    def search(self, queries, k, *, exclude=None, allowed=None):
        queries = check_search(self, queries, k).float().cpu()
        scores = queries @ (self.codes.float() * self.scales).T  # (B, L)
        if torch.isnan(scores).any():
            raise ValueError("queries hold NaN or infinity")
        pairs = check_exclude(exclude, len(queries), self.n_labels)
        scores[pairs[:, 0], pairs[:, 1]] = -torch.inf
        scores[:, check_allowed(allowed, self.n_labels)] = -torch.inf
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        best = scores.gather(1, order)
        rows = torch.where(best > -torch.inf, order, -1)
        missing = (0, k - best.shape[1])
        rows = torch.nn.functional.pad(rows, missing, value=-1)
        best = torch.nn.functional.pad(best, missing, value=-torch.inf)
        return TopK(rows.numpy(), best.numpy())

    def save(self, folder):
        tensors = {"codes": self.codes, "scales": self.scales}
        save_index(folder, self.describe(), lambda place: save_file(tensors, place / "int8"))

    @classmethod
    def load(cls, folder):
        read_about(folder, "int8")
        return cls(**load_file(f"{folder}/int8"))

    def describe(self):
        return {"kind": "int8", "labels": self.n_labels}
