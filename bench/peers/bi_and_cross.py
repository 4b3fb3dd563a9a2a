"""What users build with sentence-transformers: a bi-encoder and a cross-encoder that re-ranks.

Bi-encoder: ``MultipleNegativesRankingLoss``, 512 pairs of a text and one of its labels a step, no
label twice in a step, learning rate 5e-5. Cross-encoder: binary cross-entropy, 64 texts a step
with one label and 5 wrong ones from the bi-encoder's best 50, learning rate 5e-5. Both in bfloat16
on a GPU, for a given time, with a rate that falls to 0 in it. The best 50 labels of the bi-encoder
are ordered by the cross-encoder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

DEPTH, BATCH, CROSS_BATCH, WRONG, RATE = 50, 512, 64, 5, 5e-5
TEST_TEXTS = 4000
"""Of the test split, the first ones, that are re-ranked."""
MOST_TOKENS = 128


def peer_row(
    data: Any, given: Any, spent: tuple[float, float], judge: Any, *, seed: int
) -> dict[str, Any]:
    """Train both for as many seconds, and return a row of test metrics.

    Args:
        data: The data set.
        given: Encoder, text and device.
        spent: Seconds for the bi-encoder and for the cross-encoder.
        judge: Has the propensity constants.
        seed: Of all draws.
    """
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from umpteen.compute.precision import choose_device

    device = str(choose_device(given.device))
    torch.manual_seed(seed)
    rng, train = np.random.default_rng(seed), data["train"]
    texts, labels = list(train.texts(given.text)), list(data.labels.encoder_texts(given.text))
    whole = {"torch_dtype": "float32"}
    bi = SentenceTransformer(given.encoder, device=device, model_kwargs=whole)
    bi.max_seq_length = MOST_TOKENS
    targets = train.filtered_targets().tocsr()
    steps = train_bi(bi, texts, labels, targets, spent[0], rng, device)
    vectors = bi.encode(labels, batch_size=BATCH, convert_to_tensor=True, normalize_embeddings=True)
    cross = CrossEncoder(given.encoder, num_labels=1, device=device, model_kwargs=whole)
    cross_steps = train_cross(cross, bi, vectors, texts, labels, targets, spent[1], rng, device)
    test = data["test"].select(np.arange(min(TEST_TEXTS, len(data["test"]))))
    asked = list(test.texts(given.text))
    started = time.perf_counter()
    rows = found_rows(bi, vectors, asked, test.filters)
    order = reordered(cross, asked, labels, rows, device)
    each = 1000 * (time.perf_counter() - started) / len(asked)
    from umpteen.scoring import score
    from umpteen.types import TopK

    top = TopK(order, np.tile(-np.arange(order.shape[1], dtype=np.float32), (len(order), 1)))
    report = score(top, test, label_counts=data.label_counts, n_train=len(train),
                   propensity=judge.propensity,
                   metrics=("P@1", "P@3", "P@5", "PSP@1", "PSP@3", "PSP@5"))  # fmt: skip
    named = f"sentence-transformers, {steps} + {cross_steps} steps, first {len(asked)} texts"
    return {"ranked by": named, **report.values, "ms a text": each}


def timed_steps(
    parameters: Any, seconds: float, draw: Callable[[], Any], loss_of: Callable[[Any], Any], on: str
) -> int:
    """Take steps until the time is over; return how many."""
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.01)
    started, steps = time.monotonic(), 0
    while (done := (time.monotonic() - started) / seconds) < 1.0:
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - done) * min(1.0, (done + 1e-3) / 0.1)
        with torch.autocast(on, dtype=torch.bfloat16, enabled=on == "cuda"):
            loss = loss_of(draw())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        steps += 1
    return steps


def pairs_of(targets: Any, rng: np.random.Generator, size: int) -> Iterator[np.ndarray]:
    """Yield (size, 2) pairs of a text and a label, without a label twice, over and over."""
    owners = np.repeat(np.arange(targets.shape[0]), np.diff(targets.indptr))
    pairs = np.column_stack([owners, targets.indices])
    while True:
        order = rng.permutation(len(pairs))
        for start in range(0, len(order), size):
            some = pairs[order[start : start + size]]
            yield some[np.unique(some[:, 1], return_index=True)[1]]


def train_bi(bi, texts, labels, targets, seconds, rng, device) -> int:
    """Train the bi-encoder."""
    from sentence_transformers import losses

    loss, batches = losses.MultipleNegativesRankingLoss(bi), pairs_of(targets, rng, BATCH)
    bi.train()

    def draw():
        some = next(batches)
        sides = [texts[row] for row in some[:, 0]], [labels[row] for row in some[:, 1]]
        tokens = [bi.tokenize(side) for side in sides]
        return [{k: v.to(device) for k, v in own.items() if hasattr(v, "to")} for own in tokens]

    steps = timed_steps(bi.parameters(), seconds, draw, lambda own: loss(own, None), device)
    bi.eval()
    return steps


def found_rows(bi, vectors, texts, filters) -> np.ndarray:
    """(N, DEPTH) the labels nearest to texts; filter pairs are left out."""
    made = []
    for start in range(0, len(texts), 2048):
        some = texts[start : start + 2048]
        own = bi.encode(some, batch_size=BATCH, convert_to_tensor=True, normalize_embeddings=True)
        scores = own @ vectors.T
        kept = filters[(filters[:, 0] >= start) & (filters[:, 0] < start + len(some))]
        scores[kept[:, 0] - start, kept[:, 1]] = -2.0
        made.append(scores.topk(min(DEPTH, scores.shape[1]), dim=1).indices.cpu().numpy())
    return np.concatenate(made)


def train_cross(cross, bi, vectors, texts, labels, targets, seconds, rng, device) -> int:
    """Train the cross-encoder; the look-up of wrong labels counts as training time."""
    started = time.monotonic()
    found = found_rows(bi, vectors, texts, np.zeros((0, 2), np.int64))
    owners, width = np.repeat(np.arange(len(texts)), np.diff(targets.indptr)), targets.shape[1]
    keys = np.arange(len(texts))[:, None] * width + found
    found = np.where(np.isin(keys, owners * width + targets.indices), -1, found)
    batches = pairs_of(targets, rng, CROSS_BATCH)
    cross.model.train()

    def draw():
        some = next(batches)
        drawn = np.where(found[some[:, 0]] >= 0, rng.random((len(some), found.shape[1])), 2.0)
        wrong = np.take_along_axis(found[some[:, 0]], drawn.argsort(axis=1)[:, :WRONG], axis=1)
        rows = np.concatenate([some[:, 1:], wrong], axis=1)
        left = [texts[text] for text in np.repeat(some[:, 0], rows.shape[1])]
        right = [labels[row] for row in rows.ravel()]
        tokens = cross.tokenizer(left, right, padding=True, truncation=True,
                                 max_length=MOST_TOKENS, return_tensors="pt")  # fmt: skip
        wanted = np.tile(np.arange(rows.shape[1]) == 0, len(rows)).astype(np.float32)
        return tokens.to(device), torch.from_numpy(wanted).to(device)

    def loss_of(own):
        scores = cross.model(**own[0]).logits.squeeze(1).float()
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, own[1])

    left = max(1.0, seconds - (time.monotonic() - started))
    steps = timed_steps(cross.model.parameters(), left, draw, loss_of, device)
    cross.model.eval()
    return steps


def reordered(cross, texts, labels, rows, device) -> np.ndarray:
    """(N, DEPTH) the rows of each text by the cross-encoder's score."""
    pairs = [(text, labels[row]) for text, own in zip(texts, rows, strict=True) for row in own]
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        scores = cross.predict(pairs, batch_size=1024, show_progress_bar=False)
    order = np.argsort(-np.asarray(scores, np.float32).reshape(rows.shape), axis=1, kind="stable")
    return np.take_along_axis(rows, order, axis=1)
