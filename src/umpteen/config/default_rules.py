"""The rules of the default: facts in, a setting and the reason out, one function each.

A rule is here because it was measured (bench/notes/chosen-settings.md) or because the present value
cannot be right for the data at hand. Where neither holds, the preset's value stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from umpteen.config.data_profile import DataProfile

MAX_TOKENS = {"bag": 512, "convolution": 128, "inception": 32}
OTHER_MAX_TOKENS = 128
"""For an encoder of another package."""
CHUNK_TOKENS = 128
MAX_CHUNKS = 4
BATCH_TOKENS = 1 << 16
MIN_TOKENS = 32
STEPS_OF_AN_EPOCH = 50
LARGEST_BATCH = {"bag": 128, "convolution": 128, "inception": 128, "transformer": 1024}
OTHER_LARGEST_BATCH = 128
SMALLEST_BATCH = 32
HELD_QUERIES = 64
HELD_SHARE = 0.1
FEWEST_QUERIES = 600
MIN_SELECTING = 30
USUAL_SHARE = 0.03
FOLDED_ENCODER = "bag"
"""Whose model of a fold takes seconds; others were not measured."""
FOLDS_OF_FEW = 2
"""Of five, from ``FEWEST_QUERIES`` texts on; fewer texts need all five."""


@dataclass(frozen=True)
class RuleResult:
    """The settings that a rule chooses, with the reason."""

    reason: str
    """One sentence without a full stop; empty where there is nothing to say."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """By key, such as ``batches.size``; empty where the preset's values stay."""


def preset_of(facts: DataProfile) -> str:
    """Return the preset the rules start from."""
    return "unidec" if facts.encoder == "transformer" else "unidec-frugal"


