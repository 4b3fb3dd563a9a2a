"""Factories: names in a config become encoders, models and objectives."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from umpteen.config.schema import DataConfig, EncoderConfig, LossConfig, RunConfig
from umpteen.data.special_tokens import special_tokens
from umpteen.errors import ConfigError
from umpteen.model import ENCODERS
from umpteen.model.chunked import ChunkedEncoder
from umpteen.model.frugal.token_vectors import load_token_vectors
from umpteen.model.model import Model
from umpteen.model.pooling import PoolingLayers
from umpteen.model.sentence_folder import SentenceFolder, read_sentence_folder
from umpteen.objectives import OBJECTIVES, REDUCTIONS
from umpteen.objectives.reductions import with_options
from umpteen.registry import resolve
from umpteen.training.step import Losses


def build_encoder(
    config: EncoderConfig, texts: Iterable[str], *, generator: torch.Generator
) -> tuple[nn.Module, Any]:
    """Return the encoder and its tokenizer."""
    if not config.is_frugal:
        return _pretrained(config)
    from umpteen.model.frugal import tables

    if config.table == "static":
        tokenizer, table = tables.load_static_table()
    elif config.table not in ("auto", "random"):
        tokenizer, table = load_token_vectors(config.table)
    else:
        tokenizer = tables.train_tokenizer(texts, vocabulary=config.vocabulary)
        table = tables.random_table(tokenizer.get_vocab_size(), config.dim, generator=generator)
    encoder_class = resolve(ENCODERS, config.name, kind="encoder")
    try:
        return encoder_class(table, **config.options), tokenizer
    except (TypeError, ValueError, RuntimeError) as error:  # torch has its own for odd sizes
        raise ConfigError(f"encoder.options do not fit {config.name!r}: {error}") from error


def _pretrained(config: EncoderConfig) -> tuple[nn.Module, Any]:
    """Return a transformer and its tokenizer, with what a sentence-transformers folder adds."""
    from umpteen.model.pretrained import is_causal, load_network, load_tokenizer, width_of
    from umpteen.model.transformer import TransformerEncoder

    folder = read_sentence_folder(config.name)
    name = config.name if folder is None else folder.transformer
    network = load_network(name)
    pooling = config.pooling
    if pooling == "auto" and folder is not None:
        pooling = folder.pooling
    elif pooling == "auto":
        pooling = "last" if is_causal(network) else "mean"
    layers = () if folder is None else folder.layers
    encoder = TransformerEncoder(
        network,
        pooling=pooling,
        pad_id=getattr(network.config, "pad_token_id", None) or 0,
        after_pooling=PoolingLayers(layers, width_of(network)) if layers else None,
    )
    return encoder, load_tokenizer(name, **text_options(config, folder))


def text_options(config: EncoderConfig, folder: SentenceFolder | None) -> dict[str, Any]:
    """Return what is done to texts before they are tokenized, as arguments of the tokenizer."""
    prompt = config.prompt
    if prompt == "auto":
        prompt = "" if folder is None else folder.prompt
    if prompt and folder is not None and not folder.prompt_is_pooled:
        raise ConfigError(
            f"encoder {config.name!r} leaves the tokens of its prompt out of the pooling; umpteen "
            "pools all tokens. Leave the prompt out with --set encoder.prompt= or use another "
            "encoder"
        )
    return {"prompt": prompt, "lower_case": folder is not None and folder.lower_case}


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
        classifier_dropout=m.classifier_dropout,
        label_dropout=m.label_dropout,
        projection=m.projection,
        normalize_classifier=m.normalize_classifier,
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
    reduction = with_options(
        resolve(REDUCTIONS, config.reduction, kind="reduction"), config.reduction_options
    )
    own = config.classifier_reduction
    return Losses(
        dual=_objective(config.dual, config.dual_options, "loss.dual_options"),
        classifier=_objective(
            config.classifier, config.classifier_options, "loss.classifier_options"
        ),
        reduction=reduction,
        classifier_reduction=resolve(REDUCTIONS, own, kind="reduction") if own else reduction,
        bce_objective=resolve(OBJECTIVES, "bce", kind="objective")(mean=config.bce_mean),
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
