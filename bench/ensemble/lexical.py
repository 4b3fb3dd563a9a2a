"""Settings and solvers of the lexical scorers on held-out training texts.

    python -m bench ensemble lexical postings|reranked|one_vs_rest|vectorizers DATA [--held 0.1]

``postings``: limits on the labels of a term. ``reranked``: candidates of pruned postings, ranked by
their exact scores. ``one_vs_rest``: ours beside LinearSVC. ``vectorizers``: ours beside
TfidfVectorizer. DATA is a data set whose test split is not read. Times are CPU time.
"""

import argparse
import time
from functools import partial
from itertools import product as product_of

import numpy as np
import scipy.sparse as sp

from bench.common import options as shared_options
from bench.common.timing import Stopwatch, seconds
from umpteen import load_dataset
from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.one_vs_rest import OneVsRest
from umpteen.ranking.lexical.one_vs_rest_training import OneVsRestConfig
from umpteen.ranking.lexical.ranker_training import LexicalConfig
from umpteen.ranking.lexical.sparse_topk import look_up, product, prune_postings, top_k_of_rows
from umpteen.ranking.lexical.vectorizer import Vectorizer


def read(folder, field="title"):
    """Training texts, targets, label texts and filters."""
    data = load_dataset(folder)
    train = data["train"]
    names = data.labels.encoder_texts("title")
    return list(train.texts(field)), train.targets, names, train.filters


def split(texts, targets, filters, held, limit=None, seed=0):
    """Random training and held-out texts: (texts, targets, filters) of each."""
    order = np.random.default_rng(seed).permutation(len(texts))
    if limit:
        order = order[:limit]
    n = int(held * len(order)) if held < 1 else int(held)
    parts = []
    for rows in (order[n:], order[:n]):
        where = np.full(len(texts), -1)
        where[rows] = np.arange(len(rows))
        own = filters[where[filters[:, 0]] >= 0]
        own = np.stack([where[own[:, 0]], own[:, 1]], axis=1)
        parts.append(([texts[i] for i in rows], targets[rows], own))
    return parts


def measure(scores, truth, filters, k=40):
    """P@1, P@3, P@5 and recall@40 in percent."""
    rows, _ = top_k_of_rows(scores, k + 8)
    if len(filters):
        key = np.int64(truth.shape[1] + 1)
        banned = np.isin(np.arange(len(rows))[:, None] * key + rows, filters @ np.array([key, 1]))
        order = np.argsort(banned | (rows < 0), axis=1, kind="stable")
        rows = np.take_along_axis(np.where(banned, -1, rows), order, 1)
    hits = look_up(sp.csr_matrix(truth), rows[:, :k]) > 0
    totals = np.maximum(np.diff(truth.indptr), 1)
    found = {f"P@{n}": 100 * hits[:, :n].sum() / (n * len(rows)) for n in (1, 3, 5)}
    found["R@40"] = 100 * (hits.sum(axis=1) / totals).mean()
    return found


def show(name, values):
    print(name, " ".join(f"{key} {value:.2f}" for key, value in values.items()), flush=True)


def fit_unlimited(train, names, seconds):
    """The lexical ranker with all labels of each term."""
    rest = {"filters": train[2], "seconds": seconds, "log": print}
    config = LexicalConfig(many_labels=1 << 30)
    return LexicalRanker.fit(train[0], train[1], names, config=config, **rest)[0]


