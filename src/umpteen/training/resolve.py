"""Resolve the settings of a run: preset, defaults that follow from the data, open settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umpteen.config.data_profile import DataProfile, profile_data
from umpteen.config.default_rules import choose
from umpteen.config.loading import DEFAULT_PRESET, load_config
from umpteen.config.schema import EncoderConfig, RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.log_lines import Detail
from umpteen.model.frugal.token_vectors import has_token_vectors, load_token_vectors
from umpteen.model.sentence_folder import read_sentence_folder
from umpteen.ranking.lexical.one_vs_rest_training import OneVsRestConfig
from umpteen.training.factories import text_options
from umpteen.training.throughput import Throughput
from umpteen.training.time_budget import within_budget
from umpteen.types import Log

ENSEMBLE_SHARE = 0.2
"""Share of a time budget for fitting the ensemble."""
LARGE_ENSEMBLE_SHARE = 0.4
"""The same where labels have enough texts for one-vs-rest classifiers."""

LEARNING_RATES = {"frugal": (4e-3, 4e-3), "transformer": (2e-4, 4e-4)}
"""Encoder and heads, where the config leaves them open."""


@dataclass(frozen=True)
class GivenSettings:
    """What the caller of ``train`` gives of the settings."""

    preset: str | None = None
    """A name or a file."""
    overrides: Sequence[str] = ()
    """``section.key=value`` strings."""
    dataset: str | None = None
    """A well-known data set, whose settings take the place of the rules."""
    config: RunConfig | None = None
    """The settings themselves, instead of the three above."""
    minutes: float | None = None
    """The time budget."""

    @property
    def whole(self) -> bool:
        """Whether more is given than changes of single settings."""
        return not (self.config is None and self.preset is None and self.dataset is None)

    @property
    def keys(self) -> frozenset[str]:
        """The settings that the user has changed."""
        return frozenset(override.partition("=")[0].strip() for override in self.overrides)


@dataclass(frozen=True)
class ResolvedConfig:
    """Settings of a run before its first step, and how they came about."""

    config: RunConfig
    reasons: tuple[str, ...] = ()
    user_keys: frozenset[str] = frozenset()
    """Keys the user has set, which nothing may change."""
    minutes: float | None = None
    """The time budget, where there is one."""
    reserved: float = 0.0
    """Seconds of it that steps leave for the ensemble."""

    def within(self, throughput: Throughput, *, minutes: float, spent: float) -> ResolvedConfig:
        """Limit epochs or steps to a time budget; see ``time_budget.within_budget``."""
        found = within_budget(
            self.config,
            throughput,
            minutes=minutes,
            spent=spent,
            user_keys=self.user_keys,
            cross_validated=not throughput.validation,
        )
        return dataclasses.replace(
            self,
            config=found.config,
            reasons=(*self.reasons, found.reason),
            reserved=found.reserved,
        )


def resolve_config(data: Dataset, given: GivenSettings) -> ResolvedConfig:
    """Return the settings of a new run: changes over a preset, or over what the rules choose.

    Open settings are filled in; epochs are not yet limited by the budget.
    """
    minutes, overrides, user_keys = given.minutes, given.overrides, given.keys
    if minutes is not None and minutes <= 0:
        raise ConfigError(f"--minutes {minutes:g}: expected more than 0 minutes")
    reasons: tuple[str, ...] = ()
    config = given.config
    if config is None:
        config = load_config(given.preset or DEFAULT_PRESET, overrides, dataset=given.dataset)
    if not given.whole and "train" in data:
        facts = profile_of(data, config)
        choice = choose(facts, overrides)
        config = load_config(choice.preset, [*choice.overrides(), *overrides])
        reasons = choice.reasons
    config = resolve_open_settings(config)
    if minutes is not None and "ensemble.seconds" not in user_keys:
        share = _ensemble_share(data)
        seconds = min(config.ensemble.seconds, share * 60 * minutes)
        ensemble = dataclasses.replace(config.ensemble, seconds=seconds)
        config = dataclasses.replace(config, ensemble=ensemble)
        if "train.epochs" in user_keys:  # else the time is planned, and said, as a whole
            reasons += (f"ensemble.seconds {seconds:.0f}: {share:.0%} of {60 * minutes:.0f} s",)
    return ResolvedConfig(config, reasons, user_keys, minutes)


def without_reporters(resolved: ResolvedConfig) -> ResolvedConfig:
    """Return the settings as a run keeps them: without the classes that receive progress."""
    train = dataclasses.replace(resolved.config.train, reporters=())
    return dataclasses.replace(resolved, config=dataclasses.replace(resolved.config, train=train))


def _ensemble_share(data: Dataset) -> float:
    """Return the ensemble's share of a time budget."""
    if "train" not in data:
        return ENSEMBLE_SHARE
    n_pairs, n_labels = data["train"].targets.nnz, len(data.labels)
    many = n_pairs >= OneVsRestConfig().min_texts * n_labels
    return LARGE_ENSEMBLE_SHARE if many else ENSEMBLE_SHARE


