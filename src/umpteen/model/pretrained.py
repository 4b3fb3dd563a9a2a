"""Networks and tokenizers of Hugging Face folders and hub names (extra ``transformers``)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from umpteen.errors import ConfigError, first_line
from umpteen.extras import require
from umpteen.registry import TRUST_VARIABLE, trusts_code


def width_of(network: nn.Module) -> int:
    """Return the size of a network's token vectors."""
    return int(network.config.hidden_size)  # type: ignore[union-attr, arg-type]


def load_network(name: str, *, saved: bool = False) -> nn.Module:
    """Return a Hugging Face encoder by folder or hub name, in float32; of a T5, its encoder.

    Args:
        name: A folder or hub name. Code in it is not run, unless ``trusts_code()``.
        saved: Whether it is the folder of a run: weights are safetensors, nothing is downloaded.

    Raises:
        ConfigError: If it cannot be had.
    """
    _require_folder(name)
    transformers = require("transformers", extra="transformers")
    # Always given: the library asks on standard input where it is not.
    options: dict[str, Any] = {"trust_remote_code": trusts_code()}
    if saved:
        options |= {"local_files_only": True, "use_safetensors": True}
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(name, **options)
            _refuse_kernels(config, name)
            alone = _has_decoder(config)
            kind = transformers.AutoModelForTextEncoding if alone else transformers.AutoModel
            network: nn.Module = kind.from_pretrained(name, dtype=torch.float32, **options)
    except ConfigError:
        raise
    except Exception as error:  # of a damaged file the libraries raise anything
        if "trust_remote_code" in str(error):
            raise _needs_code(name) from error
        raise ConfigError(
            f"encoder {name!r} could not be loaded: it is neither a folder with a Hugging Face "
            f"model nor a hub name that can be reached ({first_line(error)})"
        ) from error
    if hasattr(network.config, "use_cache"):
        network.config.use_cache = False  # texts are read once
    return network


def _require_folder(name: str) -> None:
    """Raise if the name is a path and no folder; the library takes it for a wrong hub name."""
    is_path = name.startswith(("/", ".", "~")) or name.count("/") > 1
    if is_path and not Path(name).is_dir():
        raise ConfigError(
            f"encoder {name!r}: no such folder; give a Hugging Face folder or a hub name"
        )


def _refuse_kernels(config: Any, name: str) -> None:
    """Raise if the settings name an attention kernel, which is downloaded code."""
    if "/" in str(getattr(config, "_attn_implementation", "")) and not trusts_code():
        raise _needs_code(name)


def _needs_code(name: str) -> ConfigError:
    return ConfigError(
        f"encoder {name!r} has code of its own, which would be run when it is loaded. Choose "
        "another encoder, or, if you trust its author, call umpteen --trust-code COMMAND "
        f"({TRUST_VARIABLE}=1 in Python)"
    )


def _has_decoder(config: Any) -> bool:
    """Return whether the default class of the library has a decoder."""
    named = getattr(config, "architectures", None) or []
    # An encoder that was saved alone says that it has none, and is found by its name.
    alone = any(name.endswith("EncoderModel") for name in named)
    return alone or bool(getattr(config, "is_encoder_decoder", False))


def load_tokenizer(name: str, *, prompt: str = "", lower_case: bool = False) -> Any:
    """Return the fast tokenizer of a Hugging Face folder or hub name.

    Args:
        name: The folder or hub name.
        prompt: Put before every text; becomes a part of the tokenizer.
        lower_case: Whether texts are lower-cased before all else.

    Raises:
        ConfigError: If there is none.
    """
    from tokenizers import Tokenizer

    file = Path(name) / "tokenizer.json"
    if file.is_file():
        try:
            read = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing narrower
            raise ConfigError(f"{file} is damaged: {first_line(error)}") from error
        return _with_prompt(read, prompt, lower_case)
    _require_folder(name)
    transformers = require("transformers", extra="transformers")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            name, use_fast=True, trust_remote_code=trusts_code()
        )
        return _with_prompt(tokenizer.backend_tokenizer, prompt, lower_case)
    except (OSError, ValueError, AttributeError) as error:
        if "trust_remote_code" in str(error):
            raise _needs_code(name) from error
        raise ConfigError(
            f"encoder {name!r} has no fast tokenizer (tokenizer.json): {first_line(error)}"
        ) from error


def _with_prompt(tokenizer: Any, prompt: str, lower_case: bool) -> Any:
    """Put a prompt before every text, as a step of the tokenizer's own normalization."""
    from tokenizers import normalizers

    steps: list[Any] = [normalizers.Lowercase()] if lower_case else []
    steps += [normalizers.Prepend(prompt)] if prompt else []
    if steps:
        own = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([*steps, *own])
    return tokenizer


def is_causal(network: nn.Module) -> bool:
    """Return whether tokens see only what is before them, so that the last one sees the text."""
    from transformers.models.auto import modeling_auto

    kind = getattr(network.config, "model_type", "")
    return (
        kind in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and kind not in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Turn off the library's own progress bars."""
    from transformers.utils import logging as hugging_face

    was_on = hugging_face.is_progress_bar_enabled()
    hugging_face.disable_progress_bar()
    try:
        yield
    finally:
        if was_on:
            hugging_face.enable_progress_bar()