def postings(options):
    """Cost and gain of limits on the labels of a term."""
    texts, targets, names, filters = read(options.data, options.text)
    train, held = split(texts, targets, filters, options.held)
    with Stopwatch() as fitting:
        ranker = fit_unlimited(train, names, options.seconds)
    print(f"fit {fitting.wall:.1f} s, {ranker.vectorizer.size:,} terms, "
          f"{ranker.weights.nnz:,} weights")  # fmt: skip
    queries = ranker.vectorizer.transform(held[0])
    single = [queries[i] for i in range(200)]
    limits = [(1 << 30, 0.02), (3000, 0.02), (1000, 0.02), (500, 0.02), (300, 0.02)]
    for limit, least in [*limits, (1 << 30, 0.1), (1 << 30, 0.3), (1000, 0.1), (1000, 0.3)]:
        weights = ranker.weights.copy()
        weights.data[np.abs(weights.data) < least] = 0.0
        weights.eliminate_zeros()
        weights = prune_postings(weights, limit)
        best = {"product": 1e9, "topk": 1e9, "lookup": 1e9, "one": 1e9}
        for _ in range(3):
            t0 = time.process_time()
            scores = product(queries, weights)
            t1 = time.process_time()
            rows, _ = top_k_of_rows(scores, 40)
            t2 = time.process_time()
            look_up(scores, np.concatenate([rows, rows[::-1]], axis=1))
            t3 = time.process_time()
            for row in single:
                top_k_of_rows(product(row, weights), 40)
            t4 = time.process_time()
            own = {"product": t1 - t0, "topk": t2 - t1, "lookup": t3 - t2}
            own = {name: 1e6 * value / len(rows) for name, value in own.items()}
            own["one"] = 1e6 * (t4 - t3) / 200
            best = {name: min(value, own[name]) for name, value in best.items()}
        values = measure(scores, held[1], held[2])
        values["stored"] = scores.nnz / len(rows)
        show(
            f"max_postings {limit}, min_weight {least}:",
            values | {f"{n} us": v for n, v in best.items()},
        )


def reranked(options):
    """Candidates of pruned postings, ranked by their exact scores."""
    texts, targets, names, filters = read(options.data, options.text)
    train, held = split(texts, targets, filters, options.held)
    whole = fit_unlimited(train, names, options.seconds)
    queries = whole.vectorizer.transform(held[0])
    show("all postings:", measure(product(queries, whole.weights), held[1], held[2]))
    for limit in (1000, 500, 300):
        pruned = prune_postings(whole.weights, limit)
        ranker = LexicalRanker(whole.vectorizer, pruned, whole.weights - pruned)
        scores = product(queries, pruned)
        rows, _ = top_k_of_rows(scores, 48)
        spent = min(timed_call(partial(look_up, scores, rows)) for _ in range(3))
        exact = ranker.look_up(queries, scores, rows)
        took = min(timed_call(partial(ranker.look_up, queries, scores, rows)) for _ in range(3))
        there = rows >= 0
        at = np.nonzero(there)[0], rows[there]
        again = sp.csr_matrix((exact[there], at), shape=scores.shape)
        values = measure(again, held[1], held[2])
        values |= {"terms": len(ranker.frequent_terms.terms)}
        values |= {"look_up us": 1e6 * spent / len(rows), "exact us": 1e6 * took / len(rows)}
        show(f"max_postings {limit}, exact scores:", values)


def timed_call(function):
    """CPU seconds of one call."""
    return seconds(function, repeats=1, clock=time.process_time)[0]


def one_vs_rest(options):
    """Our one-vs-rest against LinearSVC, on words and on words with characters."""
    texts, targets, names, filters = read(options.data, options.text)
    train, held = split(texts, targets, filters, options.held, options.limit)
    kept = np.flatnonzero(np.asarray(train[1].sum(axis=0)).ravel() >= 1)
    if options.labels:
        kept = kept[np.random.default_rng(1).permutation(len(kept))[: options.labels]]
    kept = np.sort(kept)
    names = [names[i] for i in kept]
    train = (train[0], train[1][:, kept], np.zeros((0, 2), np.int64))
    held = (held[0], held[1][:, kept], np.zeros((0, 2), np.int64))
    print(f"{len(train[0]):,} texts, {len(held[0]):,} held out, {len(kept):,} labels")
    vectorizer = Vectorizer.fit([*train[0], *names])
    for chars in options.chars:
        for epochs, decay in product_of(options.epochs, options.decay):
            config = OneVsRestConfig(
                epochs=epochs, decay=decay, char_ngrams=bool(chars), min_texts=0
            )
            began = time.process_time()
            fitted = OneVsRest.fit(
                train[0], train[1], names, vectorizer=vectorizer, config=config, seconds=1e4,
                log=print,
            )  # fmt: skip
            seconds = time.process_time() - began
            scores = product(fitted.transform(held[0]), fitted.weights)
            values = shifted(scores.toarray(), held, 50.0) | {"cpu s": seconds}
            show(f"ours chars={chars} epochs={epochs} decay={decay}:", values)
        if options.svc:
            svc(fitted.transform(train[0]), fitted.transform(held[0]), train[1], held,
                f"LinearSVC, our features, chars={chars}")  # fmt: skip
    if options.peer:
        sklearn_peer(train, held)


