"""The plain versions of rows whose own scripts have none: written down as they come, padded.

``dexml_step`` is the step of DEXML over all labels with a gradient cache; ``refresh_ms`` a refresh
(encode, then product and topk for hard negatives) of a share of everything, extrapolated: clusters,
for which there is no plain version that ends, are left out.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from step import LONGEST, Plain, network, plain_loss
from timing import timed
from torch.nn.functional import normalize

CHUNK = 3000
"""Texts encoded at once."""


def padded(tokens, rows: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and mask (n, LONGEST) of some texts."""
    some = tokens.take(rows)
    mask = np.arange(LONGEST)[None, :] < np.diff(some.offsets)[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = some.ids
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)


class Encoder(torch.nn.Module):
    """A DistilBERT, its mean over tokens, length one."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, precision: str) -> torch.Tensor:
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
            hidden = self.network(input_ids=ids, attention_mask=mask)[0]
        weights = mask.unsqueeze(-1).float()
        return normalize((hidden.float() * weights).sum(1) / weights.sum(1), dim=1)


def dexml_step(queries, labels, positive_of, device, precision) -> Callable[[], None]:
    """A step of decoupled softmax over all labels.

    All texts are encoded without a graph; the loss of the whole score matrix gives their gradients;
    then each chunk is encoded again and these gradients go through it.

    Args:
        queries: Tokens of a batch of B.
        labels: Tokens of all L labels.
        positive_of: Pairs (P, 2) of query and label.
        device: Where.
        precision: Of the encoder.
    """
    model = Encoder().to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    chunks = [
        padded(tokens, np.arange(start, min(start + CHUNK, len(tokens))), device)
        for tokens in (queries, labels)
        for start in range(0, len(tokens), CHUNK)
    ]
    pairs = torch.from_numpy(positive_of).to(device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            vectors = torch.cat([model(*chunk, precision) for chunk in chunks])
        vectors.requires_grad_()
        scores = vectors[: len(queries)] @ vectors[len(queries) :].T / 0.05
        positive = torch.zeros_like(scores)
        positive[pairs[:, 0], pairs[:, 1]] = 1.0
        plain_loss(scores, positive).backward()
        del scores, positive
        gradients = vectors.grad.split([len(ids) for ids, _ in chunks])
        for chunk, gradient in zip(chunks, gradients, strict=True):
            model(*chunk, precision).backward(gradient)
        optimizer.step()

    return step


def refresh_ms(data, device, precision, *, share: float, k: int) -> float:
    """Milliseconds of a refresh of all queries and labels, from a share of them."""
    model = Plain(1).to(device).eval()
    kind = torch.bfloat16 if precision == "bf16" else torch.float32

    def encode(tokens) -> float:
        n = max(1, round(share * len(tokens)))

        @torch.no_grad()
        def run() -> None:
            for start in range(0, n, CHUNK):
                chunk = padded(tokens, np.arange(start, min(start + CHUNK, n)), device)
                with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
                    hidden = model.network(input_ids=chunk[0], attention_mask=chunk[1])[0]
                normalize(hidden.float().mean(1), dim=1)

        return timed(run, repeats=1, device=device).wall_ms * len(tokens) / n

    total = encode(data.queries) + encode(data.labels)
    some = max(1, round(share * len(data.queries)))
    labels = normalize(torch.randn(len(data.labels), 256, device=device), dim=1).to(kind)
    queries = normalize(torch.randn(some, 256, device=device), dim=1).to(kind)

    def mine() -> None:
        for part in queries.split(1024):
            (part @ labels.T).topk(min(k, len(labels)))

    return total + timed(mine, repeats=1, device=device).wall_ms * len(data.queries) / some
