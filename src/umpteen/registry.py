"""Names to parts: tables of ``name -> "module:attribute"`` and the one function that reads them.

Tables are text, so nothing is imported until it is used. Outside parts need no row: any
``"package.module:Name"`` is accepted wherever a name is.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any

from umpteen.errors import ConfigError


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a closing sentence that names the nearest known word, or nothing.

    Example:
        >>> suggest("softmx", ["bce", "softmax"])
        " Did you mean 'softmax'?"
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def resolve(table: Mapping[str, str], name: str, *, kind: str) -> Any:
    """Return the part that a name stands for.

    Args:
        table: Names to ``"module:attribute"``.
        name: A name of the table, or itself ``"module:attribute"``.
        kind: What the table holds, for the error ("objective", "index").

    Returns:
        The class, function or module; ``"module:"`` with no attribute gives the module itself.

    Raises:
        ConfigError: If the name is unknown or cannot be imported.
    """
    target = table.get(name, name if ":" in name else None)
    if target is None:
        known = ", ".join(sorted(table))
        raise ConfigError(f"{kind} {name!r} is not known. Known: {known}.{suggest(name, table)}")
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
        return getattr(module, attribute) if attribute else module
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{kind} {name!r} cannot be loaded from {target!r}: {error}") from error
