"""Retrieve labels by links in the other direction: labels whose own text has this text as a label.

Where related items are recommended, texts and labels are the same things: the text "dog" has the
label "wolf", and the text "wolf" may have the label "dog". Heads compare vectors and the lexical
scorers words; neither uses the link in the other direction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from umpteen.data.label_links import LabelKeys, group_links, two_way
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS
from umpteen.log_lines import Detail
from umpteen.ranking.lexical.matrices import (
    CsrArrays,
    load_csr,
    round_to_half,
    row_numbers,
    save_csr,
)
from umpteen.ranking.lexical.sparse_topk import look_up, top_k_of_rows
from umpteen.ranking.queries import Queries
from umpteen.ranking.retriever_specs import RetrieverSpec
from umpteen.ranking.retrievers.base import FitContext, LoadContext, Retriever
from umpteen.ranking.snapshot import Snapshot
from umpteen.sorted_unique import sorted_unique

MIN_LINKS = 50
"""Links between texts that are labels, of which both directions could be there."""
MIN_SHARE = 0.1
"""Of these links, the share that exists in both directions."""
TITLES_TRIED = 2000
"""Training texts on which whole texts and their first words are compared with labels."""


class Backlinks(Retriever):
    """Vote with the training texts that have the text among their labels, if they are labels.

    The votes of a text sum to one. It is fitted where texts are labels and links often exist in
    both directions; corrections and labels that were added later do not take part.

    Args:
        labels: Finds the label that a text is.
        votes: (G, L) votes for each label, for a text that is a label.
    """

    spec = RetrieverSpec("votes", "backlinks")

    def __init__(self, labels: LabelKeys, votes: sp.csr_matrix) -> None:
        self.labels = labels
        self.votes = votes

    @classmethod
    def fit(cls, context: FitContext) -> Self | None:
        """Collect the links of training texts; None where few exist in both directions."""
        labels, group_of_label = LabelKeys.of(context.label_texts)
        if _titles_come_first(labels, context):
            labels = labels.with_titles(context.label_texts)
        groups = labels.groups(context.texts)
        links = group_links(groups, group_of_label[context.targets.indices], context.targets.indptr)
        both, possible = two_way(links, len(labels.keys))
        suits = possible >= MIN_LINKS and both >= MIN_SHARE * possible
        if not suits and not context.requires("backlinks"):
            return None
        context.log(Detail(f"Backlinks: {both:,} of {possible:,} links exist in both directions"))
        n, known = len(labels.keys), np.flatnonzero(group_of_label >= 0)
        members = _ones(group_of_label[known], known, (n, len(group_of_label)))
        votes = _ones(links[:, 1], links[:, 0], (n, n)) @ members
        votes.sort_indices()
        votes.data = round_to_half(votes.data / np.diff(votes.indptr)[row_numbers(votes)])
        if not len(labels.words):  # a text without links needs no key, but may begin with another
            linked = np.diff(votes.indptr) > 0
            labels, votes = LabelKeys(labels.keys[linked], labels.words), votes[linked]
        return cls(labels, votes)

    @classmethod
    def load(cls, folder: Path, context: LoadContext) -> Self | None:
        """Read keys and votes."""
        if not folder.is_dir():
            return None
        try:
            keys, words = (
                np.load(folder / f"{name}.npy", allow_pickle=False).astype(kind, copy=False)
                for name, kind in (("keys", np.uint64), ("words", np.int64))
            )
            if keys.ndim != 1 or words.ndim != 1 or (keys[1:] <= keys[:-1]).any():
                raise ValueError("keys are not in order")
        except LOAD_ERRORS as error:
            advice = "run `umpteen fit-ensemble` again"
            raise RunError(f"{folder} is damaged ({error}); {advice}") from error
        return cls(LabelKeys(keys, words), load_csr(folder, (len(keys), context.n_labels)))

    def save(self, folder: Path) -> None:
        """Write keys and votes."""
        np.save(folder / "keys.npy", self.labels.keys, allow_pickle=False)
        np.save(folder / "words.npy", self.labels.words, allow_pickle=False)
        save_csr(self.votes, folder)

    def _votes(self, queries: Queries) -> sp.csr_matrix | CsrArrays:
        """(B, L) votes of the texts."""

        def compute() -> sp.csr_matrix | CsrArrays:
            groups, votes = self.labels.groups(queries.texts), self.votes
            if len(groups) == 1:  # without matrices, whose checks take longer
                own = slice(votes.indptr[groups[0]], votes.indptr[groups[0] + 1])
                own = own if groups[0] >= 0 else slice(0)
                indices = votes.indices[own]
                ends = np.array([0, len(indices)])
                return CsrArrays(votes.data[own], indices, ends, (1, votes.shape[1]))
            known = np.flatnonzero(groups >= 0)
            return _ones(known, groups[known], (len(groups), votes.shape[0])) @ votes

        return queries.once("backlinks", compute)

    def retrieve(self, queries: Queries, snapshot: Snapshot, k: int) -> torch.Tensor:
        """Propose the labels with the most votes."""
        return torch.from_numpy(top_k_of_rows(self._votes(queries), k)[0]).to(queries.device)

    def score(self, queries: Queries, rows: torch.Tensor, snapshot: Snapshot) -> torch.Tensor:
        """Votes of each label, in [0, 1]."""
        found = look_up(self._votes(queries), rows.cpu().numpy())
        return torch.from_numpy(found).to(rows.device)


def _titles_come_first(labels: LabelKeys, context: FitContext) -> bool:
    """Return whether texts begin with label texts far more often than they are label texts."""
    some = list(context.texts[:: max(1, len(context.texts) // TITLES_TRIED)])
    whole = int((labels.groups(some) >= 0).sum())
    begun = labels.with_titles(context.label_texts).groups(some)
    begun = begun[begun >= 0]
    # Tags also stand at the beginning of texts, but of many texts each.
    return 2 * whole < len(begun) <= 2 * len(sorted_unique(begun))


def _ones(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]
) -> sp.csr_matrix:
    """Return a sparse matrix of ones at some places, each at most once."""
    return sp.csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
