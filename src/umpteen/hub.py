"""Runs on the Hugging Face hub: save, push and download, with huggingface_hub's own mixin."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

from umpteen.errors import ConfigError, first_line
from umpteen.extras import require
from umpteen.files import atomic_folder
from umpteen.model_card import model_card
from umpteen.run_folder import RunFolder
from umpteen.store.backup import backup

LEFT_OUT = ("checkpoints", "cache", "tensorboard", "steps.jsonl", "examples.jsonl", "log.txt")
"""What predictions do not need: to continue training, to draw a report, paths of this machine."""
CARD = "README.md"


def save_for_hub(run: str | Path, out: str | Path, repository: str) -> None:
    """Write what the hub gets of a run: all that predictions need, and a model card.

    Args:
        run: The run folder.
        out: The folder to make.
        repository: The name on the hub, for the card.

    Raises:
        RunError: If the run is not complete.
        UmpteenError: If the folder exists.
    """
    labels, _ = RunFolder(run).require().read_labels()
    card = model_card(run, repository)
    with atomic_folder(Path(out)) as folder:
        backup(run, folder / "run", labels)
        for place in (folder / "run").iterdir():
            if place.name not in LEFT_OUT:
                place.rename(folder / place.name)
        shutil.rmtree(folder / "run")
        (folder / CARD).write_text(card, encoding="utf-8")


def push(run: str | Path, repository: str, **options: Any) -> str:
    """Push a run to the hub.

    Args:
        run: The run folder.
        repository: ``organization/name``; made if it is not there.
        **options: Of huggingface_hub's ``push_to_hub``, such as ``private`` or ``token``.

    Returns:
        The address of the commit.

    Raises:
        ConfigError: If the hub refuses it or cannot be reached.
    """
    errors = require("huggingface_hub.errors", extra="hub")
    try:
        return str(_mixin()(Path(run), repository).push_to_hub(repository, **options))
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError) as error:
        raise ConfigError(f"{repository!r} could not be pushed: {first_line(error)}") from error


def download(name: str, **options: Any) -> Path:
    """Return the folder of a run on the hub, downloaded once; a folder is returned as it is.

    Args:
        name: ``organization/name``, or a folder.
        **options: Of huggingface_hub's ``from_pretrained``, such as ``revision`` or ``token``.

    Raises:
        ConfigError: If it is not there or cannot be reached.
    """
    if Path(name).is_dir():
        return Path(name)
    errors = require("huggingface_hub.errors", extra="hub")
    try:
        return Path(_mixin().from_pretrained(name, **options).folder)
    except (errors.HfHubHTTPError, errors.HFValidationError, OSError, ValueError) as error:
        raise ConfigError(
            f"{name!r} is neither a folder nor a model on the hub that can be reached: "
            f"{first_line(error)}"
        ) from error


@functools.cache
def _mixin() -> Any:
    """Return the class that huggingface_hub saves, pushes and loads; made when first used."""
    hub: Any = require("huggingface_hub", extra="hub")

    class HubRun(hub.ModelHubMixin, library_name="umpteen", tags=["umpteen"]):  # type: ignore[call-arg]
        """A run folder as huggingface_hub sees it."""

        def __init__(self, folder: Path, repository: str = "") -> None:
            self.folder = folder
            self.repository = repository

        def _save_pretrained(self, save_directory: Path) -> None:
            place = Path(save_directory)
            save_for_hub(self.folder, place / "saved", self.repository)
            for file in (place / "saved").iterdir():
                file.rename(place / file.name)
            (place / "saved").rmdir()

        @classmethod
        def _from_pretrained(cls, *, model_id: str, **options: Any) -> Any:
            wanted = ("revision", "cache_dir", "force_download", "local_files_only", "token")
            found = hub.snapshot_download(
                model_id, **{name: options[name] for name in wanted if name in options}
            )
            return cls(Path(found), model_id)

    return HubRun
