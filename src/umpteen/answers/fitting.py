"""Fit the fused answer on held-out queries: votes, models, tilt, probabilities. Writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.answers.candidates import PARTS, VIEWS, Candidates, best_candidates, look_up
from umpteen.answers.choosing import METRICS, RULE, chosen_way
from umpteen.answers.held import Held
from umpteen.answers.memory import votes
from umpteen.answers.recipe import Recipe, Voting, Way
from umpteen.answers.untrained import words_of_texts
from umpteen.answers.views import Views
from umpteen.answers.way_fitting import WayFit
from umpteen.types import TopK

FOLDS = 5
VOTINGS = tuple(Voting(n, t) for n in (20, 50, 100) for t in (0.03, 0.05, 0.1, 0.2))
Say = Callable[[str], None]


def fit_recipe(
    views: Views,
    held: Held,
    *,
    model: str,
    seconds: float,
    seed: int,
    say: Say,
    tilt: float | None = None,
) -> Recipe:
    """Fit everything that is chosen on held-out queries.

    Args:
        views: The parts; their memory must not hold these queries.
        held: The queries.
        model: The model folder's name.
        seconds: No further way is tried after this long; the first always is.
        seed: Of the folds.
        say: Told what was chosen.
        tilt: How much rare labels are favoured, where it is not to be chosen.

    Returns:
        The recipe, the chosen way first.
    """
    started = time.monotonic()
    voting, word_voting = choose_votings(views, held)
    views = replace(views, voting=voting, word_voting=word_voting)
    found = _join(
        [
            part
            for _, part, _ in views.blocks(
                held.texts, held.vectors, views=views.names, exclude=held.split.filters
            )
        ]
    )
    positive = look_up(held.truth, found.queries, found.rows) > 0
    folds = np.random.default_rng([seed, 5]).permutation(found.n_queries) % FOLDS
    head = views.predictor.vector_heads[-1]
    dense = views.predictor.search(held.vectors, 5, head=head, exclude=held.split.filters)
    reference = held.judge(dense)
    alone = _words_of_texts(views, held, found)
    ways: list[Way] = []
    for parts in _combinations(views.names):
        if ways and time.monotonic() - started > seconds:
            say(f"fusion: out of time after {len(ways)} of the combinations of parts")
            break
        own = _of_parts(views.names, parts)
        fit = WayFit(found, positive, folds, held, own, alone, seed)
        ways.append(fit.best_way(tilt))
        say(f"fusion of {', '.join(parts)}: {_in_words(ways[-1].validation)}")
    best = chosen_way([way.validation for way in ways], reference, found.n_queries)
    ordered = (ways[best], *ways[:best], *ways[best + 1 :])
    return Recipe(
        ordered,
        views.voting,
        views.word_voting,
        (held.propensity.a, held.propensity.b),
        held.n_train,
        model,
        f"{found.n_queries} held-out queries, {FOLDS} folds",
        RULE,
    )


def _words_of_texts(views: Views, held: Held, found: Candidates) -> NDArray[np.float32] | None:
    if views.lexical is None:
        return None
    words, titles = views.lexical.words, views.predictor.labels.titles
    rows, places = np.unique(found.rows, return_inverse=True)
    labels = words.vectors([titles[row] for row in rows.tolist()])
    pairs = Candidates(found.queries, places, {}, found.n_queries)
    return words_of_texts(words.vectors(held.texts), labels, pairs)


def _combinations(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """All parts; all but one; the heads alone."""
    whole = tuple(part for part in PARTS if part in {VIEWS[name] for name in names})
    heads = tuple(part for part in whole if part in ("dual", "classifier"))
    fewer = [tuple(p for p in whole if p != left_out) for left_out in whole]
    return [parts for parts in dict.fromkeys([whole, *fewer, heads]) if parts]


def _of_parts(names: tuple[str, ...], parts: tuple[str, ...]) -> tuple[str, ...]:
    kept = tuple(name for name in names if VIEWS[name] in parts)
    # Queries with the same words vote from the memory: without votes, there is no memory to ask.
    return kept if "votes" in parts else tuple(name for name in kept if name != "word_votes")


def choose_votings(views: Views, held: Held) -> tuple[Voting, Voting]:
    """How near queries vote, by vectors and by words: whose votes alone have the best nDCG@5."""
    remembered = views.remembered
    if remembered is None:
        return views.voting, views.word_voting
    now = remembered.refresh()
    most = max(voting.neighbours for voting in VOTINGS)

    def best(near: TopK) -> Voting:
        values = []
        for voting in VOTINGS:
            said = votes(near, remembered.memory.targets, **vars(voting))
            values.append(held.judge(top_of_stored(said, 10), ["nDCG@5"])["nDCG@5"])
        return VOTINGS[int(np.argmax(values))]

    by_vectors = best(remembered.nearest(held.vectors, most, now))
    if views.lexical is None:
        return by_vectors, views.word_voting
    words = views.lexical.words.vectors(held.texts)
    return by_vectors, best(remembered.nearest_by_words(words, most, now))


def top_of_stored(matrix: sp.csr_matrix, k: int) -> TopK:
    """The k largest stored values of each row; columns must be sorted."""
    n = matrix.shape[0]
    of_row = np.repeat(np.arange(n), np.diff(matrix.indptr))
    stored = Candidates(of_row, matrix.indices.astype(np.int64), {}, n)
    values = matrix.data.astype(np.float64)
    return best_candidates(values, values, stored, k)


def _join(blocks: list[Candidates]) -> Candidates:
    starts = np.cumsum([0, *(block.n_queries for block in blocks)])
    return Candidates(
        np.concatenate([b.queries + s for b, s in zip(blocks, starts, strict=False)]),
        np.concatenate([b.rows for b in blocks]),
        {view: np.concatenate([b.scores[view] for b in blocks]) for view in blocks[0].scores},
        int(starts[-1]),
    )


def _in_words(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {values[name]:.2f}" for name in METRICS)
