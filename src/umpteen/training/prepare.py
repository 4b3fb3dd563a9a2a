"""From a data set and a config to what training reads: splits, tokens, fingerprints."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umpteen.config.schema import RunConfig
from umpteen.data.augment.graph import GraphOptions
from umpteen.data.augment.rows import Augmented, augment
from umpteen.data.augment.synonyms import replace_words
from umpteen.data.dataset import Dataset, Propensity, Split, hold_out_validation
from umpteen.data.special_tokens import tokens_in_chunks
from umpteen.data.tokens import TokenStore, tokenize
from umpteen.errors import DataError
from umpteen.training.mixup import KINDS
from umpteen.training.stage_log import as_stage_log
from umpteen.types import Log


@dataclass(frozen=True)
class Prepared:
    """The data as training sees it."""

    dataset: Dataset
    """With a validation split, if one is held out; before augmentation, as metrics need it."""
    train: Split
    """The train split, with label texts among its rows where it is augmented."""
    tokenizer: Any
    queries: TokenStore
    labels: TokenStore
    validation: TokenStore | None
    fingerprint: str
    """Of tokens and targets; a checkpoint is only continued on the same."""


def training_splits(dataset: Dataset, config: RunConfig) -> Dataset:
    """Train and validation alone: nothing that follows can see the test split.

    Raises:
        DataError: If there is nothing to learn from.
    """
    splits = {name: dataset[name] for name in ("train", "validation") if name in dataset}
    if "train" not in splits:
        raise DataError("there is nothing to learn from: the data has no train split")
    order = dataset.hold_out_order
    both = Dataset(dataset.labels, splits, dataset.propensity, dataset.name, hold_out_order=order)
    held = _hold_out(both, config)
    if held["train"].filtered_targets().nnz == 0:
        raise DataError("there is nothing to learn from: no training query has a label")
    return held


def with_configured_propensity(dataset: Dataset, config: RunConfig) -> Dataset:
    """Return the data with the propensity constants of the settings, where they are set."""
    a, b = config.data.propensity_a, config.data.propensity_b
    if a is None or b is None:
        return dataset
    return dataclasses.replace(dataset, propensity=Propensity(a, b))


def source_rows(dataset: Dataset, config: RunConfig) -> NDArray[np.int64]:
    """Return (N,) for each query that is trained on, its row in the user's own train split.

    Returns:
        Rows counted from 0; -1 - l for the text of label row l.
    """
    own = _kept_rows(dataset, config)
    if config.augment.method == "none":
        return own
    rows = augmented(training_splits(dataset, config), config).sources
    return np.where(rows < 0, rows, own[np.maximum(rows, 0)])


def _kept_rows(dataset: Dataset, config: RunConfig) -> NDArray[np.int64]:
    """Return the rows of the user's train split that are not held out."""
    train = dataset["train"]
    if "validation" in dataset:
        return np.arange(len(train))
    # The same draw over row numbers in the place of texts.
    numbers: Any = range(len(train))
    numbered = Split(numbers, train.targets, filters=train.filters)
    order = dataset.hold_out_order
    held = _hold_out(Dataset(dataset.labels, {"train": numbered}, hold_out_order=order), config)
    return np.array(held["train"].titles, dtype=np.int64)


def _hold_out(dataset: Dataset, config: RunConfig) -> Dataset:
    part = config.validation
    return hold_out_validation(
        dataset, share=part.share, max_queries=part.max_queries, seed=config.seed
    )


def all_texts(dataset: Dataset, which: str) -> chain[str]:
    """Return training and label texts, one after the other."""
    return chain(dataset["train"].texts(which), dataset.labels.encoder_texts(which))


def prepare(
    dataset: Dataset, config: RunConfig, tokenizer: Any, *, cache: Path, log: Log
) -> Prepared:
    """Tokenize what training and validation read."""
    which = config.data.text
    kept = tokens_in_chunks(tokenizer, config.data.max_tokens, config.data.chunks)
    train = augmented(dataset, config, log=log).split

    def store(texts: Sequence[str], what: str) -> TokenStore:
        said = f"Tokenizing {len(texts):,} {what}"
        with as_stage_log(log).stage(said, kind="tokenize") as progress:
            made = tokenize(texts, tokenizer, max_tokens=kept, folder=cache, progress=progress)
        if made.n_cut:
            log(
                f"{made.n_cut:,} of {len(texts):,} {what} are longer than {kept} tokens; the "
                f"encoder reads the first {kept}"
            )
        return made

    queries = store(train.texts(which), "training texts")
    labels = store(dataset.labels.encoder_texts(which), "label texts")
    validation = None
    if "validation" in dataset:
        validation = store(dataset["validation"].texts(which), "validation texts")
    digest = hashlib.sha256()
    for part in (queries, labels, validation):
        digest.update((part.key if part is not None else "-").encode())
    digest.update(dataset.labels.fingerprint.encode())
    for name in sorted(dataset.splits):
        split = train if name == "train" else dataset[name]
        targets = split.targets
        for array in (targets.indptr, targets.indices, targets.data, split.filters):
            digest.update(np.ascontiguousarray(array).reshape(-1))  # a buffer, not a copy
    fingerprint = digest.hexdigest()[:32]
    return Prepared(dataset, train, tokenizer, queries, labels, validation, fingerprint)


def augmented(dataset: Dataset, config: RunConfig, *, log: Log = lambda text: None) -> Augmented:
    """Return the rows to train on; the train split as it is where settings name no augmentation."""
    part, train = config.augment, dataset["train"]
    if part.method == "none" or part.method in KINDS:
        return Augmented(train, np.arange(len(train)))
    if part.method == "synonyms":
        log("Replacing words of training texts by synonyms")
        return _with_synonyms(train, part.word_share, config.seed)
    options = GraphOptions(
        delta=part.delta,
        max_positives=part.max_positives,
        max_queries=part.max_queries,
        walk_steps=part.walk_steps,
        restart=part.restart,
        seed=config.seed,
    )
    said = "Computing targets of label texts"
    with as_stage_log(log).stage(said, announced=False) as progress:
        found = augment(
            train,
            dataset.labels,
            method=part.method,
            rows=part.rows,
            share=part.share,
            order=part.order,
            options=options,
            progress=progress,
        )
    for sentence in found.sentences():
        log(sentence)
    return found


def _with_synonyms(train: Split, share: float, seed: int) -> Augmented:
    """Return each query, then each query with other words and the same targets and filter pairs."""
    from umpteen.model.frugal.tables import static_word_vectors

    titles, contents = replace_words(
        train.titles, train.contents, static_word_vectors, share=share, seed=seed
    )
    rows = np.arange(len(train))
    both = train.select(np.concatenate([rows, rows]))
    shifted = train.filters + np.array([len(train), 0])
    split = dataclasses.replace(
        both,
        titles=[*train.titles, *titles],
        contents=None if contents is None else [*(train.contents or []), *contents],
        filters=np.concatenate([train.filters, shifted]),
    )
    return Augmented(split, np.concatenate([rows, rows]))


def default_cache() -> Path:
    """Return the default folder of token stores: the user's cache folder."""
    base = os.environ.get("UMPTEEN_CACHE") or os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    return root / "umpteen" / "tokens"
