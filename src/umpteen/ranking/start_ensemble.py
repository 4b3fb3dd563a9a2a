"""The ensemble of a run without training texts: labels as documents, and no examples.

No label has training texts, so all labels are scored by their names (dual and lexical), and by the
votes of corrections once there are some. The weights were chosen on training texts of two data sets
(MDN-SeeAlso and EURLEX57K; ``bench/notes/start.md``) with static token vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.data.dataset import Propensity
from umpteen.ranking.calibration import QUERY_INPUTS, Calibration, n_inputs
from umpteen.ranking.ensemble import EnsembleWeights
from umpteen.ranking.ensemble_model import EnsembleModel, KnnConfig
from umpteen.ranking.features import N_FEATURES
from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.matrices import round_to_half
from umpteen.ranking.lexical.ranker_training import SCALE, LexicalConfig
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.prior import prior_weights
from umpteen.ranking.retriever_specs import RETRIEVER_SPECS, retrievers_of
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.retrievers.knn import Knn, LexicalKnn
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.retrievers.name_characters import NameCharacters
from umpteen.ranking.storage import StoredEnsemble
from umpteen.ranking.trained_examples import TextSnippets, TrainedExamples
from umpteen.ranking.unseen_labels import UnseenWeights
from umpteen.ranking.variants import PropensityModel, Variant, scorer_combinations

UNTRAINED_RETRIEVERS = ("dual", "knn", "lexical_ranker", "lexical_knn", "name_characters")
COSINE = 11.0
"""Score of a cosine of one between text and name, whitened."""
LEXICAL = 0.66
"""Score of one unit of a lexical score, which is 20 times a cosine of tf-idf rows: of words, and of
character n-grams."""
VOTE_SHARE = 2
"""Position of the votes themselves among the features of votes."""
VOTES = 8.0
"""Score of a label that all neighbours vote for."""
KNN = KnnConfig(neighbours=20, temperature=0.1, background=0.6)
LEXICAL_KNN = KnnConfig(neighbours=20, temperature=0.1, background=0.5)
"""How corrections vote. The background keeps few corrections from changing unrelated texts."""
SLOPE, CONSTANT = 0.6, 0.1
"""Coefficients of the calibration: log share and constant."""
THRESHOLD = 0.2


def start_model(model: str) -> EnsembleModel:
    """Return the ensemble of a run without training texts."""
    variants = []
    for scorers in scorer_combinations(UNTRAINED_RETRIEVERS):
        own = retrievers_of(scorers, UNTRAINED_RETRIEVERS)
        if own:
            variants.append(Variant(start_weights(own), 0.0, start_calibration(own), {}, {}))
    about = "nothing: the run was started from label names, and has prior weights"
    propensity = PropensityModel(Propensity.a, Propensity.b, 0)
    return EnsembleModel(tuple(variants), KNN, LEXICAL_KNN, propensity, model, about, -np.inf)


def start_weights(retrievers: tuple[str, ...]) -> EnsembleWeights:
    """Return the weights of some retrievers for labels without training texts."""
    first = prior_weights(retrievers)
    mean, scale, weights = (np.zeros_like(first.mean) for _ in range(3))
    scale[:] = 1.0
    place, unseen = 0, []
    for name in retrievers:
        spec = RETRIEVER_SPECS[name]
        n = N_FEATURES[spec.kind]
        if spec.kind == "votes":
            weights[place + VOTE_SHARE] = VOTES
        elif spec.kind == "cosine":
            unseen += [COSINE] + [0.0] * (n - 1)
        else:
            unseen += [0.0, LEXICAL] + [0.0] * (n - 2)
        place += n + 1
    values = np.array([*unseen, 0.0])
    zeros, ones = np.zeros(len(values)), np.ones(len(values))
    by_text = UnseenWeights(zeros, ones, values)
    return replace(first, mean=mean, scale=scale, weights=weights, unseen=by_text)


def start_calibration(retrievers: tuple[str, ...]) -> Calibration:
    """Return the calibration for the scores of ``start_weights``."""
    shift = np.zeros(n_inputs(retrievers))
    shift[QUERY_INPUTS.index("constant")] = CONSTANT
    return Calibration(retrievers, SLOPE, shift, THRESHOLD)


def start_ensemble(
    names: Sequence[str], texts: Sequence[str], width: int, model: str
) -> StoredEnsemble:
    """Return retrievers over label names, without examples, and with prior weights."""
    vectorizer = Vectorizer.fit([*texts, *names], min_texts=1)
    weights = vectorizer.transform(names) * np.float32(SCALE)
    weights.data = round_to_half(weights.data)
    limit = LexicalConfig().postings_limit(len(names))
    lexical = LexicalRetriever(
        LexicalRanker.of_weights(vectorizer, weights, limit), torch.device("cpu")
    )
    retrievers: dict[str, Retriever] = {
        "knn": Knn(KNN),
        "lexical_ranker": lexical,
        "lexical_knn": LexicalKnn(lexical, LEXICAL_KNN),
        "name_characters": NameCharacters.of_names(names, texts),
    }
    n = len(names)
    examples = TrainedExamples(
        np.zeros((0, width), np.float32),
        sp.csr_matrix((0, n), dtype=np.float32),
        np.zeros(0, np.uint64),
        sp.csr_matrix((0, vectorizer.size), dtype=np.float32),
        TextSnippets.of([]),
    )
    return StoredEnsemble(start_model(model), retrievers, examples, None, np.zeros(n, np.int64))
