"""``umpteen.start``: a run from label names alone, before there is any labelled text."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from umpteen.compute.distributed.sharding import ONE_RANK
from umpteen.compute.precision import choose_device
from umpteen.config.schema import DataConfig, EncoderConfig, ModelConfig, RunConfig
from umpteen.data.as_dataset import as_dataset
from umpteen.data.dataset import Dataset, Propensity, Split
from umpteen.data.formats.row_batches import open_rows
from umpteen.data.label_files import as_labels
from umpteen.data.labels import LabelSet
from umpteen.data.tokens import prepare
from umpteen.errors import DataError, RunError
from umpteen.files import atomic_file, disk_errors
from umpteen.model.model import Model
from umpteen.model.storage import TextConfig, load_model, save_model
from umpteen.model.text_encoder import TextEncoder
from umpteen.model.whitening import Whitening
from umpteen.predictor import Predictor
from umpteen.ranking.start_ensemble import start_ensemble
from umpteen.ranking.storage import save_ensemble
from umpteen.run_files import TemporaryRun
from umpteen.run_folder import RunFolder
from umpteen.text_input import as_texts
from umpteen.training import initial_files
from umpteen.training.factories import build_encoder, build_model
from umpteen.training.lock import training_lock
from umpteen.training.resolve import ResolvedConfig, resolve_open_settings
from umpteen.training.self_training import in_words, measured, pseudo_label_vectors
from umpteen.types import Log

MODEL = "start"
"""Name of the model folder."""
MAX_TOKENS = 128
SAMPLE = 5_000
"""Unlabelled texts that are encoded, drawn at random."""
TERM_SAMPLE = 20_000
"""Unlabelled texts whose words are counted."""


def start(
    labels: Any,
    texts: Any = None,
    *,
    out: str | Path | None = None,
    encoder: str | None = None,
    text: str = "all",
    check: Any = None,
    self_training: bool | None = None,
    language: str | None = None,
    device: str = "auto",
    seed: int = 17,
    log: Log | None = None,
) -> Predictor:
    """Make a run from label names, without training texts.

    Labels are scored by their names: by words that they share with a text, and by the similarity
    of vectors. Corrections count from the first one on.

    Args:
        labels: Names, a mapping from id to name, or the path of labels, vocabulary or data.
        texts: Unlabelled texts, or the path of a file of texts, for word frequencies and means.
        out: The run folder to make. Left out, the run is temporary.
        encoder: A Hugging Face folder or name, ``bag`` or ``convolution``; by default static.
        text: ``title`` leaves descriptions of labels and contents of texts out.
        check: Labelled data that the run is measured on; the result is logged.
        self_training: Move label vectors towards texts; if None, kept where P@1 of check rises.
        language: Of the names, where a vocabulary has several.
        device: ``auto``, ``cpu`` or ``cuda``.
        seed: Of the sample of texts.
        log: Called with progress lines.

    Returns:
        The predictor.

    Example:
        >>> import umpteen
        >>> model = umpteen.start(["fruit", "kitchen appliance", "vehicle"])
        >>> model.predict("a red car", k=1).ids
        [['vehicle']]
    """
    log = log or _silent
    found = as_labels(labels, language=language)
    sample = _sample(_texts(texts, text), seed, needed=bool(self_training))
    data = None if check is None else as_dataset(check, known_labels=list(found.ids))
    temporary = TemporaryRun() if out is None else None
    folder = _free(RunFolder(temporary.path if temporary is not None else str(out)))
    with (
        training_lock(folder, ONE_RANK, resume=False),
        disk_errors(folder.path, advice="start again in another folder"),
    ):
        made = _Start(folder, found, sample, _settings(encoder, text, seed), device, log)
        made.write()
        if self_training or (self_training is None and sample and data is not None):
            made.self_train(None if self_training else data)
    predictor = Predictor.load(folder.path, device=device)
    if data is not None:
        log(f"On the data to check with: {in_words(measured(predictor, data))}")
    predictor.temporary = temporary
    return predictor


@dataclass
class _Start:
    """A run folder that is filled before there is anything to train on."""

    folder: RunFolder
    labels: LabelSet
    texts: list[str]
    settings: RunConfig
    device: str
    log: Log

    def write(self) -> None:
        """Write the model, the ensemble and the settings."""
        which = self.settings.data.text
        nothing = Split([], sp.csr_matrix((0, len(self.labels)), dtype=np.float32))
        data = Dataset(self.labels, {"train": nothing}, Propensity(), "labels")
        model, tokenizer = self._build_model()
        place = choose_device(self.device)
        model = model.to(place).eval()
        config = TextConfig(which, self.settings.data.max_tokens, self.labels.fingerprint)
        tokenizer = prepare(tokenizer, config.max_tokens)
        names = self.labels.encoder_texts(which)
        self.log(f"Encoding {len(names):,} label names and {len(self.texts[:SAMPLE]):,} texts")
        vectors = _whiten_(model, tokenizer, config, names, self.texts[:SAMPLE])
        folder = self.folder
        folder.models.mkdir(parents=True, exist_ok=True)
        folder.write_labels(self.labels, np.zeros(len(self.labels), np.int64))
        save_model(folder.models / MODEL, model, tokenizer, config, vectors=vectors)
        folder.point(best=folder.models / MODEL, last=folder.models / MODEL)
        self.log("Counting words of label names and texts")
        stored = start_ensemble(names, self.texts, vectors.shape[1], MODEL)
        save_ensemble(folder.ensemble, stored)
        _write_examples(folder, self.labels)
        # Last: without it the folder is no run.
        initial_files.write_config(folder, ResolvedConfig(self.settings), data, device=place)

    def _build_model(self) -> tuple[Model, Any]:
        """Return the model and its tokenizer; settings follow the size of the encoder."""
        settings = self.settings
        generator = torch.Generator().manual_seed(settings.seed)
        texts = [*self.texts, *self.labels.encoder_texts(settings.data.text)]
        encoder, tokenizer = build_encoder(settings.encoder, texts, generator=generator)
        longest = min(MAX_TOKENS, getattr(encoder, "max_positions", None) or MAX_TOKENS)
        self.settings = replace(
            settings,
            data=replace(settings.data, max_tokens=min(longest, settings.data.max_tokens)),
            model=replace(settings.model, dim=int(encoder.dim)),  # type: ignore[arg-type]
        )
        return build_model(self.settings, encoder, len(self.labels)), tokenizer

    def self_train(self, data: Dataset | None) -> None:
        """Move label vectors towards texts; with data, keep the result only if P@1 rises."""
        predictor = Predictor.load(self.folder.path, device=self.device)
        vectors = pseudo_label_vectors(predictor, self.texts[:SAMPLE])
        before = None if data is None else measured(predictor, data)
        place = self.folder.model("best")
        model, tokenizer, config = load_model(place)
        former = predictor.label_vectors.numpy().copy()
        save_model(place, model, tokenizer, config, vectors=vectors)
        if before is None or data is None:
            return
        after = measured(Predictor.load(self.folder.path, device=self.device), data)
        gained = after["P@1"] - before["P@1"]
        kept = gained > 0
        if not kept:
            save_model(place, model, tokenizer, config, vectors=former)
        state = "kept" if kept else "left out"
        self.log(f"Self-training on {len(self.texts[:SAMPLE]):,} texts: P@1 {gained:+.1f}, {state}")


def _silent(line: str) -> None:
    """Drop a progress line."""


def _settings(encoder: str | None, text: str, seed: int) -> RunConfig:
    own = EncoderConfig() if encoder is None else EncoderConfig(name=encoder)
    data = DataConfig(text=text, max_tokens=MAX_TOKENS)
    config = RunConfig(seed=seed, data=data, encoder=own, model=ModelConfig(heads=("dual",)))
    return resolve_open_settings(config)


def _texts(given: Any, which: str) -> list[str]:
    if given is None:
        return []
    if isinstance(given, os.PathLike) or (isinstance(given, str) and Path(given).is_file()):
        batches = open_rows(Path(given)).batches()
        return [text for batch in batches for text in batch.texts(which)]
    if isinstance(given, str):
        state = "is a folder" if Path(given).is_dir() else "does not exist"
        raise DataError(f"{given} {state}; give a file of texts, or a list")
    return as_texts(given)


def _sample(texts: list[str], seed: int, *, needed: bool) -> list[str]:
    """Return some texts in random order."""
    order = np.random.default_rng([seed, 0x57A]).permutation(len(texts))[:TERM_SAMPLE]
    some = [texts[row] for row in order.tolist() if texts[row].strip()]
    if needed and not some:
        raise DataError("self-training needs unlabelled texts; give some with --texts")
    return some


def _free(folder: RunFolder) -> RunFolder:
    """Return a folder that a run can be made in; such a run cannot be resumed."""
    if folder.path.is_dir() and not folder.is_new():
        raise RunError(f"{folder.path} is not empty; name a new folder for the run")
    return folder


def _whiten_(
    model: Model, tokenizer: Any, config: TextConfig, names: list[str], texts: list[str]
) -> np.ndarray:
    """Fit the projection of the dual head; return the vectors (L, D) of the labels."""
    assert model.dual_head is not None
    linear = model.dual_head.linear
    assert linear is not None
    encoder = TextEncoder(model, tokenizer, config)
    encoded = encoder.encoded(names)
    whitening = Whitening.fit(encoded, encoder.encoded(texts) if texts else None)
    with torch.no_grad():
        whitening.set_(linear, for_labels=True)
        vectors = model.dual(encoded).float().cpu().numpy()
        whitening.set_(linear)
    return vectors


def _write_examples(folder: RunFolder, labels: LabelSet) -> None:
    """Write label names as texts to try, for the page and for the recall of an index."""
    pairs = islice(zip(labels.ids, labels.texts, strict=True), initial_files.N_EXAMPLES)
    lines = (
        {"text": text, "labels": [label_id], "filtered": [], "split": "train"}
        for label_id, text in pairs
    )
    written = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    with atomic_file(folder.examples) as temporary:
        temporary.write_text(written, "utf-8")
