"""A data set of the size of LF-AmazonTitles-1.3M out of nothing: Zipf-shaped, seeded, as arrays.

    python -m bench training synthetic [--queries 2250000] [--labels 1305265] [--out FOLDER]
    python -m bench training synthetic --queries 3000 --labels 500 --lf-json FOLDER

Labels come in topics of some 200. A query has a topic, 22 labels on average, four fifths of them of
its topic and the rest of any; within a topic and among topics the r-th is drawn about r^-0.6 as
often as the first, so that head and tail are as far apart as in the public data. A label's text is
tokens of its own; a query's are tokens of its labels and of its topic, so there is something to
learn, near queries have near labels, and pools overlap. Texts have 12 tokens on average, 3 to 32,
with BERT's first and last token.

Everything is drawn in pieces, each from seed and place alone: memory stays at the result and a few
hundred MiB. The full size took 81 s and 1.25 GiB on one busy core.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from bench.common.timing import Stopwatch

QUERIES, LABELS, POSITIVES = 2_250_000, 1_305_265, 22
VOCABULARY, FIRST_WORD, START, END = 30_522, 1000, 101, 102
SHORTEST, LONGEST, MAX_POSITIVES = 3, 32, 50
TOPIC_SIZE, EXPONENT = 200, 0.6
OWN_TOPIC, OWN_WORDS = 0.8, 0.7
"""Shares of a query's labels that are of its topic, and of its tokens that are of its labels."""
AT_ONCE = 1 << 17


@dataclass(frozen=True)
class Synthetic:
    """Tokens of queries and labels (``TokenStore``), and targets (N, L) in CSR."""

    queries: object
    labels: object
    targets: sp.csr_matrix


def skewed(rng: np.random.Generator, n, shape) -> np.ndarray:
    """Ranks below n (a number or an array), the r-th about r^-EXPONENT as often as the first."""
    return (n * rng.random(shape) ** (1 / (1 - EXPONENT))).astype(np.int64)


