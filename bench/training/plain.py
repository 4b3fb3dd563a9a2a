"""The plain versions of training's work: written down as they come, padded to the longest title.

``run_plain`` is a step of UniDEC, ``dexml_step`` a step of DEXML over all labels with a gradient
cache; ``refresh_ms`` a refresh (encode, then product and topk for hard negatives) of a share of
everything, extrapolated: clusters, for which there is no plain version that ends, are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import numpy as np
import torch
from torch.nn.functional import normalize, softplus

from bench.common.timing import DeviceClock, peak_gib, reset_peak, timed
from bench.training.step_data import DIM, LONGEST, NEGATIVES, POSITIVES, Sizes, network

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


class Plain(torch.nn.Module):
    """The same model, written down as it comes."""

    def __init__(self, n_labels: int) -> None:
        super().__init__()
        self.network = network()
        self.dual = torch.nn.Linear(768, DIM)
        self.classifier = torch.nn.Linear(768, DIM)
        self.dropout = torch.nn.Dropout(0.1)
        self.table = torch.nn.Parameter(torch.zeros(n_labels, DIM))

    def forward(self, ids, mask, rows, n_queries, precision):
        """Scores of both heads, (B, C)."""
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
            hidden = self.network(input_ids=ids, attention_mask=mask)[0]
        weights = mask.unsqueeze(-1).float()
        encoded = (hidden.float() * weights).sum(1) / weights.sum(1)
        dual = normalize(self.dropout(self.dual(encoded).tanh()), dim=1)
        queries = self.dropout(self.classifier(encoded[:n_queries]))
        return dual[:n_queries] @ dual[n_queries:].T / 0.05, queries @ self.table[rows].T


def plain_loss(scores: torch.Tensor, positive: torch.Tensor) -> torch.Tensor:
    """Decoupled softmax, the mean over a query's positives; positive is (B, C) of 0 and 1."""
    below = torch.logsumexp(scores.masked_fill(positive.bool(), float("-inf")), 1, keepdim=True)
    terms = softplus(below - scores) * positive
    return (terms.sum(1) / positive.sum(1).clamp(min=1)).mean()


def plain_batches(sizes: Sizes, data, device: torch.device, n: int) -> list:
    """Padded to the longest title there may be, with a dense mask of positives."""
    from umpteen.data.pool import PoolBuilder
    from umpteen.training.batch import BatchMaker

    queries, labels, targets, negatives = data
    pools = PoolBuilder(
        targets,
        np.zeros((0, 2), np.int64),
        positives_per_query=POSITIVES,
        negatives_per_query=NEGATIVES,
        max_labels=sizes.pool,
    )
    maker = BatchMaker(queries, labels, pools, seed=0, encode_labels=True)
    maker.negatives = negatives
    rng, batches = np.random.default_rng(1), []
    for step in range(n):
        batch = maker.make(rng.permutation(sizes.queries)[: sizes.batch], step)
        lengths = np.diff(batch.tokens.offsets)
        mask = np.arange(LONGEST)[None, :] < lengths[:, None]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = batch.tokens.ids
        positive = np.zeros((sizes.batch, len(batch.pool.labels)), np.float32)
        positive[batch.pool.positives.rows, batch.pool.positives.cols] = 1
        arrays = (ids, mask, batch.pool.labels, positive)
        batches.append([torch.from_numpy(array).to(device) for array in arrays])
    return batches


def run_plain(sizes: Sizes, data, device: torch.device, precision: str, steps: int, warm: int):
    """Time and memory of the plain step; its batches are there before the clock starts."""
    batches = plain_batches(sizes, data, device, 4)
    model = Plain(sizes.labels).to(device).train()
    groups = [
        {"params": model.network.parameters(), "lr": 1e-4},
        {"params": [*model.dual.parameters(), *model.classifier.parameters()], "lr": 2e-4},
        {"params": [model.table], "lr": 1e-3},
    ]
    optimizer = torch.optim.AdamW(groups, fused=device.type == "cuda")
    clock = DeviceClock(device)
    for step in range(warm + steps):
        if step == warm:
            clock = DeviceClock(device)
            reset_peak(device)
            clock.tick()
        ids, mask, rows, positive = batches[step % len(batches)]
        loss = torch.zeros((), device=device)
        for scores in model(ids, mask, rows, sizes.batch, precision):
            loss = loss + 0.25 * plain_loss(scores, positive)
            loss = loss + 0.25 * plain_loss(scores.T, positive.T)
        clock.tick()
        loss.backward()
        clock.tick()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        clock.tick()
    phases = np.reshape(clock.gaps()[-3 * steps :], (-1, 3))
    names = ("forward", "backward", "optimizer")
    return {
        "row": "plain",
        "ms": statistics.median(phases.sum(axis=1)),
        "gib": peak_gib(device),
    } | dict(zip(names, np.median(phases, axis=0).tolist(), strict=True))
