"""Learn a label's weights for words: from the mean of its queries, then against near labels."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.answers.lexical import SCALE, Lexical, best_columns, dense_blocks
from umpteen.answers.words import Words, unit_rows

ENTRIES_AT_ONCE = 4 << 20


@dataclass(frozen=True)
class LexicalRecipe:
    """How weights are learned; the defaults were chosen on validation (docs/answers.md)."""

    candidates: int = 40
    """Near labels a query is trained against."""
    steps: int = 20
    """Passes over all queries."""
    rate: float = 0.2
    """First step size; falls to 0."""
    dropout: float = 0.0
    """Share of the words of a pair that a step leaves out."""
    most_weights: int = 16 << 20
    """Weights of all labels together; frequent labels lose their smallest first."""
    most_products: int = 32 << 20
    """Products of word and weight in a step; beyond it, some of the queries are left out."""
    seconds: float = 120.0
    """Neither further near labels are looked for nor further steps taken after this long."""


def learn_lexical(
    texts: Sequence[str],
    targets: sp.csr_matrix,
    label_texts: Sequence[str],
    *,
    filters: NDArray[np.int64] | None = None,
    recipe: LexicalRecipe = LexicalRecipe(),  # noqa: B008 - frozen
    seed: int = 0,
) -> tuple[Lexical, sp.csr_matrix]:
    """A scorer of labels by words.

    A label's first weights are the mean word vector of its queries and its own text. A label may
    only weigh words it starts with, so weights stay sparse. They are then trained on softmax over
    each query's positives and the labels that are nearest to it, full batches, Adam.

    Args:
        texts: N training queries.
        targets: (N, L) CSR.
        label_texts: L texts.
        filters: (M, 2) pairs (query, label) that count neither way.
        recipe: How.
        seed: Of the dropout.

    Returns:
        The scorer, and the word vectors (N, V) of the queries.
    """
    words = Words.learn([*texts, *label_texts])
    queries = words.vectors(texts)
    first = first_weights(queries, targets, words.vectors(label_texts), recipe.most_weights)
    pairs = training_pairs(queries, targets, first, filters, recipe, seed)
    weights = train_weights(queries, first, pairs, recipe, seed)
    return Lexical(words, weights.T.tocsr()), queries


def first_weights(
    queries: sp.csr_matrix, targets: sp.csr_matrix, labels: sp.csr_matrix, most: int
) -> sp.csr_matrix:
    """(L, V) rows of length one: the sum of a label's queries and its own text, cut to the largest.

    The same number of weights is allowed to every label, the largest for which all fit.
    """
    ones = targets.copy()
    ones.data = np.ones(len(ones.data), np.float32)
    sums = sp.csr_matrix(ones.T @ queries + labels, dtype=np.float32)
    lengths = np.diff(sums.indptr)
    if sums.nnz > most:
        # sum(min(length, cap)) rises with cap: the largest cap that fits.
        low, high = 1, int(lengths.max())
        while low < high:
            middle = (low + high + 1) // 2
            fits = np.minimum(lengths, middle).sum() <= most
            low, high = (middle, high) if fits else (low, middle - 1)
        rows = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((-sums.data, rows))
        places = np.arange(sums.nnz) - np.repeat(sums.indptr[:-1], lengths)
        kept = order[places < low]
        sums = sp.csr_matrix((sums.data[kept], (rows[kept], sums.indices[kept])), shape=sums.shape)
    sums = unit_rows(sums)
    sums.sort_indices()
    return sums


def training_pairs(
    queries: sp.csr_matrix,
    targets: sp.csr_matrix,
    weights: sp.csr_matrix,
    filters: NDArray[np.int64] | None,
    recipe: LexicalRecipe,
    seed: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """(query, label, whether positive) of each query's positives and nearest labels, by query."""
    n, n_labels = targets.shape
    words_per_query = queries.nnz / max(1, n)
    room = recipe.most_products / max(1.0, words_per_query * recipe.candidates)
    # In random order where time may run out: then any part of them will do.
    chosen = np.arange(n)
    if room < n:
        rng = np.random.default_rng([seed, 1])
        chosen = rng.permutation(n)[: max(1, int(room))]
    turned = weights.T.tocsr()
    started, found, done = time.monotonic(), [], 0
    for here, block in dense_blocks(queries[chosen], turned):
        found.append(best_columns(block, recipe.candidates).rows)
        done = here.stop
        if time.monotonic() - started > recipe.seconds:
            break
    order = np.argsort(chosen[:done], kind="stable")
    chosen, near = chosen[:done][order], np.concatenate(found)[order]
    own = sp.csr_matrix(targets)[chosen].tocoo()
    positives = chosen[own.row] * np.int64(n_labels) + own.col
    keys = (chosen[:, None] * np.int64(n_labels) + near)[near >= 0]
    keys = np.unique(np.concatenate([keys, positives]))
    if filters is not None and len(filters):
        keys = keys[~np.isin(keys, filters[:, 0] * np.int64(n_labels) + filters[:, 1])]
    return keys // n_labels, keys % n_labels, np.isin(keys, positives)


