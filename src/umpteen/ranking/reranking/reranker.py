"""The re-ranking stage: score the best candidates of the ensemble once more."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from umpteen.data.labels import LabelSet
from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, atomic_folder, digest
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking.candidates import Candidates
from umpteen.ranking.reranking.listwise import WIDTH, ScoreNetwork
from umpteen.ranking.reranking.pair_match import N_MATCH_FEATURES, PairMatch, pair_positions
from umpteen.ranking.reranking.pair_scorer import PairScorer
from umpteen.ranking.reranking.shortlist import (
    PAIR_FEATURES,
    Shortlist,
    n_scorer_features,
    pair_features,
    scorer_features,
    shortlist,
)
from umpteen.ranking.reranking.spec import PAIR_SCORERS, Reranking
from umpteen.registry import resolve

WEIGHTS = "network.safetensors"


class Reranker:
    """Scores pairs of text and label for one variant of the ensemble."""

    def __init__(
        self,
        retrievers: tuple[str, ...],
        network: ScoreNetwork,
        match: PairMatch,
        encoder: PairScorer | None = None,
    ) -> None:
        self.retrievers = retrievers
        self.network = network.eval()
        self.match = match
        self.encoder = None if encoder is None else encoder.eval()

    def features(
        self, texts: Sequence[str], labels: LabelSet, found: Candidates, chosen: Shortlist
    ) -> Tensor:
        """(B, n, F) what the network reads of each pair; 0 for none."""
        made = [
            scorer_features(found, chosen, self.retrievers),
            self.match.features(texts, chosen.rows, labels),
        ]
        if self.encoder is not None:
            own, others = self.encoder.text_tokens(texts), self.match.label_inputs(labels)
            scores = self.encoder.scores(own, others, *pair_positions(chosen.rows))
            made.append(pair_features(arranged(scores, chosen.valid), chosen.valid))
        return torch.cat(made, dim=2)

    @torch.no_grad()
    def scores(
        self, texts: Sequence[str], labels: LabelSet, found: Candidates, chosen: Shortlist
    ) -> Tensor:
        """Score a shortlist.

        Args:
            texts: B texts.
            labels: Of the snapshot.
            found: All candidates.
            chosen: Those to score.

        Returns:
            (B, n) float32, unweighted; 0 for none.
        """
        valid = chosen.valid
        if not bool(valid.any()):
            return torch.zeros(valid.shape, device=valid.device)
        features = self.features(texts, labels, found, chosen)
        return arranged(self.network(features[valid]), valid)

    def added(
        self,
        texts: Sequence[str],
        labels: LabelSet,
        found: Candidates,
        scores: Tensor,
        base: Tensor,
        spec: Reranking,
        n: int | None = None,
    ) -> Tensor:
        """Compute what re-ranking adds to the scores of all candidates.

        Candidates that are not re-ranked get the smallest value of the text: none of them passes
        one that is. Nothing is added to a text without re-ranked candidates.

        Args:
            texts: B texts.
            labels: Of the snapshot.
            found: All candidates.
            scores: (B, K) of the ensemble.
            base: (B, K) the same without tail boost.
            spec: Weight and limits.
            n: Candidates of a text; those of ``spec`` by default.

        Returns:
            (B, K) in the type of the scores; 0 at padding places.
        """
        n = spec.candidates if n is None else min(n, spec.candidates)
        total = torch.zeros_like(scores)
        if n < 2 or not len(scores):
            return total
        chosen = shortlist(found, scores, base, n, spec.min_share)
        some = chosen.valid.any(dim=1).nonzero()[:, 0]
        if not len(some):  # every answer is sure
            return total
        own = Shortlist(chosen.places[some], chosen.rows[some], chosen.base[some])
        asked = [texts[i] for i in some.tolist()]
        values = self.scores(asked, labels, found.select(some), own).to(scores.dtype)
        total[some] = spread(spec.weight * values, own, found.valid[some])
        return total

    def save(self, place: Path, spec: Reranking) -> Reranking:
        """Write a folder of its own into ``RUN/ensemble``; return the spec with its digest."""
        token = hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:8]
        folder = place / f"reranker-{token}"
        with atomic_folder(folder) as temporary:
            tensors = {name: t.contiguous().cpu() for name, t in self.network.state_dict().items()}
            save_file(tensors, temporary / WEIGHTS)
            self.match.save(temporary)
            if self.encoder is not None:
                (temporary / "encoder").mkdir()
                self.encoder.save(temporary / "encoder")
        return replace(spec, folder=folder.name, digest=folder_digest(folder))

    @classmethod
    def load(
        cls, place: Path, spec: Reranking, retrievers: tuple[str, ...], encoder: TextEncoder, n: int
    ) -> Reranker:
        """Read what ``save`` wrote.

        Args:
            place: ``RUN/ensemble``.
            spec: What was stored about it.
            retrievers: Of its variant.
            encoder: The run's model with its tokenizer.
            n: Trained labels.

        Raises:
            RunError: If a file is missing or damaged.
        """
        folder, again = place / spec.folder, "run `umpteen rerank` again"
        try:
            found = folder_digest(folder)
        except OSError as error:
            raise RunError(f"{folder} cannot be read ({error}); {again}") from error
        if found != spec.digest:
            raise RunError(f"{folder} is damaged: its checksum is another one; {again}")
        pairs = None
        if spec.kind in PAIR_SCORERS:
            scorer = resolve(PAIR_SCORERS, spec.kind, kind="re-ranker")
            pairs = scorer.load(folder / "encoder").to(encoder.device)
        try:
            tensors = load_file(folder / WEIGHTS)
            network = score_network(retrievers, pairs is not None, tensors["second.bias"].shape[0])
            network.load_state_dict(tensors)
        except LOAD_ERRORS as error:
            raise RunError(f"{folder} is damaged: {error}; {again}") from error
        match = PairMatch.load(folder, encoder, n, pairs)
        return cls(retrievers, network.to(encoder.device), match, pairs)


def score_network(retrievers: tuple[str, ...], has_pairs: bool, width: int = WIDTH) -> ScoreNetwork:
    """Return an untrained network over the features of these retrievers."""
    own = n_scorer_features(retrievers) + N_MATCH_FEATURES
    if not has_pairs:
        return ScoreNetwork(own, width=width)
    return ScoreNetwork(own + PAIR_FEATURES, direct=own, width=width)


def arranged(values: Tensor, valid: Tensor) -> Tensor:
    """Arrange the values of the valid places of a shortlist as (B, n); 0 for none."""
    return torch.zeros(valid.shape, device=values.device).masked_scatter(valid, values)


def spread(values: Tensor, chosen: Shortlist, valid: Tensor) -> Tensor:
    """Arrange (B, n) values of a shortlist as (B, K), the text's smallest for all others."""
    masked = torch.where(chosen.valid, values, torch.inf)
    lowest = masked.amin(dim=1, keepdim=True)
    lowest = torch.where(torch.isfinite(lowest), lowest, 0.0)
    made = lowest.expand(valid.shape).contiguous()
    # Places without a candidate write the smallest value to a column that is cut off.
    wide = torch.nn.functional.pad(made, (0, 1))
    at = torch.where(chosen.valid, chosen.places, valid.shape[1])
    wide.scatter_(1, at, torch.where(chosen.valid, values, lowest))
    return torch.where(valid, wide[:, :-1], 0.0)


def folder_digest(folder: Path) -> str:
    """Return a digest of the names and contents of all files of a folder."""
    sums = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        sums.update(f"{file.relative_to(folder).as_posix()} {digest(file)}\n".encode())
    return sums.hexdigest()[:32]


def remove_others(place: Path, kept: str | None) -> None:
    """Remove the folders of earlier re-rankers; ``kept`` is the one in use."""
    for folder in place.glob("reranker-*"):
        if folder.name != kept:
            shutil.rmtree(folder, ignore_errors=True)