def word(owner: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The token that a label or topic has at a place of its own list of words."""
    x = owner.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x += place.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
    x ^= x >> np.uint64(31)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(29)
    return (FIRST_WORD + x % np.uint64(VOCABULARY - FIRST_WORD)).astype(np.uint16)


def text_lengths(rng: np.random.Generator, n: int) -> np.ndarray:
    """12 tokens on average."""
    return np.clip(SHORTEST + rng.gamma(3.0, 3.17, n), SHORTEST, LONGEST).astype(np.int64)


def labels_of(rng: np.random.Generator, topics: np.ndarray, n_labels: int, mean: float):
    """Each query's labels: (B + 1,) offsets and the distinct labels of each, ascending."""
    n_topics = max(1, n_labels // TOPIC_SIZE)
    # Some are drawn twice: about one in twelve at this skew, more where labels are few.
    wanted = np.clip(rng.poisson(mean * 1.125, len(topics)), 1, MAX_POSITIVES)
    rows = np.repeat(np.arange(len(topics)), wanted)
    topic = topics[rows]
    anywhere = rng.random(len(rows)) >= OWN_TOPIC
    topic[anywhere] = skewed(rng, n_topics, int(anywhere.sum()))
    size = (n_labels - topic + n_topics - 1) // n_topics  # labels topic, topic + n_topics, ...
    labels = topic + n_topics * skewed(rng, size, len(rows))
    pairs = np.unique(rows * n_labels + labels)
    rows, labels = pairs // n_labels, pairs % n_labels
    return np.searchsorted(rows, np.arange(len(topics) + 1)), labels


def framed(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Offsets, each token's text, and its place within it."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    text = np.repeat(np.arange(len(lengths)), lengths)
    return offsets, text, np.arange(offsets[-1]) - offsets[text]


def put_ends(ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """BERT's first and last token in their places."""
    ids[offsets[:-1]] = START
    ids[offsets[1:] - 1] = END
    return ids


def query_piece(seed: int, piece: int, n: int, n_labels: int, mean: float):
    """The queries of one piece: label offsets, labels, token offsets, tokens."""
    rng = np.random.default_rng([seed, 1, piece])
    n_topics = max(1, n_labels // TOPIC_SIZE)
    topics = skewed(rng, n_topics, n)
    starts, labels = labels_of(rng, topics, n_labels, mean)
    offsets, text, _ = framed(text_lengths(rng, n))
    counts = np.diff(starts)
    chosen = labels[starts[text] + (rng.random(len(text)) * counts[text]).astype(np.int64)]
    of_label = rng.random(len(text)) < OWN_WORDS
    owner = np.where(of_label, chosen, n_labels + topics[text])
    ids = word(owner, skewed(rng, 10, len(text)))
    return starts, labels, offsets, put_ends(ids, offsets)


def label_piece(seed: int, piece: int, first: int, n: int):
    """The texts of the labels first .. first + n - 1: offsets and tokens."""
    rng = np.random.default_rng([seed, 2, piece])
    offsets, text, place = framed(text_lengths(rng, n))
    return offsets, put_ends(word(first + text, place - 1), offsets)


def generate(
    n_queries: int = QUERIES,
    n_labels: int = LABELS,
    *,
    positives: float = POSITIVES,
    seed: int = 0,
) -> Synthetic:
    """The whole data set."""
    from umpteen.data.tokens import TokenStore

    cuts = [(start, min(start + AT_ONCE, n_queries)) for start in range(0, n_queries, AT_ONCE)]
    parts = []
    for piece, (start, stop) in enumerate(cuts):
        starts, labels, offsets, ids = query_piece(seed, piece, stop - start, n_labels, positives)
        parts.append((np.diff(starts), labels.astype(np.int32), np.diff(offsets), ids))
    counts, columns, lengths, ids = (np.concatenate(each) for each in zip(*parts, strict=True))
    del parts
    indptr = np.concatenate([[0], np.cumsum(counts)])
    ones = np.ones(len(columns), np.float32)
    targets = sp.csr_matrix((ones, columns, indptr), shape=(n_queries, n_labels))
    queries = TokenStore(ids, np.concatenate([[0], np.cumsum(lengths)]))
    cuts = [(start, min(start + AT_ONCE, n_labels)) for start in range(0, n_labels, AT_ONCE)]
    texts = [label_piece(seed, piece, a, b - a) for piece, (a, b) in enumerate(cuts)]
    lengths = np.concatenate([np.diff(offsets) for offsets, _ in texts])
    labels = TokenStore(
        np.concatenate([ids for _, ids in texts]), np.concatenate([[0], np.cumsum(lengths)])
    )
    return Synthetic(queries, labels, targets)


# -- to and from disk ------------------------------------------------------------------------------


def save(data: Synthetic, folder: Path) -> None:
    """Arrays for a later ``load``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, store in (("queries", data.queries), ("labels", data.labels)):
        np.save(folder / f"{name}.ids.npy", store.ids)
        np.save(folder / f"{name}.offsets.npy", store.offsets)
    np.save(folder / "indptr.npy", data.targets.indptr)
    np.save(folder / "indices.npy", data.targets.indices)


def load(folder: Path) -> Synthetic:
    """What ``save`` wrote; tokens stay on disk until they are used."""
    from umpteen.data.tokens import TokenStore

    def read(name: str, mode: str | None = "r") -> np.ndarray:
        return np.load(folder / f"{name}.npy", mmap_mode=mode, allow_pickle=False)

    queries, labels = (
        TokenStore(read(f"{name}.ids"), read(f"{name}.offsets", None))
        for name in ("queries", "labels")
    )
    indices = read("indices", None)
    ones = np.ones(len(indices), np.float32)
    shape = (len(queries.offsets) - 1, len(labels.offsets) - 1)
    return Synthetic(
        queries, labels, sp.csr_matrix((ones, indices, read("indptr", None)), shape=shape)
    )


def write_lf_json(data: Synthetic, folder: Path, *, test_share: float = 0.1) -> None:
    """The usual three files, tokens as words ``w123``; for small sizes, one line at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    n = data.targets.shape[0]
    first_test = n - max(1, round(n * test_share))

    def text(store, row: int) -> str:
        ids = store.ids[store.offsets[row] + 1 : store.offsets[row + 1] - 1]
        return " ".join(f"w{number}" for number in ids.tolist())

    def write(name: str, lines) -> None:
        with gzip.open(folder / name, "wt", encoding="utf-8", compresslevel=3) as out:
            for line in lines:
                out.write(json.dumps(line) + "\n")

    def query(row: int) -> dict:
        targets = data.targets.indices[data.targets.indptr[row] : data.targets.indptr[row + 1]]
        return {"uid": f"q{row}", "title": text(data.queries, row), "content": "",
                "target_ind": targets.tolist()}  # fmt: skip

    write("trn.json.gz", (query(row) for row in range(first_test)))
    write("tst.json.gz", (query(row) for row in range(first_test, n)))
    labels = (
        {"uid": f"l{row}", "title": text(data.labels, row), "content": ""}
        for row in range(data.targets.shape[1])
    )
    write("lbl.json.gz", labels)


def describe(data: Synthetic) -> dict[str, float]:
    """What it looks like, in a few numbers."""
    frequency = np.sort(np.bincount(data.targets.indices, minlength=data.targets.shape[1]))[::-1]
    head = max(1, len(frequency) // 100)
    return {
        "queries": data.targets.shape[0],
        "labels": data.targets.shape[1],
        "labels a query": data.targets.nnz / data.targets.shape[0],
        "tokens a query": len(data.queries.ids) / data.targets.shape[0],
        "tokens a label": len(data.labels.ids) / data.targets.shape[1],
        "most frequent label": int(frequency[0]),
        "share of positives at the most frequent 1 %": float(
            frequency[:head].sum() / data.targets.nnz
        ),
        "labels without a query, %": float(100 * (frequency == 0).mean()),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--labels", type=int, default=LABELS)
    parser.add_argument("--positives", type=float, default=POSITIVES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="Keep the arrays in this folder.")
    parser.add_argument("--lf-json", type=Path, help="Write trn, tst and lbl.json.gz there.")


def main(options: argparse.Namespace) -> None:
    with Stopwatch() as making:
        data = generate(
            options.queries, options.labels, positives=options.positives, seed=options.seed
        )
    print(json.dumps({**describe(data), "seconds": round(making.wall, 1)}, indent=2))
    if options.out:
        save(data, options.out)
    if options.lf_json:
        write_lf_json(data, options.lf_json)
