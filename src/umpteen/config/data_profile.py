"""What the rules look at: counts, lengths and kinds of a data set and of a machine. No settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, spare_queries

SAMPLE = 2000
"""Texts whose tokens are counted, evenly spaced; and the most spare queries that are counted."""

WORD_CHARACTERS = 2048
"""What is read of a text to count different words and tokens."""
MIN_WORDS, WORDS_PER_TOKEN = 1000, 10
"""Different words at least, and for each different token, where a given tokenizer is replaced."""

COUNTED_CHARACTERS = 16_384
"""What is tokenized of a text to measure its length; the rest is taken to be alike."""


@dataclass(frozen=True)
class DataProfile:
    """A data set and a machine in a few numbers; counts are of train alone."""

    queries: int
    length_90: int
    """Tokens of a training query: nine of ten have no more."""
    length_99: int
    """The same for 99 of a hundred."""
    validation: int
    """Queries of the data's own validation split; 0 where there is none."""
    spare: int
    """Training queries that can leave train together without taking a label's last one; counted up
    to ``SAMPLE``."""
    min_validation: int
    """Held-out queries that an ensemble needs; 0 where none is wanted."""
    encoder: str
    """``bag``, ``convolution`` or ``transformer``."""
    distinct_words: int = 0
    distinct_tokens: int = 0
    """Different words of the sampled texts and tokens they are cut into; 0 where the tokenizer is
    not for the rules to choose."""

    @property
    def words_are_lost(self) -> bool:
        """Whether words are cut into so few different tokens that a bag confuses them."""
        few = 0 < WORDS_PER_TOKEN * self.distinct_tokens < self.distinct_words
        return few and self.distinct_words >= MIN_WORDS


def profile_data(
    data: Dataset,
    *,
    text: str,
    tokenizer: Any,
    encoder: str,
    min_validation: int,
    replaceable: bool = False,
) -> DataProfile:
    """Return the facts of a data set; its test split is not looked at.

    Args:
        data: The data.
        text: ``title`` or ``all``.
        tokenizer: The encoder's; None counts words instead, at four tokens for three of them.
        encoder: Its kind.
        min_validation: Held-out queries that an ensemble needs; 0 where none is wanted.
        replaceable: Whether a tokenizer learned from the data may replace it; lengths are then in
            its tokens.
    """
    train = data["train"]
    texts = _spaced(train.texts(text))
    words, tokens = _distinct(texts, tokenizer) if replaceable else (0, 0)
    order = np.random.default_rng(0).permutation(len(train))
    facts = DataProfile(
        queries=len(train),
        length_90=1,
        length_99=1,
        validation=len(data["validation"]) if "validation" in data else 0,
        spare=len(spare_queries(train.filtered_targets(), order, SAMPLE)),
        min_validation=min_validation,
        encoder=encoder,
        distinct_words=words,
        distinct_tokens=tokens,
    )
    lengths = _lengths(texts, None if facts.words_are_lost else tokenizer)
    return replace(facts, length_90=_percentile(lengths, 90), length_99=_percentile(lengths, 99))


def _spaced(texts: Sequence[str]) -> list[str]:
    rows = np.unique(np.linspace(0, len(texts) - 1, min(SAMPLE, len(texts))).astype(int))
    return [texts[row] for row in rows.tolist()]


def _lengths(texts: list[str], tokenizer: Any) -> NDArray[np.int64]:
    if tokenizer is None:
        words = np.array([len(text.split()) for text in texts], np.int64)
        return -(-4 * words // 3)
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    # Of a long text the beginning is counted; no rule compares lengths beyond it.
    begun = [text[:COUNTED_CHARACTERS] for text in texts]
    counts = np.array([len(found.ids) for found in copy.encode_batch_fast(begun)], np.int64)
    longer = np.array([max(1, len(text)) for text in texts]) / np.array(
        [max(1, len(text)) for text in begun]
    )
    return np.ceil(counts * longer).astype(np.int64)


def _distinct(texts: list[str], tokenizer: Any) -> tuple[int, int]:
    """Return how many different words, and tokens of a tokenizer, the texts have."""
    begun = [text[:WORD_CHARACTERS] for text in texts]
    words = {word for text in begun for word in text.lower().split()}
    tokens = {token for found in tokenizer.encode_batch_fast(begun) for token in found.ids}
    return len(words), len(tokens)


def _percentile(lengths: NDArray[np.int64], share: int) -> int:
    return int(np.percentile(lengths, share, method="higher")) if len(lengths) else 1
