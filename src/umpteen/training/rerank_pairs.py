"""Train the transformer of a re-ranker: labels of training texts against wrong candidates."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from umpteen.compute.precision import autocast, choose_precision
from umpteen.data.dataset import Split
from umpteen.model.encoder import to_device
from umpteen.predictor import Predictor
from umpteen.ranking.queries import Queries
from umpteen.ranking.reranking.listwise import LearningRate, listwise_loss
from umpteen.ranking.reranking.pair_scorer import PairScorer
from umpteen.training.batch import made_ahead
from umpteen.types import Log, Ragged

TEXTS_AT_ONCE = 8192
"""Texts whose wrong candidates are looked up at once."""
TEXTS_SEEN = 100_000
"""That a transformer is trained on in all its epochs, at least."""
HALF_AS_OFTEN = 20
"""Place at which wrong candidates are drawn about half as often as the first."""
WEIGHT_DECAY = 1e-2


@dataclass(frozen=True)
class PairExamples:
    """Labelled texts with wrong candidates, as arrays on the host."""

    texts: Ragged
    """Tokens of N texts."""
    labels: Ragged
    """Tokens of L labels."""
    right: sp.csr_matrix
    """(N, L) their labels."""
    wrong: NDArray[np.int64]
    """(N, n) label rows that are not theirs, the most similar first; -1 for none."""

    def __len__(self) -> int:
        return len(self.wrong)


@dataclass(frozen=True)
class PairOptions:
    """How a transformer that scores pairs is trained."""

    epochs: int | None = None
    """By default 4, and with few texts up to 16; see ``TEXTS_SEEN``."""
    batch: int = 64
    """Texts of a step."""
    positives: int = 4
    """Labels of a text in a step, at most."""
    negatives: int = 12
    """Wrong candidates of a text in a step, at most."""
    lr: float = 1e-4
    seed: int = 0
    seconds: float = math.inf
    """No further step after this long; the learning rate falls with the time."""


@dataclass(frozen=True)
class PairBatch:
    """One step's pairs, laid out on the encoder's device."""

    pairs: Any
    """Of the encoder's ``batch``."""
    places: Tensor
    """(P,) where each pair's score goes in the flat (B, positives + negatives) table."""
    valid: Tensor
    """(B, positives + negatives) places with a pair; the positives come first."""


def pair_examples(
    predictor: Predictor, split: Split, rows: NDArray[np.int64], encoder: PairScorer, n: int
) -> PairExamples:
    """Look up the wrong labels that the model finds most similar to training texts."""
    which = predictor.text_config.text
    own, snapshot = split.select(rows), predictor.snapshot()
    texts, right = list(own.texts(which)), own.filtered_targets().tocsr()
    n_labels, head = right.shape[1], predictor.vector_heads[-1]
    owners = np.repeat(np.arange(len(texts), dtype=np.int64), np.diff(right.indptr))
    known = np.concatenate(
        [owners * n_labels + right.indices, own.filters[:, 0] * n_labels + own.filters[:, 1]]
    )
    most = min(n_labels, n + int(min(32, np.diff(right.indptr).max(initial=0) + 1)))
    wrong = np.full((len(texts), most), -1, np.int64)
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        some = texts[start : start + TEXTS_AT_ONCE]
        queries = Queries(some, predictor.vectors(some))
        found = predictor.rank(queries, snapshot, most, head=head).rows
        keys = np.arange(start, start + len(some))[:, None] * n_labels + found
        wrong[start : start + len(some)] = np.where(np.isin(keys, known), -1, found)
    # Those left out go to the end.
    wrong = np.take_along_axis(wrong, np.argsort(wrong < 0, axis=1, kind="stable"), axis=1)
    labels = encoder.label_tokens(predictor.labels.encoder_texts(which))
    return PairExamples(encoder.text_tokens(texts), labels, right, wrong[:, :n])


