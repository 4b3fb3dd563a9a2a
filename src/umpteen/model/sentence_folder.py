"""What a sentence-transformers folder says about its encoder: pooling, layers, prompts, length.

Reads JSON and safetensors; neither sentence-transformers nor code of the folder is needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError
from umpteen.model.pooling import ACTIVATIONS, LayerSpec

MODULES = "modules.json"
POOLING_MODES = {"mean": "mean", "cls": "first", "lasttoken": "last"}
OLD_POOLING_MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
NO_LIMIT = 1_000_000
"""Lengths from here on mean that there is no limit."""


@dataclass(frozen=True)
class SentenceFolder:
    """How a folder turns token vectors into the vector of a text."""

    transformer: str
    """The folder or hub name of the network and the tokenizer."""
    pooling: str
    """``mean``, ``first`` or ``last``."""
    layers: tuple[LayerSpec, ...] = ()
    """Dense layers and normalization after pooling."""
    prompt: str = ""
    """Put before every text: the default prompt of the folder, or else its prompt ``query``."""
    max_tokens: int | None = None
    lower_case: bool = False
    prompt_is_pooled: bool = True
    """False if the tokens of a prompt are left out of the pooling."""


def read_sentence_folder(name: str) -> SentenceFolder | None:
    """Read the settings of a sentence-transformers folder or hub name.

    Returns:
        The settings; None where it is not such a folder, or its first module is no transformer.

    Raises:
        ConfigError: If it has a module or pooling that umpteen does not have.
    """
    modules = read_json_of(name, MODULES)
    if not isinstance(modules, list) or not modules:
        return None
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules]
    paths = [str(module.get("path", "")) for module in modules]
    if kinds[0] != "Transformer":
        return None
    pooling, layers, prompt_is_pooled = "mean", [], True
    for kind, path in zip(kinds[1:], paths[1:], strict=True):
        about = read_json_of(name, _join(path, "config.json")) or {}
        if kind == "Pooling":
            pooling = _pooling(name, about)
            prompt_is_pooled = bool(about.get("include_prompt", True))
        elif kind == "Dense":
            layers.append(_dense(name, path, about))
        elif kind == "Normalize":
            layers.append(LayerSpec("normalize"))
        elif kind != "Dropout":
            raise ConfigError(
                f"encoder {name!r} has a module {kind!r}; umpteen reads Transformer, Pooling, "
                "Dense, Normalize and Dropout"
            )
    about = read_json_of(name, _join(paths[0], "sentence_bert_config.json")) or {}
    return SentenceFolder(
        transformer=str(Path(name) / paths[0]) if paths[0] and Path(name).is_dir() else name,
        pooling=pooling,
        layers=tuple(layers),
        prompt=_prompt(read_json_of(name, "config_sentence_transformers.json") or {}),
        max_tokens=_max_tokens(name, paths[0], about),
        lower_case=bool(about.get("do_lower_case", False)),
        prompt_is_pooled=prompt_is_pooled,
    )


def read_json_of(name: str, file: str) -> Any:
    """Return a JSON file of a folder or hub name; None where there is none."""
    path = file_of(name, file)
    if path is None:
        return None
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def file_of(name: str, file: str) -> Path | None:
    """Return a file of a folder, or of a hub name once it is downloaded; None if there is none."""
    folder = Path(name)
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    if not _looks_like_hub_name(name):
        return None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        return Path(hf_hub_download(name, file))
    except (OSError, ValueError, HfHubHTTPError, HFValidationError):
        return None  # not there, or not to be reached: the network's own loading says why


def _looks_like_hub_name(name: str) -> bool:
    parts = name.split("/")
    return len(parts) <= 2 and all(parts) and not name.startswith((".", "~"))


def _join(path: str, file: str) -> str:
    return f"{path}/{file}" if path else file


def _pooling(name: str, about: dict[str, Any]) -> str:
    modes = about.get("pooling_mode")
    if modes is None:
        modes = [mode for key, mode in OLD_POOLING_MODES.items() if about.get(key)] or ["mean"]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in POOLING_MODES:
        raise ConfigError(
            f"encoder {name!r} pools by {' and '.join(map(str, modes))}; umpteen pools by "
            f"{', '.join(POOLING_MODES)}. Use another encoder"
        )
    return POOLING_MODES[modes[0]]


def _dense(name: str, path: str, about: dict[str, Any]) -> LayerSpec:
    from safetensors.torch import load_file

    activation = str(about.get("activation_function", "")).rpartition(".")[2].lower() or "tanh"
    if activation not in ACTIVATIONS or about.get("use_residual"):
        what = "a residual connection" if about.get("use_residual") else repr(activation)
        raise ConfigError(
            f"encoder {name!r} has a dense layer with {what}; umpteen has "
            f"{', '.join(sorted(ACTIVATIONS))}"
        )
    file = file_of(name, _join(path, "model.safetensors"))
    if file is None:
        raise ConfigError(
            f"encoder {name!r} has no {path}/model.safetensors; weights in other files are not read"
        )
    tensors = load_file(file)
    try:
        return LayerSpec(
            "dense", tensors["linear.weight"].float(), tensors.get("linear.bias"), activation
        )
    except KeyError as error:
        raise ConfigError(f"{file} has no {error}") from error


def _prompt(about: dict[str, Any]) -> str:
    prompts = about.get("prompts") or {}
    default = about.get("default_prompt_name")
    return str(prompts.get(default or "query") or "")


def _max_tokens(name: str, path: str, about: dict[str, Any]) -> int | None:
    limits = [about.get("max_seq_length")]
    tokenizer = read_json_of(name, _join(path, "tokenizer_config.json")) or {}
    limits.append(tokenizer.get("model_max_length"))
    found = [int(each) for each in limits if isinstance(each, int | float) and each < NO_LIMIT]
    return min(found, default=None)
