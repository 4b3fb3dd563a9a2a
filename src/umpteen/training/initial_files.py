"""What a run writes before its first step, so that it can be resumed and looked at from then on."""

from __future__ import annotations

import json
import platform

import numpy as np
import torch

import umpteen
from umpteen.config import settings as settings_files
from umpteen.config.schema import RunConfig
from umpteen.data.dataset import Dataset, Split
from umpteen.data.labels import LabelSet
from umpteen.files import atomic_file, write_json
from umpteen.model.model import Model
from umpteen.model.storage import TextConfig, save_model
from umpteen.ranking.trained_examples import digest_texts
from umpteen.run_folder import UNTRAINED, RunFolder
from umpteen.training.prepare import Prepared
from umpteen.training.resolve import ResolvedConfig

N_EXAMPLES = 1000


def write_config(
    folder: RunFolder,
    resolved: ResolvedConfig,
    data: Dataset,
    *,
    device: torch.device,
    fingerprint: str | None = None,
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
            "data": {
                "name": data.name,
                "fingerprint": fingerprint,
                "n_train": len(data["train"]) if "train" in data else 0,
            },
            "labels": data.labels.fingerprint,
            "minutes": resolved.minutes,
            "chosen": list(resolved.reasons),
            "config": settings_files.to_json(resolved.config),
        },
    )


def write_untrained(
    folder: RunFolder, model: Model, data: Prepared, text_config: TextConfig
) -> None:
    """Write the model as it is before the first step, and name it best and last."""
    folder.models.mkdir(exist_ok=True)
    start = folder.models / UNTRAINED
    save_model(start, model, data.tokenizer, text_config)
    folder.point(best=start, last=start)


def write_examples(folder: RunFolder, data: Prepared, settings: RunConfig) -> None:
    """Keep some validation queries with their labels, for the report and for index recall."""
    name = "validation" if "validation" in data.dataset else "train"
    split = data.dataset[name]
    rng = np.random.default_rng([settings.seed, 7])
    chosen = split.select(np.sort(rng.permutation(len(split))[:N_EXAMPLES]))
    with atomic_file(folder.examples) as temporary, temporary.open("w", encoding="utf-8") as out:
        texts = chosen.texts(settings.data.text)
        for row, text in enumerate(texts):
            line = {"text": text, **_ids(chosen, row, data.dataset.labels), "split": name}
            out.write(json.dumps(line, ensure_ascii=False) + "\n")


def write_held_out(folder: RunFolder, data: Prepared, settings: RunConfig) -> None:
    """Write digests of the validation texts: a run that starts from this one holds them out."""
    if "validation" in data.dataset:
        digests = digest_texts(data.dataset["validation"].texts(settings.data.text))
        with atomic_file(folder.held_out) as temporary, temporary.open("wb") as out:
            np.save(out, digests, allow_pickle=False)


def _ids(split: Split, row: int, labels: LabelSet) -> dict[str, list[str]]:
    filtered = set(split.filters[split.filters[:, 0] == row, 1].tolist())
    own = split.targets.indices[split.targets.indptr[row] : split.targets.indptr[row + 1]]
    return {
        "labels": [labels.ids[label] for label in own.tolist() if label not in filtered],
        "filtered": [labels.ids[label] for label in sorted(filtered)],
    }
