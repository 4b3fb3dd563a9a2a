"""``umpteen.train``: data of any kind in, a predictor out, with progress shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from umpteen.config.schema import RunConfig
from umpteen.data.as_dataset import as_dataset
from umpteen.errors import ConfigError
from umpteen.predictor import Predictor
from umpteen.run_files import TemporaryRun
from umpteen.training.progress import progress_reporters
from umpteen.training.reporters import Reporter
from umpteen.training.run import train as train_run

ARGUMENTS = """
    Args:
        data: A ``Dataset``; the path of a file or folder; a table (pandas, polars, Arrow, Hugging
            Face, or a dict of columns); or texts. Only train and validation splits are read. Where
            there is no validation split, a part of train is held out.
        labels: The labels of texts: a list for each text, one column of text, or an indicator
            matrix with ``classes``. For a table, the name of the label column.
        out: The run folder to make, or with ``resume`` to continue. Left out, the run is
            temporary: ``model.save(path)`` keeps it, otherwise it is removed with the model.
        classes: Label ids in the column order of an indicator matrix.
        label_texts: Id to text, or texts in the column order of a matrix.
        text_column: The column with the text, for paths and tables; found by name if left out.
        label_column: The column with the labels, or a list of columns: of 0 and 1, one for
            each label, or with a label in each cell; found by name or by their cells if left out.
        separator: Stands between the labels of a cell; recognised if left out.
        preset: A preset's name or a TOML file. Left out, rules choose the settings by the data.
        overrides: Settings laid over the preset: ``section.key=value`` strings, or a mapping such
            as ``{"train.epochs": 3}``.
        encoder: ``bag``, ``convolution``, or a Hugging Face folder or name.
        rerank: ``features``, ``late-interaction`` or ``cross-encoder``: also fit a stage that
            scores the best labels of a text again; the last two start from the run's transformer.
        dataset: A well-known data set, such as ``lf-amazontitles-131k``: its settings for the
            preset and its propensity constants are taken.
        config: The settings themselves, instead of preset, overrides and dataset.
        minutes: A time budget: as many epochs are trained as fit it, up to those of the settings.
        from_run: A run to start from. Its encoder, heads and label vectors are taken over, labels
            are matched by id, and its settings are kept, with a shorter schedule.
        changes: Whether labels and examples that were added to that run are trained on.
        device: ``auto``, ``cpu`` or ``cuda``.
        resume: Continue the run in ``out`` from its newest checkpoint, with its own settings.
        progress: Whether progress is shown; by default in a terminal or notebook. Log lines go to
            the logger ``umpteen.training`` in any case.
        reporters: Further objects that receive progress.
        cache: Where token stores are kept; by default the user's cache folder.

    Returns:
        A predictor with the best model by validation (the last one without validation).

    Raises:
        ConfigError: If a setting is wrong.
        DataError: If the data is of another kind, damaged or inconsistent.
        RunError: If ``out`` is in the way, or cannot be resumed.
        TrainingStopped: If the loss is no longer finite, or memory ran out.
        RankLost: If another rank of the job has ended.

    Example:
        >>> import umpteen
        >>> texts = ["red apple", "green apple", "long banana", "yellow banana"]
        >>> model = umpteen.train(texts, [["apple"], ["apple"], ["banana"], ["banana"]])
        >>> model.predict("a yellow banana", k=1).ids
        [['banana']]
"""
"""The rest of the docstring of ``train``."""


def train(
    data: Any,
    labels: Any = None,
    *,
    out: str | Path | None = None,
    classes: Sequence[Any] | None = None,
    label_texts: Mapping[Any, str] | Sequence[str] | None = None,
    text_column: str | Sequence[str] | None = None,
    label_column: str | Sequence[str] | None = None,
    separator: str | None = None,
    preset: str | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    encoder: str | None = None,
    rerank: str | None = None,
    dataset: str | None = None,
    config: RunConfig | None = None,
    minutes: float | None = None,
    from_run: str | Path | None = None,
    changes: bool = True,
    device: str = "auto",
    resume: bool = False,
    progress: bool | None = None,
    reporters: Sequence[Reporter] = (),
    cache: str | Path | None = None,
) -> Predictor:
    """Train a model.

    In a process that torchrun started, train with the others of its job: all of them must make the
    same call and see the same files. The first one writes and reports.
    """
    columns: dict[str, Any] = dict(
        text_column=text_column, label_column=label_column, separator=separator
    )
    texts: dict[str, Any] = dict(classes=classes, label_texts=label_texts)
    read = partial(as_dataset, data, labels, **texts, **columns)
    temporary = None if out is not None else _temporary_run(resume)
    model = train_run(
        read,
        out=str(out) if temporary is None else temporary.path,
        preset=preset,
        overrides=as_overrides(overrides, encoder=encoder, rerank=rerank),
        dataset=dataset,
        config=config,
        device=device,
        resume=resume,
        reporters=[*progress_reporters(progress), *reporters],
        cache=cache,
        minutes=minutes,
        from_run=from_run,
        changes=changes,
    )
    model.temporary = temporary
    return model


train.__doc__ = f"{train.__doc__}\n{ARGUMENTS}"


def as_overrides(
    overrides: Sequence[str] | Mapping[str, Any],
    *,
    encoder: str | None = None,
    rerank: str | None = None,
) -> list[str]:
    """Return settings as ``key=value`` strings.

    Raises:
        ConfigError: If they are one string.

    Example:
        >>> as_overrides({"train.epochs": 3}, encoder="bag")
        ['train.epochs=3', 'encoder.name=bag']
    """
    if isinstance(overrides, str):
        raise ConfigError(f"overrides is one string; give a list, [{overrides!r}]")
    if isinstance(overrides, Mapping):
        changes = [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}"
            for key, value in overrides.items()
        ]
    else:
        changes = list(overrides)
    named = {"encoder.name": encoder, "rerank.kind": rerank}
    return [*changes, *(f"{key}={value}" for key, value in named.items() if value is not None)]


def _temporary_run(resume: bool) -> TemporaryRun:
    if resume:
        raise ConfigError("resume needs the run folder to continue; give it as out")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("several processes train into one run folder; give it as out")
    return TemporaryRun()
