"""Names of the heads that predictions, metrics and reports refer to."""

from __future__ import annotations

from umpteen.errors import ConfigError

HEADS = ("dual", "classifier")
"""The heads a model can have, in the order of their columns."""
COMBINED = "combined"
"""The head that adds the scores of both."""
ENSEMBLE = "ensemble"
"""The head that weighs all scorers; fitted after training."""


def require_ensemble(
    head: str, threshold: float | str | None, explain: bool, without: tuple[str, ...]
) -> None:
    """Raise if something is asked for that only the ensemble can do."""
    asked = [
        ("a threshold", threshold is not None),
        ("an explanation", explain),
        (f"leaving out {', '.join(without)}", bool(without)),
    ]
    for what, wanted in asked:
        if wanted:
            raise ConfigError(
                f"{what} needs the head {ENSEMBLE!r}, whose scores are probabilities; "
                f"the head is {head!r}"
            )