def train_pairs(
    encoder: PairScorer, examples: PairExamples, options: PairOptions, *, log: Log
) -> None:
    """Train a scorer of pairs; the host makes batches ahead and never waits for the device."""
    epochs = options.epochs or min(16, max(4, round(TEXTS_SEEN / max(1, len(examples)))))
    device = encoder.device
    parameters = list(encoder.parameters())
    optimizer = torch.optim.AdamW(
        parameters, lr=options.lr, weight_decay=WEIGHT_DECAY, fused=device.type == "cuda"
    )
    steps = epochs * math.ceil(len(examples) / options.batch)
    schedule = LearningRate(optimizer, steps, options.seconds)
    encoder.train()
    for epoch in range(epochs):
        order = np.random.default_rng([options.seed, 0x9A1, epoch]).permutation(len(examples))
        rows = [order[i : i + options.batch] for i in range(0, len(order), options.batch)]

        def make(own: NDArray[np.int64], step: int) -> PairBatch:
            return pair_batch(encoder, examples, own, options, step)

        losses: list[Tensor] = []
        with closing(made_ahead(make, rows, start=0, first_step=epoch * len(rows))) as batches:
            for batch in batches:
                if not schedule.step():
                    break
                with autocast(choose_precision("auto", device), device):
                    loss = _loss(encoder(batch.pairs), batch, options.positives)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                losses.append(loss.detach())
        if losses:
            mean = float(torch.stack(losses).mean())
            log(f"Transformer, epoch {epoch + 1} of {epochs}: loss {mean:.4f}")
        if len(losses) < len(rows):
            log(f"Transformer stopped after {options.seconds:.0f} s")
            break
    encoder.eval()


def pair_batch(
    encoder: PairScorer,
    examples: PairExamples,
    own: NDArray[np.int64],
    options: PairOptions,
    step: int,
) -> PairBatch:
    """Draw labels and wrong candidates of some texts and lay out their pairs.

    Args:
        encoder: Joins the tokens.
        examples: All texts.
        own: (B,) which of them.
        options: How many labels.
        step: With the seed, decides the draw.

    Returns:
        The batch.
    """
    rng = np.random.default_rng([options.seed, 0x9A2, step])
    right = drawn_labels(examples.right, own, options.positives, rng)
    wrong = examples.wrong[own]
    ranks = np.arange(wrong.shape[1])
    keys = np.where(wrong >= 0, rng.random(wrong.shape) * (1.0 + ranks / HALF_AS_OFTEN), np.inf)
    chosen = np.argsort(keys, axis=1)[:, : options.negatives]
    labels = np.concatenate([right, np.take_along_axis(wrong, chosen, axis=1)], axis=1)
    owners, columns = np.nonzero(labels >= 0)
    pairs = encoder.batch(examples.texts, examples.labels, own[owners], labels[owners, columns])
    device = encoder.device
    places = owners * labels.shape[1] + columns
    return PairBatch(pairs, to_device(places, device), to_device(labels >= 0, device))


def drawn_labels(
    targets: sp.csr_matrix, rows: NDArray[np.int64], n: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(B, n) at most n random labels of each row, -1 for none."""
    own = targets[rows]
    owners = np.repeat(np.arange(len(rows)), np.diff(own.indptr))
    order = np.lexsort([rng.random(own.nnz), owners])
    places = np.arange(own.nnz) - own.indptr[owners]
    kept = places < n
    made = np.full((len(rows), n), -1, np.int64)
    made[owners[kept], places[kept]] = own.indices[order][kept]
    return made


def _loss(scores: Tensor, batch: PairBatch, positives: int) -> Tensor:
    table = torch.zeros(batch.valid.numel(), device=scores.device).index_put(
        (batch.places,), scores
    )
    right = torch.zeros_like(batch.valid)
    right[:, :positives] = True
    return listwise_loss(table.view(batch.valid.shape), right, batch.valid)
