"""Changes of an earlier run as training data: labels and examples that were added to it.

from/labels.jsonl     labels that were added to the other run: id, text, content
from/examples.jsonl   examples that were added to it: text, labels
from/retired.json     ids of labels that were retired in it
from/held_out.npy     digests of the texts that its training held out
from/trained.npy      digests of the texts that it was trained on, as far as it stored them
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from umpteen.data.dataset import Dataset, Split, targets_from_rows
from umpteen.data.labels import LabelSet
from umpteen.display import counted
from umpteen.files import read_json, write_json
from umpteen.ranking.trained_examples import digest_texts, read_digests
from umpteen.run_folder import RunFolder
from umpteen.store.change_store import ChangeStore

HELD, UNSEEN, TRAINED, EXAMPLE = range(4)
"""The order in which training rows are held out: held out before, not trained on before, trained
on before, and examples last."""


@dataclass(frozen=True)
class PreviousChanges:
    """Labels, examples and retirements of a run, and which texts it has learned from."""

    labels: Sequence[Mapping[str, str]]
    examples: Sequence[Mapping[str, Any]]
    retired: Sequence[str]
    held_out: NDArray[np.uint64]
    trained: NDArray[np.uint64]

    def save(self, folder: Path) -> None:
        """Write the files."""
        for name, lines in (("labels", self.labels), ("examples", self.examples)):
            written = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(written, "utf-8")
        write_json(folder / "retired.json", list(self.retired))
        np.save(folder / "held_out.npy", self.held_out, allow_pickle=False)
        np.save(folder / "trained.npy", self.trained, allow_pickle=False)

    @classmethod
    def load(cls, folder: Path) -> PreviousChanges:
        """Read the files; raises what a damaged file raises."""
        labels, examples = (
            [json.loads(line) for line in (folder / name).read_text("utf-8").split("\n") if line]
            for name in ("labels.jsonl", "examples.jsonl")
        )
        digests = (read_digests(folder / f"{name}.npy") for name in ("held_out", "trained"))
        return cls(labels, examples, read_json(folder / "retired.json"), *digests)

    def sentences(self) -> list[str]:
        """Return what is taken over, in words; nothing where there were no changes."""
        if not (self.labels or self.examples or self.retired):
            return []
        return [
            f"Taking over {counted(len(self.labels), 'added label')}, "
            f"{counted(len(self.examples), 'example')} as training texts and "
            f"{counted(len(self.retired), 'retired label')}"
        ]

    def all_labels(self, labels: LabelSet) -> LabelSet:
        """Return the labels of the data, then those that were added to the run and are new."""
        new = [label for label in self.labels if label["id"] not in labels.rows]
        if not new:
            return labels
        contents = labels.contents
        if contents is None and any(label["content"] for label in new):
            contents = [""] * len(labels)
        return LabelSet(
            [*labels.ids, *(label["id"] for label in new)],
            [*labels.titles, *(label["text"] for label in new)],
            None if contents is None else [*contents, *(label["content"] for label in new)],
            None if labels.metadata is None else [*labels.metadata, *({} for _ in new)],
        )

    def applied(self, data: Dataset, which: str) -> Dataset:
        """Return the data with the labels and examples, and an order for holding texts out.

        An example replaces the labels of training texts that equal it. One that is a text of the
        validation or test split is left out.
        """
        labels = self.all_labels(data.labels)
        splits = {name: _wider(split, len(labels)) for name, split in data.splits.items()}
        train = splits.get("train")
        if train is None:
            return replace(data, labels=labels, splits=splits)
        others = (splits[name] for name in ("validation", "test") if name in splits)
        known = {text for split in others for text in split.texts(which)} if self.examples else ()
        usable = self._usable(labels, known)
        splits["train"], added = _with_examples(train, usable, labels, which)
        order = np.full(len(splits["train"]), TRAINED, np.int8)
        digests = digest_texts(splits["train"].texts(which))
        if len(self.trained):
            order[~np.isin(digests, self.trained)] = UNSEEN
        order[np.isin(digests, self.held_out)] = HELD
        order[added] = EXAMPLE
        return replace(data, labels=labels, splits=splits, hold_out_order=order)

    def retire(self, run: RunFolder, labels: LabelSet) -> None:
        """Retire in a trained run the labels that were retired in the other one."""
        ids = [label_id for label_id in self.retired if label_id in labels.rows]
        if ids:
            store = ChangeStore.open(run.path, labels)
            store.retire_labels(ids, who="train")
            store.close()

    def _usable(
        self, labels: LabelSet, known: Sequence[str] | set[str]
    ) -> tuple[list[str], list[list[int]]]:
        """Return the texts and label rows of examples that can be trained on."""
        gone, rows = set(self.retired), labels.rows
        found = [
            (line["text"], [rows[i] for i in line["labels"] if i in rows and i not in gone])
            for line in self.examples
            if line["text"] not in known
        ]
        kept = [(text, own) for text, own in found if own]
        return [text for text, _ in kept], [own for _, own in kept]


def read_changes(run: RunFolder, labels: LabelSet, *, changes: bool) -> PreviousChanges:
    """Read the store of a run and the digests of its texts.

    Args:
        run: The run.
        labels: Those it was trained with.
        changes: Whether its store is read.

    Returns:
        What is taken over.

    Raises:
        StoreDamaged: If the store is damaged.
    """
    held = read_digests(run.held_out)
    trained = read_digests(run.ensemble / "examples" / "digests.npy")
    if not changes:
        return PreviousChanges([], [], [], held, trained)
    store = ChangeStore.open(run.path, labels, read_only=True)
    try:
        state = store.state()
        retired = list(state.retired_ids)
        added = state.added
        fields = zip(added.ids, added.texts, added.contents, strict=True)
        new = [
            {"id": label_id, "text": text, "content": content or ""}
            for label_id, text, content in fields
            if label_id not in set(retired)
        ]
        texts = store.example_texts(list(state.examples.digests)) if len(state.examples) else []
        examples = [
            {"text": text, "labels": list(state.example_label_ids(place))}
            for place, text in enumerate(texts)
        ]
    finally:
        store.close()
    return PreviousChanges(new, examples, retired, held, trained)


def _wider(split: Split, n_labels: int) -> Split:
    """Return the split over more labels, which come after its own."""
    own = split.targets
    if own.shape[1] == n_labels:
        return split
    shape = (own.shape[0], n_labels)
    return replace(split, targets=sp.csr_matrix((own.data, own.indices, own.indptr), shape=shape))


def _with_examples(
    train: Split, examples: tuple[list[str], list[list[int]]], labels: LabelSet, which: str
) -> tuple[Split, NDArray[np.int64]]:
    """Return the training texts with the examples, and the rows of these."""
    texts, rows = examples
    if not texts:
        return train, np.empty(0, np.int64)
    n, place = len(train), {text: position for position, text in enumerate(texts)}
    own = np.fromiter(map(place.get, train.texts(which), repeat(-1)), np.int64, n)
    new = np.setdiff1d(np.arange(len(texts)), own)
    stacked = sp.vstack([train.targets, targets_from_rows(rows, len(labels))], format="csr")
    chosen = np.concatenate([np.where(own >= 0, n + own, np.arange(n)), n + new])
    later = [texts[position] for position in new.tolist()]
    split = Split(
        [*train.titles, *later],
        sp.csr_matrix(stacked[chosen]),
        None if train.contents is None else [*train.contents, *repeat("", len(later))],
        None if train.ids is None else [*train.ids, *(f"example-{i}" for i in new.tolist())],
        train.filters,
    )
    return split, np.concatenate([np.flatnonzero(own >= 0), n + np.arange(len(new))])