def overlaps(
    queries: sp.csr_matrix,
    weights: sp.csr_matrix,
    rows: NDArray[np.int64],
    labels: NDArray[np.int64],
) -> sp.csr_matrix:
    """(P, weights.nnz): entry (p, j) is the value in pair p's query of the word that weight j has.

    ``overlaps @ weights.data`` equals ``(queries[rows].multiply(weights[labels])).sum(axis=1)``,
    and is linear in the weights, which is what training needs.
    """
    numbered = sp.csr_matrix(
        (np.arange(1.0, weights.nnz + 1), weights.indices, weights.indptr), shape=weights.shape
    )
    sizes = np.cumsum(np.diff(weights.indptr)[labels] + np.diff(queries.indptr)[rows])
    values, places, lengths = [], [], []
    start = 0
    while start < len(rows):
        before = sizes[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(sizes, before + ENTRIES_AT_ONCE)))
        some, theirs = queries[rows[start:stop]], numbered[labels[start:stop]]
        present = sp.csr_matrix((np.ones(some.nnz), some.indices, some.indptr), shape=some.shape)
        held = sp.csr_matrix(
            (np.ones(theirs.nnz, np.float32), theirs.indices, theirs.indptr), shape=theirs.shape
        )
        number = sp.csr_matrix(present.multiply(theirs))
        value = sp.csr_matrix(some.multiply(held))
        places.append(number.data.astype(np.int32) - 1)
        values.append(value.data.astype(np.float32))
        lengths.append(np.diff(number.indptr))
        start = stop
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths or [np.zeros(0, np.int64)]))])
    data = np.concatenate(values) if values else np.zeros(0, np.float32)
    columns = np.concatenate(places) if places else np.zeros(0, np.int32)
    return sp.csr_matrix((data, columns, indptr), shape=(len(rows), weights.nnz))


def train_weights(
    queries: sp.csr_matrix,
    first: sp.csr_matrix,
    pairs: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]],
    recipe: LexicalRecipe,
    seed: int,
) -> sp.csr_matrix:
    """The first weights, scaled and trained; see ``learn_lexical``."""
    rows, labels, positive = pairs
    matrix = overlaps(queries, first, rows, labels)
    weights = first.data * np.float32(SCALE)
    starts = np.flatnonzero(np.append(True, np.diff(rows) != 0)[: len(rows)])
    sizes = np.diff(np.append(starts, len(rows)))
    n_positives = np.add.reduceat(positive.astype(np.float32), starts) if len(rows) else None
    started = time.monotonic()
    rng = np.random.default_rng([seed, 2])
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    values = matrix.data.copy()
    keep = np.float32(1 - recipe.dropout)
    for step in range(1, recipe.steps + 1 if len(rows) else 1):
        if recipe.dropout:
            matrix.data = values * (rng.random(len(values), np.float32) < keep) / keep
        slope = softmax_slope(matrix @ weights, positive, starts, sizes, n_positives)
        gradient = matrix.T @ slope
        mean += 0.1 * (gradient - mean)
        square += 0.01 * (gradient * gradient - square)
        rate = recipe.rate * (1 - (step - 1) / recipe.steps)
        change = (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        weights -= np.float32(rate) * change
        if time.monotonic() - started > recipe.seconds:
            break
    return sp.csr_matrix((weights, first.indices, first.indptr), shape=first.shape)


def softmax_slope(
    scores: NDArray[np.float32],
    positive: NDArray[np.bool_],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    n_positives: NDArray[np.float32] | None,
) -> NDArray[np.float32]:
    """d/ds of the mean over a query's positives of -log softmax; 0 for a query without any.

    Args:
        scores: (P,) of pairs, a query's one after the other.
        positive: (P,) which are positives.
        starts: Where each query's pairs begin.
        sizes: How many it has.
        n_positives: How many are positives.

    Returns:
        (P,) slopes.
    """
    assert n_positives is not None
    powers = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), sizes))
    shares = powers / np.repeat(np.add.reduceat(powers, starts), sizes)
    wanted = positive / np.repeat(np.maximum(n_positives, 1), sizes)
    return ((shares - wanted) * np.repeat(n_positives > 0, sizes)).astype(np.float32)
