"""Judgements of a teacher on the best labels of texts, as training data with graded relevance.

Judgements are stored in SQLite with their source. What was judged before is not judged again.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umpteen.data.dataset import Dataset
from umpteen.errors import DataError
from umpteen.predictor import Predictor
from umpteen.teachers import Pair, Teacher

SAMPLE = 16
"""Pairs that are judged before the cost is estimated."""
SCHEMA = """CREATE TABLE IF NOT EXISTS judgements (
    teacher TEXT NOT NULL, pair BLOB NOT NULL, text TEXT NOT NULL, label TEXT NOT NULL,
    relevance REAL, judged REAL NOT NULL, PRIMARY KEY (teacher, pair)) WITHOUT ROWID"""


@dataclass(frozen=True)
class Question:
    """A text with labels to judge."""

    text: str
    labels: tuple[str, ...]
    """Ids."""
    label_texts: tuple[str, ...]
    known: tuple[str, ...] = ()
    """Ids of labels that it is known to have."""

    @property
    def pairs(self) -> list[Pair]:
        """Text and label texts."""
        return [(self.text, label) for label in self.label_texts]


@dataclass(frozen=True)
class Estimate:
    """What is left to judge, and what it costs."""

    texts: int
    pairs: int
    stored: int
    """Pairs that were judged before."""
    tokens: int
    seconds: float

    def sentence(self) -> str:
        """Return the estimate in words."""
        return (
            f"{self.pairs:,} pairs of {self.texts:,} texts to judge ({self.stored:,} more are "
            f"stored): about {self.tokens:,} tokens, {self.seconds:,.0f} s"
        )


class JudgementStore:
    """Judgements of one teacher in an SQLite file; each batch is stored as a whole.

    Raises:
        DataError: If the file is no such store.
    """

    def __init__(self, path: str | Path, teacher: str) -> None:
        self.teacher = teacher
        try:
            self._db = sqlite3.connect(path)
            with self._db:
                self._db.execute(SCHEMA)
        except sqlite3.Error as error:
            raise DataError(f"{path} is no store of judgements: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def get(self, pairs: Sequence[Pair]) -> dict[Pair, float | None]:
        """Return the stored judgements among some pairs."""
        select = "SELECT relevance FROM judgements WHERE teacher = ? AND pair = ?"
        found = {p: self._db.execute(select, (self.teacher, _digest(p))).fetchone() for p in pairs}
        return {pair: row[0] for pair, row in found.items() if row is not None}

    def add(self, pairs: Sequence[Pair], scores: Sequence[float | None]) -> None:
        """Store judgements durably."""
        now = time.time()
        rows = [
            (self.teacher, _digest(pair), *pair, score, now)
            for pair, score in zip(pairs, scores, strict=True)
        ]
        with self._db:
            self._db.executemany(
                "INSERT OR REPLACE INTO judgements VALUES (?, ?, ?, ?, ?, ?)", rows
            )


def ask(
    predictor: Predictor, texts: Sequence[str], k: int, known: Sequence[Sequence[str]] | None = None
) -> list[Question]:
    """Return the k best labels of each text as questions; labels that it has are left out."""
    top = predictor.predict(texts, k=k)
    own = known if known is not None else [()] * len(texts)
    questions = []
    for text, ids, names, given in zip(texts, top.ids, top.texts, own, strict=True):
        open_ = [pair for pair in zip(ids, names, strict=True) if pair[0] not in set(given)]
        labels, label_texts = zip(*open_, strict=True) if open_ else ((), ())
        questions.append(Question(text, labels, label_texts, tuple(given)))
    return questions


def estimate(questions: Sequence[Question], teacher: Teacher, store: JudgementStore) -> Estimate:
    """Estimate the cost: judge a few pairs, which are stored, and count the others."""
    open_ = [_unstored(question, store) for question in questions]
    left = [pair for pairs in open_ for pair in pairs]
    stored = sum(len(question.pairs) for question in questions) - len(left)
    sample: list[Pair] = []
    for pairs in open_:
        if len(sample) >= SAMPLE:
            break
        sample += pairs
    each = 0.0
    if sample:
        started = time.monotonic()
        store.add(sample, teacher(sample))
        each = (time.monotonic() - started) / len(sample)
    rest = left[len(sample) :]
    n_texts = len({pair[0] for pair in rest})
    return Estimate(
        n_texts, len(rest), stored + len(sample), teacher.tokens(rest), each * len(rest)
    )


def judge(
    questions: Sequence[Question], teacher: Teacher, store: JudgementStore, *, batch: int = 32
) -> Iterator[int]:
    """Judge what is not stored yet; yields the number of texts done after each batch."""
    for start in range(0, len(questions), batch):
        some = questions[start : start + batch]
        pairs = [pair for question in some for pair in _unstored(question, store)]
        if pairs:
            store.add(pairs, teacher(pairs))
        yield start + len(some)


def records(
    questions: Sequence[Question], store: JudgementStore, *, min_relevance: float
) -> Iterator[dict[str, Any]]:
    """Yield training records: labels with their relevance, known labels with 1.

    Yields:
        text, labels, relevance and source; texts without a label are left out.
    """
    for question in questions:
        judged = store.get(question.pairs)
        graded = dict.fromkeys(question.known, 1.0)
        for label, pair in zip(question.labels, question.pairs, strict=True):
            score = judged.get(pair)
            if score is not None and score >= max(min_relevance, 1e-6):
                graded[label] = round(score, 4)
        if graded:
            yield {
                "text": question.text,
                "labels": list(graded),
                "relevance": list(graded.values()),
                "source": store.teacher,
            }


def labels_of(data: Dataset, split: str, predictor: Predictor) -> list[list[str]]:
    """Return the label ids of each text of a split, as far as the model has the labels."""
    targets, ids, rows = data[split].filtered_targets(), data.labels.ids, predictor.labels.rows
    bounds = targets.indptr.tolist()
    named = [ids[column] for column in targets.indices.tolist()]
    return [
        [label for label in named[start:stop] if label in rows]
        for start, stop in zip(bounds, bounds[1:], strict=False)
    ]


def _unstored(question: Question, store: JudgementStore) -> list[Pair]:
    stored = store.get(question.pairs)
    return [pair for pair in question.pairs if pair not in stored]


def _digest(pair: Pair) -> bytes:
    text, label = (part.encode("utf-8", "surrogatepass") for part in pair)
    return hashlib.sha256(len(text).to_bytes(8, "little") + text + label).digest()[:16]
