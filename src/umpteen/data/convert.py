"""From one format to another, all or nothing."""

from __future__ import annotations

from pathlib import Path

from umpteen.data.dataset import Dataset
from umpteen.data.formats import FORMATS, load_dataset
from umpteen.data.formats.features import losses
from umpteen.data.formats.table_options import TableOptions
from umpteen.files import atomic_folder
from umpteen.registry import resolve


def convert(
    source: str | Path,
    out: str | Path,
    to: str,
    *,
    format: str | None = None,
    options: TableOptions | None = None,
) -> str:
    """Read a data set and write it in another format.

    Args:
        source: What to read.
        out: The folder to make; it must not exist or be empty.
        to: The format to write.
        format: The format of the source, if it is not recognised.
        options: Columns, separators and header of tables.

    Returns:
        What the new format cannot hold, as one line; empty if nothing is lost.

    Raises:
        UmpteenError: If the source is damaged or the folder exists. Then nothing is written.
    """
    resolve(FORMATS, to, kind="format")
    return save_dataset(load_dataset(source, format, options=options), out, to)


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
