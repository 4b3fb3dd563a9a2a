"""Linear one-vs-rest classifiers over tf-idf vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.errors import RunError
from umpteen.files import read_json, write_json
from umpteen.log_lines import Detail
from umpteen.ranking.lexical.char_ngrams import CharNgrams
from umpteen.ranking.lexical.matrices import load_csr, save_csr
from umpteen.ranking.lexical.one_vs_rest_training import NAME, OneVsRestConfig, train_one_vs_rest
from umpteen.ranking.lexical.vectorizer import Vectorizer

TIMED_CHARACTERS = 200_000
"""Characters that the time of reading n-grams is measured on."""


@dataclass(frozen=True)
class OneVsRest:
    """One linear score per label: ``transform(texts) @ weights``.

    A score is 0 where no term of the text has a weight; training aims at 2 or more for positives
    and 0 or less for negatives.
    """

    vectorizer: Vectorizer
    weights: sp.csr_matrix
    """(V + C, L)."""
    char_ngrams: CharNgrams | None = None
    """Character n-grams, where they are used; C of them."""
    max_terms: int = 200
    """Words and word pairs of a text that are used, those of largest tf-idf."""

    @property
    def n_labels(self) -> int:
        """Number of labels, L."""
        return int(self.weights.shape[1])

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        targets: sp.csr_matrix,
        label_texts: Sequence[str],
        *,
        vectorizer: Vectorizer | None = None,
        raw: sp.csr_matrix | None = None,
        filters: NDArray[np.int64] | None = None,
        config: OneVsRestConfig = OneVsRestConfig(),  # noqa: B008 - frozen
        seed: int = 0,
        device: torch.device | str = "cpu",
        seconds: float = 120.0,
        log: Callable[[str], None] = lambda line: None,
    ) -> OneVsRest | None:
        """Fit one linear classifier per label with the squared hinge loss.

        Args:
            texts: N training texts.
            targets: (N, L) positives.
            label_texts: L texts; they only contribute to the vocabulary.
            vectorizer: A fitted vectorizer; None fits one on texts and label texts.
            raw: ``vectorizer.transform_raw(texts)``, where it is at hand.
            filters: (M, 2) pairs (text, label) that are neither positive nor negative.
            config: Hyperparameters.
            seed: Seed of the order of texts.
            device: Where to train.
            seconds: Training time; epochs are reduced to fit.
            log: Called with progress lines.

        Returns:
            The classifiers; None where there are too few texts per label, too many labels, or
            no time for one epoch.
        """
        until = time.monotonic() + seconds
        if vectorizer is None:
            vectorizer = Vectorizer.fit([*texts, *label_texts])
        if not config.suits(vectorizer.size, targets):
            return None
        if time.monotonic() >= until:
            log(Detail(f"{NAME}: left out, no time for one epoch"))
            return None
        chars = None
        if config.uses_characters(texts, targets) and _time_for_characters(texts, until, log):
            chars = CharNgrams.fit(texts)
            if not config.suits(vectorizer.size + chars.size, targets):
                chars = None
        empty = sp.csr_matrix((0, targets.shape[1]), dtype=np.float32)
        made = cls(vectorizer, empty, chars, config.max_terms)
        weights = train_one_vs_rest(
            made.transform(texts, raw),
            targets,
            filters=filters,
            config=config,
            seed=seed,
            device=device,
            until=until,
            log=log,
        )
        return None if weights is None else cls(vectorizer, weights, chars, config.max_terms)

    def transform(self, texts: Sequence[str], raw: sp.csr_matrix | None = None) -> sp.csr_matrix:
        """Return the (B, V + C) inputs of the classifiers.

        Returns:
            Words and pairs as a row of length one, and n-grams as another beside it.
        """
        raw = self.vectorizer.transform_raw(texts) if raw is None else raw
        words = self.vectorizer.cut(raw, self.max_terms)
        if self.char_ngrams is None:
            return words
        return sp.hstack([words, self.char_ngrams.transform(texts)], format="csr")

    def save(self, folder: Path) -> None:
        """Write n-grams and weights into an existing folder, and the vectorizer."""
        self.vectorizer.save(folder)
        options = {"max_terms": self.max_terms, "char_ngrams": self.char_ngrams is not None}
        write_json(folder / "one_vs_rest.json", options)
        if self.char_ngrams is not None:
            self.char_ngrams.save(folder)
        save_csr(self.weights, folder)

    @classmethod
    def load(
        cls, folder: Path, n_labels: int, *, vectorizer: Vectorizer | None = None
    ) -> OneVsRest:
        """Read what ``save`` wrote.

        Args:
            folder: The folder.
            n_labels: Expected number of labels.
            vectorizer: An equal vectorizer that is loaded already.

        Returns:
            The classifiers.

        Raises:
            RunError: If a file is missing or the sizes do not match.
        """
        vectorizer = Vectorizer.load(folder) if vectorizer is None else vectorizer
        options = read_json(folder / "one_vs_rest.json", error=RunError)
        try:
            max_terms, has_chars = int(options["max_terms"]), bool(options["char_ngrams"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{folder / 'one_vs_rest.json'} is damaged ({error!r}); "
                "run `umpteen fit-ensemble` again"
            ) from error
        chars = CharNgrams.load(folder) if has_chars else None
        size = vectorizer.size + (chars.size if chars is not None else 0)
        return cls(vectorizer, load_csr(folder, (size, n_labels)), chars, max_terms)


def _time_for_characters(texts: Sequence[str], until: float, log: Callable[[str], None]) -> bool:
    """Return whether character n-grams can be read in half of the time left."""
    lengths = np.cumsum([len(text) for text in texts])
    n = int(np.searchsorted(lengths, TIMED_CHARACTERS)) + 1
    sample = texts[:n]
    total, timed = int(lengths[-1]), int(lengths[min(n, len(texts)) - 1])
    if timed == total:
        return True
    started = time.monotonic()
    CharNgrams.fit(sample).transform(sample)
    now = time.monotonic()
    takes, left = (now - started) * total / max(1, timed), max(0.0, until - now)
    if takes <= 0.5 * left:
        return True
    why = f"reading them takes about {takes:.0f} s, more than half of the {left:.0f} s there are"
    log(Detail(f"{NAME}: without character n-grams: {why}"))
    return False
