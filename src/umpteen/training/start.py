"""What a run writes before its first step, so that it can be resumed and looked at from then on."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

import umpteen
from umpteen import settings as settings_files
from umpteen.compute.sharding import ONE_RANK, Ranks
from umpteen.config import RunConfig
from umpteen.data.dataset import Dataset, Split
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import TokenStore
from umpteen.files import atomic_file, write_json
from umpteen.model.model import Model
from umpteen.model.storage import Reading, save_model
from umpteen.model.vectors import encode_texts
from umpteen.runs import UNTRAINED, RunFolder
from umpteen.training.prepare import Prepared
from umpteen.types import Ragged

N_EXAMPLES = 1000
BIAS = 4.0
"""Length of the head's first bias: about that of the encoders' vectors, so neither drowns."""


@dataclass(frozen=True)
class TextsBetween:
    """The texts start .. stop - 1 of a token store."""

    tokens: TokenStore
    start: int
    stop: int

    @property
    def lengths(self) -> np.ndarray:
        """(N,) tokens of each text."""
        return self.tokens.lengths[self.start : self.stop]

    def take(self, rows: np.ndarray) -> Ragged:
        """The tokens of some texts, counted from the start."""
        return self.tokens.take(rows + self.start)

    def __len__(self) -> int:
        return self.stop - self.start


def write_config(
    folder: RunFolder,
    settings: RunConfig,
    data: Dataset,
    *,
    device: torch.device,
    fingerprint: str | None = None,
    chosen: Sequence[str] = (),
) -> None:
    """Write the settings as resolved, with versions, fingerprints and the reasons of a choice."""
    folder.path.mkdir(parents=True, exist_ok=True)
    write_json(
        folder.config,
        {
            "umpteen": umpteen.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": str(device),
            "data": {"name": data.name, "fingerprint": fingerprint},
            "labels": data.labels.fingerprint,
            "chosen": list(chosen),
            "config": settings_files.to_json(settings),
        },
    )


def write_untrained(folder: RunFolder, model: Model, data: Prepared, reading: Reading) -> None:
    """Write the model as it is before the first step, and name it best and last."""
    folder.models.mkdir(exist_ok=True)
    start = folder.models / UNTRAINED
    save_model(start, model, data.tokenizer, reading)
    folder.point(best=start, last=start)


def write_examples(folder: RunFolder, data: Prepared, settings: RunConfig) -> None:
    """Keep some validation queries with their labels, for the report and for index recall."""
    name = "validation" if "validation" in data.dataset else "train"
    split = data.dataset[name]
    rng = np.random.default_rng([settings.seed, 7])
    chosen = split.select(np.sort(rng.permutation(len(split))[:N_EXAMPLES]))
    with (
        atomic_file(folder.examples) as temporary,
        temporary.open("w", encoding="utf-8") as out,
    ):
        texts = chosen.texts(settings.data.text)
        for row, text in enumerate(texts):
            line = {"text": text, **_ids(chosen, row, data.dataset.labels), "split": name}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def _ids(split: Split, row: int, labels: LabelSet) -> dict[str, list[str]]:
    filtered = set(split.filters[split.filters[:, 0] == row, 1].tolist())
    own = split.targets.indices[split.targets.indptr[row] : split.targets.indptr[row + 1]]
    return {
        "labels": [labels.ids[label] for label in own.tolist() if label not in filtered],
        "filtered": [labels.ids[label] for label in sorted(filtered)],
    }


def start_from_texts_(
    model: Model,
    data: Prepared,
    *,
    precision: str,
    ranks: Ranks = ONE_RANK,
) -> None:
    """Make each label's vector the classifier head's unit vector of the label's text.

    On several ranks each does so for the labels it holds.
    """
    assert model.label_vectors is not None
    own = ranks.shard(len(data.labels))
    if not len(own):
        return
    was_training = model.training
    model.eval()
    texts = TextsBetween(data.labels, own.start, own.stop)
    vectors = encode_texts(model, texts, model.classifier, precision=precision)
    model.label_vectors.data.copy_(torch.nn.functional.normalize(vectors, dim=1))
    model.train(was_training)


def start_from_odds_(model: Model, data: Prepared) -> None:
    """Give every label one vector, such that scores start near a label's log-odds.

    With scores of 0, binary cross-entropy over L labels begins by pushing all L of them down, and
    the encoder gives way by making all texts alike: a transformer does not come back from that.
    With scores of log(p / (1 - p)), p the share of the labels that a query has, as much pulls up as
    pushes down. That constant is a bias of the head and label vectors against it.
    """
    assert model.label_vectors is not None
    assert model.classifier_head is not None
    targets = data.train.filtered_targets()
    share = max(targets.nnz, 1) / (targets.shape[0] * targets.shape[1])
    odds = math.log(share / (1 - share)) if share < 1 else 0.0
    bias = model.classifier_head.linear.bias.data
    bias.fill_(BIAS / math.sqrt(len(bias)))
    scale = model.scale("classifier").item()
    model.label_vectors.data.copy_((odds / (scale * BIAS**2) * bias).expand_as(model.label_vectors))
