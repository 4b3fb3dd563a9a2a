"""The settings of a run that names no preset: the rules of ``choosing/`` applied to its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umpteen.build import DEFAULT_PRESET, is_frugal, load_config, resolve_open_settings
from umpteen.choosing.choice import choose
from umpteen.choosing.facts import Facts, measure_facts
from umpteen.config import EncoderConfig, RunConfig
from umpteen.data.dataset import Dataset
from umpteen.errors import ConfigError
from umpteen.ranking.lexical.one_vs_rest_training import OneVsRestConfig
from umpteen.training.throughput import Throughput, within_budget

ENSEMBLE_SHARE = 0.2
"""Share of a time budget for fitting the ensemble."""
ONE_VS_REST_SHARE = 0.4
"""The same where labels have enough texts for one-vs-rest classifiers."""


@dataclass(frozen=True)
class ResolvedConfig:
    """Settings of a run before its first step, and how they came about."""

    config: RunConfig
    reasons: tuple[str, ...] = ()
    user_keys: frozenset[str] = frozenset()
    """Keys the user has set, which nothing may change."""

    def within(self, throughput: Throughput, *, minutes: float, spent: float) -> ResolvedConfig:
        """Limit the epochs to a time budget; see ``throughput.within_budget``."""
        config, reason = within_budget(
            self.config, throughput, minutes=minutes, spent=spent, user_keys=self.user_keys
        )
        return ResolvedConfig(config, (*self.reasons, reason), self.user_keys)


def resolve_config(
    data: Dataset,
    *,
    preset: str | None,
    overrides: Sequence[str],
    dataset: str | None,
    minutes: float | None,
    config: RunConfig | None = None,
) -> ResolvedConfig:
    """Return the settings of a new run.

    The user's changes over a preset, or over what the rules choose.

    Args:
        data: The data; its train split is looked at where no preset is named.
        preset: A preset's name or file.
        overrides: The user's changes.
        dataset: A well-known data set, whose settings take the place of the rules.
        minutes: The time budget.
        config: The settings themselves, instead of preset, overrides and dataset.

    Returns:
        Settings with open ones filled in; epochs are not yet limited by the budget.

    Raises:
        ConfigError: If a setting is wrong, or the budget is none.
    """
    if minutes is not None and minutes <= 0:
        raise ConfigError(f"--minutes {minutes:g}: expected more than 0 minutes")
    user_keys = frozenset(override.partition("=")[0].strip() for override in overrides)
    reasons: tuple[str, ...] = ()
    given = config is not None or preset is not None or dataset is not None
    if config is None:
        config = load_config(preset or DEFAULT_PRESET, overrides, dataset=dataset)
    if not given and "train" in data:
        facts = facts_of(data, config)
        choice = choose(facts, overrides)
        config = load_config(choice.preset, [*choice.overrides(), *overrides])
        reasons = choice.reasons
    config = resolve_open_settings(config)
    if minutes is not None and "ensemble.seconds" not in user_keys:
        share = _ensemble_share(data)
        seconds = min(config.ensemble.seconds, share * 60 * minutes)
        ensemble = dataclasses.replace(config.ensemble, seconds=seconds)
        config = dataclasses.replace(config, ensemble=ensemble)
        reasons += (
            f"ensemble.seconds {seconds:.0f}: {share:.0%} of the {minutes:g} minutes at most",
        )
    return ResolvedConfig(config, reasons, user_keys)


def _ensemble_share(data: Dataset) -> float:
    """Return the ensemble's share of a time budget."""
    if "train" not in data:
        return ENSEMBLE_SHARE
    n_pairs, n_labels = data["train"].targets.nnz, len(data.labels)
    many = n_pairs >= OneVsRestConfig().min_texts * n_labels
    return ONE_VS_REST_SHARE if many else ENSEMBLE_SHARE


def facts_of(data: Dataset, config: RunConfig) -> Facts:
    """Return the facts of the data for the encoder and the texts that the settings name."""
    open_filled = resolve_open_settings(config)
    encoder = open_filled.encoder
    return measure_facts(
        data,
        text=config.data.text,
        tokenizer=_counting_tokenizer(encoder),
        encoder=encoder.name if is_frugal(encoder) else "transformer",
        min_validation=0 if config.ensemble.enabled == "off" else config.ensemble.min_queries,
    )


def _counting_tokenizer(encoder: EncoderConfig) -> Any:
    """Return the encoder's tokenizer; None where it will be learned from the data."""
    if not is_frugal(encoder):
        from umpteen.model.transformer import load_tokenizer

        return load_tokenizer(encoder.name)
    if encoder.table == "static":
        from umpteen.model.frugal.tables import load_static_table

        return load_static_table()[0]
    return None
