"""The model folder: JSON, safetensors and NumPy, written whole or not at all, loaded strictly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from umpteen.errors import RunError
from umpteen.files import LOAD_ERRORS, atomic_folder, read_json, write_json
from umpteen.model import ENCODERS
from umpteen.model.model import Model
from umpteen.registry import resolve_saved

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FORMAT = 1


@dataclass(frozen=True)
class TextConfig:
    """How texts are read: the part of a model that is neither weights nor shape."""

    text: str
    """``title`` or ``all``."""
    max_tokens: int
    label_fingerprint: str


def save_model(
    folder: Path,
    model: Model,
    tokenizer: Tokenizer,
    text_config: TextConfig,
    *,
    vectors: NDArray[np.float32] | None = None,
) -> None:
    """Write a model folder.

    Args:
        folder: Made, or replaced as a whole.
        model: The model.
        tokenizer: Its tokenizer.
        text_config: How texts are read.
        vectors: (L, heads * dim) search vectors of the labels, where they are known.
    """
    with atomic_folder(folder, replace=True) as temporary:
        (temporary / "encoder").mkdir()
        options = model.encoder.save(temporary / "encoder")  # type: ignore[operator]
        tokenizer.save(str(temporary / "encoder" / "tokenizer.json"))
        heads = {
            name: tensor.detach().cpu().contiguous()
            for name, tensor in model.state_dict().items()
            if not name.startswith("encoder.")
        }
        save_file(heads, temporary / "heads.safetensors")
        if vectors is not None:
            np.save(temporary / "vectors.npy", vectors, allow_pickle=False)
        write_json(
            temporary / "model.json",
            {
                "format": FORMAT,
                "encoder": {"kind": model.encoder.kind, "options": options},
                "heads": list(model.heads),
                "dim": model.dim,
                "n_labels": model.n_labels,
                "dropout": model.dropout,
                "classifier_dropout": model.classifier_dropout,
                "label_dropout": model.label_dropout.p,
                "projection": model.projection,
                "normalize_classifier": model.normalize_classifier,
                "normalize": model.normalize,
                "classifier_head": "dual" if model.shares_head else "linear",
                "label_storage": model.label_storage,
                "label_parametrization": model.label_parametrization,
                "neighbours": model.neighbours,
                "learn_temperatures": model.log_scales.requires_grad,
                "share_temperature": model.share_temperature,
                "text": asdict(text_config),
            },
        )


def load_model(folder: Path, *, mapped: bool = False) -> tuple[Model, Any, TextConfig]:
    """Read a model folder.

    Args:
        folder: The folder.
        mapped: Whether label vectors stay in their file until they are used, which for a million
            labels saves gigabytes and seconds; not for training, which would write to them.

    Returns:
        The model on the CPU in evaluation mode, its tokenizer, and how it reads texts.

    Raises:
        RunError: If something is missing, damaged or of another version.
    """
    about = read_json(folder / "model.json", error=RunError)
    version = about.get("format") if isinstance(about, dict) else None
    if version != FORMAT:
        raise RunError(f"{folder}: model format {version!r}, expected {FORMAT}")
    # A table of zeros of that size would take a second to make, only to be thrown away.
    lazy = (
        mapped and isinstance(about, dict) and about.get("label_parametrization", "free") == "free"
    )
    try:
        encoder_class = resolve_saved(
            ENCODERS, about["encoder"]["kind"], kind="encoder", source=folder / "model.json"
        )
        encoder = encoder_class.load(folder / "encoder", about["encoder"]["options"])
        model = _build(encoder, about, n_labels=1 if lazy else about["n_labels"])
        heads = load_file(folder / "heads.safetensors")
        tokenizer = _read_tokenizer(folder / "encoder" / "tokenizer.json")
        text_config = TextConfig(**about["text"])
    except (*LOAD_ERRORS, SafetensorError) as error:
        raise RunError(f"{folder} is not a whole model folder: {error}") from error
    own = {name for name in model.state_dict() if not name.startswith("encoder.")}
    if own != set(heads):
        missing, unexpected = sorted(own - set(heads)), sorted(set(heads) - own)
        raise RunError(
            f"{folder / 'heads.safetensors'} does not fit model.json: missing "
            f"{missing or 'nothing'}, unexpected {unexpected or 'nothing'}"
        )
    try:
        # Not strict, since the encoder's weights are loaded already; all the rest is in heads.
        if lazy:
            _map_label_vectors(model, heads, about["n_labels"])
        model.load_state_dict(heads, strict=False)
    except RuntimeError as error:
        raise RunError(
            f"{folder / 'heads.safetensors'} does not fit model.json: {error}"
        ) from error
    return model.eval(), tokenizer, text_config


def _map_label_vectors(model: Model, heads: dict[str, Tensor], n_labels: int) -> None:
    """Give a model the label vectors of a file as they are there; takes them out of ``heads``."""
    model.n_labels = n_labels
    if model.label_vectors is None:
        return
    vectors = heads.pop("label_vectors")
    if vectors.shape != (n_labels, model.dim) or vectors.dtype != model.label_vectors.dtype:
        raise RuntimeError(
            f"label_vectors are {tuple(vectors.shape)} {vectors.dtype}, expected "
            f"{(n_labels, model.dim)} {model.label_vectors.dtype}"
        )
    model.label_vectors = nn.Parameter(vectors)


def _read_tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise RunError(f"{file} is missing or damaged: {error}") from error


def load_vectors(folder: Path, model: Model) -> NDArray[np.float32]:
    """Return the labels' search vectors of a model folder, memory-mapped.

    Raises:
        RunError: If they are missing or of another shape.
    """
    file = folder / "vectors.npy"
    try:
        # "c": torch wants writable memory; what it would write never reaches the file.
        vectors: NDArray[np.float32] = np.load(file, mmap_mode="c", allow_pickle=False)
    except LOAD_ERRORS as error:
        raise RunError(f"{file} cannot be read: {error}") from error
    expected = (model.n_labels, model.dim * len(model.heads))
    if vectors.shape != expected:
        raise RunError(f"{file} has the shape {vectors.shape}, expected {expected}")
    return vectors


def _build(encoder: nn.Module, about: dict[str, Any], *, n_labels: int) -> Model:
    """Return an untrained model as ``model.json`` describes it."""
    required = {name: about[name] for name in ("dim", "dropout", "label_dropout")}
    optional = (
        "classifier_dropout", "projection", "normalize_classifier", "normalize",
        "share_temperature", "classifier_head", "label_storage", "label_parametrization",
        "neighbours",
    )  # fmt: skip
    return Model(
        encoder,
        heads=tuple(about["heads"]),
        n_labels=n_labels,
        learn_temperatures=about["learn_temperatures"],
        **required,
        **{name: about[name] for name in optional if name in about},
    )
