"""Optional packages: import them where they are used; a missing one names its extra."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from umpteen.errors import MissingExtra


def require(module: str, *, extra: str) -> ModuleType:
    """Import an optional module.

    Args:
        module: The module to import, such as ``"faiss"``.
        extra: The extra of umpteen that installs it.

    Returns:
        The imported module.

    Raises:
        MissingExtra: If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingExtra(
            f"{package} is not installed; install it with: pip install 'umpteen[{extra}]'"
        ) from error


def installed(module: str) -> bool:
    """Return whether a top-level module could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None
