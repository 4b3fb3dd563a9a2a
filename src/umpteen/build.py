"""The one place where names in a config become objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from umpteen.config import DataConfig, EncoderConfig, LossConfig, RunConfig
from umpteen.data.special_tokens import special_tokens
from umpteen.errors import ConfigError
from umpteen.known_datasets import around_preset, lay_over
from umpteen.model import ENCODERS
from umpteen.model.chunked import ChunkedEncoder
from umpteen.model.model import Model
from umpteen.objectives import OBJECTIVES, REDUCTIONS
from umpteen.registry import resolve
from umpteen.settings import from_mapping, read_preset, to_json, with_overrides
from umpteen.training.step import Losses

STAGE_SECTIONS = ("model", "loss", "pool", "batches", "train")
"""What a second stage may change."""
FIXED_IN_STAGES = {
    "train": ("precision", "checkpoint_seconds", "label_storage", "label_moments", "label_device")
}
DEFAULT_PRESET = "unidec-frugal"
FRUGAL = ("bag", "convolution")
LEARNING_RATES = {"frugal": (4e-3, 4e-3), "transformer": (2e-4, 4e-4)}
"""Encoder and heads, where the config leaves them open."""


def load_config(
    preset: str = DEFAULT_PRESET, overrides: Sequence[str] = (), *, dataset: str | None = None
) -> RunConfig:
    """Return the settings of a preset (or TOML file.

    Or a run's config.json) with changes laid over them.

    Args:
        preset: A preset's name or a file.
        overrides: ``section.key=value`` strings.
        dataset: A well-known data set, whose settings for the preset are taken too.

    Returns:
        The config, checked.

    Example:
        >>> load_config("unidec", ["train.epochs=3"]).train.epochs
        3
    """
    values = read_preset(preset)
    if dataset is not None:
        values = around_preset(values, preset, dataset)
    values = with_overrides(values, overrides)
    source = f"preset {preset}" + (f" for {dataset}" if dataset else "")
    source += " with --set" if overrides else ""
    config = from_mapping(values, source=source)
    try:
        stages(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
    return config


def stages(config: RunConfig) -> list[RunConfig]:
    """Return the settings of each stage of a run: one, or two where there is a ``stage2``.

    Raises:
        ConfigError: If the second stage names what it cannot change, or is wrong in itself.
    """
    if not config.stage2:
        return [config]
    problems = []
    for section, values in config.stage2.items():
        if section not in STAGE_SECTIONS or not isinstance(values, dict):
            problems.append(f"stage2.{section} is none of {', '.join(STAGE_SECTIONS)}")
            continue
        fixed = [key for key in values if key in FIXED_IN_STAGES.get(section, ())]
        if section == "model":
            fixed = [key for key in values if key != "label_init"]
        problems += [f"stage2.{section}.{key} cannot differ from the run's own" for key in fixed]
    if problems:
        raise ConfigError("; ".join(problems))
    first = to_json(dataclasses.replace(config, stage2={}))
    return [config, from_mapping(lay_over(first, config.stage2), source="stage2")]


def is_frugal(encoder: EncoderConfig) -> bool:
    """Return whether the encoder is one of ours, rather than a transformer's folder or hub name."""
    return encoder.name in FRUGAL


def resolve_open_settings(config: RunConfig) -> RunConfig:
    """Fill in what the config leaves to the machine or to the kind of encoder."""
    from umpteen.model.frugal.tables import static_table_available

    frugal = is_frugal(config.encoder)
    table = config.encoder.table
    if frugal and table == "auto":
        table = "static" if static_table_available() else "random"
    lr_encoder, lr_heads = LEARNING_RATES["frugal" if frugal else "transformer"]
    train = config.train
    return dataclasses.replace(
        config,
        encoder=dataclasses.replace(config.encoder, table=table),
        train=dataclasses.replace(
            train,
            lr_encoder=lr_encoder if train.lr_encoder is None else train.lr_encoder,
            lr_heads=lr_heads if train.lr_heads is None else train.lr_heads,
        ),
    )


def build_encoder(
    config: EncoderConfig, texts: Iterable[str], *, generator: torch.Generator
) -> tuple[nn.Module, Any]:
    """Return the encoder and its tokenizer.

    Args:
        config: Which, with open settings filled in.
        texts: Query and label texts, for a tokenizer that is learned from the data.
        generator: Draws random token vectors.

    Returns:
        The encoder module and a ``tokenizers.Tokenizer``.
    """
    if not is_frugal(config):
        from umpteen.model.transformer import TransformerEncoder, load_network, load_tokenizer

        network = load_network(config.name)
        pad_id = getattr(network.config, "pad_token_id", None) or 0
        encoder = TransformerEncoder(network, pooling=config.pooling, pad_id=pad_id)
        return encoder, load_tokenizer(config.name)
    from umpteen.model.frugal import tables

    if config.table == "static":
        tokenizer, table = tables.load_static_table()
    else:
        tokenizer = tables.train_tokenizer(texts, vocabulary=config.vocabulary)
        table = tables.random_table(tokenizer.get_vocab_size(), config.dim, generator=generator)
    encoder_class = resolve(ENCODERS, config.name, kind="encoder")
    try:
        return encoder_class(table, **config.options), tokenizer
    except (TypeError, ValueError, RuntimeError) as error:  # torch has its own for odd sizes
        raise ConfigError(f"encoder.options do not fit {config.name!r}: {error}") from error


def in_chunks(encoder: nn.Module, tokenizer: Any, config: DataConfig) -> nn.Module:
    """Return the encoder for texts of up to ``data.chunks`` chunks; itself where that is one."""
    if config.chunks == 1:
        return encoder
    before, behind = special_tokens(tokenizer)
    return ChunkedEncoder(encoder, max_tokens=config.max_tokens, before=before, behind=behind)


def build_model(config: RunConfig, encoder: nn.Module, n_labels: int) -> Model:
    """Return the model around an encoder."""
    m = config.model
    return Model(
        encoder,
        heads=m.heads,
        dim=m.dim,
        n_labels=n_labels,
        dropout=m.dropout,
        label_dropout=m.label_dropout,
        normalize=m.normalize,
        dual_temperature=m.dual_temperature,
        classifier_temperature=m.classifier_temperature,
        learn_temperatures=m.learn_temperatures,
        share_temperature=m.share_temperature,
        classifier_head=m.classifier_head,
        label_storage=config.train.label_storage,
        label_parametrization=m.label_parametrization,
        neighbours=m.neighbours,
    )


def build_losses(config: LossConfig) -> Losses:
    """Return the objectives and their weights."""
    return Losses(
        dual=_objective(config.dual, config.dual_options, "loss.dual_options"),
        classifier=_objective(
            config.classifier, config.classifier_options, "loss.classifier_options"
        ),
        reduction=resolve(REDUCTIONS, config.reduction, kind="reduction"),
        bce_objective=resolve(OBJECTIVES, "bce", kind="objective")(),
        bce_reduction=resolve(REDUCTIONS, "pal", kind="reduction"),
        dual_share=config.dual_share,
        dual_forward=config.dual_forward,
        classifier_forward=config.classifier_forward,
        bce=config.bce,
    )


def _objective(name: str, options: dict[str, Any], key: str) -> Any:
    part = resolve(OBJECTIVES, name, kind="objective")
    try:
        return part(**options)
    except TypeError as error:
        raise ConfigError(f"{key} do not fit the objective {name!r}: {error}") from error
