"""Write a data set in one of the formats, all or nothing."""

from __future__ import annotations

from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats import FORMATS
from umpteen.data.formats.writing import losses
from umpteen.files import atomic_folder
from umpteen.registry import resolve


def save_dataset(dataset: Dataset, out: str | Path, to: str = "jsonl") -> str:
    """Write a data set into a new folder; it appears whole or not at all.

    Args:
        dataset: The data.
        out: The folder to make; it must not exist or be empty.
        to: The format.

    Returns:
        What the format cannot hold, as one line; empty if nothing is lost.

    Raises:
        UmpteenError: If the folder exists or a text cannot be written.
    """
    part = resolve(FORMATS, to, kind="format")
    with atomic_folder(out) as folder:
        part.write(dataset, folder)
    return losses(dataset, part.HOLDS)
