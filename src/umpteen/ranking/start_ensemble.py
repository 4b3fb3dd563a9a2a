"""The ensemble of a run without training texts: labels as documents, and no examples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.data.dataset import Propensity
from umpteen.ranking.lexical.lexical_ranker import LexicalRanker
from umpteen.ranking.lexical.matrices import round_to_half
from umpteen.ranking.lexical.ranker_training import SCALE, LexicalConfig
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.retrievers.base import Retriever
from umpteen.ranking.retrievers.knn import Knn, LexicalKnn
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.start_prior import KNN, LEXICAL_KNN, start_model
from umpteen.ranking.storage import StoredEnsemble
from umpteen.ranking.text_snippets import TextSnippets
from umpteen.ranking.trained_examples import TrainedExamples


def start_ensemble(
    names: Sequence[str], texts: Sequence[str], width: int, model: str
) -> StoredEnsemble:
    """Return retrievers over label names, without examples, and with prior weights.

    Args:
        names: Texts of the labels.
        texts: Unlabelled texts, whose words are counted as well.
        width: Of search vectors.
        model: Name of the model folder.

    Returns:
        What ``save_ensemble`` writes.
    """
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
    }
    n = len(names)
    examples = TrainedExamples(
        np.zeros((0, width), np.float32),
        sp.csr_matrix((0, n), dtype=np.float32),
        np.zeros(0, np.uint64),
        sp.csr_matrix((0, vectorizer.size), dtype=np.float32),
        TextSnippets.of([]),
    )
    about = Propensity()
    fitted = start_model(model, a=about.a, b=about.b)
    return StoredEnsemble(fitted, retrievers, examples, None, np.zeros(n, np.int64))