def length(facts: DataProfile) -> RuleResult:
    """Return how much of a text is read."""
    seen = f"99 of 100 queries have at most {facts.length_99:,} tokens"
    if facts.encoder != "transformer":
        most = MAX_TOKENS.get(facts.encoder, OTHER_MAX_TOKENS)
        tokens = min(max(_rounded(facts.length_99), MIN_TOKENS), most)
        more = f"a {facts.encoder} reads up to {most}"
        return RuleResult(f"{seen}; {more}", {"data.max_tokens": tokens, "data.chunks": 1})
    if facts.length_90 <= CHUNK_TOKENS:
        tokens = min(max(_rounded(facts.length_99), MIN_TOKENS), CHUNK_TOKENS)
        return RuleResult(seen, {"data.max_tokens": tokens, "data.chunks": 1})
    chunks = min(-(-facts.length_90 // CHUNK_TOKENS), MAX_CHUNKS)
    return RuleResult(
        f"9 of 10 queries have at most {facts.length_90:,} tokens, more than the {CHUNK_TOKENS} a "
        f"transformer sees at once; longer texts are read in up to {MAX_CHUNKS} chunks",
        {"data.max_tokens": CHUNK_TOKENS, "data.chunks": chunks},
    )


def token_table(facts: DataProfile) -> RuleResult:
    """Choose token vectors of the data's own where the packaged tokens lose the words."""
    if not facts.words_are_lost:
        return RuleResult("")
    return RuleResult(
        f"{facts.distinct_words:,} different words are cut into {facts.distinct_tokens:,} "
        "different tokens of the packaged table; a tokenizer is learned from the data",
        {"encoder.table": "random"},
    )


def batch_size(facts: DataProfile) -> RuleResult:
    """Choose the batch size."""
    largest = LARGEST_BATCH.get(facts.encoder, OTHER_LARGEST_BATCH)
    reason = (
        f"{facts.queries:,} queries; at least {STEPS_OF_AN_EPOCH} steps an epoch where "
        f"{SMALLEST_BATCH} to {largest} queries in a batch allow it"
    )
    if facts.encoder == "transformer" and facts.length_90 > CHUNK_TOKENS:
        longest = CHUNK_TOKENS * min(-(-facts.length_90 // CHUNK_TOKENS), MAX_CHUNKS)
        largest = BATCH_TOKENS // longest
        reason += f", and at most {BATCH_TOKENS:,} tokens of theirs"
    size = largest
    while size > SMALLEST_BATCH and facts.queries < STEPS_OF_AN_EPOCH * size:
        size //= 2
    return RuleResult(reason, {"batches.size": size})


def held_out(facts: DataProfile) -> RuleResult:
    """Return how many training texts choose the epoch and fit the ensemble."""
    if facts.validation:
        return RuleResult(f"nothing is held out: {facts.validation:,} validation texts are given")
    of_them = f"of {facts.queries:,} texts"
    usual = {"validation.share": USUAL_SHARE}
    if USUAL_SHARE * facts.queries >= HELD_QUERIES:
        return RuleResult(f"{of_them}, to choose the epoch and fit the ensemble", usual)
    share = round(min(HELD_QUERIES / facts.queries, HELD_SHARE), 4) if facts.queries else 0.0
    held = min(round(share * facts.queries), facts.spare)
    if facts.queries < FEWEST_QUERIES or held < max(facts.min_validation, MIN_SELECTING):
        few = "too few to choose an epoch by"
    elif facts.encoder == FOLDED_ENCODER and facts.min_validation:
        few = f"a {facts.encoder} ranks better where it is trained on all of them"
    else:
        return RuleResult(
            f"{held} {of_them}, for the epoch and the ensemble", {"validation.share": share}
        )
    return RuleResult(
        f"none {of_them}: {few}, so the last epoch is used and the ensemble is cross-validated",
        {"validation.share": 0.0},
    )


def folds(facts: DataProfile) -> RuleResult:
    """Return how many folds of few texts the ensemble is fitted on."""
    none_held = held_out(facts).settings.get("validation.share") == 0.0
    if not none_held or facts.queries < FEWEST_QUERIES or facts.encoder != FOLDED_ENCODER:
        return RuleResult("")
    return RuleResult(
        f"where the ensemble of {facts.queries:,} texts is cross-validated, {FOLDS_OF_FEW} of 5 "
        "folds are enough",
        {"ensemble.folds": FOLDS_OF_FEW},
    )


RULES: tuple[Callable[[DataProfile], RuleResult], ...] = (
    token_table,
    length,
    batch_size,
    held_out,
    folds,
)
"""In the order in which they are shown."""


def _rounded(tokens: int) -> int:
    """Round up to a multiple of eight."""
    return -(-tokens // 8) * 8


@dataclass(frozen=True)
class DefaultSettings:
    """What was chosen, to be laid between a preset and the user's own changes."""

    preset: str
    settings: dict[str, Any]
    """By key, such as ``batches.size``."""
    reasons: tuple[str, ...]
    """A line for each rule."""

    def overrides(self) -> list[str]:
        """Return the settings as ``section.key=value`` strings."""
        return [f"{key}={value}" for key, value in self.settings.items()]


def choose(facts: DataProfile, overrides: Sequence[str] = ()) -> DefaultSettings:
    """Apply all rules.

    Args:
        facts: Of the data and the machine.
        overrides: The user's own ``section.key=value`` strings; a rule is left out where they name
            one of its settings.

    Returns:
        The choice; a pure function of the arguments.
    """
    user_keys = {override.partition("=")[0].strip() for override in overrides}
    settings: dict[str, Any] = {}
    reasons = [f"preset {preset_of(facts)}: the encoder is a {facts.encoder}"]
    for rule in RULES:
        chosen = rule(facts)
        if user_keys & set(chosen.settings):
            continue  # whoever sets one of a rule's settings has another rule in mind
        settings |= chosen.settings
        if chosen.reason:
            reasons.append(_line(chosen.settings.items(), chosen.reason))
    return DefaultSettings(preset_of(facts), settings, tuple(reasons))


def _line(settings: Iterable[tuple[str, Any]], reason: str) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in settings)
    return f"{shown}: {reason}" if shown else reason
