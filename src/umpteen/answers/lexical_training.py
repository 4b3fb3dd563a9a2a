"""Learn a label's weights for words: from the mean of its queries, then against near labels."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.answers.lexical import MARGIN_WORDS, SCALE, Lexical
from umpteen.answers.lexical_descent import Pairs, descend
from umpteen.answers.margins import MarginsRecipe, learn_margins
from umpteen.answers.near_labels import near_labels
from umpteen.answers.supports import first_weights, on_support, places_of, widened
from umpteen.answers.words import Words, heaviest

Say = Callable[[str], None]
MARGINS_SHARE = 0.6
"""Of the time after counting words that margins may take."""
LEAST_WORDS = 32
LEAST_CANDIDATES = 20


@dataclass(frozen=True)
class LexicalRecipe:
    """How weights are learned; the defaults were chosen on validation (docs/answers.md)."""

    candidates: int = 40
    """Near labels a query is trained against, looked for once in each round; fewer of long texts,
    down to ``LEAST_CANDIDATES``, to keep within ``most_products``."""
    steps: tuple[int, ...] = (15, 40)
    """Steps of each round."""
    decay: float = 0.02
    """How strongly weights are held to their first values."""
    widening: int = 8
    """So many of a query's near labels may weigh its words even where they are not its own."""
    most_weights: int = 16 << 20
    """Weights of all labels together; frequent labels lose their smallest first."""
    most_products: int = 192 << 20
    """Products of word and weight in a step; beyond it, queries keep their heaviest words."""
    least_weight: float = 0.02
    """Smaller ones are not kept."""
    margins: MarginsRecipe = MarginsRecipe()
    """What sets labels apart from all others, where there are queries enough for that."""
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
    device: torch.device | str = "cpu",
    say: Say = lambda text: None,
) -> tuple[Lexical, sp.csr_matrix]:
    """A scorer of labels by words.

    A label's first weights are the mean word vector of its queries and its own text. In each
    round every query's nearest labels by the weights so far are found, those labels may weigh its
    words from then on, and weights are trained on softmax over the query's positives and all near
    labels so far (``lexical_descent``).

    Args:
        texts: N training queries.
        targets: (N, L) CSR.
        label_texts: L texts.
        filters: (M, 2) pairs (query, label) that count neither way.
        recipe: How.
        seed: Of the order in which near labels are looked for, should time run out.
        device: Where to look for near labels and to train.
        say: Told what was cut short.

    Returns:
        The scorer, and the word vectors (N, V) of the queries.
    """
    began = time.monotonic()
    words = Words.learn([*texts, *label_texts])
    margins = None
    if recipe.margins.suits(words.size, targets):
        weighted = words.weighted(texts)
        queries = words.cut(weighted)
        left = began + recipe.seconds - time.monotonic()
        margins = learn_margins(
            words.cut(weighted, MARGIN_WORDS),
            targets,
            filters=filters,
            recipe=recipe.margins,
            seed=seed,
            device=device,
            until=time.monotonic() + MARGINS_SHARE * left,
            say=say,
        )
    else:
        queries = words.vectors(texts)
    first = first_weights(queries, targets, words.vectors(label_texts), recipe.most_weights)
    until = began + recipe.seconds
    weights = train_weights(queries, targets, first, filters, recipe, seed, device, until, say)
    kept = np.abs(weights.data) >= recipe.least_weight
    weights.data = np.where(kept, weights.data, 0.0).astype(np.float32)
    weights.eliminate_zeros()
    return Lexical(words, weights.T.tocsr(), margins), queries


def train_weights(
    queries: sp.csr_matrix,
    targets: sp.csr_matrix,
    first: sp.csr_matrix,
    filters: NDArray[np.int64] | None,
    recipe: LexicalRecipe,
    seed: int,
    device: torch.device | str,
    until: float,
    say: Say,
) -> sp.csr_matrix:
    """(L, V) the first weights, scaled and trained; see ``learn_lexical``."""
    n = queries.shape[0]
    candidates, most = within(recipe, n, queries.nnz / max(1, n), targets.nnz / max(1, n))
    queries = heaviest(queries, most)
    anchor = first * np.float32(SCALE)
    weights = anchor
    # In random order, for time may run out: then any part of them will do.
    order = np.random.default_rng([seed, 1]).permutation(n)
    shuffled = queries[order]
    near = np.full((n, 0), -1, np.int64)
    for number, steps in enumerate(recipe.steps):
        left = until - time.monotonic()
        if left <= 0:
            say(f"words: out of time before round {number + 1} of {len(recipe.steps)}")
            break
        # Looking may take half of what is left, so that something is learned from it.
        found = near_labels(
            shuffled,
            sp.csr_matrix(weights.T),
            candidates,
            device=device,
            until=until - left / 2,
        )
        fresh = np.full((n, found.shape[1]), -1, np.int64)
        fresh[order[: len(found)]] = found
        near = np.concatenate([near[:, : candidates // 2], fresh], axis=1)
        support = widened(weights, queries, fresh[:, : recipe.widening], recipe.most_weights)
        pairs = training_pairs(targets, near, filters)
        done = descend(
            queries,
            support,
            on_support(anchor, support),
            support.data,
            pairs,
            steps=steps,
            decay=recipe.decay,
            device=device,
            until=until,
        )
        weights = sp.csr_matrix((done.weights, support.indices, support.indptr), support.shape)
        if len(found) < n or done.steps < steps:
            say(
                f"words: round {number + 1} of {len(recipe.steps)} cut short at near labels of "
                f"{len(found):,} of {n:,} queries and {done.steps} of {steps} steps"
            )
    return weights


def within(recipe: LexicalRecipe, n: int, words: float, positives: float) -> tuple[int, int]:
    """Near labels to look for and words of a query to keep, within ``most_products``.

    Args:
        recipe: What is wanted.
        n: Queries.
        words: Of a query, on average.
        positives: Of a query, on average.

    Returns:
        Candidates, then words.

    Example:
        >>> within(LexicalRecipe(), 10_000, 20, 3)  # a word limit far above 20
        (40, 319)
        >>> within(LexicalRecipe(), 100_000, 300, 5)
        (20, 57)
    """
    room = recipe.most_products / max(1, n)
    # The second round has half as many again from the first.
    fitting = int((room / max(1.0, words) - positives) / 1.5)
    candidates = max(min(LEAST_CANDIDATES, recipe.candidates), min(recipe.candidates, fitting))
    return candidates, max(LEAST_WORDS, int(room / (1.5 * candidates + positives)))


def training_pairs(
    targets: sp.csr_matrix, near: NDArray[np.int64], filters: NDArray[np.int64] | None
) -> Pairs:
    """Positives and near labels of the queries that have both, but filtered pairs.

    Args:
        targets: (N, L).
        near: (N, K) labels, -1 where there are fewer; a query without any was not looked at.
        filters: (M, 2) pairs (query, label) that count neither way.

    Returns:
        By query, then label.
    """
    n, n_labels = targets.shape
    width = np.int64(n_labels)
    own = sp.csr_matrix(targets).tocoo()
    looked = np.asarray((near >= 0).any(axis=1))
    own_kept = looked[own.row]
    positives = np.sort(own.row[own_kept] * width + own.col[own_kept])
    keys = (np.arange(n)[:, None] * width + near)[near >= 0]
    keys = np.unique(np.concatenate([keys, positives]))
    if filters is not None and len(filters):
        keys = keys[~np.isin(keys, filters[:, 0] * width + filters[:, 1])]
    return Pairs(keys // width, keys % width, places_of(keys, positives)[1])