def profile_of(data: Dataset, config: RunConfig) -> DataProfile:
    """Return the facts of the data for the encoder and the texts that the settings name."""
    open_filled = resolve_open_settings(config)
    encoder = open_filled.encoder
    return profile_data(
        data,
        text=config.data.text,
        tokenizer=_counting_tokenizer(encoder),
        encoder=encoder.name if encoder.is_frugal else "transformer",
        min_validation=0 if config.ensemble.enabled == "off" else config.ensemble.min_queries,
        replaceable=config.encoder.table == "auto" and encoder.table == "static",
    )


def _counting_tokenizer(encoder: EncoderConfig) -> Any:
    """Return the encoder's tokenizer; None where it will be learned from the data."""
    if not encoder.is_frugal:
        from umpteen.model.pretrained import load_tokenizer

        folder = read_sentence_folder(encoder.name)
        name = encoder.name if folder is None else folder.transformer
        return load_tokenizer(name, **text_options(encoder, folder))
    if encoder.table == "static":
        from umpteen.model.frugal.tables import load_static_table

        return load_static_table()[0]
    return None if encoder.table == "random" else load_token_vectors(encoder.table)[0]


def resolve_open_settings(config: RunConfig) -> RunConfig:
    """Fill in what the config leaves to the machine, to the encoder or to its kind."""
    from umpteen.model.frugal.tables import static_table_available

    encoder, data = config.encoder, config.data
    if not encoder.is_frugal and has_token_vectors(encoder.name):
        encoder = dataclasses.replace(encoder, name="bag", table=encoder.name)
    if encoder.is_frugal and encoder.table == "auto":
        table = "static" if static_table_available() else "random"
        encoder = dataclasses.replace(encoder, table=table)
    if not encoder.is_frugal and (folder := read_sentence_folder(encoder.name)) is not None:
        pooling = folder.pooling if encoder.pooling == "auto" else encoder.pooling
        prompt = folder.prompt if encoder.prompt == "auto" else encoder.prompt
        encoder = dataclasses.replace(encoder, pooling=pooling, prompt=prompt)
        longest = min(data.max_tokens, folder.max_tokens or data.max_tokens)
        data = dataclasses.replace(data, max_tokens=longest)
    lr_encoder, lr_heads = LEARNING_RATES["frugal" if encoder.is_frugal else "transformer"]
    train = config.train
    return dataclasses.replace(
        config,
        data=data,
        encoder=encoder,
        train=dataclasses.replace(
            train,
            lr_encoder=lr_encoder if train.lr_encoder is None else train.lr_encoder,
            lr_heads=lr_heads if train.lr_heads is None else train.lr_heads,
        ),
    )


def log_settings(reasons: Sequence[str], log: Log) -> None:
    """Write what was chosen in one line, and why as details."""
    if reasons:
        log(f"Settings: {', '.join(reason.partition(': ')[0] for reason in reasons)}")
    for reason in reasons:
        log(Detail(reason))
