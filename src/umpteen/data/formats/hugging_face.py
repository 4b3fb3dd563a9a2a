"""The ``hugging-face`` format: what ``save_to_disk`` of Hugging Face datasets writes. Read only.

A folder with ``dataset_dict.json`` has a folder for each split; one with ``state.json`` is a train
split. The Arrow files are read as they are: the package datasets is not needed, pyarrow is (extra
parquet). Class numbers become the class names of the features. Only files that ``state.json``
names, inside the folder, are opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from umpteen.data.dataset import SPLITS, Dataset
from umpteen.data.formats.arrow_table import ArrowTable, class_names_of
from umpteen.data.formats.table_options import TableOptions
from umpteen.data.formats.tables import read_tables
from umpteen.data.formats.targets import Unit
from umpteen.errors import DataError
from umpteen.extras import require
from umpteen.files import read_json

UNIT: Unit = "row"
DICT, STATE, INFO = "dataset_dict.json", "state.json", "dataset_info.json"
SPLIT_ALIASES = {"dev": "validation", "val": "validation", "valid": "validation"}


def sniff(path: Path) -> bool:
    """Return whether the folder was written by ``save_to_disk``."""
    return path.is_dir() and ((path / DICT).is_file() or (path / STATE).is_file())


def read(path: Path) -> Dataset:
    """Read a folder whose columns are found by their names; see ``read_table``."""
    return read_table(path, TableOptions())


def read_table(path: Path, options: TableOptions) -> Dataset:
    """Read a folder.

    Args:
        path: The folder.
        options: Columns and separator.

    Returns:
        The data set, with labels in order of first appearance.

    Raises:
        DataError: With file, row and column, if something is wrong.
        MissingExtra: If pyarrow is not installed.
    """
    tables = {name: open_table(folder) for name, folder in files(path).items()}
    return read_tables(path, tables, None, options)


def files(path: Path) -> dict[str, Path]:
    """Return the folder of each split.

    Raises:
        DataError: If no split has a name that is known.
    """
    if not (path / DICT).is_file():
        return {"train": path}
    listed = read_json(path / DICT, error=DataError)
    names = listed.get("splits") if isinstance(listed, dict) else None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError("expected an object with a list 'splits'", path=path / DICT)
    known = {SPLIT_ALIASES.get(name, name): path / name for name in names if _is_plain(name)}
    found = {name: known[name] for name in SPLITS if name in known}
    if not found:
        raise DataError(
            f"found the splits {', '.join(names) or '(none)'}; expected one of {', '.join(SPLITS)}",
            path=path / DICT,
        )
    return found


def open_table(folder: Path) -> ArrowTable:
    """Return one split as a table whose rows are read batch by batch.

    Args:
        folder: The folder with ``state.json`` and the Arrow files.

    Raises:
        DataError: If a file is missing or damaged.
    """
    ipc = require("pyarrow.ipc", extra="parquet")
    shards = _shards(folder)
    try:
        with open(shards[0], "rb") as stream:
            schema = ipc.open_stream(stream).schema
    except Exception as error:
        # Damage shows as errors of many kinds.
        raise DataError(f"the file cannot be read as Arrow ({error})", path=shards[0]) from error

    def batches(wanted: list[str]) -> Iterator[Any]:
        for shard in shards:
            with open(shard, "rb") as stream:
                for batch in ipc.open_stream(stream):
                    yield batch.select(wanted)

    return ArrowTable(folder, schema, batches, _class_names(folder / INFO))


def _shards(folder: Path) -> list[Path]:
    state = read_json(folder / STATE, error=DataError)
    listed = state.get("_data_files") if isinstance(state, dict) else None
    given = [each.get("filename") for each in listed or () if isinstance(each, dict)]
    names = [name for name in given if isinstance(name, str) and _is_plain(name)]
    if not names or len(names) < len(given):
        raise DataError("expected file names in '_data_files'", path=folder / STATE)
    return [folder / name for name in names]


def _is_plain(name: str) -> bool:
    """Return whether a name stays in its folder."""
    return bool(name) and name not in (".", "..") and Path(name).name == name


def _class_names(path: Path) -> dict[str, list[str]]:
    if not path.is_file():
        return {}
    about = read_json(path, error=DataError)
    features = about.get("features") if isinstance(about, dict) else None
    if not isinstance(features, dict):
        return {}
    return {name: found for name, each in features.items() if (found := class_names_of(each))}
