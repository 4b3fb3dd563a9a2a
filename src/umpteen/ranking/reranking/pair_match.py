"""All features of a pair beside those of the other scorers, for labels of any snapshot."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umpteen.data.labels import LabelSet, join_texts
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking.reranking.pair_scorer import PairScorer
from umpteen.ranking.reranking.text_match import TEXT_FEATURES, TextMatch
from umpteen.ranking.reranking.token_encoder import TokenEncoder
from umpteen.ranking.reranking.token_match import TOKEN_FEATURES, TokenMatch
from umpteen.ranking.reranking.token_vectors import StoredTokens

N_MATCH_FEATURES = TEXT_FEATURES + TOKEN_FEATURES


class PairMatch:
    """Compare texts with labels; labels that were added later are read when first met."""

    def __init__(
        self, text: TextMatch, tokens: TokenMatch, which: str, encoder: PairScorer | None = None
    ) -> None:
        self._trained = _Labels([], text, tokens)
        self._latest = self._trained
        self._of_set: LabelSet | None = None
        self._which = which
        self._encoder = encoder
        self._lock = threading.Lock()

    @classmethod
    def load(
        cls, folder: Path, encoder: TextEncoder, n_labels: int, pairs: PairScorer | None
    ) -> PairMatch:
        """Read what ``save`` wrote."""
        text = TextMatch.load(folder, n_labels)
        tokens = TokenMatch.load(folder, encoder, n_labels)
        made = cls(text, tokens, encoder.text_config.text, pairs)
        if isinstance(pairs, TokenEncoder):
            made._trained.pairs = StoredTokens.load(folder, n_labels)
        return made

    def save(self, folder: Path) -> None:
        """Write into an existing empty folder."""
        self._trained.text.save(folder)
        self._trained.tokens.save(folder)
        if isinstance(self._trained.pairs, StoredTokens):
            self._trained.pairs.save(folder)

    def features(self, texts: Sequence[str], rows: Tensor, labels: LabelSet) -> Tensor:
        """Compare texts with labels.

        Args:
            texts: B texts.
            rows: (B, n) label rows, -1 for none.
            labels: Of the snapshot.

        Returns:
            (B, n, N_MATCH_FEATURES) float32 on the device of the rows; 0 for none.
        """
        own, wanted = self._of(labels), rows.cpu().numpy()
        text = torch.from_numpy(own.text.features(texts, wanted)).to(rows.device)
        return torch.cat([text, own.tokens.features(texts, wanted).to(rows.device)], dim=2)

    def label_inputs(self, labels: LabelSet) -> Any:
        """Return what the pair scorer reads of all labels."""
        assert self._encoder is not None
        own = self._of(labels)
        with self._lock:
            if self._trained.pairs is None:
                n = len(self._trained.text)
                trained = _texts_of(labels, 0, n, self._which)
                self._trained.pairs = self._encoder.label_inputs(trained)
            if own.pairs is None:
                more = self._encoder.label_inputs(own.added)
                own.pairs = self._encoder.joined(self._trained.pairs, more)
            return own.pairs

    def _of(self, labels: LabelSet) -> _Labels:
        """Return the comparison with the labels of a snapshot: trained ones, then added ones."""
        n = len(self._trained.text)
        if len(labels) == n:
            return self._trained
        with self._lock:
            if self._of_set is labels:
                return self._latest
            added, before = _texts_of(labels, n, len(labels), self._which), self._latest
            if added[: len(before.added)] != before.added:  # another history of changes
                before = self._trained
            more = added[len(before.added) :]
            self._latest = _Labels(added, before.text.extended(more), before.tokens.extended(more))
            self._of_set = labels
            return self._latest


@dataclass
class _Labels:
    """What is known of the labels of one snapshot."""

    added: list[str]
    """Texts of the labels after the trained ones."""
    text: TextMatch
    tokens: TokenMatch
    pairs: Any = None
    """What the pair scorer reads of all labels, made when first needed."""


def _texts_of(labels: LabelSet, start: int, stop: int, which: str) -> list[str]:
    contents = None if labels.contents is None else labels.contents[start:stop]
    return join_texts(labels.titles[start:stop], contents, which)


def pair_positions(rows: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the text and the label row of every pair of a (B, n) shortlist."""
    wanted = rows.cpu().numpy()
    owners, places = np.nonzero(wanted >= 0)
    return owners, wanted[owners, places]
