"""Tables of token vectors that others made: model2vec and StaticEmbedding folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from umpteen.errors import ConfigError
from umpteen.model.sentence_folder import MODULES, file_of, read_json_of

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VECTORS = ("embeddings", "embedding.weight")
"""What model2vec and sentence-transformers call the table."""


def has_token_vectors(name: str) -> bool:
    """Return whether a folder or hub name holds a table of token vectors and no network."""
    return _place(name) is not None


def load_token_vectors(name: str) -> tuple[Tokenizer, Tensor]:
    """Return the tokenizer and the table of a model2vec or StaticEmbedding folder.

    Args:
        name: The folder or hub name.

    Returns:
        The tokenizer, without special tokens, and (V, D) float32. Weights of tokens are
        multiplied into their vectors; tokens that share a vector have a row each.

    Raises:
        ConfigError: If it is no such folder, or damaged.
    """
    from tokenizers import Tokenizer

    from umpteen.model.frugal.tables import no_special_tokens

    place = _place(name)
    if place is None:
        raise ConfigError(
            f"encoder.table {name!r} is no folder or hub name of model2vec token vectors; give one "
            "with model.safetensors and tokenizer.json, or static, random or auto"
        )
    weights, words = (
        file_of(name, f"{place}model.safetensors"),
        file_of(name, f"{place}tokenizer.json"),
    )
    if weights is None or words is None:
        raise ConfigError(f"{name!r} has no {place}model.safetensors or no {place}tokenizer.json")
    try:
        tensors = load_file(weights)
        tokenizer = Tokenizer.from_file(str(words))
        table = _table(tensors)
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ConfigError(f"the token vectors of {name!r} cannot be read: {error}") from error
    tokenizer.post_processor = no_special_tokens()
    tokenizer.no_padding()
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= len(table):
        raise ConfigError(
            f"{name!r} has {len(table):,} token vectors, but its tokenizer has ids up to "
            f"{largest:,}; the files do not belong together"
        )
    return tokenizer, table


def _place(name: str) -> str | None:
    """Return the subfolder that the files are in, with a slash; None where there are none."""
    about: Any = read_json_of(name, "config.json")
    if isinstance(about, dict) and about.get("model_type") == "model2vec":
        return ""
    modules: Any = read_json_of(name, MODULES)
    if not isinstance(modules, list) or not modules or not isinstance(modules[0], dict):
        return None
    if not str(modules[0].get("type", "")).endswith(".StaticEmbedding"):
        return None
    path = str(modules[0].get("path", "")).strip("./")
    return f"{path}/" if path else ""


def _table(tensors: dict[str, Tensor]) -> Tensor:
    found = next((tensors[key] for key in VECTORS if key in tensors), None)
    if found is None or found.ndim != 2:
        raise KeyError(f"no table named {' or '.join(VECTORS)}")
    # Whole numbers are vectors that were rounded to 127 steps of their largest entry.
    table = found.float() / (1.0 if found.is_floating_point() else 127.0)
    if "mapping" in tensors:
        table = table[tensors["mapping"].long()]
    if "weights" in tensors:
        table = table * tensors["weights"].float().reshape(-1, 1)
    return torch.nan_to_num(table).contiguous()
