"""Names to parts: tables of ``name -> "module:attribute"`` and the functions that read them.

Tables are text, so nothing is imported until it is used. An installed package adds rows through
entry points, such as ``[project.entry-points."umpteen.objectives"]``. In Python and on the command
line any ``"package.module:Name"`` is accepted wherever a name is; in the files of a run it is not.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from typing import Any

from umpteen.errors import ConfigError, RunError

TRUST_VARIABLE = "UMPTEEN_TRUST_CODE"
"""Set to 1, files of a run and of an encoder may name code; ``umpteen --trust-code`` sets it."""


class Registry(Mapping[str, str]):
    """Rows of umpteen, followed by the rows of installed packages, which are read when needed.

    Args:
        group: The group of entry points that adds rows, such as ``umpteen.objectives``.
        rows: Names to ``"module:attribute"``.
    """

    def __init__(self, group: str, rows: Mapping[str, str]) -> None:
        self.group = group
        self.own = dict(rows)

    def add(self, name: str, target: str) -> None:
        """Add a row in this process.

        Raises:
            ConfigError: If the name is there already, for another part.
        """
        if name in self and self[name] != target:
            raise ConfigError(f"{name!r} is there already: {self[name]}; choose another name")
        self.own[name] = target

    def __getitem__(self, name: str) -> str:
        """Return the target of a name.

        Raises:
            KeyError: If there is no such name.
            ConfigError: If the name is there twice.
        """
        added = _entry_points(self.group, tuple(sys.path)).get(name, ())
        rows = {target: package for target, package in added}
        if name in self.own:
            rows.setdefault(self.own[name], "umpteen")
        if len(rows) > 1:
            listed = " and ".join(f"{target} ({package})" for target, package in rows.items())
            raise ConfigError(
                f"{name!r} is there twice in {self.group}: {listed}; uninstall one of the "
                "packages, or rename its entry point"
            )
        if not rows:
            raise KeyError(name)
        return next(iter(rows))

    def __iter__(self) -> Iterator[str]:
        """Yield the names: those of umpteen, then those of other packages by name."""
        yield from self.own
        added = _entry_points(self.group, tuple(sys.path))
        yield from (name for name in sorted(added) if name not in self.own)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Return name to (target, package) of the entry points on a path of modules."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for point in entry_points(group=group):
        package = point.dist.name if point.dist is not None else "unknown package"
        target = point.value.partition("[")[0].strip()  # extras in brackets
        target = target if ":" in target else f"{target}:"
        found[point.name] = (*found.get(point.name, ()), (target, package))
    return found


def trusts_code() -> bool:
    """Return whether files of a run and of an encoder may name code to import."""
    return os.environ.get(TRUST_VARIABLE, "") not in ("", "0")


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
        return reduce(getattr, attribute.split("."), module) if attribute else module
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{kind} {name!r} cannot be loaded from {target!r}: {error}") from error


def resolve_saved(table: Mapping[str, str], name: Any, *, kind: str, source: object) -> Any:
    """Return the part that a file of a run names: only a name of the table.

    Args:
        table: Names to ``"module:attribute"``.
        name: What the file holds.
        kind: What the table holds, for the error.
        source: The file, for the error.

    Returns:
        The class, function or module.

    Raises:
        RunError: If it is no name of the table.
        ConfigError: If it cannot be imported.
    """
    if not isinstance(name, str) or (name not in table and not _is_trusted(name)):
        known = ", ".join(sorted(table))
        raise RunError(f"{source}: unknown {kind} {name!r} (known: {known}).{_HOW_TO_TRUST}")
    return resolve(table, name, kind=kind)


def refuse_code(settings: Mapping[str, Any], *, source: object) -> None:
    """Raise if settings that were read from a run name code to import.

    Args:
        settings: Sections of settings.
        source: The file, for the error.

    Raises:
        RunError: With the first setting that does.
    """
    if trusts_code():
        return
    waiting: list[tuple[str, Any]] = [("", settings)]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, Mapping) and not key.endswith("options"):
            waiting += [
                (f"{key}.{name}" if key else str(name), part) for name, part in value.items()
            ]
        elif isinstance(value, list | tuple):
            waiting += [(key, part) for part in value]
        elif isinstance(value, str) and ":" in value and key not in _NOT_NAMES:
            raise RunError(f"{source}: {key} is {value!r}.{_HOW_TO_TRUST}")


def _is_trusted(name: str) -> bool:
    return ":" in name and trusts_code()


_NOT_NAMES = {"encoder.name"}
"""A folder or hub name, which may hold a colon."""
_HOW_TO_TRUST = (
    " The files of a run cannot name code; install the package that adds it as an entry point, or, "
    "if you trust whoever wrote these files, call umpteen --trust-code COMMAND "
    f"({TRUST_VARIABLE}=1 in Python)."
)
