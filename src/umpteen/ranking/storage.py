"""The folder ``ensemble/`` of a run: examples, retrievers and weights, written as a whole.

ensemble/ensemble.json       weights, calibration and metrics of all variants
ensemble/label_counts.npy    training texts of each label
ensemble/examples/           stored training texts, and their index where they are many
ensemble/RETRIEVER/          what each retriever has learned
ensemble/reranker-ID/        the re-ranking stage, where it is used
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from umpteen.errors import LabelMismatch, RunError
from umpteen.extras import installed
from umpteen.files import LOAD_ERRORS, atomic_folder
from umpteen.index.base import LabelIndex, VectorSearch
from umpteen.index.bfloat16_search import Bfloat16Index, rounding_pays
from umpteen.index.exact import ExactIndex
from umpteen.index.growing import index_of_block
from umpteen.model.text_encoder import TextEncoder
from umpteen.ranking import RETRIEVERS
from umpteen.ranking.ensemble_model import EnsembleModel
from umpteen.ranking.label_vectors import LabelVectors
from umpteen.ranking.lexical.vectorizer import Vectorizer
from umpteen.ranking.reranking.reranker import Reranker
from umpteen.ranking.retrievers.base import LoadContext, Retriever
from umpteen.ranking.retrievers.knn import Knn, LexicalKnn
from umpteen.ranking.retrievers.lexical import LexicalRetriever
from umpteen.ranking.trained_examples import TrainedExamples
from umpteen.registry import resolve

MANY_EXAMPLES = 20_000
"""From this many stored examples on a CPU searches them approximately, where faiss is installed."""


@dataclass(frozen=True)
class StoredEnsemble:
    """Everything that a fit leaves behind."""

    model: EnsembleModel
    retrievers: dict[str, Retriever]
    examples: TrainedExamples | None
    example_index: LabelIndex | None
    label_counts: NDArray[np.int64]
    """(L,) texts of each label among those that the retrievers learned from. Validation texts do
    not count: their labels would look more frequent than the retrievers know them."""
    reranker: Reranker | None = None
    """Of the first variant, where it has one."""

    @property
    def vectorizer(self) -> Vectorizer | None:
        """Of the lexical scorers."""
        return vectorizer_of(self.retrievers)


def vectorizer_of(retrievers: dict[str, Retriever]) -> Vectorizer | None:
    """Return the vectorizer that the lexical retrievers share; None without them."""
    lexical = retrievers.get("lexical_ranker")
    return lexical.ranker.vectorizer if isinstance(lexical, LexicalRetriever) else None


def save_ensemble(place: Path, stored: StoredEnsemble) -> None:
    """Write the folder, replacing what was there in one step."""
    with atomic_folder(place, replace=True) as temporary:
        for name, retriever in stored.retrievers.items():
            (temporary / name).mkdir()
            retriever.save(temporary / name)
        if stored.examples is not None:
            (temporary / "examples").mkdir()
            stored.examples.save(temporary / "examples")
            if stored.example_index is not None:
                stored.example_index.save(temporary / "examples" / "index")
        np.save(temporary / "label_counts.npy", stored.label_counts, allow_pickle=False)
        stored.model.save(temporary / "ensemble.json")


def load_ensemble(
    place: Path, label_vectors: LabelVectors, encoder: TextEncoder, *, model: str, again: str
) -> StoredEnsemble | None:
    """Read the folder.

    Returns:
        None where no ensemble was fitted.

    Raises:
        RunError: If a file is missing or damaged.
        LabelMismatch: If the ensemble was fitted for another model.
    """
    if not place.is_dir():
        return None
    fitted = EnsembleModel.load(place / "ensemble.json")
    if fitted.model != model:
        raise LabelMismatch(
            f"{place} was fitted for the model {fitted.model}, the run now uses {model}; "
            f"fit it again with: {again}"
        )
    n_labels = len(label_vectors)
    counts = _read_counts(place / "label_counts.npy", n_labels)
    stores = (place / "examples").is_dir()
    context = LoadContext(label_vectors, n_labels, label_vectors.device, stores)
    for name in RETRIEVERS:
        retriever = resolve(RETRIEVERS, name, kind="retriever").load(place / name, context)
        if retriever is not None:
            context.loaded[name] = retriever
    retrievers = with_knn_configs(context.loaded, fitted)
    lacking = {r for variant in fitted.variants for r in variant.retrievers} - set(retrievers)
    if lacking:
        raise RunError(
            f"{place} is damaged: {', '.join(sorted(lacking))} cannot be loaded; "
            f"fit it again with: {again}"
        )
    vectorizer = vectorizer_of(retrievers)
    examples = index = None
    if stores:
        examples = TrainedExamples.load(
            place / "examples",
            n_labels=n_labels,
            n_terms=0 if vectorizer is None else vectorizer.size,
            width=label_vectors.width,
        )
        index = _load_index(place / "examples" / "index", label_vectors.device)
    reranker, own = None, fitted.variants[0]
    if own.reranking is not None:
        reranker = Reranker.load(place, own.reranking, own.retrievers, encoder, n_labels)
    return StoredEnsemble(fitted, retrievers, examples, index, counts, reranker)


def with_knn_configs(
    retrievers: dict[str, Retriever], model: EnsembleModel
) -> dict[str, Retriever]:
    """Return the retrievers with the voting settings of the ensemble."""
    found = dict(retrievers)
    if isinstance(found.get("knn"), Knn):
        found["knn"] = Knn(model.knn)
    lexical = found.get("lexical_knn")
    if isinstance(lexical, LexicalKnn):
        found["lexical_knn"] = LexicalKnn(lexical.lexical, model.lexical_knn)
    return found


def index_examples(vectors: torch.Tensor) -> LabelIndex | None:
    """Build the approximate index of many examples; None where an exact one does."""
    if len(vectors) < MANY_EXAMPLES or vectors.is_cuda or not installed("faiss"):
        return None
    return index_of_block(vectors)


def exact_examples(
    vectors: NDArray[np.float32], device: torch.device, *, normalize: bool
) -> VectorSearch | None:
    """Return the exact index over stored vectors; None where there are none."""
    if not len(vectors):
        return None
    stored = torch.from_numpy(np.asarray(vectors)).to(device)
    stored = torch.nn.functional.normalize(stored, dim=1) if normalize else stored
    if device.type == "cpu" and rounding_pays():
        return Bfloat16Index(stored)
    return ExactIndex(stored)


def _load_index(place: Path, device: torch.device) -> LabelIndex | None:
    if device.type != "cpu" or not place.is_dir() or not installed("faiss"):
        return None
    from umpteen.index.faiss_index import FaissIndex

    return FaissIndex.load(place)


def _read_counts(file: Path, n_labels: int) -> NDArray[np.int64]:
    try:
        counts: NDArray[np.int64] = np.load(file, mmap_mode="r", allow_pickle=False)
        if counts.shape != (n_labels,) or counts.dtype.kind != "i":
            raise ValueError(f"shape {counts.shape} of {counts.dtype}, expected ({n_labels},)")
    except LOAD_ERRORS as error:
        raise RunError(f"{file} is damaged: {error}; fit the ensemble again") from error
    return counts
