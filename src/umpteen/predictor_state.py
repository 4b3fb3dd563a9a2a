"""Pickle a predictor: the path of its run folder, or the files of a temporary run.

In another process the run folder is read again, and its large files are mapped, not copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from umpteen.errors import RunError
from umpteen.run_files import pack_run, run_digest, unpack_run


@dataclass(frozen=True)
class LoadOptions:
    """How a predictor was loaded; the arguments of ``Predictor.load``."""

    device: str = "auto"
    which: str = "best"
    with_indexes: bool = True
    with_ensemble: bool = True
    tolerant: bool = False


def state_of(predictor: Any) -> dict[str, Any]:
    """Return what makes a ``Predictor`` again, as plain values.

    Raises:
        RunError: If it was not loaded from a run folder, or the folder is gone.
    """
    if predictor.folder is None:
        raise RunError(
            "only a model that was loaded from a run folder can be pickled or copied; load it with "
            "umpteen.Predictor.load"
        )
    state: dict[str, Any] = {
        "options": vars(predictor.load_options),
        "with_changes": predictor.store is not None,
    }
    if predictor.temporary is not None:
        which = predictor.load_options.which
        return state | {"files": pack_run(predictor.folder, predictor.labels, which=which)}
    folder = predictor.folder.absolute()
    return state | {"folder": str(folder), "digest": run_digest(folder)}


def restore(kind: Any, state: Mapping[str, Any]) -> Any:
    """Make a predictor from its state.

    Args:
        kind: The class ``Predictor`` or one derived from it.
        state: From ``state_of``.

    Returns:
        The predictor.

    Raises:
        RunError: If the run folder is gone, or holds another run now.
    """
    temporary = unpack_run(state["files"]) if "files" in state else None
    folder = Path(state["folder"]) if temporary is None else temporary.path
    if temporary is None:
        if not folder.is_dir():
            raise RunError(
                f"the run folder {folder} does not exist here; a pickled model holds the path of "
                "its run folder, so copy the folder to this path or load it with "
                "umpteen.Predictor.load"
            )
        if run_digest(folder) != state["digest"]:
            raise RunError(
                f"{folder} holds another run than when the model was pickled; load it with "
                "umpteen.Predictor.load"
            )
    predictor = kind.load(folder, **state["options"])
    predictor.temporary = temporary
    return predictor if state["with_changes"] else predictor.as_trained()
