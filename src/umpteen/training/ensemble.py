"""The last act of training: memory, words and the ensemble, fitted on what was held out."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from umpteen.answers.fitting import fit_recipe
from umpteen.answers.held import held_out
from umpteen.answers.lexical import Lexical
from umpteen.answers.lexical_training import LexicalRecipe, learn_lexical
from umpteen.answers.memory import Memory, digest_texts, ones_like
from umpteen.answers.recipe import Recipe
from umpteen.answers.remembered import Remembered
from umpteen.answers.store import save_answers
from umpteen.answers.texts import Beginnings
from umpteen.answers.views import Views
from umpteen.config import RunConfig
from umpteen.data.dataset import Dataset, Split
from umpteen.errors import DataError, RunError
from umpteen.files import read_json
from umpteen.predictor import Predictor
from umpteen.runs import RunFolder
from umpteen.training.prepare import training_splits, with_told_propensity

Say = Callable[[str], None]
WORDS_SHARE = 0.6
"""Of the seconds of the whole fit; the examples and the weights need the rest."""


def fit_ensemble(
    folder: RunFolder,
    data: Dataset,
    settings: RunConfig,
    *,
    device: str = "auto",
    say: Say,
    again: bool = False,
) -> Recipe | None:
    """Fit the ensemble of a run and write it into its folder.

    The queries it is fitted on are those that validation used: held out of training, of the memory
    and of the words. Where the same model has one already it is left alone.

    Args:
        folder: A run that has been trained.
        data: The data it was trained on.
        settings: The run's.
        device: Where to encode and search.
        say: Told what is done.
        again: Whether to fit anew, and to raise where that is not possible.

    Returns:
        What was fitted, or None where nothing was.

    Raises:
        DataError: If too few queries are held out, with ``again``.
    """
    if not again and (settings.ensemble.enabled == "off" or _fitted(folder)):
        return None
    dataset = training_splits(with_told_propensity(data, settings), settings)
    n = _with_positives(dataset)
    if n < settings.ensemble.min_queries:
        sentence = (
            f"{n} held-out queries with labels are too few to fit an ensemble; "
            f"{settings.ensemble.min_queries} are needed (ensemble.min_queries): "
            "train with a larger validation.share or with a validation split"
        )
        if again:
            raise DataError(sentence)
        say(f"no ensemble: {sentence}")
        return None
    started = time.monotonic()
    predictor = Predictor.load(folder.path, device=device, with_ensemble=False).as_trained()
    memory, lexical = learn_parts(
        predictor,
        dataset["train"],
        settings,
        seconds=WORDS_SHARE * settings.ensemble.seconds,
        say=say,
    )
    views = Views(predictor, _remembered(predictor, memory, lexical), lexical)
    held = held_out(
        predictor,
        dataset["validation"],
        label_counts=dataset.label_counts,
        n_train=len(dataset["train"]),
        propensity=predictor.propensity or data.propensity,
    )
    recipe = fit_recipe(
        views,
        held,
        model=folder.model("best").name,
        seconds=settings.ensemble.seconds - (time.monotonic() - started),
        seed=settings.seed,
        say=say,
        tilt=settings.ensemble.tail_boost,
    )
    save_answers(folder, recipe, memory, lexical, dataset.label_counts)
    size = sum(f.stat().st_size for f in folder.answers.rglob("*") if f.is_file())
    say(
        f"ensemble of {', '.join(recipe.ways[0].parts)}: {time.monotonic() - started:.0f} s, "
        f"{size / 2**20:.1f} MiB in {folder.answers}"
    )
    return recipe


def learn_parts(
    predictor: Predictor, train: Split, settings: RunConfig, *, seconds: float, say: Say
) -> tuple[Memory | None, Lexical | None]:
    """The memory of training queries, and weights of their words.

    Args:
        predictor: The trained model.
        train: The training queries, without the held-out ones.
        settings: The run's.
        seconds: How long learning weights of words may take.
        say: Told what is done.

    Returns:
        Either may be None, as the settings say.
    """
    which = predictor.reading.text
    texts = train.texts(which)
    targets = ones_like(train.filtered_targets())
    lexical, words = None, None
    if settings.ensemble.lexical:
        say(f"weights of the words of {len(texts):,} queries")
        lexical, words = learn_lexical(
            texts,
            targets,
            predictor.labels.encoder_texts(which),
            filters=train.filters,
            recipe=LexicalRecipe(seconds=seconds),
            seed=settings.seed,
            device=next(predictor.model.parameters()).device,
            say=say,
        )
    if settings.examples.kept == "none":
        return None, lexical
    kept = np.arange(len(texts))
    if len(kept) > settings.examples.max_examples:
        rng = np.random.default_rng([settings.seed, 0x3E3])
        kept = np.sort(rng.permutation(len(kept))[: settings.examples.max_examples])
    chosen = [texts[row] for row in kept.tolist()]
    say(f"memory of {len(chosen):,} queries")
    vectors = predictor.vectors(chosen).cpu().numpy()
    if words is None:
        import scipy.sparse as sp

        words = sp.csr_matrix((len(texts), 0), dtype=np.float32)
    shown = Beginnings.of(chosen) if settings.examples.texts else None
    return Memory(vectors, targets[kept], digest_texts(chosen), words[kept], shown), lexical


def _remembered(
    predictor: Predictor, memory: Memory | None, lexical: Lexical | None
) -> Remembered | None:
    if memory is None:
        return None
    words = lexical.words if lexical is not None else None
    device = next(predictor.model.parameters()).device
    return Remembered(
        memory,
        words,
        predictor.labels_now,
        predictor.vectors,
        device=device,
        normalize=not predictor.model.normalize,
    )


def _with_positives(dataset: Dataset) -> int:
    if "validation" not in dataset:
        return 0
    return int((np.diff(dataset["validation"].filtered_targets().indptr) > 0).sum())


def _fitted(folder: RunFolder) -> bool:
    file = folder.answers / "recipe.json"
    if not file.is_file():
        return False
    value = read_json(file, error=RunError)
    return isinstance(value, dict) and value.get("model") == folder.model("best").name