def svc(inputs, asked, targets, held, name):
    """One LinearSVC per label."""
    from sklearn.svm import LinearSVC

    began = time.process_time()
    dense = np.zeros((asked.shape[0], targets.shape[1]), np.float32)
    columns = sp.csc_matrix(targets)
    for label in range(targets.shape[1]):
        truth = np.zeros(inputs.shape[0], bool)
        truth[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = True
        if truth.all():
            dense[:, label] = 1
            continue
        dense[:, label] = LinearSVC().fit(inputs, truth).decision_function(asked)
    values = {"cpu s": time.process_time() - began}
    show(f"{name}:", shifted(dense, held, 50.0) | values)


def shifted(dense, held, by):
    """Measure dense scores; ``by`` makes all of them positive."""
    return measure(sp.csr_matrix(dense + np.float32(by)), held[1], held[2])


def sklearn_peer(train, held):
    """TfidfVectorizer of words 1-2 and characters 3-5 with LinearSVC."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    for kind in ("char_wb", "char"):
        began = time.process_time()
        union = make_union(
            TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2),
            TfidfVectorizer(sublinear_tf=True, ngram_range=(3, 5), min_df=2, analyzer=kind),
        )
        inputs = union.fit_transform(train[0])
        asked = union.transform(held[0])
        print(f"TfidfVectorizer {kind} {time.process_time() - began:.1f} s, {inputs.shape}")
        svc(inputs, asked, train[1], held, f"TfidfVectorizer words 1-2, {kind} 3-5, LinearSVC")


def vectorizers(options):
    """Time of our vectorizer and of TfidfVectorizer with the same features."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = read(options.data, options.text)[0][: options.limit]
    for pairs in (True, False):
        words = (1, 2) if pairs else (1, 1)
        theirs = TfidfVectorizer(
            sublinear_tf=True, ngram_range=words, min_df=2, token_pattern=r"[^\W_]+"
        )
        t0 = time.process_time()
        theirs.fit(texts)
        t1 = time.process_time()
        theirs.transform(texts)
        t2 = time.process_time()
        ours = Vectorizer.fit(texts, pairs=pairs)
        t3 = time.process_time()
        ours.transform(texts)
        t4 = time.process_time()
        single = [min(timed_call(partial(one.transform, [text])) for _ in range(3))
                  for one in (theirs, ours) for text in texts[:100]]  # fmt: skip
        values = {"fit s": t1 - t0, "transform s": t2 - t1, "one us": 1e6 * np.mean(single[:100])}
        show(f"TfidfVectorizer words {words}, {len(theirs.vocabulary_):,} terms:", values)
        values = {"fit s": t3 - t2, "transform s": t4 - t3, "one us": 1e6 * np.mean(single[100:])}
        show(f"ours words {words}, {ours.size:,} terms:", values)


STUDIES = {
    "postings": postings,
    "reranked": reranked,
    "one_vs_rest": one_vs_rest,
    "vectorizers": vectorizers,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("study", choices=list(STUDIES))
    shared_options.add_data(parser)
    shared_options.add_text(parser)
    parser.add_argument("--held", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--limit", type=int, help="texts that are used")
    parser.add_argument("--labels", type=int, help="labels that are used")
    parser.add_argument("--epochs", type=int, nargs="+", default=[3])
    parser.add_argument("--decay", type=float, nargs="+", default=[1.0])
    parser.add_argument("--chars", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--peer", action="store_true", help="also TfidfVectorizer, LinearSVC")
    parser.add_argument("--svc", action="store_true", help="also LinearSVC")


def main(options: argparse.Namespace) -> None:
    STUDIES[options.study](options)
