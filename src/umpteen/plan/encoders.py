"""Shapes of encoders: what decides their weights, products and activations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError
from umpteen.files import read_json
from umpteen.registry import suggest


@dataclass(frozen=True)
class EncoderShape:
    """The sizes of a transformer, or of a frugal encoder: no layers, a table and a small block."""

    name: str
    layers: int
    hidden: int
    """Size of a text's vector, and of a token's."""
    inner: int
    """Width between the two products of a layer, or of the residual block."""
    vocabulary: int
    positions: int = 0
    embedding: int = 0
    """Size of a token's first vector where it differs from ``hidden``; 0 where it does not."""

    @property
    def frugal(self) -> bool:
        """Whether a step touches only the rows of tokens it has seen."""
        return self.layers == 0

    @property
    def product_weights(self) -> int:
        """Weights that every token (of a frugal encoder: every text) is multiplied with."""
        if self.frugal:
            return 2 * self.hidden * self.inner
        return self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.inner)

    @property
    def table_weights(self) -> int:
        """Weights that are looked up."""
        return (self.vocabulary + self.positions) * (self.embedding or self.hidden)


ENCODER_SHAPES = {
    shape.name: shape
    for shape in (
        EncoderShape("distilbert", 6, 768, 3072, 30522, 512),
        EncoderShape("minilm", 6, 384, 1536, 30522, 512),
        EncoderShape("minilm-12", 12, 384, 1536, 30522, 512),
        EncoderShape("bert-base", 12, 768, 3072, 30522, 512),
        EncoderShape("bert-large", 24, 1024, 4096, 30522, 512),
        EncoderShape("roberta-base", 12, 768, 3072, 50265, 514),
        EncoderShape("mpnet-base", 12, 768, 3072, 30527, 514),
        EncoderShape("bag", 0, 256, 512, 32000),
        EncoderShape("convolution", 0, 256, 768, 32000),
        EncoderShape("inception", 0, 256, 768, 32000),
    )
}


def find_encoder(name: str) -> EncoderShape:
    """Return a shape by name, or from the config.json of a Hugging Face folder.

    Hub names are understood by their ending: ``distilbert-base-uncased`` is a ``distilbert``.

    Raises:
        ConfigError: If it is neither.
    """
    folder = Path(name)
    if folder.is_dir():
        return _from_folder(folder)
    if name in ENCODER_SHAPES:
        return ENCODER_SHAPES[name]
    last = name.rsplit("/", 1)[-1].lower()
    for part, shape in _HUB_NAMES.items():
        if part in last:
            return ENCODER_SHAPES[shape]
    raise ConfigError(
        f"--encoder {name!r} is not known; known are {', '.join(ENCODER_SHAPES)}, or give the "
        f"folder of a Hugging Face encoder.{suggest(name, ENCODER_SHAPES)}"
    )


_HUB_NAMES = {
    "distilbert": "distilbert",
    "minilm-l12": "minilm-12",
    "minilm": "minilm",
    "roberta-base": "roberta-base",
    "mpnet-base": "mpnet-base",
    "bert-large": "bert-large",
    "bert-base": "bert-base",
}
"""In this order: a DistilBERT's name has BERT's in it."""


def _from_folder(folder: Path) -> EncoderShape:
    about = read_json(folder / "config.json", error=ConfigError)
    try:
        hidden = _first(about, "hidden_size", "dim", "d_model")
        return EncoderShape(
            str(folder),
            _first(about, "num_hidden_layers", "n_layers", "num_layers"),
            hidden,
            _first(about, "intermediate_size", "hidden_dim", "d_ff"),
            _first(about, "vocab_size"),
            int(about.get("max_position_embeddings", 0)),
            int(about.get("embedding_size", 0) or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"{folder / 'config.json'} does not say the encoder's sizes ({error}); give one of "
            f"{', '.join(ENCODER_SHAPES)}"
        ) from error


def _first(about: dict[str, Any], *names: str) -> int:
    for name in names:
        if name in about:
            return int(about[name])
    raise KeyError(f"none of {', '.join(names)}")
