"""All rules together: the settings of a run that names no preset, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from umpteen.config.data_profile import DataProfile
from umpteen.config.default_rules import RULES, preset_of


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
        reasons.append(_line(chosen.settings.items(), chosen.reason))
    return DefaultSettings(preset_of(facts), settings, tuple(reasons))


def _line(settings: Iterable[tuple[str, Any]], reason: str) -> str:
    shown = ", ".join(f"{key} {value}" for key, value in settings)
    return f"{shown}: {reason}" if shown else reason
