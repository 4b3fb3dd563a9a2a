"""The folder ``answers/`` of a run: memory, words and recipe, written whole, read strictly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from umpteen.answers.fused import Fused
from umpteen.answers.lexical import Lexical
from umpteen.answers.memory import Memory
from umpteen.answers.recipe import Recipe
from umpteen.answers.remembered import Remembered
from umpteen.answers.views import Views
from umpteen.errors import LabelMismatch, RunError
from umpteen.files import atomic_folder
from umpteen.journal import Journal
from umpteen.runs import RunFolder

if TYPE_CHECKING:
    from umpteen.predictor import Predictor

JOURNAL = "memory.journal"


def save_answers(
    folder: RunFolder,
    recipe: Recipe,
    memory: Memory | None,
    lexical: Lexical | None,
    label_counts: NDArray[np.int64],
) -> None:
    """Write everything the head ``ensemble`` needs, replacing what was there.

    Args:
        folder: The run.
        recipe: What was fitted.
        memory: Training queries, where they are kept.
        lexical: The scorer by words, where there is one.
        label_counts: (L,) queries of each label among those the parts learned from.
    """
    with atomic_folder(folder.answers, replace=True) as temporary:
        for name, part in (("memory", memory), ("lexical", lexical)):
            if part is not None:
                (temporary / name).mkdir()
                part.save(temporary / name)
        np.save(temporary / "label_counts.npy", label_counts, allow_pickle=False)
        recipe.save(temporary / "recipe.json")


def load_answers(
    folder: RunFolder, predictor: Predictor, model: str, *, tolerant: bool = False
) -> Fused | None:
    """Read the fused answer of a run.

    Args:
        folder: The run.
        predictor: Its model, on its device.
        model: The name of the model folder that answers.
        tolerant: Whether to go on with what can be read of a damaged journal of additions.

    Returns:
        None where nothing was fitted.

    Raises:
        RunError: If a part is missing or damaged.
        LabelMismatch: If it was fitted for another model.
    """
    place = folder.answers
    if not place.is_dir():
        return None
    recipe = Recipe.load(place / "recipe.json")
    if recipe.model != model:
        raise LabelMismatch(
            f"{place} was fitted for the model {recipe.model}, the run now answers with {model}; "
            f"fit it again with: umpteen fit-ensemble {folder.path} DATA"
        )
    n_labels = len(predictor.labels)
    counts = _read_counts(place / "label_counts.npy", n_labels)
    lexical = None
    if (place / "lexical").is_dir():
        lexical = Lexical.load(place / "lexical", n_labels)
    remembered = None
    if (place / "memory").is_dir():
        width = predictor.model.dim * len(predictor.model.heads)
        n_words = lexical.words.size if lexical is not None else 0
        memory = Memory.load(place / "memory", n_labels=n_labels, n_words=n_words, width=width)
        remembered = Remembered(
            memory,
            lexical.words if lexical is not None else None,
            predictor.labels_now,
            predictor.vectors,
            journal=memory_journal(folder.path, predictor.labels.fingerprint, tolerant=tolerant),
            device=next(predictor.model.parameters()).device,
            normalize=not predictor.model.normalize,
        )
    views = Views(predictor, remembered, lexical, recipe.voting, recipe.word_voting)
    lacking = {view for way in recipe.ways for view in way.model.views} - set(views.names)
    if lacking:
        raise RunError(
            f"{place} is damaged: it lacks what {', '.join(sorted(lacking))} need; "
            f"fit it again with: umpteen fit-ensemble {folder.path} DATA"
        )
    return Fused(recipe, views, counts)


def _read_counts(file: Path, n_labels: int) -> NDArray[np.int64]:
    try:
        counts: NDArray[np.int64] = np.load(file, allow_pickle=False)
        if counts.shape != (n_labels,) or counts.dtype.kind != "i":
            raise ValueError(f"shape {counts.shape} of {counts.dtype}, expected ({n_labels},)")
    except (OSError, ValueError, EOFError) as error:
        raise RunError(f"{file} is damaged: {error}; fit the fused answer again") from error
    return counts


def memory_journal(run: Path, fingerprint: str, *, tolerant: bool = False) -> Journal:
    """Where additions to the memory are kept; they outlive a new fit."""
    return Journal(
        run / JOURNAL,
        kind="memory",
        belongs_to=fingerprint,
        tolerant=tolerant,
        remedy="put the file back from a copy, or move it away to go on without its additions",
    )
