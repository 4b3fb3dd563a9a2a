"""Properties of retrievers that the ensemble depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from umpteen.ranking import RETRIEVERS
from umpteen.registry import resolve

SCORERS = ("dual", "classifier", "knn", "lexical")
"""What a user can switch off."""
FREQUENCY = "frequency"
"""Owner of the features that depend on the label's number of training texts alone."""


@dataclass(frozen=True)
class RetrieverSpec:
    """How the scores of a retriever enter the ensemble."""

    kind: str
    """``cosine``, ``votes``, ``logit`` or ``margin``; selects the features."""
    scorer: str
    """The scorer it belongs to."""
    also_needs: tuple[str, ...] = ()
    """Other scorers without which it is not available."""
    needs_training: bool = False
    """Whether its score means nothing for a label without training texts."""
    reads_label_text: bool = False
    """Whether it scores a label without training texts from the label's text."""


class _Specs(Mapping[str, RetrieverSpec]):
    """The ``spec`` of each class in ``RETRIEVERS``, read when it is first needed."""

    def __getitem__(self, name: str) -> RetrieverSpec:
        return _spec_of(RETRIEVERS[name])

    def __iter__(self) -> Iterator[str]:
        return iter(RETRIEVERS)

    def __len__(self) -> int:
        return len(RETRIEVERS)


@cache
def _spec_of(target: str) -> RetrieverSpec:
    spec: RetrieverSpec = resolve({}, target, kind="retriever").spec
    return spec


RETRIEVER_SPECS = _Specs()
"""Retriever name to its properties, in the order in which features are laid out."""


def scorers_of(retrievers: Iterable[str]) -> tuple[str, ...]:
    """Return the scorers that some retrievers belong to.

    Example:
        >>> scorers_of(["dual", "one_vs_rest", "lexical_knn"])
        ('dual', 'lexical')
    """
    return tuple(dict.fromkeys(RETRIEVER_SPECS[name].scorer for name in retrievers))


def retrievers_of(scorers: Iterable[str], available: Iterable[str]) -> tuple[str, ...]:
    """Return the available retrievers that can be used with some scorers.

    Example:
        >>> retrievers_of(["dual", "lexical"], ["dual", "knn", "lexical_ranker", "lexical_knn"])
        ('dual', 'lexical_ranker')
    """
    chosen = set(scorers)
    return tuple(
        name
        for name in available
        if chosen.issuperset({RETRIEVER_SPECS[name].scorer, *RETRIEVER_SPECS[name].also_needs})
    )
